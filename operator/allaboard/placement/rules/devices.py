"""Shared GPUs: how pods that ask for a part of a device sit on a node's devices beside those that take whole ones.

A device is counted in thousandths that are free. Whole GPUs take devices that are free altogether; a part sits on one device, the
large parts first: where the gap that is left loses least of its worth, and the fullest among equals (best fit decreasing).
"""

from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_sharing import DRIVERS
from allaboard.model.gpu_sharing import GPU as GPU
from allaboard.model.gpu_sharing import WHOLE as WHOLE
from allaboard.model.snapshot import Snapshot

_MOST_LOOKS = 30_000  # at single devices, in search of another way: some ten milliseconds
_STEP = 16  # looks that a step costs beside those at devices
_FULL = 1e9  # turns thousandths into a tie-break


def parts_on(spec: SchedulingSpec, snapshot: Snapshot) -> Integers:
    """Thousandths of a device that a pod of ``spec`` takes on each node: int64[nodes]; 0 if it asks for none, and more than there are
    of one where nobody hands out what it asks for.
    """
    share, sharing = spec.share, snapshot.sharing
    if share is None or sharing is None:
        return np.full(len(snapshot.nodes), spec.gpu_share, dtype=np.int64)
    memory = np.maximum(sharing.memory, 1)
    parts = np.maximum(np.maximum(-(-WHOLE * share.memory // memory), share.nominal), sharing.least)
    is_told = (sharing.driver == list(DRIVERS).index(share.driver)) & (sharing.memory > 0) & (share.devices == 1)
    found: Integers = np.where(is_told & (parts <= WHOLE), parts, WHOLE + 1)
    return found


def counts_devices(snapshot: Snapshot) -> Mask:
    """The nodes whose GPUs are counted by their devices, since a driver offers each as many: bool[nodes]."""
    if snapshot.devices is None or snapshot.sharing is None:
        return np.full(len(snapshot.nodes), snapshot.devices is not None)
    of_gpu = [position for position, driver in enumerate(DRIVERS.values()) if driver.count == GPU]
    return np.isin(snapshot.sharing.driver, of_gpu)


def slots_on_devices(devices: Integers, parts: Integers) -> Integers:
    """Pods that ask for ``parts``: int64[...] thousandths of a device which ``devices``: int64[..., devices] take: int64[...]."""
    slots: Integers = (devices // parts[..., None]).sum(axis=-1)
    return slots


def whole_devices(devices: Integers) -> Integers:
    """Devices that are free altogether: int64[...] of int64[..., devices]."""
    whole: Integers = np.count_nonzero(devices >= WHOLE, axis=-1)
    return whole


def assign_devices(
    devices: Integers, whole: Integers, parts: Integers, sizes: Integers, worth: Floats | None = None
) -> tuple[Integers, Mask]:
    """The devices once pods sit on them, and whether they all do.

    ``devices``: int64[k, devices]; ``whole``: int64[k], devices taken altogether; ``parts``: int64[k, roles], pods of each role that
    asks for a part, ``sizes``: int64[k, roles], in thousandths; ``worth``: float64[1001], of a gap. Where not all fit those that do are
    seated. The order of the devices is not kept.
    """
    left = -np.sort(-devices, axis=1)
    fits = whole_devices(left) >= whole
    left[np.arange(left.shape[1]) < np.minimum(whole, whole_devices(left))[:, None]] = 0
    rows = np.arange(len(left))
    order = np.argsort(-sizes, axis=1, kind="stable")
    parts, sizes = np.take_along_axis(parts, order, axis=1), np.take_along_axis(sizes, order, axis=1)
    for own, size in zip(parts.T, sizes.T, strict=True):
        for turn in range(int(own.max(initial=0))):
            wants = own > turn
            best = best_device(left, size, worth)
            sits = wants & (left[rows, best] >= size)
            left[rows[sits], best[sits]] -= size[sits]
            fits &= sits | ~wants
    return left, fits


def best_device(devices: Integers, part: Integers | int, worth: Floats | None = None) -> Integers:
    """Where a pod that asks for ``part``: int64[k] thousandths sits: int64[k], positions in ``devices``: int64[k, devices]; any where
    none fits.
    """
    part = np.reshape(part, (-1, 1))
    fits = devices >= part
    after = np.maximum(devices - part, 0)
    loss = after / _FULL if worth is None else worth[devices] - worth[after] + after / _FULL
    best: Integers = np.where(fits, loss, np.inf).argmin(axis=1)
    return best


def assign_devices_exactly(devices: Sequence[int], parts: Sequence[int]) -> tuple[int, ...] | None:
    """On which of ``devices``, of which so many thousandths are free, each of ``parts`` sits; ``None`` where no way was found.

    The largest goes first, where least is left. Only if that leaves one out other ways are tried, as far as that is short.
    """
    if sum(parts) > sum(each for each in devices if each > 0):
        return None
    order = sorted(range(len(parts)), key=lambda part: (-parts[part], part))
    found = _ways(list(devices), [parts[part] for part in order])
    return None if found is None else tuple(device for _, device in sorted(zip(order, found, strict=True)))


def _ways(free: list[int], sizes: Sequence[int]) -> list[int] | None:
    """For each of ``sizes`` in turn the fullest device that takes it; back to the last choice there was, when none does."""
    chosen: list[int] = []
    rest: list[list[int]] = []  # devices that are yet to be tried, for each that is seated and the next one
    looks = 0
    while len(chosen) < len(sizes):
        size = sizes[len(chosen)]
        if len(rest) == len(chosen):
            looks += len(free) + _STEP
            by_free = {free[device]: device for device in range(len(free) - 1, -1, -1) if free[device] >= size}  # of equal ones the first
            rest.append([by_free[each] for each in sorted(by_free, reverse=True)])
        if rest[-1]:
            device = rest[-1].pop()
            free[device] -= size
            chosen.append(device)
        else:
            if not chosen or looks > _MOST_LOOKS:
                return None
            rest.pop()
            free[chosen[-1]] += sizes[len(chosen) - 1]
            chosen.pop()
    return chosen
