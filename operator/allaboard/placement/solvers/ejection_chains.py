"""Assign members that no node can take, by moving members of another role to other nodes.

The genetic search's repair only fills free capacity. If a gang takes nearly all of a cluster, the free capacity is on the wrong nodes for
the last few members. An ejection chain of one step (Glover 1996) helps: the fewest pods of another role leave a node for nodes where these
pods fit, and the node takes the member.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import fill, slots_for

_MOST_UNASSIGNED = 64  # For each of them all nodes are examined.
_NEVER = np.iinfo(np.int64).max


def assign_more(problem: Problem, counts: Integers) -> Integers:
    """Return ``counts`` with as many pods added as ejection chains can assign; ``counts`` itself if none are added.

    Nothing is tried if GPUs are shared, or if more than 64 pods are unassigned. ``counts`` and the result: int64[roles, nodes].
    """
    if problem.devices is not None:
        return counts
    found, is_copy = counts, False
    if int((problem.count - counts.sum(axis=1)).sum()) > _MOST_UNASSIGNED:
        return counts
    for role in np.flatnonzero(counts.sum(axis=1) < problem.count).tolist():
        while int(found[role].sum()) < int(problem.count[role]):
            after = _one_more(problem, found, role)
            if after is None:
                break
            found, is_copy = after, True
    return found if is_copy else counts


def _one_more(problem: Problem, counts: Integers, role: int) -> Integers | None:
    """Return the placement with one more pod of ``role``; None if neither free capacity nor a chain of one step allows one more pod."""
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    rows = np.flatnonzero(slots_for(problem.demand[role], left, problem.admits[role]))
    after = counts.copy()
    if len(rows):
        after[role, rows[0]] += 1
        return after
    shortage = problem.demand[role][:, None] - left
    best: tuple[int, int, int] | None = None
    slots_by_role = {}
    for other in np.flatnonzero(counts.any(axis=1)).tolist():
        if other == role:
            continue
        leaving = _number_to_move(problem.demand[other], shortage)
        slots = slots_by_role[other] = slots_for(problem.demand[other], left, problem.admits[other])
        possible = problem.admits[role] & (leaving <= np.minimum(counts[other], slots.sum() - slots))
        if possible.any():
            node = int(np.where(possible, leaving, _NEVER).argmin())
            if best is None or leaving[node] < best[0]:
                best = int(leaving[node]), other, node
    if best is None:
        return None
    number, other, node = best
    slots = slots_by_role[other]
    slots[node] = 0
    # The pods go to the nodes with the fewest slots, so that large gaps stay.
    order = np.argsort(np.where(slots > 0, slots, _NEVER), kind="stable")
    after[other] += fill(slots, number, order)
    after[other, node] -= number
    after[role, node] += 1
    return after


def _number_to_move(demand: Integers, shortage: Integers) -> Integers:
    """Return how many pods of one role must leave each node so that the capacity that is short there becomes free: int64[nodes].

    ``demand``: int64[capacities], what one of these pods takes. ``shortage``: int64[capacities, nodes], how much is short.
    """
    number = np.zeros(shortage.shape[1], dtype=np.int64)
    for column, amount in enumerate(demand.tolist()):
        short = shortage[column] > 0
        if amount:
            number[short] = np.maximum(number[short], -(-shortage[column, short] // amount))
        else:
            number[short] = _NEVER
    return number
