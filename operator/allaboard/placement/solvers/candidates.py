"""Which nodes the genetic search looks at when there are more than it needs.

A gang sits on few of thousands of nodes. Kept are those of the best seed, the top of each sensible order, and some at random, so that
no kind of node is lost for good. The bounds and the greedy seeds always see every node.
"""

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem

_MOST = 1000
_CELLS = 60_000
_FEWEST = 192
_PER_POD = 3


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
    seats = problem.seats
    orders = [np.argsort(-used, kind="stable"), np.argsort(used, kind="stable")]
    for role in range(min(len(seats), 8)):
        possible = np.where(seats[role] > 0, seats[role], np.iinfo(np.int64).max)
        orders += [np.argsort(-seats[role], kind="stable"), np.argsort(possible, kind="stable")]
    orders += [np.argsort(-counts.sum(axis=0), kind="stable") for counts in others]
    return orders
