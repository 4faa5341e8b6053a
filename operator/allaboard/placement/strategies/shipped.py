"""The shipped strategies: the search itself, the exact solver, and rules that assign one pod after another.

A node that a rule prefers stays preferred while it fills. So the pods of a role fill one node after another, except with the strategy
``random``.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.gpus import is_gpu
from allaboard.placement.problem.plan import Explanation, Plan
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import fill, slots_for
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.domains import in_best_domains
from allaboard.placement.solvers.exact import best_placement
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.solvers.local_search import search_locally
from allaboard.placement.solvers.milp import NODE_LIMIT, solve
from allaboard.placement.solvers.search import search
from allaboard.placement.strategies.strategy import answer_of, within_domains

_ROUNDS = 6  # of local search
_DIGITS = 9  # costs are rounded, so that floating-point errors don't matter

AssignRole = Callable[[int, Integers, int, Integers], Integers]
"""Assigns the pods of one role.

Arguments: the role, the slots of each node: int64[nodes], the number of pods, and what is free: int64[capacities, nodes]. Returns how many
pods each node takes: int64[nodes].
"""


@dataclass(frozen=True, slots=True)
class Genetic:
    """Places gangs by the search, the default strategy: exactly if that is quick, else by greedy rules, evolution, and the solver."""

    settings: SearchSettings = field(default_factory=SearchSettings)
    seed: int = 0

    def accepts(self, problem: Problem) -> bool:
        """Accept every problem."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan:
        """Return a plan, possibly for only some of the members; never an explanation."""
        return search(problem, self.settings.within(budget), self.seed)


@dataclass(frozen=True, slots=True)
class Exact:
    """Places few roles as well as possible; places other gangs by the exact solver, and improves the result by local search."""

    branches: int = NODE_LIMIT

    def accepts(self, problem: Problem) -> bool:
        """Accept every problem; ``place`` finds no plan if the problem is too large."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Return a plan or an explanation, as ``Strategy.place``."""
        counts = best_placement(problem, Valuation(problem)).counts
        if counts is None:
            counts = solve(problem, self.branches, is_patient=True, budget=budget).counts
            if counts is None:
                return answer_of(problem, np.zeros_like(problem.slots), "exact")
            if problem.has_other_couplings:
                return answer_of(problem, counts, "exact")  # a local search could break the other rules
            confined = within_domains(problem, counts)
            counts = search_locally(confined, Valuation(confined), counts, _ROUNDS, budget)
        return answer_of(problem, counts, "exact")


@dataclass(frozen=True, slots=True)
class BestFit:
    """Places pods on the node with the least left over of what the gang asks for; among equals, on the first by name.

    With ``most_used``, pods go to the node with the most in use instead. In this case only the GPUs that the pod asks for count; if the pod
    asks for no GPU, all resources count.
    """

    most_used: bool = False

    def accepts(self, problem: Problem) -> bool:
        """Accept every problem whose rules between members are shared domains."""
        return not problem.has_other_couplings

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Return a plan or an explanation, as ``Strategy.place``."""
        cost, name_ranks = _least_used if self.most_used else _left_over, _name_ranks(problem)

        def assign(role: int, capacity: Integers, wanted: int, left: Integers) -> Integers:
            return fill(capacity, wanted, np.lexsort((name_ranks, cost(problem, role, left).round(_DIGITS))))

        return answer_of(problem, _assigned(problem, budget, assign), "bestfit")


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Places pods on the first node by name that has a free slot."""

    def accepts(self, problem: Problem) -> bool:
        """Accept every problem whose rules between members are shared domains."""
        return not problem.has_other_couplings

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Return a plan or an explanation, as ``Strategy.place``."""
        order = np.argsort(_name_ranks(problem))
        counts = _assigned(problem, budget, lambda role, capacity, wanted, left: fill(capacity, wanted, order))
        return answer_of(problem, counts, "firstfit")


@dataclass(frozen=True, slots=True)
class Random:
    """Places pods on random nodes with a free slot, drawn by ``seed`` (0 or more) and by the UIDs of the pods."""

    seed: int = 0

    def accepts(self, problem: Problem) -> bool:
        """Accept every problem whose rules between members are shared domains."""
        return not problem.has_other_couplings

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Return a plan or an explanation, as ``Strategy.place``."""
        chance = np.random.default_rng((self.seed, zlib.crc32("\n".join(uid for role in problem.roles for uid in role.pods).encode())))

        def assign(role: int, capacity: Integers, wanted: int, left: Integers) -> Integers:
            taken = np.zeros_like(capacity)
            for _ in range(min(wanted, int(capacity.sum()))):
                taken[chance.choice(np.flatnonzero(capacity > taken))] += 1
            return taken

        return answer_of(problem, _assigned(problem, budget, assign), "random")


def _assigned(problem: Problem, budget: Budget, assign: AssignRole) -> Integers:
    """Return the placement that ``assign`` makes by placing one role after another, until the budget ends: int64[roles, nodes].

    The roles are in the order of ``problem``. Roles that must share a domain are confined to a domain that a greedy rule chooses first.
    """
    if problem.together:
        problem, _ = in_best_domains(problem, None, budget)
    counts, left = np.zeros_like(problem.slots), problem.free.copy()
    for role, wanted in enumerate(problem.count.tolist()):
        if budget.is_over:
            break
        capacity = np.minimum(slots_for(problem.demand[role], left, problem.admits[role]), wanted)
        while True:
            counts[role] = assign(role, capacity, wanted, left)
            lost = (counts - problem.trimmed(counts[None])[0]).sum(axis=0)
            if not lost.any():
                break
            # The pods fit in the sum of the devices, but not on single devices.
            capacity = np.where(lost > 0, np.maximum(counts[role] - lost, 0), capacity)
        left -= problem.demand[role][:, None] * counts[role]
    return counts


def _name_ranks(problem: Problem) -> Integers:
    """Return the rank of each node by name: int64[nodes]."""
    ranks = np.empty(len(problem.nodes), dtype=np.int64)
    ranks[sorted(range(len(problem.nodes)), key=problem.nodes.__getitem__)] = np.arange(len(problem.nodes))
    return ranks


def _left_over(problem: Problem, role: int, left: Integers) -> Floats:
    """Return how much is left on each node: float64[nodes]. This is a sum of shares, one for each resource.

    The share is what the node has left of the resource, relative to what the node with the most had free. One more pod reduces the sum of
    each node by the same amount, so the order of the nodes doesn't depend on the role.
    """
    most = np.maximum(problem.free[: problem.resources].max(axis=1, initial=0), 1)
    total: Floats = (left[: problem.resources] / most[:, None]).sum(axis=0)
    return total


def _least_used(problem: Problem, role: int, left: Integers) -> Floats:
    """Return how much is in use on each node, negated: float64[nodes]. This is a sum of shares, one for each resource that counts.

    The share is what is in use of the resource, relative to the node with the most in use. The GPUs that the role asks for count. If the
    role asks for no GPU, all resources count.
    """
    asked = [column for column in range(problem.resources) if problem.demand[role, column] and is_gpu(problem.columns[column])]
    columns = asked or list(range(problem.resources))
    used = problem.taken[columns] + problem.free[columns] - left[columns]
    total: Floats = (used / np.maximum(used.max(axis=1, initial=0), 1)[:, None]).sum(axis=0)
    return -total
