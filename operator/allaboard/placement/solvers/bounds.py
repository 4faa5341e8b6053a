"""Bounds that no placement exceeds, in O(roles × nodes): proofs that a gang can't fit, and scores at which a search may stop.

Each bound relaxes the problem: it counts one role alone, one capacity alone, one node alone, or only roles that exclude each other. So no
placement exceeds a bound, but some bounds can't be reached. For a gang of one role the bound on the pods of this role is exact.

A capacity is whatever nodes have an amount of: a resource, a host port, or volumes that can be attached.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from allaboard.model.arrays import Floats
from allaboard.placement.problem.plan import Shortage
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import fill

# With more slots, the spread bound counts every pod at the cost of the cheapest slot.
_TABLE_LIMIT = 200_000
# With more roles it would take too long to find out which roles exclude each other.
_MANY_ROLES = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Upper bounds on the pods of a gang that can be placed.

    ``most``: for each role, the pods that fit if no other role is placed, at most the pods of the role. ``placeable``: upper bound for the
    whole gang.
    ``shortage``: the resource of which too little is free in total for the minimum; None if there is none.
    """

    most: tuple[int, ...]
    placeable: int
    shortage: Shortage | None


def bounds_of(problem: Problem) -> Bounds:
    """Return the upper bounds for ``problem``, counted in integers."""
    if problem.total == 1 and problem.minimum <= 1 and problem.nodes:
        return Bounds((1,), 1, None)  # a node that can't take the pod isn't in the problem
    most = tuple(min(int(count), int(slots)) for count, slots in zip(problem.count, problem.slots.sum(axis=1), strict=True))
    placeable = sum(most)
    for column in range(len(problem.columns)):
        placeable = min(placeable, _fits_in_total(problem, most, column), _fits_node_by_node(problem, most, column))
    for roles in _exclusive(problem):
        others = sum(most) - sum(most[role] for role in roles)
        placeable = min(placeable, others + int(np.minimum(problem.slots[roles], problem.count[roles, None]).max(axis=0).sum()))
    return Bounds(most, placeable, _worst_shortage(problem))


def may_fit(problem: Problem) -> bool:
    """Return whether the bounds don't exclude that the minimum of ``problem`` fits. For a gang of one role that is exact."""
    if not problem.slots.any():
        return bool(problem.lacking(np.zeros_like(problem.count)) <= 0)
    most = bounds_of(problem)
    return most.placeable >= problem.minimum and bool(problem.lacking(np.array(most.most)) <= 0)


def score_bound(problem: Problem) -> float:
    """Return a score that no placement of *all* pods exceeds."""
    total, weights = problem.total, problem.weights
    if not total or not problem.nodes:
        return 0.0
    if problem.fragmentation is not None:
        return float("inf")  # each placed pod may leave more GPUs that the workload can use
    # At best preferences cost nothing, and one domain is used.
    least = weights.packing * (total - _most_packed(problem)) if weights.packing else weights.spreading * _least_fullness(problem)
    if problem.domains is not None:
        least += weights.domains
    return 100.0 * (1.0 - least / total)


def _exclusive(problem: Problem) -> list[list[int]]:
    """Return sets of roles such that a node can take only one pod of the whole set. Example: roles that request the same host port.

    The sets are cliques of roles that exclude each other. Each clique is grown greedily from one role; roles with the most pods are added
    first.
    """
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
    """Return the roles by rising demand of the capacity at ``column``."""
    return [int(role) for role in np.argsort(problem.demand[:, column], kind="stable")]


def _usable(problem: Problem, column: int) -> int:
    """Return how much of the capacity at ``column`` is free on the nodes that can take a role that requests this capacity."""
    wants = problem.demand[:, column] > 0
    nodes = (problem.slots[wants] > 0).any(axis=0)
    return sum(problem.free[column, nodes].tolist())


def _fits_in_total(problem: Problem, most: tuple[int, ...], column: int) -> int:
    """Return how many pods fit, the smallest first, if only one capacity counts and all nodes are one large node."""
    left, placed = _usable(problem, column), 0
    for role in _ascending(problem, column):
        demand = int(problem.demand[role, column])
        taken = min(most[role], left // demand) if demand else most[role]
        left -= taken * demand
        placed += taken
    return placed


def _fits_node_by_node(problem: Problem, most: tuple[int, ...], column: int) -> int:
    """Return how many pods fit if only one capacity counts and each node is filled by itself, with the smallest pods first.

    A pod may be counted on several nodes, so the result is an upper bound.
    """
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
    """Return the shortage of the resource of which the minimum requests the most, relative to what is free.

    None if every resource is enough. The minimum is made up of the pods that request least. A resource of which nothing is free isn't
    counted: no node has a slot then, and the reasons by node explain the refusal better.
    """
    found = [_shortage(problem, column) for column in range(problem.resources)]
    short = [shortage for shortage in found if shortage.requested > shortage.free > 0]
    return max(short, key=lambda shortage: Fraction(shortage.requested, shortage.free), default=None)


def _shortage(problem: Problem, column: int) -> Shortage:
    """Return how much of the resource at ``column`` the minimum requests at least, and how much is free.

    Requests are taken from the roles and not from the arrays, since in the arrays a demand that no node can meet is clipped.
    """
    resource = problem.columns[column]
    requested, wanted = 0, problem.minimum
    for amount, pods in sorted((dict(role.requests).get(resource, 0), len(role.pods)) for role in problem.roles):
        taken = min(pods, wanted)
        requested += taken * amount
        wanted -= taken
    return Shortage(resource, requested, _usable(problem, column))


def _most_packed(problem: Problem) -> float:
    """Return an upper bound on the sum of the members' packing scores, each 0..1.

    A node's score is taken as if the node took as many members of each role as fit on it. Each member counts with the best of these scores
    among the slots that are left for its role.
    """
    scoring = problem.scoring
    if not scoring.packing.is_plain:
        return problem.total * scoring.packing.best
    # A node takes no more pods of a role than its slots, nor more than the role has.
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
        return reached(scoring.used + (load + scoring.step) / 2)  # a missing request counts as kube-scheduler's default, which needn't fit
    unused = np.maximum(1.0 - scoring.used, 0.0)
    others = scoring.used + np.minimum(load, unused) / 2
    # What the members themselves add is no more than is free, neither member by member nor for all members together.
    together = float((scoring.weight.max(axis=0) * unused).sum()) / 2
    return min(reached(others + scoring.step / 2), reached(others) + together)


def _least_fullness(problem: Problem) -> float:
    """Return a lower bound on the sum of the members' fullness: each role is spread over the emptiest nodes as if it were alone.

    Suppose a node is full to ``used``, and each pod of a role adds ``step``. Then the fullness of ``j`` pods adds up to ``j * (used + j *
    step)``. So the j-th pod adds ``used + (2j - 1) * step`` to the sum, and the smallest of these additions give the least possible sum.
    The fullness of a node is at most 1. On a node that could exceed 1, each pod is counted with the addition of the first pod, which is
    less than the pod adds.
    """
    scoring = problem.scoring
    total = 0.0
    for role, count in enumerate(problem.count.tolist()):
        slots = np.minimum(problem.slots[role], count)
        if not slots.any():
            continue
        full = (scoring.used + slots * scoring.step[role] > 1.0).any(axis=0)
        first = np.einsum("sn,sn->n", scoring.weight[role], np.minimum(scoring.used + scoring.step[role], 1.0))
        growth = np.where(full, 0.0, 2.0 * np.einsum("sn,sn->n", scoring.weight[role], scoring.step[role]))
        depth = int(slots.max())
        if depth * len(first) > _TABLE_LIMIT:
            total += float(first[slots > 0].min()) * count
            continue
        before = np.arange(depth)[:, None]
        additions = (first + growth * before)[before < slots]
        total += float(np.sort(additions)[:count].sum())
    return total
