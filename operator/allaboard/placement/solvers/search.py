"""Search for a plan for one gang: check the bounds, find a placement exactly or greedily, and improve on the placement (`improve.py`).

The search is pure and deterministic, so any worker process can run it: the same problem, settings and seed give the same plan, bit by bit.
Only a search that reaches its time limit (``SearchSettings.seconds``) depends on the clock: its answer is the best placement so far.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Plan, SearchReport
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation, one_each
from allaboard.placement.rules.segments import Segments
from allaboard.placement.solvers.bounds import Bounds, bounds_of, score_bound
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.candidates import needed_rows
from allaboard.placement.solvers.domains import in_best_domains
from allaboard.placement.solvers.exact import FULL, QUICK, UNKNOWN, Limits, Optimum, accepts, best_placement
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.genetic import SearchSettings, Target
from allaboard.placement.solvers.greedy import best_first, greedy_seeds
from allaboard.placement.solvers.improve import EXACT, STEPS, Improvement
from allaboard.placement.solvers.milp import Finding, solve
from allaboard.placement.solvers.parts import Parts, parts_of, placed_in_turn
from allaboard.placement.solvers.progress import Progress

_QUICK_COST = 12_000  # of ``brief_cost``, in microseconds


def search(problem: Problem, settings: SearchSettings, seed: int, *, steps: Collection[str] = STEPS) -> Plan:
    """Return the best plan found for ``problem``.

    ``steps``: those of ``STEPS`` that may be taken; benchmarks leave some out.
    """
    return _finished(_begun(problem, settings, steps, FULL), settings, seed, steps)


def search_quickly(problem: Problem, settings: SearchSettings, seed: int) -> Plan | None:
    """Return the plan of ``search`` if that takes at most some ten milliseconds; None if it may take longer.

    It doesn't if ``exact`` finds a best placement within its limits ``QUICK``, or if the bounds exclude the gang.
    """
    if problem.total > 1 and not (accepts(problem) and is_quick(problem)):
        return None
    begun = _begun(problem, settings, STEPS, QUICK)
    return _finished(begun, settings, seed, STEPS) if begun.is_settled else None


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """A search as far as the exact solver. ``asked``: the problem. ``given``: the same, without couplings if there is one pod.

    ``whole``: the same within the chosen domains. ``rows``: the positions of the nodes that the search needs. ``bounds``,
    ``is_impossible``: what the bounds say. ``known``: what the exact solver has found out.
    """

    asked: Problem
    given: Problem
    whole: Problem
    rows: Integers
    budget: Budget
    bounds: Bounds
    is_impossible: bool
    confined: "_Confined"
    progress: Progress
    known: Optimum

    @property
    def is_settled(self) -> bool:
        """True if nothing is left to improve: a best placement is known, or a proof that the gang can't be placed."""
        return self.is_impossible or self.is_refuted or self.known.counts is not None

    @property
    def is_refuted(self) -> bool:
        """True if the exact solver has proved that the gang can't be placed."""
        return self.known.is_impossible and self.given.minimum == self.given.total and not self.given.couplings


def _begun(problem: Problem, settings: SearchSettings, steps: Collection[str], limits: Limits) -> _Begun:
    """Begin a search; the exact solver has the ``limits``."""
    asked = problem
    if problem.has_other_couplings and problem.total == 1 and not problem.together:
        problem = _alone(problem)
    budget = Budget(settings.effort, settings.seconds, settings.clock, settings.wall)
    # 1. Find out whether the bounds exclude the gang.
    bounds = bounds_of(problem)
    is_impossible = bounds.placeable < problem.minimum or bool(problem.lacking(np.array(bounds.most)) > 0)
    is_impossible |= problem.minimum > 0 and not problem.slots.any()
    # 2. Choose domains by the rules between members, and stay within them from then on.
    confined = _within_domains(problem, settings, budget, is_impossible=is_impossible)
    # 3. Leave out the nodes that no placement needs. Place gangs of few roles at the least cost.
    slots, whole, rows = confined.slots, confined.problem, needed_rows(confined.problem)
    if slots is not None:
        rows = np.union1d(rows, np.flatnonzero(slots.any(axis=0)))
    needed = whole.restricted_to(rows)
    progress, known = Progress(needed, Valuation(needed)), UNKNOWN
    if slots is not None:
        progress.add("solver", [("solver", slots[:, rows])])
    if not confined.is_fixed and EXACT in steps and (len(needed.roles) == 1 or bounds.placeable == needed.total):
        known = _best_known(needed, progress.valuation, limits)
    return _Begun(asked, problem, whole, rows, budget, bounds, is_impossible, confined, progress, known)


def _finished(begun: _Begun, settings: SearchSettings, seed: int, steps: Collection[str]) -> Plan:
    """Finish a search and report on it."""
    asked, whole, confined, progress, known = begun.asked, begun.whole, begun.confined, begun.progress, begun.known
    bounds, budget, problem, scale = begun.bounds, begun.budget, progress.problem, Scale.of(begun.given)
    # 4. Place gangs of many roles by greedy rules.
    if confined.is_fixed:
        pass  # the placement of the solver, or of one pod after another, is kept
    elif known.counts is not None:
        progress.add("exact", [("exact", known.counts)])
    else:
        progress.add("greedy", greedy_seeds(problem, progress.valuation, goes_on=lambda: not budget.is_over))
    greedy = next((placement for placement in progress.placements if placement.name != "solver"), progress.best)
    # 5. Improve on the placement, unless it is the best or the gang can't be placed.
    stopped_by, is_confined = "exact", bool(begun.given.couplings)
    if begun.is_impossible:
        stopped_by = "bound" if problem.total_nodes else "no-nodes"
    elif confined.finding is Finding.CANNOT_FIT:
        stopped_by = "proof"
        progress.add("solver", [])
    elif begun.is_refuted:
        stopped_by = "proof"
    elif known.counts is None and not confined.is_fixed:
        target = Target(bounds.placeable, score_bound(problem))
        is_proof = confined.finding is not Finding.NOT_FOUND  # the gang may fit in other domains than those that greedy rules chose
        stopped_by = Improvement(progress, settings, seed, target, budget, steps, is_proof=is_proof).run()
    if is_confined and stopped_by in ("exact", "optimal"):
        stopped_by = "domain"
    # 6. Report.
    chosen = progress.best
    counts = np.zeros_like(whole.slots)
    counts[:, begun.rows] = chosen.counts
    if asked.has_other_couplings:
        counts, whole = (counts if confined.parts is None else confined.parts.merged(counts, len(asked.roles))), asked
    feasible = None if whole.lacking(counts.sum(axis=1)) > 0 else True
    if begun.is_impossible or stopped_by == "proof":
        feasible = False
    assignments, unplaced = by_pod(whole, counts)
    return Plan(
        feasible=feasible,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explain(whole, counts, bounds),
        search=SearchReport(
            seed_score=scale.points(greedy.value.score, int(greedy.counts.sum())),
            score=scale.points(chosen.value.score, len(assignments)),
            generations=len(progress.history),
            stopped_by=stopped_by,
            history=tuple((placed, scale.points(score, placed)) for placed, score in progress.history),
            best_seed=greedy.name,
            steps=tuple(replace(step, score=scale.points(step.score, step.placed)) for step in progress.steps),
            found_by=progress.found_by,
            wanted=settings.min_generations if stopped_by in ("effort", "time") and len(progress.history) < settings.min_generations else 0,
        ),
    )


def _alone(problem: Problem) -> Problem:
    """Return the ``problem`` of a single pod without its couplings: the nodes that these don't allow are left out."""
    admits = problem.admits & problem.allowed(np.zeros_like(problem.slots), 0)
    return replace(problem, admits=admits, slots=np.where(admits, problem.slots, 0), couplings=())


@dataclass(frozen=True, slots=True, eq=False)
class _Confined:
    """A problem without couplings, since its domains are chosen.

    ``slots``: int64[roles, nodes], a placement in these domains; None if none is known. ``parts``: the parts of the roles,
    if they are. ``is_fixed``: there would be too many parts, so the placement stays as it is.
    """

    problem: Problem
    finding: Finding | None = None
    slots: Integers | None = None
    parts: Parts | None = None
    is_fixed: bool = False


def _within_domains(problem: Problem, settings: SearchSettings, budget: Budget, *, is_impossible: bool) -> _Confined:
    """Return ``problem`` within the domains that its couplings allow.

    The solver finds domains that the gang fits in. Groups of roles that must share a domain move to the best ones; by other rules, each
    domain keeps its numbers of pods.
    """
    if not problem.couplings:
        return _Confined(problem)
    finding, slots = None, None
    if not is_impossible and settings.branches:
        answer = solve(problem, settings.branches, is_patient=True, budget=budget)
        finding, slots = answer.finding, answer.counts
    if not problem.has_other_couplings:
        problem, slots = in_best_domains(problem, slots, budget)
        return _Confined(problem, finding, slots)
    slots = placed_in_turn(problem) if slots is None else slots
    parts = parts_of(problem, slots)
    if parts is None:
        return _Confined(replace(problem, couplings=()), finding, slots, is_fixed=True)
    return _Confined(parts.problem, finding, parts.divided(slots), parts)


def is_quick(problem: Problem) -> bool:
    """Return whether bounds and greedy rules take at most some ten milliseconds, by the size of ``problem``."""
    return brief_cost(problem) <= _QUICK_COST


def brief_cost(problem: Problem) -> int:
    """Return about how many microseconds a search takes without generations and without the exact solver.

    Measured: 16 ms for 30 roles on 10 nodes.
    """
    roles, nodes = len(problem.roles), len(problem.nodes)
    return roles * (500 + 4 * nodes)


def _best_known(problem: Problem, valuation: Valuation, limits: Limits) -> Optimum:
    """Return the best possible placement, or the proof that not all pods fit, if either can be found without a search."""
    if problem.total == 1:
        return Optimum(_only_pod(problem, valuation))
    return best_placement(problem, valuation, limits)


def _only_pod(problem: Problem, valuation: Valuation) -> Integers:
    """Return the best placement of a single pod, by what the pod costs on each node. Ties go to the fuller node, then by name."""
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    rows = np.flatnonzero(problem.slots[0])
    if len(rows):
        costs = valuation.node_costs(rows, one_each(1, 0, rows))
        counts[0, rows[best_first(-costs, problem.scoring.used[:, rows])[0]]] = 1
    return counts


def by_pod(problem: Problem, counts: Integers) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return (pod uid, node name) of the assigned pods, and the uids of the unassigned pods.

    Pods of a role are assigned in their order, to nodes by their places in the topology, else by name. The domain that has a part of a
    segment comes last, since the pods of the last segment do.
    """
    assignments: list[tuple[str, str]] = []
    unplaced: list[str] = []
    order = np.arange(len(problem.nodes)) if problem.order is None else np.argsort(problem.order)
    segmented = {role: each for each in problem.couplings if isinstance(each, Segments) for role in each.roles}
    for number, (role, slots) in enumerate(zip(problem.roles, counts, strict=True)):
        mine = segmented[number].ordered(order, counts) if number in segmented else order
        rows = np.repeat(mine, slots[mine]).tolist()
        assignments += [(uid, problem.nodes[row]) for uid, row in zip(role.pods, rows, strict=False)]
        unplaced += role.pods[len(rows) :]
    return tuple(assignments), tuple(unplaced)
