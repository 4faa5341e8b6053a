"""Other topology domains for a gang that should use few of them: one left out, one instead of another or of two, one more.

One pod that leaves its rack while others stay gains nothing, so small steps don't find better racks. Here a step is from one set of domains
to another, downhill: each set that differs in one or two is filled greedily, and the best few of them are polished.
"""

from collections.abc import Iterator

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import ObjectiveValue, Valuation
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.local_search import round_cost, search_locally

_ROUNDS = 8
_DOWNHILL = 30  # rounds of polishing
_POLISHED = 3  # regions of a round, the best
_FEW = 4  # of its domains, those with the fewest members
_MOST = 8  # further domains, those with the most room
_COST = 3  # times as long as a round of polishing takes filling
_EFFORT = 300_000  # microseconds at most

Region = frozenset[int]
"""A set of domains."""


def in_better_region(problem: Problem, valuation: Valuation, counts: Integers, budget: Budget) -> Integers:
    """``counts``: int64[roles, nodes] after steps from its domains to better ones; itself if there are none.

    What that takes is spent from the ``budget``.
    """
    if problem.domains is None or not problem.weights.domains:
        return counts
    room, allowed = _room(problem, problem.domains), min(_EFFORT, budget.left / 2)
    effort = Budget(allowed)
    best, least = counts, valuation.objective_value(counts)
    tried: set[Region] = set()
    for _ in range(_ROUNDS):
        before = best
        trials: list[tuple[ObjectiveValue, int, _Trial]] = []
        for region in _beside(problem.domains, best, room):
            if region not in tried and _slots(problem, room, region) >= best.sum():
                tried.add(region)
                trial = _Trial(problem, np.flatnonzero(np.isin(problem.domains, list(region))))
                if not effort.pays(_COST * round_cost(trial.problem)) or budget.is_over:
                    break
                trials.append((trial.filled(), len(trials), trial))
        for _, _, trial in sorted(trials)[:_POLISHED]:
            if (worth := trial.search_locally(effort)) < least:
                best, least = trial.everywhere(counts), worth
        if best is before:
            break
    budget.spend(allowed - effort.left)
    return best


def _room(problem: Problem, domains: Integers) -> Integers:
    """How many of each role each domain seats as if they were alone: int64[roles, domains]."""
    slots = np.minimum(problem.slots, problem.count[:, None])
    room = np.stack([np.bincount(domains, weights=row) for row in slots]).astype(np.int64)
    return np.minimum(room, problem.count[:, None])


def _slots(problem: Problem, room: Integers, region: Region) -> int:
    """No more than so many sit in ``region``."""
    return int(np.minimum(room[:, list(region)].sum(axis=1), problem.count).sum())


def _beside(domains: Integers, counts: Integers, room: Integers) -> Iterator[Region]:
    """Regions that differ from that of ``counts`` by one domain, or by one that is taken instead of another, or of two."""
    members = np.bincount(domains, weights=counts.sum(axis=0))
    used = [domain for domain in np.argsort(members, kind="stable").tolist() if members[domain]]
    others = [domain for domain in np.argsort(-room.sum(axis=0), kind="stable").tolist() if not members[domain]][:_MOST]
    region = frozenset(used)
    yield from (region - {mine} for mine in used[:_FEW] if len(used) > 1)
    yield from (region - set(used[:2]) | {other} for other in others if len(used) > 1)
    yield from (region - {mine} | {other} for other in others for mine in used[:_FEW])
    yield from (region | {other} for other in others)


class _Trial:
    """The gang in one region."""

    def __init__(self, problem: Problem, rows: Integers) -> None:
        self.problem, self._rows = problem.restricted_to(rows), rows
        self._valuation = Valuation(self.problem)
        self._counts = np.zeros_like(self.problem.slots)

    def filled(self) -> ObjectiveValue:
        """What it is worth, greedily."""
        seeds = [counts for _, counts in greedy_seeds(self.problem, self._valuation, ("thrifty",))]
        self._counts = min(seeds, key=self._valuation.objective_value)
        return self._valuation.objective_value(self._counts)

    def search_locally(self, budget: Budget) -> ObjectiveValue:
        """What it is worth after some steps downhill."""
        self._counts = search_locally(self.problem, self._valuation, self._counts, _DOWNHILL, budget)
        return self._valuation.objective_value(self._counts)

    def everywhere(self, like: Integers) -> Integers:
        """The placement on all nodes."""
        counts = np.zeros_like(like)
        counts[:, self._rows] = self._counts
        return counts
