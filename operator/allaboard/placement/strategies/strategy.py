"""The protocol of a strategy, which says whether it accepts a problem and then places the gang.

Any package may bring a strategy, so every answer is checked (``trial``). docs/write-a-strategy.md shows how to write a strategy.
"""

from typing import Protocol

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Explanation, Plan, SearchReport, Step
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.bounds import bounds_of
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.milp import satisfies
from allaboard.placement.solvers.search import by_pod


class Strategy(Protocol):
    """Decides which nodes the members of a gang are assigned to, for one gang at a time."""

    def accepts(self, problem: Problem) -> bool:
        """Return whether the strategy can place this kind of gang. If not, the default strategy places the gang."""
        ...

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Return a plan that places the minimum, or an explanation if no such plan was found, within ``budget``.

        ``answer_of`` makes both plans and explanations. An explanation is no proof: only the default strategy proves that no placement
        exists.
        """
        ...


def answer_of(problem: Problem, counts: Integers, name: str = "strategy") -> Plan | Explanation:
    """Return a plan of the placement ``counts``: int64[roles, nodes]; an explanation if ``counts`` isn't valid.

    Valid counts place the minimum, take no more than is free, and break no rule. ``name`` is the name of the strategy, for the report.
    """
    counts = counts.astype(np.int64, casting="safe")
    confined = within_domains(problem, counts)
    explanation = explain(confined, counts, bounds_of(problem))
    if not satisfies(problem, counts):
        return explanation
    assignments, unplaced = by_pod(problem, counts)
    score = Scale.of(problem).points(Valuation(confined).objective_value(counts).score, len(assignments))
    return Plan(
        feasible=True,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explanation,
        search=SearchReport(
            seed_score=score,
            score=score,
            generations=0,
            stopped_by="strategy",
            history=(),
            best_seed="",
            steps=(Step(name, len(assignments), score),),
            found_by=name,
        ),
    )


def within_domains(problem: Problem, counts: Integers) -> Problem:
    """Return ``problem`` with each set of roles that must share a domain confined to its domain in ``counts``: int64[roles, nodes]."""
    if not problem.together:
        return problem
    rows = [np.flatnonzero(counts[list(group.roles)].any(axis=0)) for group in problem.together]
    domains = [int(group.domains[used[0]]) if len(used) else -1 for group, used in zip(problem.together, rows, strict=True)]
    return problem.confined(domains)
