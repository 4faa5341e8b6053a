"""One search, from a problem to a plan: prove, be greedy, ask the solver where that fails, then let the genetic search do better.

Pure and deterministic: the same problem, settings and seed give the same plan, bit by bit, so it can run in any worker process.
"""

from dataclasses import replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Plan, SearchReport
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation, Worth, one_each
from allaboard.placement.solvers import genetic, one_role
from allaboard.placement.solvers.bounds import Bounds, bounds_of, score_bound
from allaboard.placement.solvers.candidates import candidate_rows
from allaboard.placement.solvers.domains import in_best_domains
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.feasibility import NODE_LIMIT, Finding, ask
from allaboard.placement.solvers.genetic import Evolution, SearchSettings, Target, evolve
from allaboard.placement.solvers.greedy import Seed, best_first, greedy_seeds
from allaboard.placement.solvers.one_role import best_of_one_role
from allaboard.placement.solvers.polish import polished

_EPSILON = 1e-9
_POLISHED = 3
_STEPS = 200


def search(problem: Problem, settings: SearchSettings, seed: int, *, use_genetic: bool = True) -> Plan:
    """The best placement found for ``problem``; without ``use_genetic`` the best of the seeds."""
    # 1. Rule out what can't be.
    bounds = bounds_of(problem)
    is_impossible = bounds.placeable < problem.minimum or bool(problem.lacking(np.array(bounds.most)) > 0)
    # 2. Choose domains for roles that must sit within one: the solver knows which will do. The rest is done inside the best of them.
    answer, is_proof = None, True
    if problem.together:
        if not is_impossible:
            answer = ask(problem, settings.branches or NODE_LIMIT, problem.together, settings.effort)
        problem, seats = in_best_domains(problem, answer.counts if answer else None)
        if answer is not None and answer.finding is Finding.NOT_FOUND:
            answer, is_proof = None, False  # what doesn't fit in these domains may fit in others
        elif answer is not None:
            answer = replace(answer, counts=seats)
    # 3. Do what a scheduler does that places one role after another; of interchangeable pods the best is known.
    valuation = Valuation(problem)
    best = _best_known(problem, valuation)
    seeds = _ranked(valuation, greedy_seeds(problem, valuation) if best is None else [("exact", best)])
    if answer is None and seeds[0][2].missing and not is_impossible and settings.branches:
        answer = ask(problem, settings.branches, effort=settings.effort)
    is_refuted = answer is not None and answer.finding is Finding.CANNOT_FIT and is_proof
    if answer is not None and answer.counts is not None:
        seeds = _ranked(valuation, [*((name, counts) for name, counts, _ in seeds), ("solver", answer.counts)])
    # 4. Go downhill from the best of them.
    if best is None and not (is_impossible or is_refuted) and not seeds[0][2].missing:
        seeds = _ranked(valuation, _with_polished(problem, valuation, seeds))
    name, counts, greedy = seeds[0]
    # 5. Search, unless there is nothing to find or to gain.
    if is_impossible or is_refuted:
        evolution = Evolution(counts, 0, "proof" if is_refuted else "bound" if problem.total_nodes else "no-nodes", ())
    elif best is not None or not problem.nodes or _is_optimal(problem, greedy, (target := _target(problem, bounds))):
        evolution = Evolution(counts, 0, "optimal", ())
    elif not use_genetic or not genetic.accepts(problem):
        evolution = Evolution(counts, 0, "greedy-only", ())
    elif settings.effort and greedy.missing:
        evolution = Evolution(counts, 0, "effort", ())
    else:
        evolution = _evolved(problem, seeds, settings, seed, target)
    # 6. Hand out nothing that is worse than greedy or doesn't hold.
    worth = greedy
    if evolution.counts is not counts:
        found = valuation.worth(evolution.counts)
        if found <= greedy and holds(problem, evolution.counts):
            worth, counts = found, evolution.counts
    # 7. Tell.
    feasible = None if worth.missing else True
    proof = "none" if worth.missing else "genetic" if greedy.missing else "solver" if name == "solver" else "greedy"
    if is_impossible or is_refuted:
        feasible, proof = False, "solver" if is_refuted else "bound"
    assignments, unplaced = by_pod(problem, counts)
    return Plan(
        feasible=feasible,
        proof=proof,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explain(problem, counts, bounds),
        search=SearchReport(
            seed_score=greedy.score,
            score=worth.score,
            generations=evolution.generations,
            stopped_by=evolution.stopped_by,
            history=evolution.history,
            best_seed=name,
        ),
    )


def brief_cost(problem: Problem) -> int:
    """About how many microseconds a search takes besides generations and the solver: measured, 16 ms for 30 roles on 10 nodes."""
    roles, nodes = len(problem.roles), len(problem.nodes)
    return roles * (500 + 4 * nodes)


def holds(problem: Problem, counts: Integers) -> bool:
    """Whether ``counts``: int64[roles, nodes] takes no more than there is, of nodes and of pods, and only where it may."""
    load = np.einsum("rc,rn->cn", problem.demand, counts)
    return bool(
        (counts >= 0).all()
        and (load <= problem.free).all()
        and not counts[~problem.admits].any()
        and (counts.sum(axis=1) <= problem.count).all()
        and (problem.trimmed(counts[None]) == counts).all()
    )


def _ranked(valuation: Valuation, seeds: list[Seed]) -> list[tuple[str, Integers, Worth]]:
    """Best first; among equals the one that comes first in the list."""
    return sorted(((name, counts, valuation.worth(counts)) for name, counts in seeds), key=lambda seed: seed[2])


def _with_polished(problem: Problem, valuation: Valuation, seeds: list[tuple[str, Integers, Worth]]) -> list[Seed]:
    """``seeds``, and where the best of those lead that seat everybody needed."""
    polish = [
        (f"polished {name}", polished(problem, valuation, counts, _STEPS)) for name, counts, worth in seeds[:_POLISHED] if not worth.missing
    ]
    return [*polish, *((name, counts) for name, counts, _ in seeds)]


def _best_known(problem: Problem, valuation: Valuation) -> Integers | None:
    """The counts of a placement that nothing beats, where that can be had without a search."""
    if problem.total == 1:
        return _only_pod(problem, valuation)
    return best_of_one_role(problem, valuation) if one_role.accepts(problem) else None


def _only_pod(problem: Problem, valuation: Valuation) -> Integers:
    """One pod: look at every node. Ties go to the fuller node, then by name."""
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    rows = np.flatnonzero(problem.seats[0])
    if len(rows):
        costs = valuation.node_costs(rows, one_each(1, 0, rows))
        counts[0, rows[best_first(-costs, problem.scoring.used[:, rows])[0]]] = 1
    return counts


def _target(problem: Problem, bounds: Bounds) -> Target:
    return Target(bounds.placeable, score_bound(problem))


def _is_optimal(problem: Problem, worth: Worth, target: Target) -> bool:
    """Everybody sits, and there is no other way or no better one."""
    return worth.missing == 0 and worth.surplus == 0 and (len(problem.nodes) == 1 or worth.score >= target.score - _EPSILON)


def _evolved(problem: Problem, seeds: list[tuple[str, Integers, Worth]], settings: SearchSettings, seed: int, target: Target) -> Evolution:
    """The genetic search on the nodes that matter, its answer spread over all nodes again."""
    best = seeds[0][1]
    rows = candidate_rows(problem, best, [counts for _, counts, _ in seeds[1:]], np.random.default_rng(seed))
    smaller = problem.restricted_to(rows)
    inside = [counts[:, rows] for _, counts, _ in seeds if counts[:, rows].sum() == counts.sum()]
    evolution = evolve(smaller, inside, settings, seed, target)
    counts = np.zeros_like(best)
    counts[:, rows] = evolution.counts
    return Evolution(counts, evolution.generations, evolution.stopped_by, evolution.history)


def by_pod(problem: Problem, counts: Integers) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Pods of a role take its seats in the order given, nodes by name."""
    assignments: list[tuple[str, str]] = []
    unplaced: list[str] = []
    for role, seats in zip(problem.roles, counts, strict=True):
        rows = np.repeat(np.arange(len(problem.nodes)), seats).tolist()
        assignments += [(uid, problem.nodes[row]) for uid, row in zip(role.pods, rows, strict=False)]
        unplaced += role.pods[len(rows) :]
    return tuple(assignments), tuple(unplaced)
