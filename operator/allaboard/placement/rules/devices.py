"""Shared GPUs: how pods that ask for a part of a device sit on a node's devices beside those that take whole ones.

A device is counted in thousandths that are free. Whole GPUs take devices that are free altogether; a part sits on one device, the
large parts first: where the gap that is left loses least of its worth, and the fullest among equals (best fit decreasing).
"""

from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask

GPU = "nvidia.com/gpu"
"""The GPUs that can be shared, and whose fragmentation is measured."""

WHOLE = 1000
"""Free thousandths of a device that nobody uses."""

_FULL = 1e9  # turns thousandths into a tie-break


def seats_on_devices(devices: Integers, part: int) -> Integers:
    """Pods that ask for ``part`` thousandths of a device which ``devices``: int64[..., devices] take: int64[...]."""
    seats: Integers = (devices // part).sum(axis=-1)
    return seats


def whole_devices(devices: Integers) -> Integers:
    """Devices that are free altogether: int64[...] of int64[..., devices]."""
    whole: Integers = np.count_nonzero(devices >= WHOLE, axis=-1)
    return whole


def seated(devices: Integers, whole: Integers, parts: Integers, sizes: Integers, worth: Floats | None = None) -> tuple[Integers, Mask]:
    """The devices once pods sit on them, and whether they all do.

    ``devices``: int64[k, devices]; ``whole``: int64[k], devices taken altogether; ``parts``: int64[k, roles], pods of each role that
    asks for a part, ``sizes``: int64[roles], in thousandths; ``worth``: float64[1001], of a gap. Where not all fit those that do are
    seated. The order of the devices is not kept.
    """
    left = -np.sort(-devices, axis=1)
    fits = whole_devices(left) >= whole
    left[np.arange(left.shape[1]) < np.minimum(whole, whole_devices(left))[:, None]] = 0
    rows = np.arange(len(left))
    for role in np.argsort(-sizes, kind="stable").tolist():
        for turn in range(int(parts[:, role].max(initial=0))):
            wants = parts[:, role] > turn
            best = best_device(left, int(sizes[role]), worth)
            sits = wants & (left[rows, best] >= sizes[role])
            left[rows[sits], best[sits]] -= sizes[role]
            fits &= sits | ~wants
    return left, fits


def best_device(devices: Integers, part: int, worth: Floats | None = None) -> Integers:
    """Where a pod that asks for ``part`` thousandths sits: int64[k], positions in ``devices``: int64[k, devices]; any where none fits."""
    fits = devices >= part
    after = np.maximum(devices - part, 0)
    loss = after / _FULL if worth is None else worth[devices] - worth[after] + after / _FULL
    best: Integers = np.where(fits, loss, np.inf).argmin(axis=1)
    return best


def fit_on_devices(devices: Sequence[int], parts: Sequence[int]) -> bool:
    """Whether pods that ask for ``parts`` of one device each can all sit on ``devices``, of which so many thousandths are free.

    Exactly, by trying: the largest part goes on each device in turn, of equal ones on one. Meant for a single node's few pods.
    """
    if not parts:
        return True
    largest, *rest = sorted(parts, reverse=True)
    others = sorted(devices)
    return any(
        fit_on_devices([*others[:place], free - largest, *others[place + 1 :]], rest)
        for place, free in enumerate(others)
        if free >= largest and (place == 0 or others[place - 1] != free)
    )
