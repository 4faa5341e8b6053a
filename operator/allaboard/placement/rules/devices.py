"""Shared GPUs: the assignment of pods to a node's devices. A pod takes whole devices, or a part of one device.

A device is counted by its free thousandths. Whole GPUs take devices that are entirely free. Parts are assigned from the largest to the
smallest. A part goes to the device whose free gap loses the least worth; among equals, to the fullest device (best fit decreasing).
"""

from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import DRIVERS
from allaboard.model.gpu_sharing import GPU as GPU
from allaboard.model.gpu_sharing import WHOLE as WHOLE
from allaboard.model.snapshot import Snapshot

_MOST_COMPARISONS = 30_000  # with single devices while backtracking: some ten milliseconds
_STEP_COST = 16  # comparisons that a step counts for, beside those with devices
_FULL = 1e9  # a divisor that turns thousandths into a tie-break


def parts_on(spec: SchedulingSpec, snapshot: Snapshot) -> Integers:
    """Return how many thousandths of a device a pod of ``spec`` takes on each node: int64[nodes].

    0 if the pod asks for no part of a GPU; more than a whole device where the node doesn't provide what the pod asks for.
    """
    share, sharing = spec.share, snapshot.sharing
    if share is None or sharing is None:
        return np.full(len(snapshot.nodes), spec.gpu_share, dtype=np.int64)
    memory = np.maximum(sharing.memory, 1)
    parts = np.maximum(np.maximum(-(-WHOLE * share.memory // memory), share.nominal), sharing.least)
    is_provided = (sharing.driver == list(DRIVERS).index(share.driver)) & (sharing.memory > 0) & (share.devices == 1)
    found: Integers = np.where(is_provided & (parts <= WHOLE), parts, WHOLE + 1)
    return found


def counts_devices(snapshot: Snapshot) -> Mask:
    """Return the nodes whose GPUs are counted by their devices: bool[nodes].

    On these nodes a driver offers each device several times under the resource of whole GPUs.
    """
    if snapshot.devices is None or snapshot.sharing is None:
        return np.full(len(snapshot.nodes), snapshot.devices is not None)
    of_gpu = [position for position, driver in enumerate(DRIVERS.values()) if driver.count == GPU]
    return np.isin(snapshot.sharing.driver, of_gpu)


def slots_on_devices(devices: Integers, parts: Integers) -> Integers:
    """Return how many pods the devices can take, if each pod asks for ``parts`` thousandths of one device.

    ``devices``: int64[..., devices], the free thousandths of each device. ``parts`` and the result: int64[...].
    """
    slots: Integers = (devices // parts[..., None]).sum(axis=-1)
    return slots


def whole_devices(devices: Integers) -> Integers:
    """Return the number of entirely free devices: int64[...]. ``devices``: int64[..., devices], the free thousandths of each device."""
    whole: Integers = np.count_nonzero(devices >= WHOLE, axis=-1)
    return whole


def assign_devices(
    devices: Integers, whole: Integers, parts: Integers, sizes: Integers, worth: Floats | None = None
) -> tuple[Integers, Mask]:
    """Assign pods to the devices of k nodes.

    Return what is left of the devices: int64[k, devices], and whether all pods fit: bool[k].

    - ``devices``: int64[k, devices], the free thousandths;
    - ``whole``: int64[k], how many whole devices are taken;
    - ``parts``: int64[k, roles], how many pods of each role take a part;
    - ``sizes``: int64[k, roles], the size of the role's part in thousandths;
    - ``worth``: float64[1001], the worth of a gap by its thousandths.

    If not all pods fit on a node, the pods that fit are assigned. The order of the devices is not kept.
    """
    left = -np.sort(-devices, axis=1)
    fits = whole_devices(left) >= whole
    left[np.arange(left.shape[1]) < np.minimum(whole, whole_devices(left))[:, None]] = 0
    rows = np.arange(len(left))
    order = np.argsort(-sizes, axis=1, kind="stable")
    parts, sizes = np.take_along_axis(parts, order, axis=1), np.take_along_axis(sizes, order, axis=1)
    for own, size in zip(parts.T, sizes.T, strict=True):
        for number in range(int(own.max(initial=0))):
            wants = own > number
            best = best_device(left, size, worth)
            fits_here = wants & (left[rows, best] >= size)
            left[rows[fits_here], best[fits_here]] -= size[fits_here]
            fits &= fits_here | ~wants
    return left, fits


def best_device(devices: Integers, part: Integers | int, worth: Floats | None = None) -> Integers:
    """Return the position of the best device for a part on each of k nodes: int64[k].

    ``devices``: int64[k, devices], the free thousandths. ``part``: int64[k], the size in thousandths. The position is arbitrary if the part
    fits on no device of the node.
    """
    part = np.reshape(part, (-1, 1))
    fits = devices >= part
    after = np.maximum(devices - part, 0)
    loss = after / _FULL if worth is None else worth[devices] - worth[after] + after / _FULL
    best: Integers = np.where(fits, loss, np.inf).argmin(axis=1)
    return best


def assign_devices_exactly(devices: Sequence[int], parts: Sequence[int]) -> tuple[int, ...] | None:
    """Return the position in ``devices`` of the device for each of ``parts``; ``None`` if no assignment was found.

    ``devices`` are free thousandths; ``parts`` are sizes in thousandths. The largest part goes first, to the device with the least free
    that the part fits on. If a part then fits on no device, other assignments are tried, up to a limit.
    """
    if sum(parts) > sum(each for each in devices if each > 0):
        return None
    order = sorted(range(len(parts)), key=lambda part: (-parts[part], part))
    found = _backtracked(list(devices), [parts[part] for part in order])
    return None if found is None else tuple(device for _, device in sorted(zip(order, found, strict=True)))


def _backtracked(free: list[int], sizes: Sequence[int]) -> list[int] | None:
    """Return a device for each of ``sizes``, one after another: the fullest device that takes the size.

    If no device takes a size, an earlier choice is changed (backtracking). ``None`` if no choice is left, or the limit is reached.
    """
    chosen: list[int] = []
    rest: list[list[int]] = []  # devices not yet tried, for each assigned size and the next one
    comparisons = 0
    while len(chosen) < len(sizes):
        size = sizes[len(chosen)]
        if len(rest) == len(chosen):
            comparisons += len(free) + _STEP_COST
            by_free = {free[device]: device for device in range(len(free) - 1, -1, -1) if free[device] >= size}  # the first of equals
            rest.append([by_free[each] for each in sorted(by_free, reverse=True)])
        if rest[-1]:
            device = rest[-1].pop()
            free[device] -= size
            chosen.append(device)
        else:
            if not chosen or comparisons > _MOST_COMPARISONS:
                return None
            rest.pop()
            free[chosen[-1]] += sizes[len(chosen) - 1]
            chosen.pop()
    return chosen
