"""Search for a better set of topology domains for a gang that should use few of them.

A pod that leaves its rack while other pods stay gains nothing, so the local search doesn't find better racks. Here a step leads from one
set of domains to another: one domain less, one more, or one domain in place of one or two. Each such set is filled by a greedy rule, and
the best few sets are searched locally. The search goes on from the best set as long as that makes the placement better.
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
_LOCAL_ROUNDS = 30  # Rounds of each local search.
_BEST_TRIALS = 3  # Sets of each round that get a local search.
_MOST_LEFT = 4  # Domains in use that may be given up: those with the fewest members.
_MOST_NEW = 8  # Domains that may be added: those with the most capacity.
_FILL_COST = 3  # A greedy rule takes as long as this many rounds of a local search.
_MOST_EFFORT = 300_000  # Microseconds.

DomainSet = frozenset[int]
"""A set of topology domains, which are numbered as in ``Problem.domains``."""


def in_better_domains(problem: Problem, valuation: Valuation, counts: Integers, budget: Budget) -> Integers:
    """Return a placement in a better set of domains than that of ``counts``: int64[roles, nodes]; ``counts`` itself if none is found.

    The effort is spent from ``budget``: at most half of the effort left, and at most 0.3 s.
    """
    if problem.domains is None or not problem.weights.domains:
        return counts
    capacity, allowed = _capacity(problem, problem.domains), min(_MOST_EFFORT, budget.left / 2)
    effort = Budget(allowed)
    best, least = counts, valuation.objective_value(counts)
    tried: set[DomainSet] = set()
    for _ in range(_ROUNDS):
        before = best
        trials: list[tuple[ObjectiveValue, int, _Trial]] = []
        for domain_set in _neighbours(problem.domains, best, capacity):
            if domain_set not in tried and _most_placed(problem, capacity, domain_set) >= best.sum():
                tried.add(domain_set)
                trial = _Trial(problem, np.flatnonzero(np.isin(problem.domains, list(domain_set))))
                if not effort.try_spend(_FILL_COST * round_cost(trial.problem)) or budget.is_over:
                    break
                trials.append((trial.fill_greedily(), len(trials), trial))
        for _, _, trial in sorted(trials)[:_BEST_TRIALS]:
            if (value := trial.search_locally(effort)) < least:
                best, least = trial.on_all_nodes(counts), value
        if best is before:
            break
    budget.spend(allowed - effort.left)
    return best


def _capacity(problem: Problem, domains: Integers) -> Integers:
    """Return how many pods of each role each domain can take if the role is alone: int64[roles, domains]."""
    slots = np.minimum(problem.slots, problem.count[:, None])
    capacity = np.stack([np.bincount(domains, weights=row) for row in slots]).astype(np.int64)
    return np.minimum(capacity, problem.count[:, None])


def _most_placed(problem: Problem, capacity: Integers, domain_set: DomainSet) -> int:
    """Return an upper bound on the pods that the domains of ``domain_set`` can take."""
    return int(np.minimum(capacity[:, list(domain_set)].sum(axis=1), problem.count).sum())


def _neighbours(domains: Integers, counts: Integers, capacity: Integers) -> Iterator[DomainSet]:
    """Yield the sets of domains that differ little from the set that ``counts`` uses.

    Each has one domain less, one more, or one new domain in place of one or two used ones.
    """
    members = np.bincount(domains, weights=counts.sum(axis=0))
    used = [domain for domain in np.argsort(members, kind="stable").tolist() if members[domain]]
    others = [domain for domain in np.argsort(-capacity.sum(axis=0), kind="stable").tolist() if not members[domain]][:_MOST_NEW]
    domain_set = frozenset(used)
    yield from (domain_set - {own} for own in used[:_MOST_LEFT] if len(used) > 1)
    yield from (domain_set - set(used[:2]) | {other} for other in others if len(used) > 1)
    yield from (domain_set - {own} | {other} for other in others for own in used[:_MOST_LEFT])
    yield from (domain_set | {other} for other in others)


class _Trial:
    """Places the gang on the nodes ``rows``, which are the nodes of one set of domains."""

    def __init__(self, problem: Problem, rows: Integers) -> None:
        self.problem, self._rows = problem.restricted_to(rows), rows
        self._valuation = Valuation(self.problem)
        self._counts = np.zeros_like(self.problem.slots)

    def fill_greedily(self) -> ObjectiveValue:
        """Place the gang by the greedy rule ``thrifty``. Return the objective value."""
        seeds = [counts for _, counts in greedy_seeds(self.problem, self._valuation, ("thrifty",))]
        self._counts = min(seeds, key=self._valuation.objective_value)
        return self._valuation.objective_value(self._counts)

    def search_locally(self, budget: Budget) -> ObjectiveValue:
        """Improve the placement by a local search. Return the objective value."""
        self._counts = search_locally(self.problem, self._valuation, self._counts, _LOCAL_ROUNDS, budget)
        return self._valuation.objective_value(self._counts)

    def on_all_nodes(self, like: Integers) -> Integers:
        """Return the placement on all nodes: int64[roles, nodes], in the shape of ``like``."""
        counts = np.zeros_like(like)
        counts[:, self._rows] = self._counts
        return counts
