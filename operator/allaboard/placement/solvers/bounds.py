"""What no placement can exceed, in O(roles × nodes): proofs of impossibility, and scores at which a search may stop.

Every bound relaxes the problem (one role alone, one resource alone, one node alone, roles that exclude each other alone), so exceeding it
is impossible while reaching it isn't promised. For a gang of one role the first bound is exact.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from allaboard.model.arrays import Floats
from allaboard.placement.problem.plan import Shortage
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import fill

# Above this many seats the spread bound takes the best one for all of them.
_TABLE_LIMIT = 200_000
# Of more it would take too long to ask which exclude which.
_MANY_ROLES = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """``most``: for each role, pods that fit when it is alone, at most its count. ``placeable``: upper bound for the gang.

    ``shortage`` is set when the total of one resource alone rules the minimum out.
    """

    most: tuple[int, ...]
    placeable: int
    shortage: Shortage | None


def bounds_of(problem: Problem) -> Bounds:
    """The exact checks before any search."""
    if problem.total == 1 and problem.minimum <= 1 and problem.nodes:
        return Bounds((1,), 1, None)  # a node that can't take the pod is no part of the problem
    most = tuple(min(int(count), int(slots)) for count, slots in zip(problem.count, problem.slots.sum(axis=1), strict=True))
    placeable = sum(most)
    for column in range(len(problem.columns)):
        placeable = min(placeable, _fits_in_total(problem, most, column), _fits_node_by_node(problem, most, column))
    for roles in _exclusive(problem):
        others = sum(most) - sum(most[role] for role in roles)
        placeable = min(placeable, others + int(np.minimum(problem.slots[roles], problem.count[roles, None]).max(axis=0).sum()))
    return Bounds(most, placeable, _worst_shortage(problem))


def score_bound(problem: Problem) -> float:
    """A score that no placement of *all* pods exceeds."""
    total, weights = problem.total, problem.weights
    if not total or not problem.nodes:
        return 0.0
    if problem.fragmentation is not None:
        return float("inf")  # what the workload can use may grow with every pod that is placed
    # Preferences and domains cost nothing at best.
    least = weights.packing * (total - _fullest(problem)) if weights.packing else weights.spreading * _emptiest(problem)
    if problem.domains is not None:
        least += weights.domains
    return 100.0 * (1.0 - least / total)


def _exclusive(problem: Problem) -> list[list[int]]:
    """Roles of which no node takes two, such as those that want the same port: cliques, the largest that greed finds from each role on."""
    if not 1 < len(problem.roles) <= _MANY_ROLES or not problem.nodes:
        return []
    both = problem.demand[:, None] + problem.demand
    excludes = (both > problem.free.max(axis=1)).any(axis=2)
    np.fill_diagonal(excludes, val=False)
    order = np.argsort(-problem.count, kind="stable").tolist()
    cliques: dict[tuple[int, ...], None] = {}
    for first in np.flatnonzero(excludes.any(axis=1)).tolist():
        clique = [first]
        for role in order:
            if excludes[role, clique].all():
                clique.append(role)
        cliques[tuple(sorted(clique))] = None
    return [list(clique) for clique in cliques]


def _ascending(problem: Problem, column: int) -> list[int]:
    return [int(role) for role in np.argsort(problem.demand[:, column], kind="stable")]


def _usable(problem: Problem, column: int) -> int:
    """What is free of one column on the nodes where a role that asks for it fits."""
    wants = problem.demand[:, column] > 0
    nodes = (problem.slots[wants] > 0).any(axis=0)
    return sum(problem.free[column, nodes].tolist())


def _fits_in_total(problem: Problem, most: tuple[int, ...], column: int) -> int:
    """Pods that fit when all nodes were one and only this column mattered: the smallest first."""
    left, placed = _usable(problem, column), 0
    for role in _ascending(problem, column):
        demand = int(problem.demand[role, column])
        taken = min(most[role], left // demand) if demand else most[role]
        left -= taken * demand
        placed += taken
    return placed


def _fits_node_by_node(problem: Problem, most: tuple[int, ...], column: int) -> int:
    """Pods that fit when only this column mattered and every node could choose the smallest for itself."""
    free = problem.free[column].copy()
    placed = 0
    for role in _ascending(problem, column):
        demand = int(problem.demand[role, column])
        if demand == 0:
            placed += most[role]
            continue
        slots = np.minimum(np.minimum(problem.slots[role], free // demand), most[role])
        free -= slots * demand
        placed += int(slots.sum())
    return placed


def _worst_shortage(problem: Problem) -> Shortage | None:
    """The resource of which the least demanding pods that make up the minimum ask for most beyond what is free.

    Nothing free is no shortage here: then it is the nodes that don't fit, one by one, and their reasons say it better.
    """
    found = [_shortage(problem, column) for column in range(problem.resources)]
    short = [shortage for shortage in found if shortage.requested > shortage.free > 0]
    return max(short, key=lambda shortage: Fraction(shortage.requested, shortage.free), default=None)


def _shortage(problem: Problem, column: int) -> Shortage:
    """Requested and free of one resource, in true amounts: a demand nobody can meet is clipped in the arrays."""
    resource = problem.columns[column]
    requested, wanted = 0, problem.minimum
    for amount, pods in sorted((dict(role.requests).get(resource, 0), len(role.pods)) for role in problem.roles):
        taken = min(pods, wanted)
        requested += taken * amount
        wanted -= taken
    return Shortage(resource, requested, _usable(problem, column))


def _fullest(problem: Problem) -> float:
    """Each member on the node that would be fullest when it is its turn if as much of the gang as fits sat there."""
    scoring = problem.scoring
    if not scoring.packing.is_plain:
        return problem.total * scoring.packing.best
    # A node takes no more of a role than its seats, nor more than there are pods.
    slots = np.minimum(problem.slots, problem.count[:, None])
    load = np.einsum("rn,rsn->sn", slots, scoring.step)

    def reached(utilization: Floats) -> float:
        best = (scoring.weight * np.minimum(utilization, 1.0)).sum(axis=1)
        total = 0.0
        for role, count in enumerate(problem.count.tolist()):
            order = np.argsort(-best[role], kind="stable")
            total += float((fill(slots[role], count, order) * best[role]).sum())
        return total

    if not all(dict(role.requests).get(resource) for role in problem.roles for resource in ("cpu", "memory")):
        return reached(scoring.used + (load + scoring.step) / 2)  # what isn't asked for counts as assumed, and needn't fit
    room = np.maximum(1.0 - scoring.used, 0.0)
    others = scoring.used + np.minimum(load, room) / 2
    # What members add themselves is no more than there is room for, neither one by one nor together.
    together = float((scoring.weight.max(axis=0) * room).sum()) / 2
    return min(reached(others + scoring.step / 2), reached(others) + together)


def _emptiest(problem: Problem) -> float:
    """Each role spread over the emptiest nodes as if it were alone.

    ``j`` pods of a role on one node weigh ``j * (used + j * step)``, so the j-th adds ``used + (2j - 1) * step``: taking the smallest
    additions first is the least possible. Where a full node stops counting (pods without requests weigh something too), each pod is
    taken to weigh as the first does, which is less still.
    """
    scoring = problem.scoring
    total = 0.0
    for role, count in enumerate(problem.count.tolist()):
        room = np.minimum(problem.slots[role], count)
        if not room.any():
            continue
        full = (scoring.used + room * scoring.step[role] > 1.0).any(axis=0)
        first = np.einsum("sn,sn->n", scoring.weight[role], np.minimum(scoring.used + scoring.step[role], 1.0))
        growth = np.where(full, 0.0, 2.0 * np.einsum("sn,sn->n", scoring.weight[role], scoring.step[role]))
        depth = int(room.max())
        if depth * len(first) > _TABLE_LIMIT:
            total += float(first[room > 0].min()) * count
            continue
        slots = np.arange(depth)[:, None]
        additions = (first + growth * slots)[slots < room]
        total += float(np.sort(additions)[:count].sum())
    return total
