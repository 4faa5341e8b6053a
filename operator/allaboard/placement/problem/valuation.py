"""What placements cost: the sum over their nodes of what the pods there cost together, and what the nodes cost together.

All terms but the topology domains are separable by node, so a placement's cost is looked up node by node in a table of who sits there
(the *pattern*) that grows as the search meets new patterns: few do, compared with how often.
"""

from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.fit import FitScoring
from allaboard.placement.problem.problem import Problem

_LARGEST_KEY = 2**62
_TURNS = 8  # of a role on a node that are looked at one by one by a profile of kube-scheduler's


@dataclass(frozen=True, slots=True, order=True)
class ObjectiveValue:
    """How good a placement is, compared field by field: members that lack, surplus left out, and the score, negated."""

    missing: int
    surplus: int
    cost: float

    @property
    def score(self) -> float:
        """Higher is better."""
        return -self.cost


class Valuation:
    """The costs of placements of one problem. It remembers what it has computed, so keep it as long as the search."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        # One more than there are: a move is valued before the pod has left where it was.
        strides = np.cumprod([1, *(problem.count + 2).tolist()], dtype=object)
        is_dear = problem.fragmentation is not None or isinstance(problem.scoring.packing, FitScoring)
        self._is_remembered = is_dear and int(strides[-1]) * max(1, len(problem.nodes)) < _LARGEST_KEY
        self._strides = strides.astype(np.int64) if self._is_remembered else np.zeros(0, dtype=np.int64)
        self._keys: Integers = np.zeros(0, dtype=np.int64)
        self._values: Floats = np.zeros(0)

    def costs(self, counts: Integers) -> Floats:
        """float64[plans] of ``counts``: int64[plans, roles, nodes], lower is better. Nobody seated costs nothing."""
        problem = self._problem
        plans, rows = np.nonzero(counts.any(axis=1))
        total = np.bincount(plans, weights=self.node_costs(rows, counts[plans, :, rows]), minlength=len(counts)).astype(np.float64)
        if problem.domains is not None and problem.weights.domains:
            used = np.zeros((len(counts), int(problem.domains.max(initial=0)) + 1), dtype=np.bool_)
            used[plans, problem.domains[rows]] = True
            total += problem.weights.domains * used.sum(axis=1)
        return total

    def scores(self, counts: Integers) -> Floats:
        """float64[plans], 100 less the hundredfold cost of a member, higher is better; 0 where nobody sits."""
        members = counts.sum(axis=(1, 2))
        costs = self.costs(counts)
        mean = np.divide(costs, members, out=np.ones(len(costs)), where=members > 0)
        scores: Floats = 100.0 * (1.0 - mean)
        return scores

    def objective_values(self, counts: Integers) -> list[ObjectiveValue]:
        """Of plans, int64[plans, roles, nodes]; the least is the best."""
        placed = counts.sum(axis=2)
        missing = np.maximum(self._problem.lacking(placed), 0)
        surplus = self._problem.total - placed.sum(axis=1) - missing
        return [ObjectiveValue(*each) for each in zip(missing.tolist(), surplus.tolist(), (-self.scores(counts)).tolist(), strict=True)]

    def objective_value(self, counts: Integers) -> ObjectiveValue:
        """Of one plan, int64[roles, nodes]."""
        return self.objective_values(counts[None])[0]

    def node_costs(self, rows: Integers, patterns: Integers) -> Floats:
        """float64[k] of ``patterns``: int64[k, roles] on nodes ``rows``: int64[k]."""
        if not self._is_remembered:
            return self._computed(rows, patterns)
        keys, places = np.unique(rows * self._strides[-1] + patterns @ self._strides[:-1], return_inverse=True)
        first = np.empty(len(keys), dtype=np.int64)
        first[places.ravel()] = np.arange(len(rows))
        found = np.searchsorted(self._keys, keys)
        is_known = np.zeros(len(keys), dtype=np.bool_)
        inside = found < len(self._keys)
        is_known[inside] = self._keys[found[inside]] == keys[inside]
        values = np.empty(len(keys))
        values[is_known] = self._values[found[is_known]]
        new = first[~is_known]
        if len(new):
            values[~is_known] = self._computed(rows[new], patterns[new])
            order = np.argsort(merged := np.concatenate([self._keys, keys[~is_known]]), kind="stable")
            self._keys, self._values = merged[order], np.concatenate([self._values, values[~is_known]])[order]
        return values[places.ravel()]

    def _computed(self, rows: Integers, patterns: Integers) -> Floats:
        problem, weights = self._problem, self._problem.weights
        total = np.zeros(len(rows))
        if weights.packing:
            total += weights.packing * (patterns.sum(axis=1) - self._packed(rows, patterns))
        if weights.spreading:
            total += weights.spreading * self._fullness(rows, patterns)
        if problem.dislike is not None:
            total += np.einsum("kr,rk->k", patterns, problem.dislike[:, rows])
        if problem.fragmentation is not None:
            total += problem.fragmentation.costs(rows, patterns, weights)
        return total

    def _packed(self, rows: Integers, patterns: Integers) -> Floats:
        """Members weighed by how their node scores when it is their turn, 0..1.

        A member that is one of many there finds half of the others before it.
        """
        scoring, seated = self._problem.scoring, np.flatnonzero(patterns.any(axis=0))
        if isinstance(scoring.packing, FitScoring):
            return self._points(scoring.packing, rows, patterns) / 100
        step, weight = (values[seated].take(rows, axis=2) for values in (scoring.step, scoring.weight))
        members = patterns.T[seated].astype(np.float64)
        others = scoring.used[:, rows] + np.einsum("rk,rsk->sk", members, step) / 2
        packed: Floats = np.einsum("rk,rk->k", members, scoring.packing.mean(others + step / 2, weight))
        return packed

    def _points(self, fit: FitScoring, rows: Integers, patterns: Integers) -> Floats:
        """The points of all members by a profile of kube-scheduler's, each when it is its turn among those of its role.

        It finds half of the other roles before it, like above. Of more than eight of a role on a node, eight stand for all.
        """
        scoring = self._problem.scoring
        if scoring.allocatable is None or scoring.counted is None:
            raise ValueError("a profile is scored by whole amounts")
        allocatable, used = scoring.allocatable[:, rows], scoring.used[:, rows]
        seated = np.flatnonzero(patterns.any(axis=0)).tolist()
        load = np.einsum("kr,rsk->sk", patterns[:, seated].astype(np.float64), scoring.step[seated].take(rows, axis=2))
        total = np.zeros(len(rows))
        for role in seated:
            step, count = scoring.step[role][:, rows], patterns[:, role]
            others = used + (load - step * count) / 2
            turns = np.minimum(count, _TURNS)
            for turn in range(int(turns.max())):
                # Shares times what there is are whole amounts again: they are less than 2^50, which floats are exact for.
                before = (2 * turn + 1) * count // (2 * np.maximum(turns, 1))
                requested = np.rint((others + step * (before + 1)) * allocatable).astype(np.int64)
                points = fit.scores(requested, allocatable, scoring.counted[role])
                total += np.where(turn < turns, points * count / np.maximum(turns, 1), 0.0)
        return total

    def _fullness(self, rows: Integers, patterns: Integers) -> Floats:
        """Members weighed by how full their node is, 0..1. No resource of a member scores zero here, since it adds to each."""
        scoring = self._problem.scoring
        seated = patterns.astype(np.float64)
        total = np.zeros(len(rows))
        for resource in range(len(scoring.used)):
            utilization = scoring.used[resource, rows] + np.einsum("kr,rk->k", seated, scoring.step[:, resource, rows])
            total += np.minimum(utilization, 1.0) * np.einsum("kr,rk->k", seated, scoring.weight[:, resource, rows])
        return total


def one_each(roles: int, role: int, rows: Integers) -> Integers:
    """Patterns of one pod of ``role`` on each of ``rows``: int64[k, roles]."""
    patterns = np.zeros((len(rows), roles), dtype=np.int64)
    patterns[:, role] = 1
    return patterns
