"""Places gangs that contend for the same seats together: which of them, in which order, and by which rule.

One after another, each gang that is placed may keep out what would have used the cluster better. So orders of the gangs are compared by
what they come to, one figure after the other:

1. thousandths of GPUs that the members ask for who must sit;
2. of gangs that ask for no GPUs, what they take of the free cpu or memory, whichever is more, in whole percent;
3. how many gangs these are;
4. how many members, then how many beyond the minimum;
5. what the seats of single pods cost.

Gangs that must not be overtaken are seated before all others, in queue order, and stay. The first order tried is the queue's, so no
answer is worse than that. Then come sorted orders, a genetic search (``permutations``), and the solver (``choice``), until all sit, or
it is known that no more GPUs can be at work, nor as many for more gangs. Last, each larger gang is searched for once more among the others'
seats, which stay as they are: the first few genetically, for whoever comes meanwhile waits, and the others by what the search starts from.

With an ``effort`` in the settings each of these steps has a share of it, reckoned from sizes. A gang that is still to be searched for when
the first share is spent isn't placed here: it is left to a search of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.contest.contest import Contender, Contest, ContestState, alone
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
_RESEATED = 10  # orders in which the solver's choice is seated
_MOST_MISSED = 4
_SOLVER = 0.5  # of the time that is left may go to its choice: branches alone don't bound it
_WORK = 40_000  # of searches for larger gangs once more, in roles times nodes: three seconds
_EACH = 2_000  # what a search takes however small it is
_MICROSECONDS = 75  # of one unit of these


@dataclass(frozen=True, slots=True)
class Joint:
    """``plans`` by gang, ``None`` for one that isn't placed now; seats are taken in the order ``taken``, positions of gangs.

    ``overtaken`` would sit if gangs were seated one after another, and don't. ``gpus`` are thousandths that would be at work in the queue's
    order, and that are.
    """

    plans: tuple[Plan | None, ...]
    taken: tuple[int, ...]
    overtaken: tuple[int, ...]
    gpus: tuple[int, int]
    orders: int
    generations: int


def place_together(contest: Contest, settings: SearchSettings, *, use_genetic: bool = True, use_solver: bool = True) -> Joint:
    """Plans for the gangs of ``contest`` that hold all together. Deterministic by the gangs' seeds."""
    if len(contest.gangs) == 1:
        return _only(contest, settings)
    # 1. Those that must not be overtaken, each as if it were alone.
    decoder = Decoder(contest)
    share, budget = -(-settings.effort // 3), Budget(0.0, settings.seconds, settings.clock, settings.wall)
    seating = _Seating(contest, decoder, replace(settings, effort=share), budget, _EffortBudget(share or np.inf))
    table, slots = decoder.start.copy(), []
    for position, gang in enumerate(contest.gangs):
        if gang.is_protected and (found := seating.find(table, position)) is not None:
            decoder.take(table, gang, found)
            slots.append((position, found))
    protected = Outcome((0, 0, 0, 0, 0, 0.0), slots, table)
    others = [
        position for position, gang in enumerate(contest.gangs) if not gang.is_protected and seating.find(table, position) is not None
    ]
    # 2. The queue's own order.
    permutations = PermutationSearch(contest, decoder, others, protected, share)
    first = best = permutations.start(seating.find)
    most = np.inf
    if not _is_best(best, permutations, most):
        # 3. What can be reached at most, and orders that anybody would try.
        choice = _choice(permutations, share) if use_solver else None
        most = _most(permutations, choice)
        best = max((first, *permutations.sorted()), key=_fitness)
        # 4. Orders that evolve from these.
        if use_genetic and not _is_best(best, permutations, most):
            seed = int(np.random.default_rng([gang.seed for gang in contest.gangs]).integers(2**32))
            best = permutations.evolved(seed, lambda outcome: _is_best(outcome, permutations, most), settings.generations)
        # 5. What the solver would do.
        if choice is not None and settings.branches and not _is_best(best, permutations, most):
            best = max(best, seating.solved(permutations, choice, _SOLVER * budget.wall_seconds), key=_fitness)
        best = seating.with_missed(best, others)
    # 6. Larger gangs once more, among the others.
    return seating.joint(best, first, permutations)


def _only(contest: Contest, settings: SearchSettings) -> Joint:
    gang = contest.gangs[0]
    problem = alone(contest, gang, ContestState.of(contest.problem))
    plan = search(problem, settings, gang.seed)
    gpus = int(gang.gpus @ _slots_of(plan, gang, problem.nodes).taken.sum(axis=1)) if plan.feasible else 0
    return Joint((plan if plan.feasible else None,), (0,) if plan.feasible else (), (), (gpus, gpus), 1, plan.search.generations)


def _fitness(outcome: Outcome) -> tuple[float, ...]:
    return (*outcome.worth[:-1], -outcome.worth[-1])


def _is_best(outcome: Outcome, permutations: PermutationSearch, most: float) -> bool:
    """Everybody sits who could, or nothing that comes to more is possible."""
    gpus, _, gangs, *_ = outcome.worth
    return _value(permutations.contest, gpus, gangs) >= most - _EPSILON or outcome.placed >= set(permutations.gangs)


def _value(contest: Contest, gpus: int, gangs: int = 1) -> float:
    """What ``gpus`` thousandths at work are worth, and among equal ones more ``gangs``: all there are weigh less than a GPU."""
    return gpus / WHOLE + gangs / (1 + len(contest.gangs))


def _choice(permutations: PermutationSearch, effort: int) -> Selection:
    """Gangs by their GPUs, and then by their number; where nobody asks for any by their share, a member weighing as much as a percent."""
    positions = [position for position in permutations.gangs if not permutations.contest.gangs[position].is_coupled]
    gangs = [permutations.contest.gangs[position] for position in positions]
    if any(gang.most_gpus for gang in gangs):
        worth = [_value(permutations.contest, gang.most_gpus) for gang in gangs]
    else:
        worth = [100.0 * gang.share + gang.minimum for gang in gangs]
    return Selection(permutations.contest, positions, permutations.first.table.standing, np.array(worth), effort)


def _most(permutations: PermutationSearch, choice: Selection | None) -> float:
    """GPUs at work at most and gangs among equal ones, with those that aren't in the choice; infinite when that isn't all that counts."""
    gangs = permutations.contest.gangs
    if choice is None or any(gang.share for gang in gangs):
        return np.inf
    given = {position for position in permutations.gangs if gangs[position].is_coupled} | permutations.first.placed
    return choice.bound() + sum(_value(permutations.contest, gangs[position].most_gpus) for position in given)


@dataclass(slots=True)
class _EffortBudget:
    """What a step may take still, in microseconds."""

    left: float

    def pays(self, cost: float) -> bool:
        """Whether there was enough; then it is spent."""
        is_enough = cost <= self.left
        self.left -= cost if is_enough else 0.0
        return is_enough


@dataclass(frozen=True, slots=True)
class _Seating:
    """What takes more than the decoder."""

    contest: Contest
    decoder: Decoder
    settings: SearchSettings
    budget: Budget
    purse: _EffortBudget = field(default_factory=lambda: _EffortBudget(np.inf))

    def find(self, table: Table, position: int) -> Slots | None:
        """Seats for a gang as if no other waited, searched for where the decoder finds none."""
        gang = self.contest.gangs[position]
        slots = self.decoder.find(table, position)
        if slots is None and gang.needs_search:
            slots = self._searched(table, gang)
            if slots is not None:
                self.decoder.learn(position, slots)
        return slots

    def _searched(self, table: Table, gang: Contender) -> Slots | None:
        problem = alone(self.contest, gang, table.standing)
        if problem.devices is not None or bounds_of(problem).placeable < problem.minimum or not self._pays(self.purse, problem):
            return None
        plan = search(problem, self.settings.within(self.budget), gang.seed)
        return _slots_of(plan, gang, problem.nodes) if plan.feasible else None

    def _pays(self, purse: _EffortBudget, problem: Problem) -> bool:
        """Whether there are effort and time for another search."""
        return not self.budget.is_over and purse.pays(brief_cost(problem))

    def solved(self, permutations: PermutationSearch, choice: Selection, seconds: float) -> Outcome:
        """Those seated whom the solver would place: by the decoder if it can, else where the solver has put them."""
        wanted = choice.best(self.settings.branches, seconds)
        if wanted is None:
            return permutations.first
        chosen = set(wanted.placed)
        others = [position for position in permutations.gangs if position not in chosen]
        orders = [[*(position for position in order if position in chosen), *others] for order, _ in list(permutations.tried)[:_RESEATED]]
        best = max((permutations.outcome(order) for order in orders), key=_fitness)
        if best.placed >= chosen:
            return best
        table, slots, left = permutations.first.table.copy(), list(permutations.first.slots), wanted.counts.copy()
        for position, members in zip(wanted.placed, wanted.members, strict=True):
            gang = self.contest.gangs[position]
            taken = np.stack([first_slots(left[role], int(pods)) for role, pods in zip(gang.roles.tolist(), members, strict=True)])
            np.subtract.at(left, gang.roles, taken)
            found = _without_idle(np.arange(taken.shape[1]), taken)
            if (
                (taken.sum(axis=1) != members).any()
                or members.sum() < gang.minimum
                or not self.decoder.are_free(table.standing, gang, found)
            ):
                return best
            self.decoder.take(table, gang, found)
            slots.append((position, found))
        for position in others:
            if (more := self.decoder.find(table, position)) is not None:
                self.decoder.take(table, self.contest.gangs[position], more)
                slots.append((position, more))
        return max(best, outcome_of(self.contest, self.decoder, table, slots), key=_fitness)

    def with_missed(self, best: Outcome, gangs: Sequence[int]) -> Outcome:
        """Those searched for that the decoder has found no seats for, among the others' seats."""
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

    def joint(self, best: Outcome, first: Outcome, permutations: PermutationSearch) -> Joint:
        """The plans of an outcome, the seats of larger gangs searched for once more."""
        gangs = self.contest.gangs
        slots: dict[int, Slots] = {}
        for position, found in best.slots:
            slots[position] = _together(slots[position], found) if position in slots else found
        plans: list[Plan | None] = [None] * len(gangs)
        work, most = 0, min(_WORK, self.settings.effort // _MICROSECONDS or _WORK)
        purse = _EffortBudget(self.settings.effort or np.inf)
        scale = Scale.of(self.contest.problem)
        for position in sorted(slots):
            gang, found = gangs[position], slots[position]
            if gang.is_single:
                plan = self._single(gang, found, scale)
            else:
                work += _EACH + len(gang.roles) * len(self.contest.problem.nodes)
                plan, slots[position] = self._polished(best.table, gang, found, purse, use_genetic=work <= most)
            plans[position] = _of_joint(plan, permutations.generations)
        return Joint(
            plans=tuple(plans),
            taken=tuple(position for position, _ in best.minima),
            overtaken=tuple(position for position in permutations.gangs if position in first.placed and position not in slots),
            gpus=(first.worth[0], best.worth[0]),
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

    def _polished(self, table: Table, gang: Contender, slots: Slots, purse: _EffortBudget, *, use_genetic: bool) -> tuple[Plan, Slots]:
        """The plan of a gang among the others' seats, and the seats it takes now."""
        if self.contest.problem.devices is not None:
            # Seats on devices hold in the order they were taken only.
            return _plan(alone(self.contest, gang, table.standing), gang, slots), slots
        self.decoder.take(table, gang, Slots(slots.rows, -slots.taken))
        problem = alone(self.contest, gang, table.standing)
        steps = STEPS if use_genetic else tuple(step for step in STEPS if step != EVOLUTION)
        plan = search(problem, self.settings.within(self.budget), gang.seed, steps=steps) if self._pays(purse, problem) else None
        better = _slots_of(plan, gang, problem.nodes) if plan is not None and plan.feasible else None
        # More members may be seated in other ways: of each role no fewer, or GPUs are idle that were to be at work.
        if plan is not None and better is not None and (better.taken.sum(axis=1) >= slots.taken.sum(axis=1)).all():
            joint = Step(_JOINT, int(slots.taken.sum()), _score(problem, _counts_of(problem, gang, slots)))
            plan, slots = replace(plan, search=replace(plan.search, steps=(joint, *plan.search.steps))), better
        else:
            plan = _plan(problem, gang, slots)
        self.decoder.take(table, gang, slots)
        return plan, slots


def _plan(problem: Problem, gang: Contender, slots: Slots) -> Plan:
    """Seats as a plan."""
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
    """Return how many pods of each role sit on each node: int64[roles, nodes]."""
    counts = np.zeros((len(gang.roles), len(problem.nodes)), dtype=np.int64)
    counts[:, slots.rows] = slots.taken
    return counts


def _score(problem: Problem, counts: Integers) -> float:
    """Return the score of ``counts``: int64[roles, nodes], in points."""
    return Scale.of(problem).points(float(Valuation(problem).scores(counts[None])[0]), int(counts.sum()))


def _report(score: float, placed: int) -> SearchReport:
    """Return the report on a placement that is the joint search's own. ``score`` is in points."""
    return SearchReport(score, score, 0, _JOINT, (), _JOINT, steps=(Step(_JOINT, placed, score),), found_by=_JOINT)


def _of_joint(plan: Plan, generations: int) -> Plan:
    """Add ``generations`` to the plan of one gang: those of the order in which all gangs of the contest are placed.

    They belong to the first step, which is the joint search's.
    """
    first, *others = plan.search.steps
    steps = (replace(first, generations=first.generations + generations), *others)
    return replace(plan, search=replace(plan.search, generations=plan.search.generations + generations, steps=steps))


def _slots_of(plan: Plan, gang: Contender, nodes: Sequence[str]) -> Slots:
    """A plan as seats."""
    row_of = {name: row for row, name in enumerate(nodes)}
    own_of = {uid: own for own, pods in enumerate(gang.pods) for uid in pods}
    taken = np.zeros((len(gang.pods), len(nodes)), dtype=np.int64)
    for uid, node in plan.assignments:
        taken[own_of[uid], row_of[node]] += 1
    return _without_idle(np.arange(len(nodes)), taken)


def _together(one: Slots, other: Slots) -> Slots:
    """All of the seats of a gang."""
    rows = np.union1d(one.rows, other.rows)
    taken = np.zeros((len(one.taken), len(rows)), dtype=np.int64)
    for part in (one, other):
        taken[:, np.searchsorted(rows, part.rows)] += part.taken
    return Slots(rows, taken, one.cost)


def _without_idle(rows: Integers, taken: Integers) -> Slots:
    is_used = taken.any(axis=0)
    return Slots(rows[is_used], taken[:, is_used])
