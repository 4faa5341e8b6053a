"""Places gangs together that contend for the same slots: selects the gangs, their order, and how each gang fills the nodes.

If gangs were placed one after another, a placed gang might keep out gangs that would use the cluster better. So orders of the gangs are
compared by these numbers, the first difference deciding:

1. thousandths of GPUs that the placed members request, without members beyond the minimum;
2. for gangs that request no GPUs, the part of the free cpu or memory that they request, whichever is larger, in whole percent;
3. number of placed gangs;
4. number of the members of placed gangs, first within the minimum, then beyond the minimum;
5. cost of the slots of single-pod gangs.

The first order tried is the queue's own, so no answer is worse than the queue's order. Then sorted orders, a genetic search
(``permutation_search``) and the exact solver (``selection``) are tried. These steps end early once all gangs are placed, or once a bound
shows that no order can use more GPUs, or place more gangs with equally many GPUs. Last, each gang of more than one pod is searched for once
more, while all other gangs keep their slots. Only the first few of these searches include a genetic search, because gangs that become due
have to wait for the answer. The other searches end before their genetic search.

With an ``effort`` in the settings, each step has a share of that effort. The effort of a step is estimated from the numbers of gangs, roles
and nodes. Once the first step's share is spent, gangs that still need a search aren't placed here; each gets a search of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.contest.contest import Contender, Contest, ContestState, problem_among_others
from allaboard.placement.contest.decoder import Decoder, Slots, Table
from allaboard.placement.contest.permutation_search import Outcome, PermutationSearch, outcome_of
from allaboard.placement.contest.selection import Selection
from allaboard.placement.problem.plan import Explanation, Plan, RoleExplanation, SearchReport, Step
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import first_slots
from allaboard.placement.rules.devices import WHOLE
from allaboard.placement.solvers.bounds import bounds_of
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.solvers.improve import EVOLUTION, STEPS
from allaboard.placement.solvers.search import brief_cost, by_pod, search

_EPSILON = 1e-6
_JOINT = "joint"
_MOST_SELECTION_ORDERS = 10  # in which the decoder tries to place the solver's selection
_MOST_MISSED = 4
_SOLVER_SHARE = 0.5  # of the remaining time, for the solver's selection. A number of branches doesn't bound that time.
_MOST_WORK = 40_000  # of the last searches for larger gangs, in roles times nodes: three seconds.
_LEAST_WORK = 2_000  # of one search, however small.
_WORK_MICROSECONDS = 75  # of one unit of work.


@dataclass(frozen=True, slots=True)
class Joint:
    """Plans of gangs that were placed together.

    ``plans``: one for each gang; None if the gang isn't placed now. ``taken``: positions of the placed gangs, in the order in which they
    take their slots. ``gpus``: thousandths of GPUs that are in use if gangs are placed in queue order, and thousandths that are in use with
    these plans. ``orders``: number of orders tried. ``generations``: number of generations of the genetic search for the order.
    """

    plans: tuple[Plan | None, ...]
    taken: tuple[int, ...]
    gpus: tuple[int, int]
    orders: int
    generations: int


def place_together(contest: Contest, settings: SearchSettings, *, use_genetic: bool = True, use_solver: bool = True) -> Joint:
    """Return plans for the gangs of ``contest`` that can all be carried out together. The gangs' seeds determine the result."""
    if len(contest.gangs) == 1:
        return _place_only_gang(contest, settings)
    decoder = Decoder(contest)
    share, budget = -(-settings.effort // 3), Budget(0.0, settings.seconds, settings.clock, settings.wall)
    slow_steps = _SlowSteps(contest, decoder, replace(settings, effort=share), budget, _EffortBudget(share or np.inf))
    # 1. The gangs that fit if no other gang is placed.
    table = decoder.start.copy()
    others = [position for position in range(len(contest.gangs)) if slow_steps.find(table, position) is not None]
    # 2. The queue's own order.
    permutations = PermutationSearch(contest, decoder, others, share)
    in_queue_order = best = permutations.start(slow_steps.find)
    most = np.inf
    if not _is_best(best, permutations, most):
        # 3. An upper bound, and sorted orders.
        selection = _selection(permutations, share) if use_solver else None
        most = _most_value(permutations, selection)
        best = max((in_queue_order, *permutations.try_sorted_orders()), key=_fitness)
        # 4. Orders that evolve from these.
        if use_genetic and not _is_best(best, permutations, most):
            seed = int(np.random.default_rng([gang.seed for gang in contest.gangs]).integers(2**32))
            best = permutations.evolve(seed, lambda outcome: _is_best(outcome, permutations, most), settings.generations)
        # 5. The solver's selection.
        if selection is not None and settings.branches and not _is_best(best, permutations, most):
            best = max(best, slow_steps.place_selection(permutations, selection, _SOLVER_SHARE * budget.wall_seconds), key=_fitness)
        best = slow_steps.place_missed(best, others)
    # 6. Larger gangs once more, while other gangs keep their slots.
    return slow_steps.joint(best, in_queue_order, permutations)


def _place_only_gang(contest: Contest, settings: SearchSettings) -> Joint:
    gang = contest.gangs[0]
    problem = problem_among_others(contest, gang, ContestState.of(contest.problem))
    plan = search(problem, settings, gang.seed)
    gpus = int(gang.gpus @ _slots_of(plan, gang, problem.nodes).taken.sum(axis=1)) if plan.feasible else 0
    return Joint((plan if plan.feasible else None,), (0,) if plan.feasible else (), (gpus, gpus), 1, plan.search.generations)


def _fitness(outcome: Outcome) -> tuple[float, ...]:
    return (*outcome.value[:-1], -outcome.value[-1])


def _is_best(outcome: Outcome, permutations: PermutationSearch, most: float) -> bool:
    """Return whether all gangs of ``permutations`` are placed, or the value of ``outcome`` has reached ``most``, an upper bound."""
    gpus, _, gangs, *_ = outcome.value
    return _value(permutations.contest, gpus, gangs) >= most - _EPSILON or outcome.placed >= set(permutations.gangs)


def _value(contest: Contest, gpus: int, gangs: int = 1) -> float:
    """Return the number by which outcomes are compared, if ``gpus`` thousandths of GPUs are in use and ``gangs`` gangs are placed.

    All gangs together weigh less than one GPU.
    """
    return gpus / WHOLE + gangs / (1 + len(contest.gangs))


def _selection(permutations: PermutationSearch, effort: int) -> Selection:
    """Return the linear program that selects among the gangs without couplings.

    The value of a gang is its GPUs, and a small amount for the gang itself. If no gang requests GPUs, the value of a gang is its share of
    the free capacity, in percent, plus one for each member of the minimum.
    """
    positions = [position for position in permutations.gangs if not permutations.contest.gangs[position].is_coupled]
    gangs = [permutations.contest.gangs[position] for position in positions]
    if any(gang.most_gpus for gang in gangs):
        values = [_value(permutations.contest, gang.most_gpus) for gang in gangs]
    else:
        values = [100.0 * gang.share + gang.minimum for gang in gangs]
    return Selection(permutations.contest, positions, permutations.decoder.start.state, np.array(values), effort)


def _most_value(permutations: PermutationSearch, selection: Selection | None) -> float:
    """Return an upper bound of ``_value``; infinite without ``selection``, or if a gang counts by its cpu or memory.

    Gangs that ``selection`` leaves out, because they have couplings, count as placed.
    """
    gangs = permutations.contest.gangs
    if selection is None or any(gang.share for gang in gangs):
        return np.inf
    counted_as_placed = {position for position in permutations.gangs if gangs[position].is_coupled}
    return selection.bound() + sum(_value(permutations.contest, gangs[position].most_gpus) for position in counted_as_placed)


@dataclass(slots=True)
class _EffortBudget:
    """Holds the effort that a step has left, in microseconds. What work takes is estimated, not measured."""

    left: float

    def pays(self, cost: float) -> bool:
        """Return whether an effort of ``cost`` is left. If so, spend it."""
        is_enough = cost <= self.left
        self.left -= cost if is_enough else 0.0
        return is_enough


@dataclass(frozen=True, slots=True)
class _SlowSteps:
    """Takes the steps of the joint search that are slower than the decoder: search, MILP, local search."""

    contest: Contest
    decoder: Decoder
    settings: SearchSettings
    budget: Budget
    effort_budget: _EffortBudget = field(default_factory=lambda: _EffortBudget(np.inf))

    def find(self, table: Table, position: int) -> Slots | None:
        """Return slots for the gang at ``position`` as if no other gang waited: by the decoder, else by a search."""
        gang = self.contest.gangs[position]
        slots = self.decoder.find(table, position)
        if slots is None and gang.needs_search:
            slots = self._searched(table, gang)
            if slots is not None:
                self.decoder.learn(position, slots)
        return slots

    def _searched(self, table: Table, gang: Contender) -> Slots | None:
        problem = problem_among_others(self.contest, gang, table.state)
        if problem.devices is not None or bounds_of(problem).placeable < problem.minimum or not self._pays(self.effort_budget, problem):
            return None
        plan = search(problem, self.settings.within(self.budget), gang.seed)
        return _slots_of(plan, gang, problem.nodes) if plan.feasible else None

    def _pays(self, effort_budget: _EffortBudget, problem: Problem) -> bool:
        """Return whether effort and time are left for a search on ``problem``. If so, spend the effort."""
        return not self.budget.is_over and effort_budget.pays(brief_cost(problem))

    def place_selection(self, permutations: PermutationSearch, selection: Selection, seconds: float) -> Outcome:
        """Return the outcome of placing the gangs that the solver selects.

        The decoder places these gangs. If it leaves any of them out, all of them are placed on the nodes that the solver has chosen.
        """
        selected = selection.best(self.settings.branches, seconds)
        if selected is None:
            return outcome_of(self.contest, self.decoder, self.decoder.start.copy(), [])
        chosen = set(selected.placed)
        others = [position for position in permutations.gangs if position not in chosen]
        orders = [
            [*(position for position in order if position in chosen), *others]
            for order, _ in list(permutations.tried)[:_MOST_SELECTION_ORDERS]
        ]
        best = max((permutations.outcome(order) for order in orders), key=_fitness)
        if best.placed >= chosen:
            return best
        table, slots, left = self.decoder.start.copy(), list[tuple[int, Slots]](), selected.counts.copy()
        for position, members in zip(selected.placed, selected.members, strict=True):
            gang = self.contest.gangs[position]
            taken = np.stack([first_slots(left[role], int(pods)) for role, pods in zip(gang.roles.tolist(), members, strict=True)])
            np.subtract.at(left, gang.roles, taken)
            found = _on_used_nodes(np.arange(taken.shape[1]), taken)
            if (taken.sum(axis=1) != members).any() or members.sum() < gang.minimum or not self.decoder.are_free(table.state, gang, found):
                return best
            self.decoder.take(table, gang, found)
            slots.append((position, found))
        for position in others:
            if (more := self.decoder.find(table, position)) is not None:
                self.decoder.take(table, self.contest.gangs[position], more)
                slots.append((position, more))
        return max(best, outcome_of(self.contest, self.decoder, table, slots), key=_fitness)

    def place_missed(self, best: Outcome, gangs: Sequence[int]) -> Outcome:
        """Return ``best`` with more gangs: those that the decoder left out, and that a search places while other gangs keep their slots."""
        missed = [position for position in gangs if position not in best.placed and self.contest.gangs[position].needs_search]
        if not missed or self.contest.problem.devices is not None:
            return best
        table, slots = self.decoder.start.copy(), list(best.minima)
        for position, found in slots:
            self.decoder.take(table, self.contest.gangs[position], found)
        for position in missed[:_MOST_MISSED]:
            gang = self.contest.gangs[position]
            if (more := self._searched(table, gang)) is not None:
                self.decoder.take(table, gang, more)
                slots.append((position, more))
        return outcome_of(self.contest, self.decoder, table, slots) if len(slots) > len(best.minima) else best

    def joint(self, best: Outcome, in_queue_order: Outcome, permutations: PermutationSearch) -> Joint:
        """Return the plans of ``best``, after a further search for each larger gang while other gangs keep their slots."""
        gangs = self.contest.gangs
        slots: dict[int, Slots] = {}
        for position, found in best.slots:
            slots[position] = _merged(slots[position], found) if position in slots else found
        plans: list[Plan | None] = [None] * len(gangs)
        work, most_work = 0, min(_MOST_WORK, self.settings.effort // _WORK_MICROSECONDS or _MOST_WORK)
        effort_budget = _EffortBudget(self.settings.effort or np.inf)
        scale = Scale.of(self.contest.problem)
        for position in sorted(slots):
            gang, found = gangs[position], slots[position]
            if gang.is_single:
                plan = self._single(gang, found, scale)
            else:
                work += _LEAST_WORK + len(gang.roles) * len(self.contest.problem.nodes)
                plan, slots[position] = self._improved(best.table, gang, found, effort_budget, use_genetic=work <= most_work)
            plans[position] = _with_search_generations(plan, permutations.generations)
        return Joint(
            plans=tuple(plans),
            taken=tuple(position for position, _ in best.minima),
            gpus=(in_queue_order.value[0], best.value[0]),
            orders=len(permutations.tried),
            generations=permutations.generations,
        )

    def _single(self, gang: Contender, slots: Slots, scale: Scale) -> Plan:
        ((uid,),) = gang.pods
        problem = self.contest.problems[gang.objective]
        score = scale.points(100.0 * (1.0 - slots.cost), 1)
        return Plan(
            feasible=True,
            assignments=((uid, problem.nodes[int(slots.rows[0])]),),
            unplaced=(),
            explanation=Explanation(problem.total_nodes, gang.minimum, 1, (RoleExplanation((uid,), 0, 1, ()),), None),
            search=_report(score, 1),
        )

    def _improved(
        self, table: Table, gang: Contender, slots: Slots, effort_budget: _EffortBudget, *, use_genetic: bool
    ) -> tuple[Plan, Slots]:
        """Return the plan of a gang while other gangs keep their slots, and the slots that the gang takes now."""
        if self.contest.problem.devices is not None:
            # Slots on shared devices are valid only in the order in which they were taken.
            return _plan_of(problem_among_others(self.contest, gang, table.state), gang, slots), slots
        self.decoder.take(table, gang, Slots(slots.rows, -slots.taken))
        problem = problem_among_others(self.contest, gang, table.state)
        steps = STEPS if use_genetic else tuple(step for step in STEPS if step != EVOLUTION)
        plan = search(problem, self.settings.within(self.budget), gang.seed, steps=steps) if self._pays(effort_budget, problem) else None
        better = _slots_of(plan, gang, problem.nodes) if plan is not None and plan.feasible else None
        # The search may place more members, but other ones. No role may lose pods, or GPUs that the order counts on would be idle.
        if plan is not None and better is not None and (better.taken.sum(axis=1) >= slots.taken.sum(axis=1)).all():
            joint = Step(_JOINT, int(slots.taken.sum()), _score(problem, _counts_of(problem, gang, slots)))
            plan, slots = replace(plan, search=replace(plan.search, steps=(joint, *plan.search.steps))), better
        else:
            plan = _plan_of(problem, gang, slots)
        self.decoder.take(table, gang, slots)
        return plan, slots


def _plan_of(problem: Problem, gang: Contender, slots: Slots) -> Plan:
    """Return a plan that places ``gang`` on ``slots``."""
    counts = _counts_of(problem, gang, slots)
    assignments, unplaced = by_pod(problem, counts)
    return Plan(
        feasible=True,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explain(problem, counts, bounds_of(problem)),
        search=_report(_score(problem, counts), len(assignments)),
    )


def _counts_of(problem: Problem, gang: Contender, slots: Slots) -> Integers:
    """Convert the ``slots`` of a gang to the number of its pods of each role on each node: int64[roles, nodes]."""
    counts = np.zeros((len(gang.roles), len(problem.nodes)), dtype=np.int64)
    counts[:, slots.rows] = slots.taken
    return counts


def _score(problem: Problem, counts: Integers) -> float:
    """Return the score, in points, of the placement ``counts``: int64[roles, nodes]."""
    return Scale.of(problem).points(float(Valuation(problem).scores(counts[None])[0]), int(counts.sum()))


def _report(score: float, placed: int) -> SearchReport:
    """Return the report on a placement that the joint search itself has found. ``score`` is in points."""
    return SearchReport(score, score, 0, _JOINT, (), _JOINT, steps=(Step(_JOINT, placed, score),), found_by=_JOINT)


def _with_search_generations(plan: Plan, generations: int) -> Plan:
    """Return ``plan`` of one gang with ``generations`` added: those of the search for the order of all gangs.

    The generations are added to the plan's first step, the joint search.
    """
    first, *others = plan.search.steps
    steps = (replace(first, generations=first.generations + generations), *others)
    return replace(plan, search=replace(plan.search, generations=plan.search.generations + generations, steps=steps))


def _slots_of(plan: Plan, gang: Contender, nodes: Sequence[str]) -> Slots:
    """Return the assignments of ``plan`` as slots."""
    row_of = {name: row for row, name in enumerate(nodes)}
    own_of = {uid: own for own, pods in enumerate(gang.pods) for uid in pods}
    taken = np.zeros((len(gang.pods), len(nodes)), dtype=np.int64)
    for uid, node in plan.assignments:
        taken[own_of[uid], row_of[node]] += 1
    return _on_used_nodes(np.arange(len(nodes)), taken)


def _merged(one: Slots, other: Slots) -> Slots:
    """Return the slots of both ``one`` and ``other``, which belong to one gang."""
    rows = np.union1d(one.rows, other.rows)
    taken = np.zeros((len(one.taken), len(rows)), dtype=np.int64)
    for part in (one, other):
        taken[:, np.searchsorted(rows, part.rows)] += part.taken
    return Slots(rows, taken, one.cost)


def _on_used_nodes(rows: Integers, taken: Integers) -> Slots:
    is_used = taken.any(axis=0)
    return Slots(rows[is_used], taken[:, is_used])
