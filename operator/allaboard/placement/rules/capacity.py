"""Count the pods that nodes can take, and take slots of nodes."""

import numpy as np

from allaboard.model.arrays import Integers, Mask

MOST_SLOTS = 2**31
"""The most slots of a node: more than any node takes, and so few that the sum over all nodes stays within 64 bits."""


def slots_for(demand: Integers, free: Integers, admits: Mask) -> Integers:
    """Return how many pods with the requests ``demand`` each node can take: int64[..., nodes].

    A node that isn't in ``admits`` takes no pod. ``demand``: int64[capacities]. ``free``: int64[capacities, ..., nodes].
    """
    slots = np.where(admits, np.int64(MOST_SLOTS), np.int64(0))
    is_unlimited = True
    for column in np.flatnonzero(demand).tolist():
        is_unlimited = False
        # A scalar divisor: numpy then divides with SIMD multiplications.
        slots = np.minimum(slots, free[column] // int(demand[column]))
    # A real pod requests one of the resource ``pods``, so only artificial specs are unlimited.
    return np.minimum(slots, 1) if is_unlimited else slots


def first_slots(capacity: Integers, wanted: int) -> Integers:
    """Take up to ``wanted`` slots, filling the nodes in their order; return how many slots of each node are taken: int64[nodes].

    ``capacity``: int64[nodes], the slots of each node.
    """
    taken: Integers = np.clip(wanted - (np.cumsum(capacity) - capacity), 0, capacity)
    return taken


def fill(capacity: Integers, wanted: int, order: Integers) -> Integers:
    """Take up to ``wanted`` slots, filling the nodes in ``order``; return how many slots of each node are taken: int64[nodes].

    ``capacity``: int64[nodes], the slots of each node.
    """
    taken = np.zeros_like(capacity)
    taken[order] = first_slots(capacity[order], wanted)
    return taken
