"""The cost of placements: the sum over the nodes of what the pods on each node cost together, plus what depends on topology domains.

What the pods on a node cost depends on this node alone. So this part of the cost is looked up node by node in a table. The key in the
table is the node and its *pattern*: how many pods of each role are on the node. The table grows with each new pattern; a search meets most
patterns many times.
"""

from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.fit import FitScoring
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.attraction import pair_costs

_LARGEST_KEY = 2**62
_MOST_SAMPLES = 8  # members of a role on a node that a kube-scheduler profile scores one by one


@dataclass(frozen=True, slots=True, order=True)
class ObjectiveValue:
    """The value of a placement; the smallest is the best. Fields compare in order.

    ``missing``: needed members that aren't placed. ``surplus``: other members that aren't placed. ``cost``: the negated score.
    """

    missing: int
    surplus: int
    cost: float

    @property
    def score(self) -> float:
        """The score of the placement; higher is better."""
        return -self.cost


class Valuation:
    """Computes what placements of one problem cost. The instance caches what it computes, so keep it as long as the search."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._per_node = [(each.pairs, each.domains >= 0) for each in problem.attractions if each.is_per_node]
        self._in_domains = problem.attractions_in_domains
        # One pod more than the role has: a move is valued before the pod has left its old node.
        strides = np.cumprod([1, *(problem.count + 2).tolist()], dtype=object)
        is_expensive = problem.fragmentation is not None or isinstance(problem.scoring.packing, FitScoring)
        self._is_cached = is_expensive and int(strides[-1]) * max(1, len(problem.nodes)) < _LARGEST_KEY
        self._strides = strides.astype(np.int64) if self._is_cached else np.zeros(0, dtype=np.int64)
        self._keys: Integers = np.zeros(0, dtype=np.int64)
        self._values: Floats = np.zeros(0)

    def costs(self, counts: Integers) -> Floats:
        """Return the cost of each placement in ``counts``: float64[plans]; lower is better. An empty placement costs nothing.

        ``counts``: int64[plans, roles, nodes].
        """
        problem = self._problem
        plans, rows = np.nonzero(counts.any(axis=1))
        total = np.bincount(plans, weights=self.node_costs(rows, counts[plans, :, rows]), minlength=len(counts)).astype(np.float64)
        if problem.domains is not None and problem.weights.domains:
            used = np.zeros((len(counts), int(problem.domains.max(initial=0)) + 1), dtype=np.bool_)
            used[plans, problem.domains[rows]] = True
            total += problem.weights.domains * used.sum(axis=1)
        for attraction in self._in_domains:
            total += attraction.costs(counts)
        return total

    def scores(self, counts: Integers) -> Floats:
        """Return the score of each placement in ``counts``: float64[plans]; higher is better.

        A score is 100 less 100 times the mean cost of a member; 0 for an empty placement. ``counts``: int64[plans, roles, nodes].
        """
        members = counts.sum(axis=(1, 2))
        costs = self.costs(counts)
        mean = np.divide(costs, members, out=np.ones(len(costs)), where=members > 0)
        scores: Floats = 100.0 * (1.0 - mean)
        return scores

    def objective_values(self, counts: Integers) -> list[ObjectiveValue]:
        """Return the objective value of each placement in ``counts``; the smallest is the best.

        ``counts``: int64[plans, roles, nodes].
        """
        placed = counts.sum(axis=2)
        missing = np.maximum(self._problem.lacking(placed), 0)
        surplus = self._problem.total - placed.sum(axis=1) - missing
        return [ObjectiveValue(*each) for each in zip(missing.tolist(), surplus.tolist(), (-self.scores(counts)).tolist(), strict=True)]

    def objective_value(self, counts: Integers) -> ObjectiveValue:
        """Return the objective value of one placement, ``counts``: int64[roles, nodes]."""
        return self.objective_values(counts[None])[0]

    def node_costs(self, rows: Integers, patterns: Integers) -> Floats:
        """Return what the pods on each of the nodes ``rows`` cost.

        ``rows``: int64[k]. ``patterns``: int64[k, roles], how many pods of each role are on each of these nodes. The result is float64[k].
        """
        if not self._is_cached:
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
            total += weights.packing * (patterns.sum(axis=1) - self._packing_scores(rows, patterns))
        if weights.spreading:
            total += weights.spreading * self._fullness(rows, patterns)
        if problem.dislike is not None:
            total += np.einsum("kr,rk->k", patterns, problem.dislike[:, rows])
        if problem.fragmentation is not None:
            total += problem.fragmentation.costs(rows, patterns, weights)
        for pairs, has_domain in self._per_node:
            total += np.where(has_domain[rows], pair_costs(pairs, patterns.T.astype(np.float64)), 0.0)
        return total

    def _packing_scores(self, rows: Integers, patterns: Integers) -> Floats:
        """Return the sum of the members' packing scores, 0..1 each, on each of the nodes ``rows``.

        ``patterns``: int64[k, roles], members of each role on each of these nodes. The result is float64[k]. Each member is scored as if
        half of the node's other members were on the node already, since that is so on average.
        """
        scoring, roles = self._problem.scoring, np.flatnonzero(patterns.any(axis=0))
        if isinstance(scoring.packing, FitScoring):
            return self._points(scoring.packing, rows, patterns) / 100
        step, weight = (values[roles].take(rows, axis=2) for values in (scoring.step, scoring.weight))
        members = patterns.T[roles].astype(np.float64)
        others = scoring.used[:, rows] + np.einsum("rk,rsk->sk", members, step) / 2
        packed: Floats = np.einsum("rk,rk->k", members, scoring.packing.mean(others + step / 2, weight))
        return packed

    def _points(self, fit: FitScoring, rows: Integers, patterns: Integers) -> Floats:
        """Return the sum of the members' points by a kube-scheduler profile, on each of the nodes ``rows``.

        ``patterns``: int64[k, roles], members of each role on each of these nodes. The result is float64[k]. The members of a role are
        scored one after another, and for each of them half of the other roles' members are on the node already. If a node has more than
        eight members of a role, eight of them stand for all.
        """
        scoring = self._problem.scoring
        if scoring.allocatable is None or scoring.counted is None:
            raise ValueError("a kube-scheduler profile is scored by whole amounts")
        allocatable, used = scoring.allocatable[:, rows], scoring.used[:, rows]
        roles = np.flatnonzero(patterns.any(axis=0)).tolist()
        load = np.einsum("kr,rsk->sk", patterns[:, roles].astype(np.float64), scoring.step[roles].take(rows, axis=2))
        total = np.zeros(len(rows))
        for role in roles:
            step, count = scoring.step[role][:, rows], patterns[:, role]
            others = used + (load - step * count) / 2
            samples = np.minimum(count, _MOST_SAMPLES)
            for sample in range(int(samples.max())):
                # A share times the allocatable amount is a whole amount again. Below 2^50 floats are exact.
                before = (2 * sample + 1) * count // (2 * np.maximum(samples, 1))
                requested = np.rint((others + step * (before + 1)) * allocatable).astype(np.int64)
                points = fit.scores(requested, allocatable, scoring.counted[role])
                total += np.where(sample < samples, points * count / np.maximum(samples, 1), 0.0)
        return total

    def _fullness(self, rows: Integers, patterns: Integers) -> Floats:
        """Return the sum over the members of how full their node is, 0..1 each, for each of the nodes ``rows``.

        ``patterns``: int64[k, roles], members of each role on each of these nodes. The result is float64[k]. kube-scheduler's mean leaves
        out resources that score 0. No resource scores 0 here, since a member raises the use of each resource that it requests.
        """
        scoring = self._problem.scoring
        members = patterns.astype(np.float64)
        total = np.zeros(len(rows))
        for resource in range(len(scoring.used)):
            utilization = scoring.used[resource, rows] + np.einsum("kr,rk->k", members, scoring.step[:, resource, rows])
            total += np.minimum(utilization, 1.0) * np.einsum("kr,rk->k", members, scoring.weight[:, resource, rows])
        return total


def one_each(roles: int, role: int, rows: Integers) -> Integers:
    """Return a single pod of ``role`` on each of the nodes ``rows``, as pods by node and role: int64[k, roles]."""
    patterns = np.zeros((len(rows), roles), dtype=np.int64)
    patterns[:, role] = 1
    return patterns
