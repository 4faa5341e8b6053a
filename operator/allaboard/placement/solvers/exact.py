"""Find the best placement of a gang of few roles, with the proof that no placement is better.

The cost of a placement is the sum of the costs of its nodes. A node's cost depends on its *pattern*: how many pods of each role are on it.
If topology domains count, each used domain costs a constant more. To choose a pattern for each node, so that all pods are placed at the
least cost, is a multiple-choice knapsack problem. It is solved in three steps:

1. *Prices.* Each role gets a price for a pod. By these prices, each node takes the pattern that is cheapest for the node alone. That gives
   a lower bound on the cost of all placements (Lagrangian relaxation: Fisher, Management Science 27, 1981). Subgradient steps raise it.
2. *Reduction.* A pattern other than the cheapest raises the bound by the difference. Only patterns that raise the bound by no more than
   a *slack* are kept. Most nodes have a single pattern then.
3. *Dynamic programming* decides about the other nodes (`pattern_program.py`). If the result costs no more than the bound and the slack, no
   placement costs less. Otherwise the slack is raised, and steps 2 and 3 are repeated.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.pattern_program import Chosen, Domain, PatternProgram
from allaboard.placement.solvers.patterns import Kinds, Patterns, kinds_of, patterns_of

_EPSILON = 1e-8
_MOST_ROLES = 6
_BISECTIONS = 30
_PRICE_STEPS = 30
_FIRST_SLACK = 1e-4
_SLACK_FACTOR = 8.0


class Limits(NamedTuple):
    """Limits of the work of ``best_placement``: the most patterns, cells of the table, and operations on single cells."""

    patterns: int
    cells: int
    operations: int


FULL = Limits(40_000, 20_000, 24_000_000)
"""About 100 ms."""

QUICK = Limits(2_500, 3_000, 800_000)
"""About 5 ms."""


class Optimum(NamedTuple):
    """The answer of ``best_placement``.

    ``counts``: int64[roles, nodes], a best placement of all pods; None if none is known. ``is_impossible``: not all pods can be placed.
    """

    counts: Integers | None = None
    is_impossible: bool = False


UNKNOWN = Optimum()


def accepts(problem: Problem) -> bool:
    """Return whether ``best_placement`` applies: there are few roles, and no pod restricts or costs another pod on a different node."""
    is_separable = not problem.couplings and not problem.attractions_in_domains
    return 0 < len(problem.roles) <= _MOST_ROLES and is_separable and bool(problem.slots.any())


def best_placement(problem: Problem, valuation: Valuation, limits: Limits = FULL) -> Optimum:
    """Return a placement of all pods that costs least, or the proof that there is none.

    Of pods of one role, as many are placed as there are slots for. The answer is ``UNKNOWN`` if the work exceeds ``limits``, or if the
    problem isn't one that the method ``accepts``.
    """
    if not accepts(problem):
        return UNKNOWN
    # The order of the roles is that of the pods. The result must not depend on it.
    roles = np.lexsort((problem.slots.sum(axis=1), problem.count, *problem.demand.T))
    kinds = kinds_of(problem)
    patterns = patterns_of(problem, valuation, kinds, roles, limits.patterns)
    if patterns is None:
        return UNKNOWN
    of_domain = problem.weights.domains if problem.domains is not None else 0.0
    most = kinds.sizes @ np.maximum.reduceat(patterns.pods, patterns.starts)
    count = problem.count[roles] if len(roles) > 1 else np.minimum(problem.count, most)
    chosen = _Choice(kinds, patterns, count, of_domain).best(limits)
    if chosen is None:
        return UNKNOWN
    if chosen.cost == np.inf:
        return Optimum(is_impossible=problem.devices is None)  # pods may fit on devices on which a greedy rule can't fit them
    counts = np.zeros_like(problem.slots)
    kind, pattern = np.array(sorted(chosen.patterns), dtype=np.int64).reshape(-1, 2).T
    pods = patterns.pods[pattern]
    order = np.lexsort((-pods.sum(axis=1), kind))  # of the nodes of one kind, the first ones take most pods
    number = np.arange(len(kind)) - np.searchsorted(kind, kind)
    counts[np.ix_(roles, kinds.members[kinds.starts[kind] + number])] = pods[order].T
    return Optimum(counts)


class _Relaxed(NamedTuple):
    """A lower bound, and by how much the patterns and domains raise it.

    ``excess``: float64[patterns], by how much one node with this pattern raises the bound, in a domain that is used. ``of_use``:
    float64[domains], by how much the use of a domain raises the bound; negative if the domain is used in the bound.
    """

    bound: float
    excess: Floats
    of_use: Floats


def _next_slack(relaxed: _Relaxed, slack: float) -> float:
    """Return a larger slack, with which more is kept than with ``slack``."""
    larger = np.concatenate([relaxed.excess, relaxed.of_use])
    return max(slack * _SLACK_FACTOR, float(larger[larger > slack + _EPSILON].min(initial=np.inf)))


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """The choice of patterns. ``count``: int64[roles], the pods of each role. ``of_domain``: what each used domain costs."""

    kinds: Kinds
    patterns: Patterns
    count: Integers
    of_domain: float

    def best(self, limits: Limits) -> Chosen | None:
        """Return the best choice, at an infinite cost if no choice holds exactly all pods; None if the work exceeds ``limits``."""
        relaxed = self._relaxed()
        slack, most, work = _FIRST_SLACK, float(relaxed.excess.max() + np.abs(relaxed.of_use).max()), 0.0
        while True:
            domains = [self._kept(relaxed, slack, number) for number in range(len(relaxed.of_use))]
            program = PatternProgram(self.kinds, self.patterns, self.count, [each for each in domains if each is not None])
            work += program.work
            if program.states > limits.cells or work > limits.operations:
                return None
            chosen = program.run()
            if chosen.cost <= relaxed.bound + slack + _EPSILON or slack > most:
                return chosen
            slack = chosen.cost - relaxed.bound if chosen.cost < np.inf else _next_slack(relaxed, slack)

    def _kept(self, relaxed: _Relaxed, slack: float, number: int) -> Domain | None:
        """Return a domain with the patterns that raise the bound by at most ``slack``; None if the domain can't be used then."""
        kinds, patterns, of_use = self.kinds, self.patterns, float(relaxed.of_use[number])
        left = slack - max(0.0, of_use)
        if left < 0:
            return None
        kept = np.flatnonzero((relaxed.excess <= left + _EPSILON) & (kinds.domains[patterns.kind] == number))
        here, first, numbers = np.unique(patterns.kind[kept], return_index=True, return_counts=True)
        fixed, open_kinds = list[tuple[int, int]](), list[tuple[int, Integers]]()
        for kind, start, choices in zip(here.tolist(), first.tolist(), numbers.tolist(), strict=True):
            mine = kept[start : start + choices]
            if choices > 1:
                open_kinds.append((kind, mine))
            elif patterns.pods[mine[0]].any():
                fixed.append((kind, int(mine[0])))
        return Domain(self.of_domain > 0 and of_use >= -slack, self.of_domain, fixed, open_kinds)

    def _relaxed(self) -> _Relaxed:
        """Return the highest lower bound of some subgradient steps.

        A step leads to where the bound would be a little higher if it were linear (Polyak). The aim is lowered whenever the bound doesn't
        rise.
        """
        kinds, patterns = self.kinds, self.patterns
        pods, domains = patterns.pods.astype(np.float64), int(kinds.domains.max()) + 1
        prices = self._first_prices()
        best, aim = _Relaxed(-np.inf, np.zeros(0), np.zeros(0)), 0.02 * abs(float(prices @ self.count)) + 0.01
        for _ in range(_PRICE_STEPS if len(prices) > 1 or self.of_domain else 1):  # a single price is the best one
            reduced = patterns.costs - pods @ prices
            least = np.minimum.reduceat(reduced, patterns.starts)
            excess = reduced - least[patterns.kind]
            of_use: Floats = self.of_domain + np.bincount(kinds.domains, least * kinds.sizes, domains).astype(np.float64, copy=False)
            bound = float(np.minimum(of_use, 0.0).sum() + prices @ self.count)
            if bound > best.bound:
                best = _Relaxed(bound, excess, of_use)
            else:
                aim *= 0.6
            cheapest = np.flatnonzero(excess <= _EPSILON)
            cheapest = cheapest[np.append(True, patterns.kind[cheapest][1:] != patterns.kind[cheapest][:-1])]
            taken = (kinds.sizes * (of_use[kinds.domains] < 0)) @ patterns.pods[cheapest]
            step = self.count - taken
            length = float(step @ step)
            if not length:
                break
            prices = prices + (best.bound + aim - bound) / length * step
        return best

    def _first_prices(self) -> Floats:
        """Return for each role the price at which the nodes take its pods if the role is placed alone: float64[roles].

        Nodes take more pods at a higher price, so the price is found by bisection.
        """
        patterns, prices = self.patterns, np.zeros(len(self.count))
        for role, count in enumerate(self.count.tolist()):
            alone = np.flatnonzero(patterns.pods.sum(axis=1) == patterns.pods[:, role])
            pods, costs, kind = patterns.pods[alone, role], patterns.costs[alone], patterns.kind[alone]
            starts = np.flatnonzero(pods == 0)
            high = 2.0 * float(np.abs(costs).max()) + 1.0
            low = -high
            for _ in range(_BISECTIONS):
                prices[role] = (low + high) / 2
                reduced = costs - prices[role] * pods
                is_cheapest = reduced <= np.minimum.reduceat(reduced, starts)[kind] + _EPSILON
                taken = float(np.maximum.reduceat(pods * is_cheapest, starts) @ self.kinds.sizes)
                low, high = (low, prices[role]) if taken >= count else (prices[role], high)
        return prices
