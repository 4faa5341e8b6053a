"""Which nodes a search looks at when there are more than it needs.

Of nodes that are equal in all that it sees, as those of one model are while they are empty, no more are needed than there are pods:
every placement has one on these that is worth the same, and so has every proof. What a pod costs on a node whoever else is there needn't be
equal: those where it is least are kept. The genetic search looks at fewer of thousands: those of
the best seed, the top of each sensible order, and some at random, so that no kind of node is lost for good.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem

_MOST = 1000
_CELLS = 60_000
_FEWEST = 192
_PER_POD = 3


def needed_rows(problem: Problem) -> Integers:
    """Ascending positions of nodes of which the others are copies, or worse than copies, or have no seat for anybody."""
    has_seats = np.asarray(problem.slots.any(axis=0))
    if len(has_seats) <= problem.total or not has_seats.any():
        return np.arange(len(has_seats))
    table = np.concatenate(
        [np.ascontiguousarray(values).view(np.uint64).reshape(-1, len(has_seats)) for values in problem.node_arrays_without_dislike]
    )
    factors = np.random.default_rng(0).integers(2**63, size=(len(table), 1), dtype=np.uint64) | np.uint64(1)
    hashes = ((table ^ (table >> np.uint64(32))) * factors).sum(axis=0)
    _, first, kinds, sizes = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    kinds = kinds.ravel()
    dislike = np.zeros((1, len(has_seats))) if problem.dislike is None else problem.dislike
    order = np.lexsort((dislike.sum(axis=0), kinds))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = rank < problem.total
    worst = np.full((len(dislike), len(sizes)), -np.inf)
    np.maximum.at(worst.T, kinds[kept], dislike[:, kept].T)
    is_copy = (table == table[:, first[kinds]]).all(axis=0) & ~kept & (dislike >= worst[:, kinds]).all(axis=0)
    return np.flatnonzero(has_seats & ~is_copy)


def candidate_rows(problem: Problem, best: Integers, others: list[Integers], rng: np.random.Generator) -> Integers:
    """Ascending positions of the nodes to search, those of ``best``: int64[roles, nodes] among them."""
    nodes = len(problem.nodes)
    chosen = np.zeros(nodes, dtype=np.bool_)
    chosen[best.any(axis=0)] = True
    # However many nodes the seed takes, there must be others to move to.
    limit = max(_limit(problem, int(best.sum())), int(np.count_nonzero(chosen)) * 3 // 2)
    if nodes <= limit:
        return np.arange(nodes)
    orders = _orders(problem, others)
    depth = 0
    while depth < nodes and np.count_nonzero(chosen) < limit * 7 // 8:
        step = max(1, (limit - int(np.count_nonzero(chosen))) // (2 * len(orders)))
        for order in orders:
            chosen[order[depth : depth + step]] = True
        depth += step
    rest = rng.permutation(np.flatnonzero(~chosen))
    chosen[rest[: max(0, limit - int(np.count_nonzero(chosen)))]] = True
    return np.flatnonzero(chosen)


def _limit(problem: Problem, placed: int) -> int:
    """Few suffice when the seed seats everybody; what nobody could seat deserves a wide look."""
    most = min(_MOST, _CELLS // max(1, len(problem.roles)))
    if placed < problem.minimum:
        return most
    return min(most, max(_FEWEST, _PER_POD * problem.total))


def _orders(problem: Problem, others: list[Integers]) -> list[Integers]:
    used = problem.scoring.used.mean(axis=0)
    slots = problem.slots
    orders = [np.argsort(-used, kind="stable"), np.argsort(used, kind="stable")]
    for role in range(min(len(slots), 8)):
        possible = np.where(slots[role] > 0, slots[role], np.iinfo(np.int64).max)
        orders += [np.argsort(-slots[role], kind="stable"), np.argsort(possible, kind="stable")]
    orders += [np.argsort(-counts.sum(axis=0), kind="stable") for counts in others]
    return orders
