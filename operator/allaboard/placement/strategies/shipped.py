"""The strategies that are shipped: the search itself, the exact solver, and rules that seat one pod after another.

What these rules prefer they prefer the more the fuller a node gets, so the pods of a role fill one node after the other.
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
from allaboard.placement.solvers import one_role
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.domains import in_best_domains
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.solvers.local_search import search_locally
from allaboard.placement.solvers.milp import NODE_LIMIT, solve
from allaboard.placement.solvers.one_role import best_of_one_role
from allaboard.placement.solvers.search import search
from allaboard.placement.strategies.strategy import answer_of, within_domains

_ROUNDS = 6  # of small steps downhill
_DIGITS = 9  # what differs by rounding only is equal

Take = Callable[[int, Integers, int, Integers], Integers]
"""Of role, room: int64[nodes], pods wanted and what is left: int64[columns, nodes], how many each node takes: int64[nodes]."""


@dataclass(frozen=True, slots=True)
class Genetic:
    """What places gangs by default: exact where that is quick, else greedy rules, evolution, and the solver."""

    settings: SearchSettings = field(default_factory=SearchSettings)
    seed: int = 0

    def accepts(self, problem: Problem) -> bool:
        """Always."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan:
        """As ``Strategy.place``; it always answers with a plan, be it in part."""
        return search(problem, self.settings.within(budget), self.seed)


@dataclass(frozen=True, slots=True)
class Exact:
    """The best placement of one role; of several any that the solver finds, and small steps downhill from there."""

    branches: int = NODE_LIMIT

    def accepts(self, problem: Problem) -> bool:
        """Always; of what is too large it finds nothing."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """As ``Strategy.place``."""
        is_known = one_role.accepts(problem) and not problem.together
        counts = best_of_one_role(problem, Valuation(problem)) if is_known else None
        if counts is None:
            counts = solve(problem, self.branches, problem.together, is_patient=True, budget=budget).counts
            if counts is None:
                return answer_of(problem, np.zeros_like(problem.slots), "exact")
            confined = within_domains(problem, counts)
            counts = search_locally(confined, Valuation(confined), counts, _ROUNDS, budget)
        return answer_of(problem, counts, "exact")


@dataclass(frozen=True, slots=True)
class BestFit:
    """The node with the least left over, of what the gang asks for; the first by name among equals.

    With ``most_used`` it is the node of which others have the most, of the GPUs that the pod asks for if it does: what is left over isn't
    looked at.
    """

    most_used: bool = False

    def accepts(self, problem: Problem) -> bool:
        """Always."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """As ``Strategy.place``."""
        cost, names = _least_used if self.most_used else _left_over, _by_name(problem)

        def take(role: int, room: Integers, wanted: int, left: Integers) -> Integers:
            return fill(room, wanted, np.lexsort((names, cost(problem, role, left).round(_DIGITS))))

        return answer_of(problem, _seated(problem, budget, take), "bestfit")


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The first node by name that has room."""

    def accepts(self, problem: Problem) -> bool:
        """Always."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """As ``Strategy.place``."""
        order = np.argsort(_by_name(problem))
        return answer_of(problem, _seated(problem, budget, lambda role, room, wanted, left: fill(room, wanted, order)), "firstfit")


@dataclass(frozen=True, slots=True)
class Random:
    """Any node that has room, drawn by the ``seed`` and by who is to be seated; the seed is 0 or more."""

    seed: int = 0

    def accepts(self, problem: Problem) -> bool:
        """Always."""
        return True

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """As ``Strategy.place``."""
        chance = np.random.default_rng((self.seed, zlib.crc32("\n".join(uid for role in problem.roles for uid in role.pods).encode())))

        def take(role: int, room: Integers, wanted: int, left: Integers) -> Integers:
            taken = np.zeros_like(room)
            for _ in range(min(wanted, int(room.sum()))):
                taken[chance.choice(np.flatnonzero(room > taken))] += 1
            return taken

        return answer_of(problem, _seated(problem, budget, take), "random")


def _seated(problem: Problem, budget: Budget, take: Take) -> Integers:
    """One role after another, in the order given, until the budget ends: int64[roles, nodes].

    Who must share a domain goes where greed would have them.
    """
    if problem.together:
        problem, _ = in_best_domains(problem, None, budget)
    counts, left = np.zeros_like(problem.slots), problem.free.copy()
    for role, wanted in enumerate(problem.count.tolist()):
        if budget.is_over:
            break
        room = np.minimum(slots_for(problem.demand[role], left, problem.admits[role]), wanted)
        while True:
            counts[role] = take(role, room, wanted, left)
            lost = (counts - problem.trimmed(counts[None])[0]).sum(axis=0)
            if not lost.any():
                break
            # Together they fit on the devices, one by one they don't.
            room = np.where(lost > 0, np.maximum(counts[role] - lost, 0), room)
        left -= problem.demand[role][:, None] * counts[role]
    return counts


def _by_name(problem: Problem) -> Integers:
    """The place of each node among all by name: int64[nodes]."""
    places = np.empty(len(problem.nodes), dtype=np.int64)
    places[sorted(range(len(problem.nodes)), key=problem.nodes.__getitem__)] = np.arange(len(problem.nodes))
    return places


def _left_over(problem: Problem, role: int, left: Integers) -> Floats:
    """float64[nodes]: what is left of the resources, each as a share of the most anywhere. One more takes the same of any."""
    most = np.maximum(problem.free[: problem.resources].max(axis=1, initial=0), 1)
    total: Floats = (left[: problem.resources] / most[:, None]).sum(axis=0)
    return total


def _least_used(problem: Problem, role: int, left: Integers) -> Floats:
    """float64[nodes]: the negative of what is in use of the GPUs that the role asks for, or of all resources if it asks for none."""
    asked = [column for column in range(problem.resources) if problem.demand[role, column] and is_gpu(problem.columns[column])]
    columns = asked or list(range(problem.resources))
    used = problem.taken[columns] + problem.free[columns] - left[columns]
    total: Floats = (used / np.maximum(used.max(axis=1, initial=0), 1)[:, None]).sum(axis=0)
    return -total
