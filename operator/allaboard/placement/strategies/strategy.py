"""What a strategy is: it is asked whether a problem is for it, and then where the gang goes.

It may be any package's, so nothing that it answers is taken on trust (``trial``). docs/write-a-strategy.md shows how one is written.
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
    """Decides where gangs go, one at a time."""

    def accepts(self, problem: Problem) -> bool:
        """Whether it can place gangs like this one; if it can't, the default does."""
        ...

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """A plan that seats the minimum, or an explanation that it has found none, within the ``budget``: ``answer_of`` makes either.

        That there is none is the default's to find out: an explanation is no proof.
        """
        ...


def answer_of(problem: Problem, counts: Integers, name: str = "strategy") -> Plan | Explanation:
    """The plan that ``counts``: int64[roles, nodes], how many pods of each role sit on each node, are; else an explanation.

    They must be a placement of the minimum that takes no more than there is and breaks no rule. ``name`` is who has found it.
    """
    counts = counts.astype(np.int64, casting="safe")
    confined = within_domains(problem, counts)
    explanation = explain(confined, counts, bounds_of(problem))
    if not satisfies(problem, counts, problem.together):
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
    """``problem`` with those domains chosen in which ``counts``: int64[roles, nodes] seat who must share one."""
    if not problem.together:
        return problem
    rows = [np.flatnonzero(counts[list(group.roles)].any(axis=0)) for group in problem.together]
    domains = [int(group.domains[used[0]]) if len(used) else -1 for group, used in zip(problem.together, rows, strict=True)]
    return problem.confined(domains)
