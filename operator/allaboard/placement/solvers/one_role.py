"""Place interchangeable pods exactly: a gang of one role needs no search.

Without topology domains the cost of a placement is the sum of its nodes' costs, and a node's cost depends on how many pods it takes.
Choosing the number of pods of each node is a multiple-choice knapsack problem (Kellerer et al., Knapsack Problems, 11). The problem is
solved by dynamic programming over pods, one node after another. Equal nodes are joined by doubling, so that hundreds of equal nodes take no
more time than a few.
"""

from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation

_DIGITS = 10  # Nodes whose costs differ by rounding only are equal.
_EPSILON = 1e-12
_MOST_STEPS = 60_000  # Operations on whole arrays.
_MOST_WORK = 40_000_000  # Operations on single elements; more would take longer than a search.
_MOST_COSTS = 120_000
_MOST_COMPARED = 5_000_000  # Comparisons of costs between kinds of nodes.
_MOST_AT_ONCE = 60_000  # Ways to split pods between two tables.
_MOST_CELLS = 4_000_000  # Cells of the table of each node's costs: 32 MB, of which some copies are made.


@dataclass(frozen=True, slots=True)
class _Table:
    """Holds the least cost of some nodes together, by how many pods these nodes take.

    ``costs``: float64[pods + 1] or shorter, ``costs[n]`` for n pods; inf if the nodes can't take n pods. The table is of one node, or it
    joins the two tables in ``parts``. If it joins two tables, ``second``: int64[pods + 1] says how many of the n pods go to the second
    table's nodes.
    """

    costs: Floats
    parts: "tuple[_Table, _Table] | None" = None
    second: Integers | None = None


def accepts(problem: Problem) -> bool:
    """Return whether ``best_of_one_role`` applies: the gang has one role, topology domains don't count, and no GPU is shared."""
    counts_domains = problem.domains is not None or bool(problem.attractions_in_domains)
    return len(problem.roles) == 1 and bool(problem.slots.any()) and not counts_domains and problem.devices is None


def best_of_one_role(problem: Problem, valuation: Valuation) -> Integers | None:
    """Return a placement that no other beats, with as many pods as there are slots: int64[1, nodes].

    Return None if the problem is too large. ``accepts`` must be true for the problem.
    """
    slots = np.minimum(problem.slots[0], problem.count[0])
    pods = int(min(problem.count[0], slots.sum()))
    if int(slots.sum()) > _MOST_COSTS or len(slots) * (int(slots.max(initial=0)) + 1) > _MOST_CELLS:
        return None
    # The fullest nodes come first, so that ties go to nodes that are in use.
    order = np.argsort(-problem.scoring.used.sum(axis=0).round(9), kind="stable")
    kinds, first, kind_of = np.unique(_costs(valuation, slots)[order], axis=0, return_index=True, return_inverse=True)
    members = [order[kind_of.ravel() == kind] for kind in range(len(kinds))]
    kept = _undominated(kinds, np.array([len(rows) for rows in members]), pods)
    kinds, first, members = kinds[kept], first[kept], [members[kind] for kind in kept.tolist()]
    steps = sum(_steps(len(rows), int(slots[rows[0]]), pods) for rows in members)
    if steps > _MOST_STEPS or steps * pods > _MOST_WORK:
        return None
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    chosen = np.argsort(first, kind="stable").tolist()
    tables = [_repeated(_Table(kinds[kind]), len(members[kind]), pods) for kind in chosen]
    all_together = [tables[0]]
    for table in tables[1:]:
        all_together.append(_joined(all_together[-1], table, pods))
    for position in range(len(tables) - 1, -1, -1):
        second = all_together[position].second
        own = int(second[pods]) if position and second is not None else pods
        taken = sorted(_taken(tables[position], own), reverse=True)
        counts[0, members[chosen[position]]] = taken
        pods -= own
    return counts


def _costs(valuation: Valuation, slots: Integers) -> Floats:
    """Return what each node costs with 0, 1 and more pods, up to the most slots of a node: float64[nodes, most + 1].

    The cost is infinite if the node can't take that number of pods.
    """
    most = int(slots.max(initial=0))
    costs = np.full((len(slots), most + 1), np.inf)
    costs[:, 0] = 0.0
    rows, taken = np.nonzero(np.arange(1, most + 1) <= slots[:, None])
    costs[rows, taken + 1] = valuation.node_costs(rows, taken[:, None] + 1)
    return costs.round(_DIGITS)


def _undominated(kinds: Floats, sizes: Integers, pods: int) -> Integers:
    """Return the positions of the kinds of nodes that a best placement needs.

    ``kinds``: float64[kinds, most + 1], the cost of a node of each kind by its number of pods. ``sizes``: the number of nodes of each kind.
    A kind isn't needed if there are at least ``pods`` other nodes that cost no more, with any number of pods: one of these nodes is always
    unused.
    """
    if len(kinds) ** 2 * kinds.shape[1] > _MOST_COMPARED:
        return np.arange(len(kinds))
    is_no_dearer: Mask = np.asarray((kinds[:, None] <= kinds[None]).all(axis=2))
    return np.flatnonzero(sizes @ is_no_dearer - sizes < pods)  # two kinds are never equal


def _steps(nodes: int, slots: int, pods: int) -> int:
    """Return how many operations on whole arrays it takes to make the table of ``nodes`` equal nodes."""
    total, together = min(nodes * slots, pods), 1
    while together < min(nodes, pods):
        total += 2 * min(together * slots, pods)
        together *= 2
    return total


def _repeated(one: _Table, nodes: int, pods: int) -> _Table:
    """Return the table of ``nodes`` equal nodes together; ``one`` is the table of one such node."""
    if nodes == 1:
        return one
    half = _repeated(one, nodes // 2, pods)
    both = _joined(half, half, pods)
    return _joined(both, one, pods) if nodes % 2 else both


def _joined(left: _Table, right: _Table, pods: int) -> _Table:
    """Return the table of the nodes of two tables together, for up to ``pods`` pods: each number of pods is split in the best way."""
    size = min(pods + 1, len(left.costs) + len(right.costs) - 1)
    own = right.costs[:size]
    if size * len(own) > _MOST_AT_ONCE:
        return _joined_one_by_one(left, right, size)
    # One row for each number of pods on the right: what the rest costs on the left, plus what they cost on the right.
    shifted = np.full(len(own) - 1 + size, np.inf)
    rest = left.costs[:size]
    shifted[len(own) - 1 : len(own) - 1 + len(rest)] = rest
    ways = shifted[np.arange(size) - np.arange(len(own))[:, None] + len(own) - 1] + own[:, None]
    costs = ways.min(axis=0)
    return _Table(costs, (left, right), (ways <= costs + _EPSILON).argmax(axis=0))


def _joined_one_by_one(left: _Table, right: _Table, size: int) -> _Table:
    """Join two tables as ``_joined`` does, if they are so long that a processor's caches can't hold all ways to split the pods at once."""
    costs, second = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
    for taken, cost in enumerate(right.costs[:size].tolist()):
        if cost < np.inf:
            candidate = left.costs[: size - taken] + cost
            span = slice(taken, taken + len(candidate))
            better = candidate < costs[span] - _EPSILON
            costs[span] = np.where(better, candidate, costs[span])
            second[span][better] = taken
    return _Table(costs, (left, right), second)


def _taken(table: _Table, pods: int) -> list[int]:
    """Return how many pods each node of a table takes if the nodes together take ``pods``."""
    if table.parts is None or table.second is None:
        return [pods]
    second = int(table.second[pods])
    return [*_taken(table.parts[0], pods - second), *_taken(table.parts[1], second)]
