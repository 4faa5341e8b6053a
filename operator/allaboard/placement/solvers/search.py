"""One search, from a problem to a plan: what can't be, what is known, what greed finds, and what is better (``pursuit``).

Pure and deterministic: the same problem, settings and seed give the same plan, bit by bit, so it can run in any worker process; unless it
takes so long that its end has come (``SearchSettings.seconds``), when the best so far is the answer.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Plan, SearchReport
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation, one_each
from allaboard.placement.solvers import one_role
from allaboard.placement.solvers.bounds import bounds_of, score_bound
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.candidates import needed_rows
from allaboard.placement.solvers.domains import in_best_domains
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.genetic import SearchSettings, Target
from allaboard.placement.solvers.greedy import best_first, greedy_seeds
from allaboard.placement.solvers.improve import STEPS, Improvement
from allaboard.placement.solvers.milp import Finding, solve
from allaboard.placement.solvers.one_role import best_of_one_role
from allaboard.placement.solvers.progress import Progress


def search(problem: Problem, settings: SearchSettings, seed: int, *, steps: Collection[str] = STEPS) -> Plan:
    """The best placement found for ``problem``; without some of ``steps`` to see what they are worth."""
    budget, scale = Budget(settings.effort, settings.seconds, settings.clock, settings.wall), Scale.of(problem)
    # 1. Rule out what can't be.
    bounds = bounds_of(problem)
    is_impossible = bounds.placeable < problem.minimum or bool(problem.lacking(np.array(bounds.most)) > 0)
    # 2. Choose domains for roles that must sit within one: the solver knows which will do. The rest is done inside the best of them.
    finding, slots = None, None
    is_confined = bool(problem.together)
    if is_confined:
        if not is_impossible and settings.branches:
            answer = solve(problem, settings.branches, problem.together, is_patient=True, budget=budget)
            finding, slots = answer.finding, answer.counts
        problem, slots = in_best_domains(problem, slots, budget)
    # 3. Leave out what nobody can need. Do what a scheduler does that places one role after another; of interchangeable pods the best is
    # known.
    whole, rows = problem, needed_rows(problem)
    if slots is not None:
        rows = np.union1d(rows, np.flatnonzero(slots.any(axis=0)))
    problem = whole.restricted_to(rows)
    progress = Progress(problem, Valuation(problem))
    if slots is not None:
        progress.add("solver", [("solver", slots[:, rows])])
    best = _best_known(problem, progress.valuation)
    if best is not None:
        progress.add("exact", [("exact", best)])
    else:
        progress.add("greedy", greedy_seeds(problem, progress.valuation, goes_on=lambda: not budget.is_over))
    greedy = next(found for found in progress.found if found.name != "solver")
    # 4. Do better, unless there is nothing to find or to gain.
    stopped_by = "exact"
    if is_impossible:
        stopped_by = "bound" if problem.total_nodes else "no-nodes"
    elif finding is Finding.CANNOT_FIT:
        stopped_by = "proof"
        progress.add("solver", [])
    elif best is None:
        target = Target(bounds.placeable, score_bound(problem))
        is_proof = finding is not Finding.NOT_FOUND  # what doesn't fit in the domains that greed chose may fit in others
        stopped_by = Improvement(progress, settings, seed, target, budget, steps, is_proof=is_proof).run()
    if is_confined and stopped_by in ("exact", "optimal"):
        stopped_by = "domain"
    # 5. Tell.
    chosen = progress.best
    feasible = None if progress.lacks else True
    if is_impossible or stopped_by == "proof":
        feasible = False
    counts = np.zeros_like(whole.slots)
    counts[:, rows] = chosen.counts
    assignments, unplaced = by_pod(whole, counts)
    return Plan(
        feasible=feasible,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explain(whole, counts, bounds),
        search=SearchReport(
            seed_score=scale.points(greedy.worth.score, int(greedy.counts.sum())),
            score=scale.points(chosen.worth.score, len(assignments)),
            generations=len(progress.history),
            stopped_by=stopped_by,
            history=tuple((placed, scale.points(score, placed)) for placed, score in progress.history),
            best_seed=greedy.name,
            steps=tuple(replace(step, score=scale.points(step.score, step.placed)) for step in progress.steps),
            found_by=progress.found_by,
            wanted=settings.min_generations if stopped_by in ("effort", "time") and len(progress.history) < settings.min_generations else 0,
        ),
    )


def brief_cost(problem: Problem) -> int:
    """About how many microseconds a search takes besides generations and the solver: measured, 16 ms for 30 roles on 10 nodes."""
    roles, nodes = len(problem.roles), len(problem.nodes)
    return roles * (500 + 4 * nodes)


def _best_known(problem: Problem, valuation: Valuation) -> Integers | None:
    """The counts of a placement that nothing beats, where that can be had without a search."""
    if problem.total == 1:
        return _only_pod(problem, valuation)
    return best_of_one_role(problem, valuation) if one_role.accepts(problem) else None


def _only_pod(problem: Problem, valuation: Valuation) -> Integers:
    """One pod: look at every node. Ties go to the fuller node, then by name."""
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    rows = np.flatnonzero(problem.slots[0])
    if len(rows):
        costs = valuation.node_costs(rows, one_each(1, 0, rows))
        counts[0, rows[best_first(-costs, problem.scoring.used[:, rows])[0]]] = 1
    return counts


def by_pod(problem: Problem, counts: Integers) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Pods of a role take its seats in the order given, nodes by name."""
    assignments: list[tuple[str, str]] = []
    unplaced: list[str] = []
    for role, slots in zip(problem.roles, counts, strict=True):
        rows = np.repeat(np.arange(len(problem.nodes)), slots).tolist()
        assignments += [(uid, problem.nodes[row]) for uid, row in zip(role.pods, rows, strict=False)]
        unplaced += role.pods[len(rows) :]
    return tuple(assignments), tuple(unplaced)
