"""Local search from a placement: move one pod, or all pods of a node, to another node as long as that makes the placement cheaper.

The genetic search comes near a good placement, and the local search finds the cheapest one there (a memetic algorithm; Moscato 1989). Each
search step computes the costs of all moves of one kind at once and takes the best move. If the cost of a placement is the sum of the costs
of its nodes, the step also takes further moves that lower the cost. No node takes part in two moves of a step, so the moves don't affect
each other. What a move saves depends only on the node that the pod leaves, and what it costs only on the node that takes the pod.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.problem import Problem, combined
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.attraction import moved_costs
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.solvers.budget import Budget

_EPSILON = 1e-9
_MOST_PAIRS = 60_000
_MOST_MOVES = 64  # Moves of one search step.
_COST_OF_ROLE = 400
_CELLS_PER_MICROSECOND = 10
_MOST_NODE_PAIRS = 6000  # Each pair takes a look-up of its own.


def round_cost(problem: Problem) -> int:
    """Return about how many microseconds a round of the local search takes."""
    return len(problem.roles) * (_COST_OF_ROLE + len(problem.nodes) * len(problem.columns) // _CELLS_PER_MICROSECOND)


def search_locally(problem: Problem, valuation: Valuation, counts: Integers, rounds: int, budget: Budget | None = None) -> Integers:
    """Return the placement ``counts`` after up to ``rounds`` rounds of moves; ``counts`` itself if no move lowers the cost.

    In a round each role takes one search step. If no role gains, all pods of one node move to another node. The effort is spent from
    ``budget``. ``counts`` and the result: int64[roles, nodes].
    """
    best = counts
    for _ in range(rounds):
        if budget is not None and not budget.try_spend(round_cost(problem)):
            break
        before, step = best, _Step(problem, valuation, best)
        for role in np.flatnonzero(best.any(axis=1)).tolist():
            if budget is not None and budget.is_over:  # with hundreds of roles a round takes seconds
                return best
            gain, after = step.best_of_role(role)
            if gain < -_EPSILON:
                best, step = after, _Step(problem, valuation, after)
        if best is before:
            gain, after = step.best_of_nodes()
            if gain >= -_EPSILON:
                break
            best = after
    return best


class _Step:
    """Finds the best move from one placement."""

    def __init__(self, problem: Problem, valuation: Valuation, counts: Integers) -> None:
        self._problem, self._valuation, self._counts = problem, valuation, counts
        self._left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
        self._used = np.flatnonzero(counts.any(axis=0))
        self._domains = problem.domains if problem.domains is not None else np.zeros(0, dtype=np.int64)
        self._has_domains = problem.domains is not None and bool(problem.weights.domains)
        self._attractions = problem.attractions_in_domains
        domains = [*([self._domains] if self._has_domains else []), *(each.domains for each in self._attractions)]
        self._classes = combined(domains) if domains else None
        self._now = np.zeros(counts.shape[1])
        self._now[self._used] = valuation.node_costs(self._used, counts[:, self._used].T)

    def best_of_role(self, role: int) -> tuple[float, Integers]:
        """Return what the best move of one pod of ``role`` adds to the cost (negative if it gains), and the placement after the move."""
        counts = self._counts
        sources = np.flatnonzero(counts[role])
        targets = np.flatnonzero(slots_for(self._problem.demand[role], self._left, self._problem.admits[role]))
        if not len(sources) or not len(targets):
            return 0.0, counts
        one = np.zeros(len(counts), dtype=np.int64)
        one[role] = 1
        leaving = self._valuation.node_costs(sources, counts[:, sources].T - one) - self._now[sources]
        coming = self._valuation.node_costs(targets, counts[:, targets].T + one) - self._now[targets]
        if self._problem.devices is None and self._classes is None:
            return self._best_apart(role, sources, targets, leaving, coming)
        is_emptied = counts[:, sources].sum(axis=0) == 1
        if self._classes is not None:
            # The best move starts at one of the two nodes of a domain that are cheapest to leave, with or without the saving of a domain
            # that is emptied. It ends at one of the two nodes of a domain that are cheapest to enter. If domains are of several kinds,
            # those nodes count as one domain that have all domains in common.
            classes, bonus = self._classes, self._problem.weights.domains * is_emptied
            few = np.union1d(_two_of_each(leaving, classes[sources]), _two_of_each(leaving - bonus, classes[sources]))
            sources, leaving, is_emptied = sources[few], leaving[few], is_emptied[few]
            few = _two_of_each(coming, classes[targets])
            targets, coming = targets[few], coming[few]
        if len(sources) * len(targets) > _MOST_PAIRS:
            return 0.0, counts
        return self._best(sources, targets, leaving[:, None] + coming, is_emptied, one)

    def _best_apart(self, role: int, sources: Integers, targets: Integers, leaving: Floats, coming: Floats) -> tuple[float, Integers]:
        """Return what the best moves of pods of ``role`` add to the cost, and the placement after these moves.

        The first move is the best of all moves. No node takes part in two of the moves.
        """
        going, taking = np.argsort(leaving, kind="stable"), np.argsort(coming, kind="stable")
        from_, to = sources[going].tolist(), targets[taking].tolist()
        saved, paid = [*leaving[going].tolist(), np.inf], [*coming[taking].tolist(), np.inf]
        gain, after, moved = 0.0, self._counts, set[int]()
        first = second = moves = 0
        while first < len(from_) and second < len(to) and moves < _MOST_MOVES:
            if from_[first] in moved:
                first += 1
            elif to[second] in moved:
                second += 1
            elif from_[first] == to[second]:
                is_first = saved[first + 1] + paid[second] < saved[first] + paid[second + 1]
                first, second = first + is_first, second + (not is_first)
            elif saved[first] + paid[second] >= -_EPSILON:
                break
            else:
                after = after if moves else after.copy()
                after[role, from_[first]] -= 1
                after[role, to[second]] += 1
                moved |= {from_[first], to[second]}
                gain += saved[first] + paid[second]
                first, second, moves = first + 1, second + 1, moves + 1
        return gain, after

    def best_of_nodes(self) -> tuple[float, Integers]:
        """Return what the best move of all pods of one node to another adds to the cost, and the placement after the move."""
        problem, counts, targets = self._problem, self._counts, np.arange(self._counts.shape[1])
        # If there are too many nodes, those that cost most are tried.
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
        self, sources: Integers, targets: Integers, costs: Floats, is_emptied: np.ndarray, moving: Integers | None
    ) -> tuple[float, Integers]:
        """Return what the best move from one of ``sources`` to one of ``targets`` adds to the cost, and the placement after the move.

        ``costs``: float64[sources, targets], what each move adds. ``moving``: int64[roles], the pods that move; all pods of the source if
        None.
        """
        problem = self._problem
        if self._has_domains:
            uses = np.bincount(self._domains[self._used], minlength=int(self._domains.max()) + 1)
            from_, to = self._domains[sources], self._domains[targets]
            is_left = is_emptied & (uses[from_] == 1)
            is_new = (uses[to] == 0) & ~np.isin(targets, self._used)
            costs = costs + problem.weights.domains * (is_new[None, :].astype(np.float64) - (is_left[:, None] & (from_[:, None] != to)))
        leaving = self._counts[:, sources] if moving is None else np.repeat(moving[:, None], len(sources), axis=1)
        for attraction in self._attractions:
            costs = costs + moved_costs(attraction, self._counts, leaving, sources, targets)
        costs[sources[:, None] == targets] = np.inf
        source, target = np.unravel_index(int(np.argmin(costs)), costs.shape)
        moved = self._counts[:, sources[source]] if moving is None else moving
        after = self._counts.copy()
        after[:, sources[source]] -= moved
        after[:, targets[target]] += moved
        if problem.devices is not None and (problem.trimmed(after[None])[0] != after).any():
            return 0.0, self._counts
        return float(costs[source, target]), after


def _two_of_each(values: Floats, domains: Integers) -> Integers:
    """Return the positions of the two least ``values`` in each domain.

    ``values``: float64[k]. ``domains``: int64[k], the domain of each value.
    """
    order = np.lexsort((values, domains))
    sorted_ = domains[order]
    is_third = np.zeros(len(order), dtype=np.bool_)
    is_third[2:] = sorted_[2:] == sorted_[:-2]
    few: Integers = order[~is_third]
    return few
