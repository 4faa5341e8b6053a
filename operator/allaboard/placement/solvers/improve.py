"""Better than greedy: downhill, by evolution, and by the solver where somebody has no seat.

Each step begins with the best of what the steps before have found, and none makes it worse. Small steps downhill on all nodes come first:
mostly they reach the best there is. Then the genetic search, on every gang whose best isn't proved: a generation at least, and as long as
another one pays. Where somebody has no seat yet, most are found in a few generations; if not, the solver is asked for seats or for the
proof that there are none, and what it finds is where the next evolution begins. When it doesn't know, evolution is all there is.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from allaboard.placement.problem.problem import Problem
from allaboard.placement.solvers import genetic
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.candidates import candidate_rows
from allaboard.placement.solvers.domain_subsets import in_better_region
from allaboard.placement.solvers.ejection_chains import assign_more
from allaboard.placement.solvers.genetic import Limits, SearchSettings, Target, evolve, generation_cost
from allaboard.placement.solvers.local_search import round_cost, search_locally
from allaboard.placement.solvers.milp import Finding, holds, solve
from allaboard.placement.solvers.progress import Found, Progress

POLISH, EVOLUTION, SOLVER = "polish", "evolution", "solver"
STEPS = (POLISH, EVOLUTION, SOLVER)

_EPSILON = 1e-9
_POLISHED = 3  # seeds, the best
_ROUNDS = 200
_FEW = 5  # generations in which most find the seats that greed doesn't
_LONGER = 10  # times as many if nobody else knows
_LACKING = 4  # times as long is a generation while somebody has no seat
_SHARE = 0.5  # of what is left may go to polishing


@dataclass(slots=True)
class Improvement:
    """What is done about ``progress`` within a budget, by some of ``STEPS``. ``is_proof``: whether what the solver refutes can't be."""

    progress: Progress
    settings: SearchSettings
    seed: int
    target: Target
    budget: Budget
    steps: Collection[str]
    is_proof: bool = True
    _problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._problem = self.progress.problem

    def run(self) -> str:
        """Until nothing is to be gained; tells what it was stopped by, as ``SearchReport``."""
        if not self._problem.total or not self._problem.nodes:
            return "optimal"
        self._polish()
        if self._is_best():
            return "optimal"
        stopped_by = self._evolve(_FEW if SOLVER in self.steps and self.settings.branches else _LONGER * self.settings.generations)
        if not self.progress.lacks or stopped_by == "time":
            return stopped_by
        # Somebody who is needed has no seat.
        finding = self._ask()
        if finding is Finding.CANNOT_FIT:
            return "proof"
        if finding is Finding.FITS:
            self._polish()
            return "optimal" if self._is_best() else self._evolve(_FEW)
        return "effort" if self.settings.effort else self._evolve(self.settings.generations)

    def _is_best(self) -> bool:
        """Everybody sits, and there is no other way or no better one."""
        worth = self.progress.best.worth
        return worth.missing == worth.surplus == 0 and (len(self._problem.nodes) == 1 or worth.score >= self.target.score - _EPSILON)

    def _polish(self) -> None:
        """Seats for those who need them, if others can make room; then downhill from the best."""
        if POLISH not in self.steps:
            return
        progress, found = self.progress, []
        rounds = int(min(_ROUNDS, _SHARE * self.budget.left / (_POLISHED * round_cost(self._problem))))
        best: dict[bytes, Found] = {}
        for seed in progress.found[:_POLISHED]:
            best.setdefault(seed.counts.tobytes(), seed)  # several rules may come to the same
        for seed in best.values():
            counts = assign_more(self._problem, seed.counts) if seed.worth.missing else seed.counts
            if not seed.worth.missing or not progress.valuation.objective_value(counts).missing:
                counts = search_locally(self._problem, progress.valuation, counts, rounds, self.budget)
            if counts is not seed.counts:
                found.append((seed.name, counts))
        if found:
            progress.add(POLISH, found)
        if not progress.lacks:
            counts = in_better_region(self._problem, progress.valuation, progress.best.counts, self.budget)
            if counts is not progress.best.counts:
                progress.add(POLISH, [(progress.best.name, counts)])

    def _evolve(self, unseated: int) -> str:
        """The genetic search on the nodes that matter, its answer spread over all nodes again; tells what it was stopped by."""
        problem, best = self._problem, self.progress.best.counts
        if EVOLUTION not in self.steps or not genetic.accepts(problem):
            return "greedy-only"
        seeds = [found.counts for found in self.progress.found]
        rows = candidate_rows(problem, best, seeds[1:], np.random.default_rng(self.seed))
        smaller = problem.restricted_to(rows)
        cost = generation_cost(smaller, self.settings)
        affordable = self.budget.left / cost - 1  # the first population takes as long as a generation
        if affordable < (_LACKING * min(unseated, _FEW) if self.progress.lacks else 1):
            return "effort"
        if self.progress.lacks:
            unseated = int(min(unseated, affordable / _LACKING))
        limits = Limits(int(min(affordable, _LONGER * self.settings.generations)), unseated, lambda: self.budget.is_over)
        inside = [counts[:, rows] for counts in seeds if counts[:, rows].sum() == counts.sum()]
        evolution = evolve(smaller, inside, self.settings, self.seed, self.target, limits)
        self.budget.spend(cost * (1 + evolution.generations) * (_LACKING if self.progress.lacks else 1))
        counts = np.zeros_like(best)
        counts[:, rows] = evolution.counts
        self.progress.history += evolution.history
        self.progress.add(EVOLUTION, [(EVOLUTION, counts)] if holds(problem, counts) else [], evolution.generations)
        is_cut = evolution.stopped_by == "generations" and evolution.generations + 1 > affordable
        return "effort" if is_cut else evolution.stopped_by

    def _ask(self) -> Finding:
        """The solver, unless that may take longer than there is time; what it finds is added."""
        if SOLVER not in self.steps or not self.settings.branches:
            return Finding.NOT_FOUND
        answer = solve(self._problem, self.settings.branches, is_patient=True, budget=self.budget)
        self.progress.add(SOLVER, [(SOLVER, answer.counts)] if answer.counts is not None else [])
        return Finding.NOT_FOUND if answer.finding is Finding.CANNOT_FIT and not self.is_proof else answer.finding
