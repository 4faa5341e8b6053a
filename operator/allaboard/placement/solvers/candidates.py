"""Select the nodes that a search considers, if a cluster has more than the search needs.

Some nodes are equal in all that the search sees, such as empty nodes of one model. Among equal nodes, as many are needed as there are pods:
every placement has an equally good one on these nodes, and every proof holds for these nodes alone. Equal nodes may still differ in what a
single pod costs there, by the pod's preferences: the cheapest nodes are kept.

If there are thousands of nodes, the genetic search considers fewer: those of the best seed, and the first nodes of each sensible order.
Some random nodes are added, so that no kind of node is left out for good.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem

_MOST_NODES = 1000
_MOST_CELLS = 60_000  # roles times nodes
_FEWEST_NODES = 192
_NODES_PER_POD = 3


def needed_rows(problem: Problem) -> Integers:
    """Return the ascending positions of the nodes that a search needs.

    Two kinds of nodes are left out: nodes without a slot for any role, and nodes of which enough equal nodes are kept that cost no more.
    """
    has_slots = np.asarray(problem.slots.any(axis=0))
    if len(has_slots) <= problem.total or not has_slots.any():
        return np.arange(len(has_slots))
    table = problem.node_table(with_dislike=False)
    factors = np.random.default_rng(0).integers(2**63, size=(len(table), 1), dtype=np.uint64) | np.uint64(1)
    # Equal nodes have equal hashes; ``is_copy`` compares the values themselves.
    hashes = ((table ^ (table >> np.uint64(32))) * factors).sum(axis=0)
    _, first, kinds, sizes = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    kinds = kinds.ravel()
    dislike = np.zeros((1, len(has_slots))) if problem.dislike is None else problem.dislike
    order = np.lexsort((dislike.sum(axis=0), kinds))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = rank < problem.total
    worst = np.full((len(dislike), len(sizes)), -np.inf)
    np.maximum.at(worst.T, kinds[kept], dislike[:, kept].T)
    is_copy = (table == table[:, first[kinds]]).all(axis=0) & ~kept & (dislike >= worst[:, kinds]).all(axis=0)
    return np.flatnonzero(has_slots & ~is_copy)


def candidate_rows(problem: Problem, best: Integers, others: list[Integers], rng: np.random.Generator) -> Integers:
    """Return the ascending positions of the nodes for the genetic search.

    ``best``: int64[roles, nodes], the best placement so far; all nodes that it uses are included. ``others``: further placements; the nodes
    to which these placements assign most pods are included.
    """
    nodes = len(problem.nodes)
    chosen = np.zeros(nodes, dtype=np.bool_)
    chosen[best.any(axis=0)] = True
    # However many nodes ``best`` uses, there must be other nodes to move to.
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
    """Return how many nodes to search at most: few if at least the minimum is ``placed``, else as many as the search can handle."""
    most = min(_MOST_NODES, _MOST_CELLS // max(1, len(problem.roles)))
    if placed < problem.minimum:
        return most
    return min(most, max(_FEWEST_NODES, _NODES_PER_POD * problem.total))


def _orders(problem: Problem, others: list[Integers]) -> list[Integers]:
    """Return orders of the nodes: by utilization, by the slots for each of the first eight roles, and by the pods of each of ``others``.

    ``others``: further placements, int64[roles, nodes] each.
    """
    used = problem.scoring.used.mean(axis=0)
    slots = problem.slots
    orders = [np.argsort(-used, kind="stable"), np.argsort(used, kind="stable")]
    for role in range(min(len(slots), 8)):
        possible = np.where(slots[role] > 0, slots[role], np.iinfo(np.int64).max)
        orders += [np.argsort(-slots[role], kind="stable"), np.argsort(possible, kind="stable")]
    orders += [np.argsort(-counts.sum(axis=0), kind="stable") for counts in others]
    return orders
