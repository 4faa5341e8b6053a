"""How many pods nodes take, and which seats are taken of those that there are."""

import numpy as np

from allaboard.model.arrays import Integers, Mask

MOST_SLOTS = 2**31
"""No node ever takes more; the sum over all nodes stays small."""


def slots_for(demand: Integers, free: Integers, admits: Mask) -> Integers:
    """How many pods of one ``demand``, int64[columns], each node takes: int64[..., nodes] of ``free``, int64[columns, ..., nodes]."""
    slots = np.where(admits, np.int64(MOST_SLOTS), np.int64(0))
    is_unlimited = True
    for column in np.flatnonzero(demand).tolist():
        is_unlimited = False
        # A scalar divisor: numpy then divides with SIMD multiplications.
        slots = np.minimum(slots, free[column] // int(demand[column]))
    # Every pod takes one of a node's pods, so this is for made-up specs only.
    return np.minimum(slots, 1) if is_unlimited else slots


def first_slots(room: Integers, wanted: int) -> Integers:
    """Take ``wanted`` pods from ``room``: int64[nodes], the first nodes to the full."""
    taken: Integers = np.clip(wanted - (np.cumsum(room) - room), 0, room)
    return taken


def fill(room: Integers, wanted: int, order: Integers) -> Integers:
    """Take ``wanted`` pods from ``room``: int64[nodes], along ``order``, each node to the full."""
    taken = np.zeros_like(room)
    taken[order] = first_slots(room[order], wanted)
    return taken
