"""Improve on the greedy placements: by local search, by the genetic search, and by the exact solver if needed members are unassigned.

Each step begins with the best placement of the steps before it, and no step makes it worse. The local search on all nodes comes first: for
most gangs it reaches the best placement. The genetic search follows unless the placement is known to be the best: for one generation at
least, and for as long as another generation pays. If needed members are unassigned, a few generations usually place them. If these
generations don't, the exact solver looks for a placement, or for the proof that there is none. A second genetic search begins with the
solver's placement. Without an answer of the solver, the genetic search goes on.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from allaboard.placement.problem.problem import Problem
from allaboard.placement.solvers import genetic
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.candidates import candidate_rows
from allaboard.placement.solvers.device_patterns import excluded_by_devices
from allaboard.placement.solvers.domain_subsets import in_better_domains
from allaboard.placement.solvers.ejection_chains import assign_more
from allaboard.placement.solvers.genetic import Limits, SearchSettings, Target, evolve, generation_cost
from allaboard.placement.solvers.local_search import round_cost, search_locally
from allaboard.placement.solvers.milp import Finding, holds, solve
from allaboard.placement.solvers.progress import FoundPlacement, Progress

EXACT, POLISH, EVOLUTION, SOLVER = "exact", "polish", "evolution", "solver"
STEPS = (EXACT, POLISH, EVOLUTION, SOLVER)
"""The steps of a search. A gang whose best placement is found by ``EXACT`` needs none of the others."""

_EPSILON = 1e-9
_BEST_PLACEMENTS = 3  # Placements that get a local search.
_MOST_ROUNDS = 200  # Rounds of each local search.
_FEW = 5  # Generations that are usually enough to place the members that greedy rules leave out.
_ALONE_FACTOR = 10  # Times as many generations where the solver isn't asked.
_INCOMPLETE_FACTOR = 4  # A generation takes this many times as long while needed members are unassigned.
_LOCAL_SHARE = 0.5  # Share of the effort left that the local search may take.


@dataclass(slots=True)
class Improvement:
    """Takes the steps that improve on the placements of ``progress`` within a budget.

    ``steps``: those of ``STEPS`` that may be taken. ``is_proof``: whether a solver that finds no placement for this problem proves that the
    gang can't be placed. ``is_proof`` is False if the problem is confined to domains that greedy rules chose.
    """

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
        """Take the steps until nothing more can be gained. Return the reason for the end, as in ``SearchReport.stopped_by``."""
        if not self._problem.total or not self._problem.nodes:
            return "optimal"
        self._search_locally()
        if self._is_best():
            return "optimal"
        if self.progress.is_incomplete and self.is_proof and SOLVER in self.steps and self._is_excluded_by_devices():
            return "proof"
        stopped_by = self._evolve(_FEW if SOLVER in self.steps and self.settings.branches else _ALONE_FACTOR * self.settings.generations)
        if not self.progress.is_incomplete or stopped_by == "time":
            return stopped_by
        # Needed members are unassigned.
        finding = self._solve()
        if finding is Finding.CANNOT_FIT:
            return "proof"
        if finding is Finding.FITS:
            self._search_locally()
            return "optimal" if self._is_best() else self._evolve(_FEW)
        return "effort" if self.settings.effort else self._evolve(self.settings.generations)

    def _is_excluded_by_devices(self) -> bool:
        """Return whether a proof shows that the devices can't hold the needed members."""
        problem = self._problem
        return excluded_by_devices(problem, np.minimum(problem.slots, problem.count[:, None]), self.budget.wall_seconds)

    def _is_best(self) -> bool:
        """Return whether all members are placed as well as possible: on the only node, or with a score that reaches the bound."""
        value = self.progress.best.value
        return value.missing == value.surplus == 0 and (len(self._problem.nodes) == 1 or value.score >= self.target.score - _EPSILON)

    def _search_locally(self) -> None:
        """Assign needed members by ejection chains, search locally from the best placements, and try other sets of domains."""
        if POLISH not in self.steps:
            return
        progress, improved = self.progress, []
        rounds = int(min(_MOST_ROUNDS, _LOCAL_SHARE * self.budget.left / (_BEST_PLACEMENTS * round_cost(self._problem))))
        best: dict[bytes, FoundPlacement] = {}
        for seed in progress.placements[:_BEST_PLACEMENTS]:
            best.setdefault(seed.counts.tobytes(), seed)  # several greedy rules may give the same placement
        for seed in best.values():
            counts = assign_more(self._problem, seed.counts) if seed.value.missing else seed.counts
            if not seed.value.missing or not progress.valuation.objective_value(counts).missing:
                counts = search_locally(self._problem, progress.valuation, counts, rounds, self.budget)
            if counts is not seed.counts:
                improved.append((seed.name, counts))
        if improved:
            progress.add(POLISH, improved)
        if not progress.is_incomplete:
            counts = in_better_domains(self._problem, progress.valuation, progress.best.counts, self.budget)
            if counts is not progress.best.counts:
                progress.add(POLISH, [(progress.best.name, counts)])

    def _evolve(self, while_incomplete: int) -> str:
        """Run the genetic search on a selection of the nodes, and add its placement. Return the reason why the search ended.

        ``while_incomplete``: the most generations while needed members are unassigned.
        """
        problem, best = self._problem, self.progress.best.counts
        if EVOLUTION not in self.steps or not genetic.accepts(problem):
            return "greedy-only"
        seeds = [placement.counts for placement in self.progress.placements]
        rows = candidate_rows(problem, best, seeds[1:], np.random.default_rng(self.seed))
        smaller = problem.restricted_to(rows)
        cost = generation_cost(smaller, self.settings)
        affordable = self.budget.left / cost - 1  # the first population takes as long as a generation
        if affordable < (_INCOMPLETE_FACTOR * min(while_incomplete, _FEW) if self.progress.is_incomplete else 1):
            return "effort"
        if self.progress.is_incomplete:
            while_incomplete = int(min(while_incomplete, affordable / _INCOMPLETE_FACTOR))
        limits = Limits(int(min(affordable, _ALONE_FACTOR * self.settings.generations)), while_incomplete, lambda: self.budget.is_over)
        inside = [counts[:, rows] for counts in seeds if counts[:, rows].sum() == counts.sum()]
        evolution = evolve(smaller, inside, self.settings, self.seed, self.target, limits)
        self.budget.spend(cost * (1 + evolution.generations) * (_INCOMPLETE_FACTOR if self.progress.is_incomplete else 1))
        counts = np.zeros_like(best)
        counts[:, rows] = evolution.counts
        self.progress.history += evolution.history
        self.progress.add(EVOLUTION, [(EVOLUTION, counts)] if holds(problem, counts) else [], evolution.generations)
        is_cut = evolution.stopped_by == "generations" and evolution.generations + 1 > affordable
        return "effort" if is_cut else evolution.stopped_by

    def _solve(self) -> Finding:
        """Run the exact solver, if the settings allow it, and add its placement. Return its finding.

        If the solver finds that the gang can't be placed, and that isn't a proof, the finding is ``NOT_FOUND``.
        """
        if SOLVER not in self.steps or not self.settings.branches:
            return Finding.NOT_FOUND
        answer = solve(self._problem, self.settings.branches, is_patient=True, budget=self.budget)
        self.progress.add(SOLVER, [(SOLVER, answer.counts)] if answer.counts is not None else [])
        return Finding.NOT_FOUND if answer.finding is Finding.CANNOT_FIT and not self.is_proof else answer.finding
