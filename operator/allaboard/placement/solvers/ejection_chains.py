"""Seats for those who found none: one more pod takes the place of others, which find theirs elsewhere.

Repair fills what is free; on a cluster that a gang takes nearly all of, what is free is in the wrong places for the last few. An ejection
chain of one step (Glover 1996) puts that right: the fewest pods of another role that make room leave a node, and sit where they fit.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import fill, slots_for

_MOST = 64  # pods for which a seat is made: each takes a look at all nodes
_NEVER = np.iinfo(np.int64).max


def assign_more(problem: Problem, counts: Integers) -> Integers:
    """``counts``: int64[roles, nodes] with as many more pods as can be seated this way; the same array when there is none.

    Where very many have no seat it isn't tried.
    """
    if problem.devices is not None:
        return counts
    found, is_copy = counts, False
    if int((problem.count - counts.sum(axis=1)).sum()) > _MOST:
        return counts
    for role in np.flatnonzero(counts.sum(axis=1) < problem.count).tolist():
        while int(found[role].sum()) < int(problem.count[role]):
            after = _one_more(problem, found, role)
            if after is None:
                break
            found, is_copy = after, True
    return found if is_copy else counts


def _one_more(problem: Problem, counts: Integers, role: int) -> Integers | None:
    """The placement with one more pod of ``role``."""
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    rows = np.flatnonzero(slots_for(problem.demand[role], left, problem.admits[role]))
    after = counts.copy()
    if len(rows):
        after[role, rows[0]] += 1
        return after
    lacks = problem.demand[role][:, None] - left
    best: tuple[int, int, int] | None = None
    rooms = {}
    for other in np.flatnonzero(counts.any(axis=1)).tolist():
        if other == role:
            continue
        leaving = _that_must_leave(problem.demand[other], lacks)
        room = rooms[other] = slots_for(problem.demand[other], left, problem.admits[other])
        possible = problem.admits[role] & (leaving <= np.minimum(counts[other], room.sum() - room))
        if possible.any():
            node = int(np.where(possible, leaving, _NEVER).argmin())
            if best is None or leaving[node] < best[0]:
                best = int(leaving[node]), other, node
    if best is None:
        return None
    number, other, node = best
    room = rooms[other]
    room[node] = 0
    # Where least is left of what there was room for, so that large gaps stay.
    order = np.argsort(np.where(room > 0, room, _NEVER), kind="stable")
    after[other] += fill(room, number, order)
    after[other, node] -= number
    after[role, node] += 1
    return after


def _that_must_leave(demand: Integers, lacks: Integers) -> Integers:
    """How many pods of one ``demand``: int64[columns] must go for ``lacks``: int64[columns, nodes] to be free: int64[nodes]."""
    number = np.zeros(lacks.shape[1], dtype=np.int64)
    for column, amount in enumerate(demand.tolist()):
        short = lacks[column] > 0
        if amount:
            number[short] = np.maximum(number[short], -(-lacks[column, short] // amount))
        else:
            number[short] = _NEVER
    return number
