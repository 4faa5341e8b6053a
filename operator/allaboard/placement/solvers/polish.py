"""Small steps downhill from a placement: one pod, or all pods of a node, to another node, as long as that makes it cheaper.

The genetic search finds the region, these steps its lowest point (a memetic algorithm; Moscato 1989). Each step looks at all moves of a
kind at once and takes the best one.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.room import seats_for

_EPSILON = 1e-9
_MOST_PAIRS = 60_000
_MOST_NODE_PAIRS = 6000  # of which each pattern must be looked up


def polished(problem: Problem, valuation: Valuation, counts: Integers, steps: int) -> Integers:
    """``counts``: int64[roles, nodes] after up to ``steps`` moves, each of which lowers the cost; itself when none does."""
    best = counts
    for _ in range(steps):
        step = _Step(problem, valuation, best)
        gain, after = min((step.best_of_role(role) for role in np.flatnonzero(best.any(axis=1)).tolist()), key=_gain, default=(0.0, best))
        if gain >= -_EPSILON:
            gain, after = step.best_of_nodes()
        if gain >= -_EPSILON:
            break
        best = after
    return best


def _gain(move: tuple[float, Integers]) -> float:
    return move[0]


class _Step:
    """All moves from one placement."""

    def __init__(self, problem: Problem, valuation: Valuation, counts: Integers) -> None:
        self._problem, self._valuation, self._counts = problem, valuation, counts
        self._left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
        self._used = np.flatnonzero(counts.any(axis=0))
        self._now = np.zeros(counts.shape[1])
        self._now[self._used] = valuation.node_costs(self._used, counts[:, self._used].T)

    def best_of_role(self, role: int) -> tuple[float, Integers]:
        """The best move of one pod of ``role``: what it adds to the cost, and the placement after it."""
        counts = self._counts
        sources = np.flatnonzero(counts[role])
        targets = np.flatnonzero(seats_for(self._problem.demand[role], self._left, self._problem.admits[role]))
        if not len(sources) or not len(targets) or len(sources) * len(targets) > _MOST_PAIRS:
            return 0.0, counts
        one = np.zeros(len(counts), dtype=np.int64)
        one[role] = 1
        leaving = self._valuation.node_costs(sources, counts[:, sources].T - one) - self._now[sources]
        coming = self._valuation.node_costs(targets, counts[:, targets].T + one) - self._now[targets]
        is_emptied = counts[:, sources].sum(axis=0) == 1
        return self._best(sources, targets, leaving[:, None] + coming, is_emptied, one)

    def best_of_nodes(self) -> tuple[float, Integers]:
        """The best move of all pods of one node to another."""
        problem, counts, targets = self._problem, self._counts, np.arange(self._counts.shape[1])
        # Where there are too many, those that cost most.
        sources = self._used[np.argsort(-self._now[self._used], kind="stable")[: _MOST_NODE_PAIRS // max(1, len(targets))]]
        if not len(sources):
            return 0.0, counts
        patterns = counts[:, sources]
        fits = np.ones((len(sources), len(targets)), dtype=np.bool_)
        for column, asked in enumerate(np.einsum("rc,ra->ca", problem.demand, patterns)):
            fits &= asked[:, None] <= self._left[column]
        for role in range(len(counts)):
            fits &= (patterns[role] == 0)[:, None] | problem.admits[role]
        fits[np.arange(len(sources)), sources] = False
        rows, columns = np.nonzero(fits)
        if not len(rows):
            return 0.0, counts
        costs = np.full(fits.shape, np.inf)
        together = self._valuation.node_costs(targets[columns], (counts[:, targets[columns]] + patterns[:, rows]).T)
        costs[rows, columns] = together - self._now[targets[columns]] - self._now[sources[rows]]
        return self._best(sources, targets, costs, np.ones(len(sources), dtype=np.bool_), None)

    def _best(
        self, sources: Integers, targets: Integers, costs: Floats, is_emptied: np.ndarray, what: Integers | None
    ) -> tuple[float, Integers]:
        """The best pair of nodes; ``what``: int64[roles] moves between them, or all."""
        problem = self._problem
        if problem.domains is not None and problem.weights.domains:
            uses = np.bincount(problem.domains[self._used], minlength=int(problem.domains.max()) + 1)
            from_, to = problem.domains[sources], problem.domains[targets]
            is_left = is_emptied & (uses[from_] == 1)
            is_new = (uses[to] == 0) & ~np.isin(targets, self._used)
            costs = costs + problem.weights.domains * (is_new[None, :].astype(np.float64) - (is_left[:, None] & (from_[:, None] != to)))
        costs[sources[:, None] == targets] = np.inf
        source, target = np.unravel_index(int(np.argmin(costs)), costs.shape)
        moved = self._counts[:, sources[source]] if what is None else what
        after = self._counts.copy()
        after[:, sources[source]] -= moved
        after[:, targets[target]] += moved
        if problem.devices is not None and (problem.trimmed(after[None])[0] != after).any():
            return 0.0, self._counts
        return float(costs[source, target]), after
