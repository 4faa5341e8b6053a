"""Places gangs that contend for the same seats together: which of them, in which order, and by which rule.

One after another, each gang that is placed may keep out what would have used the cluster better. So orders of the gangs are compared by
what they come to, one figure after the other:

1. thousandths of GPUs that the members ask for who must sit;
2. of gangs that ask for no GPUs, what they take of the free cpu or memory, whichever is more, in whole percent;
3. how many gangs these are;
4. how many members, then how many beyond the minimum;
5. what the seats of single pods cost.

Gangs that must not be overtaken are seated before all others, in queue order, and stay. The first order tried is the queue's, so no
answer is worse than that. Then come sorted orders, a genetic search (``lineup``), and the solver (``choice``), until everybody sits, or
it is known that no more GPUs can be at work, nor as many for more gangs. Last, each larger gang is searched for once more among the others'
seats, which stay as they are: the first few genetically, for whoever comes meanwhile waits, and the others by what the search starts from.

With an ``effort`` in the settings each of these steps has a share of it, reckoned from sizes. A gang that is still to be searched for when
the first share is spent isn't placed here: it is left to a search of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.contest.choice import Choice
from allaboard.placement.contest.contest import Contender, Contest, Standing, alone
from allaboard.placement.contest.decoder import Decoder, Seats, Table
from allaboard.placement.contest.lineup import Lineup, Outcome, outcome_of
from allaboard.placement.problem.plan import Explanation, Plan, RoleExplanation, SearchReport, Step
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.devices import WHOLE
from allaboard.placement.rules.room import first_seats
from allaboard.placement.solvers.bounds import bounds_of
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.explain import explain
from allaboard.placement.solvers.genetic import SearchSettings
from allaboard.placement.solvers.pursuit import EVOLUTION, STEPS
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
    seating = _Seating(contest, decoder, replace(settings, effort=share), budget, _Purse(share or np.inf))
    table, seats = decoder.start.copy(), []
    for position, gang in enumerate(contest.gangs):
        if gang.is_protected and (found := seating.find(table, position)) is not None:
            decoder.take(table, gang, found)
            seats.append((position, found))
    protected = Outcome((0, 0, 0, 0, 0, 0.0), seats, table)
    others = [
        position for position, gang in enumerate(contest.gangs) if not gang.is_protected and seating.find(table, position) is not None
    ]
    # 2. The queue's own order.
    lineup = Lineup(contest, decoder, others, protected, share)
    first = best = lineup.start(seating.find)
    most = np.inf
    if not _is_best(best, lineup, most):
        # 3. What can be reached at most, and orders that anybody would try.
        choice = _choice(lineup, share) if use_solver else None
        most = _most(lineup, choice)
        best = max((first, *lineup.sorted()), key=_fitness)
        # 4. Orders that evolve from these.
        if use_genetic and not _is_best(best, lineup, most):
            seed = int(np.random.default_rng([gang.seed for gang in contest.gangs]).integers(2**32))
            best = lineup.evolved(seed, lambda outcome: _is_best(outcome, lineup, most), settings.generations)
        # 5. What the solver would do.
        if choice is not None and settings.branches and not _is_best(best, lineup, most):
            best = max(best, seating.solved(lineup, choice, _SOLVER * budget.wall_seconds), key=_fitness)
        best = seating.with_missed(best, others)
    # 6. Larger gangs once more, among the others.
    return seating.joint(best, first, lineup)


def _only(contest: Contest, settings: SearchSettings) -> Joint:
    gang = contest.gangs[0]
    problem = alone(contest, gang, Standing.of(contest.problem))
    plan = search(problem, settings, gang.seed)
    gpus = int(gang.gpus @ _seats_of(plan, gang, problem.nodes).taken.sum(axis=1)) if plan.feasible else 0
    return Joint((plan if plan.feasible else None,), (0,) if plan.feasible else (), (), (gpus, gpus), 1, plan.search.generations)


def _fitness(outcome: Outcome) -> tuple[float, ...]:
    return (*outcome.worth[:-1], -outcome.worth[-1])


def _is_best(outcome: Outcome, lineup: Lineup, most: float) -> bool:
    """Everybody sits who could, or nothing that comes to more is possible."""
    gpus, _, gangs, *_ = outcome.worth
    return _value(lineup.contest, gpus, gangs) >= most - _EPSILON or outcome.placed >= set(lineup.gangs)


def _value(contest: Contest, gpus: int, gangs: int = 1) -> float:
    """What ``gpus`` thousandths at work are worth, and among equal ones more ``gangs``: all there are weigh less than a GPU."""
    return gpus / WHOLE + gangs / (1 + len(contest.gangs))


def _choice(lineup: Lineup, effort: int) -> Choice:
    """Gangs by their GPUs, and then by their number; where nobody asks for any by their share, a member weighing as much as a percent."""
    positions = [position for position in lineup.gangs if not lineup.contest.gangs[position].is_bound_up]
    gangs = [lineup.contest.gangs[position] for position in positions]
    if any(gang.most_gpus for gang in gangs):
        worth = [_value(lineup.contest, gang.most_gpus) for gang in gangs]
    else:
        worth = [100.0 * gang.share + gang.minimum for gang in gangs]
    return Choice(lineup.contest, positions, lineup.first.table.standing, np.array(worth), effort)


def _most(lineup: Lineup, choice: Choice | None) -> float:
    """GPUs at work at most and gangs among equal ones, with those that aren't in the choice; infinite when that isn't all that counts."""
    gangs = lineup.contest.gangs
    if choice is None or any(gang.share for gang in gangs):
        return np.inf
    given = {position for position in lineup.gangs if gangs[position].is_bound_up} | lineup.first.placed
    return choice.bound() + sum(_value(lineup.contest, gangs[position].most_gpus) for position in given)


@dataclass(slots=True)
class _Purse:
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
    purse: _Purse = field(default_factory=lambda: _Purse(np.inf))

    def find(self, table: Table, position: int) -> Seats | None:
        """Seats for a gang as if no other waited, searched for where the decoder finds none."""
        gang = self.contest.gangs[position]
        seats = self.decoder.find(table, position)
        if seats is None and gang.needs_search:
            seats = self._searched(table, gang)
            if seats is not None:
                self.decoder.learn(position, seats)
        return seats

    def _searched(self, table: Table, gang: Contender) -> Seats | None:
        problem = alone(self.contest, gang, table.standing)
        if problem.devices is not None or bounds_of(problem).placeable < problem.minimum or not self._pays(self.purse, problem):
            return None
        plan = search(problem, self.settings.within(self.budget), gang.seed)
        return _seats_of(plan, gang, problem.nodes) if plan.feasible else None

    def _pays(self, purse: _Purse, problem: Problem) -> bool:
        """Whether there are effort and time for another search."""
        return not self.budget.is_over and purse.pays(brief_cost(problem))

    def solved(self, lineup: Lineup, choice: Choice, seconds: float) -> Outcome:
        """Those seated whom the solver would place: by the decoder if it can, else where the solver has put them."""
        wanted = choice.best(self.settings.branches, seconds)
        if wanted is None:
            return lineup.first
        chosen = set(wanted.placed)
        others = [position for position in lineup.gangs if position not in chosen]
        orders = [[*(position for position in order if position in chosen), *others] for order, _ in list(lineup.tried)[:_RESEATED]]
        best = max((lineup.outcome(order) for order in orders), key=_fitness)
        if best.placed >= chosen:
            return best
        table, seats, left = lineup.first.table.copy(), list(lineup.first.seats), wanted.counts.copy()
        for position, members in zip(wanted.placed, wanted.members, strict=True):
            gang = self.contest.gangs[position]
            taken = np.stack([first_seats(left[role], int(pods)) for role, pods in zip(gang.roles.tolist(), members, strict=True)])
            np.subtract.at(left, gang.roles, taken)
            found = _without_idle(np.arange(taken.shape[1]), taken)
            if (
                (taken.sum(axis=1) != members).any()
                or members.sum() < gang.minimum
                or not self.decoder.are_free(table.standing, gang, found)
            ):
                return best
            self.decoder.take(table, gang, found)
            seats.append((position, found))
        for position in others:
            if (more := self.decoder.find(table, position)) is not None:
                self.decoder.take(table, self.contest.gangs[position], more)
                seats.append((position, more))
        return max(best, outcome_of(self.contest, self.decoder, table, seats), key=_fitness)

    def with_missed(self, best: Outcome, gangs: Sequence[int]) -> Outcome:
        """Those searched for that the decoder has found no seats for, among the others' seats."""
        missed = [position for position in gangs if position not in best.placed and self.contest.gangs[position].needs_search]
        if not missed or self.contest.problem.devices is not None:
            return best
        table, seats = self.decoder.start.copy(), list(best.minima)
        for position, found in seats:
            self.decoder.take(table, self.contest.gangs[position], found)
        for position in missed[:_MOST_MISSED]:
            gang = self.contest.gangs[position]
            if (more := self._searched(table, gang)) is not None:
                self.decoder.take(table, gang, more)
                seats.append((position, more))
        return outcome_of(self.contest, self.decoder, table, seats) if len(seats) > len(best.minima) else best

    def joint(self, best: Outcome, first: Outcome, lineup: Lineup) -> Joint:
        """The plans of an outcome, the seats of larger gangs searched for once more."""
        gangs = self.contest.gangs
        seats: dict[int, Seats] = {}
        for position, found in best.seats:
            seats[position] = _together(seats[position], found) if position in seats else found
        plans: list[Plan | None] = [None] * len(gangs)
        work, most = 0, min(_WORK, self.settings.effort // _MICROSECONDS or _WORK)
        purse = _Purse(self.settings.effort or np.inf)
        scale = Scale.of(self.contest.problem)
        for position in sorted(seats):
            gang, found = gangs[position], seats[position]
            if gang.is_single:
                plan = self._single(gang, found, scale)
            else:
                work += _EACH + len(gang.roles) * len(self.contest.problem.nodes)
                plan, seats[position] = self._polished(best.table, gang, found, purse, use_genetic=work <= most)
            plans[position] = _of_joint(plan, lineup.generations)
        return Joint(
            plans=tuple(plans),
            taken=tuple(position for position, _ in best.minima),
            overtaken=tuple(position for position in lineup.gangs if position in first.placed and position not in seats),
            gpus=(first.worth[0], best.worth[0]),
            orders=len(lineup.tried),
            generations=lineup.generations,
        )

    def _single(self, gang: Contender, seats: Seats, scale: Scale) -> Plan:
        ((uid,),) = gang.pods
        problem = self.contest.problems[gang.objective]
        score = scale.points(100.0 * (1.0 - seats.cost), 1)
        return Plan(
            feasible=True,
            assignments=((uid, problem.nodes[int(seats.rows[0])]),),
            unplaced=(),
            explanation=Explanation(problem.total_nodes, gang.minimum, 1, (RoleExplanation((uid,), 0, 1, ()),), None),
            search=_report(score, 1),
        )

    def _polished(self, table: Table, gang: Contender, seats: Seats, purse: _Purse, *, use_genetic: bool) -> tuple[Plan, Seats]:
        """The plan of a gang among the others' seats, and the seats it takes now."""
        if self.contest.problem.devices is not None:
            # Seats on devices hold in the order they were taken only.
            return _plan(alone(self.contest, gang, table.standing), gang, seats), seats
        self.decoder.take(table, gang, Seats(seats.rows, -seats.taken))
        problem = alone(self.contest, gang, table.standing)
        steps = STEPS if use_genetic else tuple(step for step in STEPS if step != EVOLUTION)
        plan = search(problem, self.settings.within(self.budget), gang.seed, steps=steps) if self._pays(purse, problem) else None
        better = _seats_of(plan, gang, problem.nodes) if plan is not None and plan.feasible else None
        # More members may be seated in other ways: of each role no fewer, or GPUs are idle that were to be at work.
        if plan is not None and better is not None and (better.taken.sum(axis=1) >= seats.taken.sum(axis=1)).all():
            joint = Step(_JOINT, int(seats.taken.sum()), _score(problem, _counts_of(problem, gang, seats)))
            plan, seats = replace(plan, search=replace(plan.search, steps=(joint, *plan.search.steps))), better
        else:
            plan = _plan(problem, gang, seats)
        self.decoder.take(table, gang, seats)
        return plan, seats


def _plan(problem: Problem, gang: Contender, seats: Seats) -> Plan:
    """Seats as a plan."""
    counts = _counts_of(problem, gang, seats)
    assignments, unplaced = by_pod(problem, counts)
    return Plan(
        feasible=True,
        assignments=assignments,
        unplaced=unplaced,
        explanation=explain(problem, counts, bounds_of(problem)),
        search=_report(_score(problem, counts), len(assignments)),
    )


def _counts_of(problem: Problem, gang: Contender, seats: Seats) -> Integers:
    """Return how many pods of each role sit on each node: int64[roles, nodes]."""
    counts = np.zeros((len(gang.roles), len(problem.nodes)), dtype=np.int64)
    counts[:, seats.rows] = seats.taken
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


def _seats_of(plan: Plan, gang: Contender, nodes: Sequence[str]) -> Seats:
    """A plan as seats."""
    row_of = {name: row for row, name in enumerate(nodes)}
    own_of = {uid: own for own, pods in enumerate(gang.pods) for uid in pods}
    taken = np.zeros((len(gang.pods), len(nodes)), dtype=np.int64)
    for uid, node in plan.assignments:
        taken[own_of[uid], row_of[node]] += 1
    return _without_idle(np.arange(len(nodes)), taken)


def _together(one: Seats, other: Seats) -> Seats:
    """All of the seats of a gang."""
    rows = np.union1d(one.rows, other.rows)
    taken = np.zeros((len(one.taken), len(rows)), dtype=np.int64)
    for part in (one, other):
        taken[:, np.searchsorted(rows, part.rows)] += part.taken
    return Seats(rows, taken, one.cost)


def _without_idle(rows: Integers, taken: Integers) -> Seats:
    is_used = taken.any(axis=0)
    return Seats(rows[is_used], taken[:, is_used])
