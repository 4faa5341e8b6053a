"""Finds reservations: where and when a refused gang will start, once gangs that run now have ended.

The first gangs in queue order that don't fit get a reservation each (``cluster.reservations``). It is found by the planner's own search, on
the cluster as it will be when the first running units have ended, in the order of their expected ends:

1. Counting says at which step the gang may fit first: a binary search over the steps, which are the ends of units and of reservations
   ahead.
2. The planner searches on the cluster as it will be then. If the gang doesn't fit, it searches 1, 2, 4, ... steps later, and then between
   the last step without a placement and the first with one.

Each reservation sees those ahead of it in the queue as capacity in use from their beginning to their end. Nothing is stored: the same facts
give the same reservations. So that expected starts don't flap, a gang's earlier placement is kept until another one is better by a margin.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from allaboard.cluster.reservations import (
    MOST_NAMED,
    Applicant,
    Ledger,
    Reservation,
    after,
    amounts_of,
    awaited_by,
    basis_of,
    is_free,
    named,
)
from allaboard.cluster.running import BASES, Basis, Departures
from allaboard.model.arrays import Floats, Integers
from allaboard.model.backfill import Backfill
from allaboard.model.gang import Gang, GangKey
from allaboard.model.snapshot import Snapshot
from allaboard.model.walltime import end_of
from allaboard.placement import NodeFilters
from allaboard.planning.min_resources import beyond_members
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.search_processes import SearchError
from allaboard.queueing.capacity_waitlist import need_of, slots_in
from allaboard.records.sort_key import Order
from allaboard.runtime.slices import Slices
from allaboard.settings.options import Settings

_MOST_SEARCHES = 10  # For one reservation.
_LEAST_MARGIN_SECONDS = 60.0  # Another placement must begin so much earlier than the one that is kept.
_MARGIN = 0.1  # The same, as a part of the time until the kept placement begins.
_PAUSE_RATIO = 5.0  # After a search that found no better placement the next one may wait for so many times as long as the search took.

_MOST_PASSES = 3  # over all reservations, while pods end.
_REPEAT_SECONDS = 30.0  # An owner isn't attempted again so soon only because its expected start has moved.
_MISTAKEN_SECONDS = 5.0  # The pause until an owner is woken again that wasn't placed although its capacity was free.

Amounts = Mapping[str, Mapping[str, int]]
GangOf = Callable[[GangKey], Gang | None]


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    """The settings of reservations.

    ``most``: the most gangs with a reservation. ``after_seconds``: how long a gang must have waited before a reservation with a guessed
    beginning binds gangs of its priority.
    """

    most: int = 4
    after_seconds: float = 30.0

    @classmethod
    def by(cls, settings: Settings) -> Self:
        """Return the settings of reservations that the operator's settings state."""
        return cls(settings.reservations, settings.reserve_after_seconds)


RESERVATIONS = ReservationSettings()


@dataclass(frozen=True, slots=True)
class _Future:
    """The cluster at later times, as one gang may use it.

    ``ahead`` are the reservations that bind the gang. At each *step* the gang may fit for the first time: now, when one more unit has
    ended, and when a reservation ahead ends. ``times``: float64[steps], the time of each step. ``ended``: int64[steps], how many units have
    ended at that time. If gangs start ``in_order``, the gang starts at ``first``, or later: no earlier than the gangs ahead.
    """

    gang: PreparedGang
    snapshot: Snapshot
    departures: Departures
    ahead: Sequence[Reservation]
    order: Order
    now: float
    times: Floats
    ended: Integers
    in_order: bool
    first: int

    @classmethod
    def of(cls, gang: PreparedGang, snapshot: Snapshot, departures: Departures, ahead: Sequence[Reservation], ledger: Ledger) -> Self:
        """Return the future of the cluster from now on."""
        now, in_order = ledger.now(), ledger.backfill is Backfill.OFF
        # Thousands of pods may be units of their own, and few reservations are ahead.
        ends = np.unique([each.ends for each in ahead if each.ends < math.inf])
        place = np.searchsorted(departures.ends, ends, side="right")
        times = np.concatenate([[now], np.insert(departures.ends, place, ends)])
        ended = np.concatenate([[0], np.insert(np.arange(1, len(departures.ends) + 1), place, place)])
        earliest = max((each.begins for each in ahead), default=now) if in_order else now
        first = max(1, int(np.searchsorted(times, earliest))) if earliest > now else 0
        return cls(gang, snapshot, departures, ahead, ledger.place(gang.key), now, times, ended, in_order, first)

    @property
    def last(self) -> int:
        """The last step."""
        return len(self.times) - 1

    def begins(self, step: int) -> float:
        """Return the time of a step."""
        return float(self.times[step])

    def step_after(self, units: Sequence[int]) -> int:
        """Return the first step at which the gang may start, and by which ``units`` have ended, which are in the order of their ends."""
        return max(self.first, int(np.searchsorted(self.ended, units[-1] + 1)) if units else 0)

    def steps_at(self, times: Collection[float], after: int) -> list[int]:
        """Return the steps behind the step ``after`` that are at one of ``times``."""
        found: list[int] = (after + 1 + np.flatnonzero(np.isin(self.times[after + 1 :], list(times)))).tolist()
        return found

    def after(self, step: int) -> Snapshot:
        """Return the cluster at a step, without what the reservations ahead keep from then on."""
        begins = self.begins(step)
        applicant = Applicant(self.gang.key, self.order, self.gang.priority, end_of(begins, self.gang.walltime))
        return after(int(self.ended[step]), self.departures, self.snapshot, applicant, self.ahead, begins)


@dataclass(frozen=True, slots=True)
class _InVain:
    """A search that found no better placement, although counting promised one at the step ``least``, at ``begins``.

    ``seconds`` is the time until then: that of a guessed end stays the same for a while, since the end moves. ``until`` is the time, on the
    clock, until which a gang waits for its next such search if counting isn't exact for it.
    """

    least: int
    begins: float
    seconds: float
    until: float


class _Reported(NamedTuple):
    """The expected start that the message of a gang names: ``begins``, since ``at`` on the clock."""

    at: float
    begins: float
    basis: Basis


@dataclass(slots=True)
class Reservations:
    """Keeps the ledger of ``planner`` up to date. ``waited`` returns for how many seconds a gang has waited for capacity.

    ``on_end`` is called after reservations have ended because their gangs can't be bound now: other gangs may use the capacity.
    """

    planner: Planner
    waited: Callable[[GangKey], float]
    settings: ReservationSettings = RESERVATIONS
    on_end: Callable[[], None] = lambda: None
    _filters: NodeFilters = field(default_factory=NodeFilters)
    _in_vain: dict[GangKey, _InVain] = field(default_factory=dict)
    """The last search for a better placement that found none, by the owner of a reservation."""
    _reported: dict[GangKey, _Reported] = field(default_factory=dict)
    """The expected start that was last reported, by the owner of a reservation."""
    _resolved: GangOf | None = None
    """The function that ``refresh`` was last called with."""
    _removals: int = 0
    """The number of pods that had ended or gone when the reservations were last recomputed."""
    _mistaken: dict[GangKey, float] = field(default_factory=dict)
    """The time, on the clock, until which the owner of a reservation isn't woken: it wasn't placed although its capacity is free."""

    async def refresh(self, resolved: GangOf) -> Sequence[GangKey]:
        """Recompute all reservations by the present facts. Return the owners to attempt: their capacity is free, or their start has moved.

        A reservation ends when its gang is gone, bound or held. ``resolved`` returns the current state of a gang, with the requirements of
        other objects. If pods end meanwhile, all is recomputed: otherwise a gang could start on what a gang ahead of it now needs.
        """
        self._resolved = resolved
        due: Sequence[GangKey] = ()
        for _ in range(_MOST_PASSES):
            self._removals = self.planner.ledger.running.removals
            due = await self._recompute(resolved)
            if self._is_up_to_date:
                break
        return due

    async def renew(self, gang: Gang) -> None:
        """Recompute all reservations before a gang behind them takes capacity, if pods have ended since the last time."""
        ledger = self.planner.ledger
        if self._resolved is not None and not self._is_up_to_date and ledger.binding(ledger.applicant(gang)):
            await self.refresh(self._resolved)

    @property
    def _is_up_to_date(self) -> bool:
        return self._removals == self.planner.ledger.running.removals

    async def _recompute(self, resolved: GangOf) -> Sequence[GangKey]:
        ledger, due = self.planner.ledger, []
        ledger.rank()
        before, kept = ledger.reservations, list[Reservation]()
        has_ended = False
        slices = Slices()
        for old in before:
            await slices.give_way()
            gang = resolved(old.owner)
            if gang is None or not gang.can_act or not gang.missing:
                has_ended = True
                continue
            if ledger.awaits_victims(old):
                kept.append(old)
                continue
            if (found := await self._revised(prepared(gang), old, kept)) is not None:
                kept.append(found)
                if self._has_moved(found) if found.awaited else self._may_wake(found.owner):
                    due.append(found.owner)
        ledger.revise(before, kept)
        self._in_vain = {key: last for key, last in self._in_vain.items() if ledger.find(key)}
        self._mistaken = {key: until for key, until in self._mistaken.items() if ledger.find(key)}
        self._reported = {key: last for key, last in self._reported.items() if ledger.find(key)}
        if has_ended:
            self.on_end()
        return due

    def _has_moved(self, found: Reservation) -> bool:
        """Return whether another expected start was reported a while ago, so that another attempt must correct the message."""
        last = self._reported.get(found.owner)
        if last is None or Basis.UNKNOWN in (found.basis, last.basis) or self.planner.costs.clock() < last.at + _REPEAT_SECONDS:
            return False
        return abs(found.begins - last.begins) > _margin(found, self.planner.ledger.now())

    def _may_wake(self, key: GangKey) -> bool:
        return self.planner.costs.clock() >= self._mistaken.get(key, -math.inf)

    def owners_with_free_capacity(self) -> Sequence[GangKey]:
        """Return the gangs whose reserved capacity is free now, whatever else has changed since the reservations were found."""
        reservations = self.planner.ledger.reservations
        return [each.owner for each in reservations if self._may_wake(each.owner) and self._is_free(each)]

    def _is_free(self, reservation: Reservation) -> bool:
        """Return whether the capacity of a reservation is free now, beside the reservations ahead of it."""
        ledger, each = self.planner.ledger, reservation
        applicant = Applicant(each.owner, each.order, each.priority, ledger.now() + each.ends - each.begins)
        return is_free(each, ledger.left_to(applicant, self.planner.cluster.snapshot(each.priority)))

    def pause(self, key: GangKey, held: Reservation | None = None) -> None:
        """Don't wake the owner of a reservation for a moment if it wasn't placed although its capacity is free, or that of ``held`` was.

        A rule may refuse the gang that the amounts of its placement don't show, and a search may take too long. A gang that is woken again
        and again starves the others.
        """
        found = self.planner.ledger.find(key)
        if (held is not None and not held.awaited) or (found is not None and self._is_free(found)):
            self._mistaken[key] = self.planner.costs.clock() + _MISTAKEN_SECONDS

    def surely_refused(self, gangs: Iterable[PreparedGang]) -> set[GangKey]:
        """Return those of ``gangs`` that don't fit now, as counting shows; it may also be that a gang that isn't returned doesn't fit."""
        return {gang.key for gang in gangs if self.is_surely_refused(gang)}

    def is_surely_refused(self, gang: Gang) -> bool:
        """Return whether counting shows that a gang doesn't fit now."""
        return not self._may_fit(gang, self.planner.seen_by(gang))

    def may_get_one(self, gang: Gang) -> bool:
        """Return whether a gang without a reservation would get one if it were refused."""
        ledger = self.planner.ledger
        if ledger.find(gang.key) is not None:
            return False
        order = ledger.place(gang.key)
        return not self._are_enough([each for each in ledger.reservations if each.order < order])

    def _are_enough(self, ahead: Sequence[Reservation]) -> bool:
        """Return whether a gang behind ``ahead`` gets no reservation. Reservations for which pods are evicted don't count."""
        return sum(not each.victims for each in ahead) >= self.settings.most

    async def reserve(self, gang: PreparedGang) -> Reservation | None:
        """Return the reservation of a gang that was just refused; None if it gets none.

        A gang gets none if enough gangs ahead of it have one, or if it doesn't fit even when all running units have ended.
        """
        ledger, order = self.planner.ledger, self.planner.ledger.place(gang.key)
        ledger.rank()
        before = ledger.reservations
        others = [each for each in ledger.reservations if each.owner != gang.key]
        ahead = [each for each in others if each.order < order]
        if ledger.awaits_victims(held := ledger.find(gang.key)):
            return held
        # Amounts beyond those of the members aren't reserved, so that no tenant keeps capacity from others that its pods don't need.
        if not gang.missing or self._are_enough(ahead) or beyond_members(gang):
            ledger.drop(gang.key)
            return None
        found = await self._revised(gang, held, ahead, is_refused=True)
        ledger.revise(before, _most([*others, *([found] if found else [])], self.settings.most))
        if found is not None:
            self._reported[gang.key] = _Reported(self.planner.costs.clock(), found.begins, found.basis)
        self.pause(gang.key, held)
        return found

    async def _revised(
        self, gang: PreparedGang, old: Reservation | None, ahead: Sequence[Reservation], *, is_refused: bool = False
    ) -> Reservation | None:
        """Return the gang's reservation by the present facts: the old one, or a better one; None if there is none.

        ``is_refused``: the gang was just refused, so at least one unit has to end first.
        """
        ledger = self.planner.ledger
        snapshot = self.planner.cluster.snapshot(gang.priority)
        departures = ledger.departures(snapshot, [pod.uid for pod in gang.bound])
        await asyncio.sleep(0)  # that takes 40 ms for 100,000 pods
        future = _Future.of(gang, snapshot, departures, ahead, ledger)
        step = None if old is None else _step_of(old, future)
        old = (
            self._reservation(future, step, old.amounts, old.parts) if old is not None and step is not None and step >= is_refused else None
        )
        least = await self._least_step(future, max(future.first, int(is_refused)))
        if least is None:
            return None
        if old is not None and not (_may_be_better(least, old, future) and self._is_worth_a_search(gang, least, future)):
            return old
        clock = self.planner.costs.clock
        began = clock()
        new = await self._searched(future, least)
        if old is None or (new is not None and _is_better(new, old, future.now)):
            self._in_vain.pop(gang.key, None)
            return new
        begins = future.begins(least)
        self._in_vain[gang.key] = _InVain(least, begins, begins - future.now, clock() + _PAUSE_RATIO * (clock() - began))
        return old

    def _is_worth_a_search(self, gang: Gang, least: int, future: _Future) -> bool:
        """Return whether a search may find a better placement, although counting has promised one in vain before.

        For a gang for which counting is exact, another promise is worth another search. For other gangs counting may promise too much each
        time that capacity is freed: they wait until the pause is over.
        """
        last = self._in_vain.get(gang.key)
        if last is None:
            return True
        begins = future.begins(least)
        is_repeated = last.least == least and (last.begins == begins or last.seconds == begins - future.now)
        need = need_of(gang)
        is_exact = need is not None and len(need.pods) == 1
        return not is_repeated and (is_exact or self.planner.costs.clock() >= last.until)

    def _may_fit(self, gang: Gang, snapshot: Snapshot) -> bool:
        """Return whether counting finds enough free capacity for a gang in ``snapshot``.

        Each kind of pods is counted as if only its pods were placed. So a gang that doesn't fit may be counted as fitting.
        """
        numbers: dict[int, int] = {}
        specs = {id(pod.spec): pod.spec for pod in gang.candidates}  # equal specs are mostly one object
        for pod in gang.candidates:
            numbers[id(pod.spec)] = numbers.get(id(pod.spec), 0) + 1
        counts = slots_in(snapshot, list(specs.values()), self._filters)
        return sum(min(count, numbers[key]) for key, count in zip(specs, counts, strict=True)) >= gang.least

    async def _least_step(self, future: _Future, least: int) -> int | None:
        """Return the first step, at least ``least``, at which counting finds enough capacity; None if there is none."""
        slices = Slices()

        async def may_fit(step: int) -> bool:
            await slices.give_way()
            return self._may_fit(future.gang, future.after(step))

        if least > future.last or not await may_fit(future.last):
            return None
        too_early, enough = least - 1, future.last
        while enough - too_early > 1:
            step = (too_early + enough) // 2
            too_early, enough = (too_early, step) if await may_fit(step) else (step, enough)
        return enough

    async def _searched(self, future: _Future, least: int) -> Reservation | None:
        """Return the reservation for the first step, at least ``least``, at which the gang fits; None if no search finds a placement."""
        too_early, stride, searches = least - 1, 1, 0
        best: Reservation | None = None
        step = first = least
        while searches < _MOST_SEARCHES:
            searches += 1
            found = await self._placed(future, step)
            if found is not None:
                best, first = found, step
            elif step == future.last:
                return best
            else:
                too_early = max(too_early, step)
            if best is None:
                step, stride = min(future.last, too_early + stride), 2 * stride
            elif first - too_early > 1:
                step = (too_early + first) // 2
            else:
                break
        return best

    async def _placed(self, future: _Future, step: int) -> Reservation | None:
        """Return the reservation from a step on; None if the gang doesn't fit then."""
        gang = future.gang
        try:
            plan = await self.planner.plan_on(gang, future.after(step))
        except SearchError:
            return None
        if not plan.feasible:
            return None
        specs = {pod.uid: pod.spec for pod in gang.candidates}
        return self._reservation(future, step, *amounts_of([(specs[uid], node) for uid, node in plan.assignments]))

    def _reservation(self, future: _Future, step: int, amounts: Amounts, parts: Mapping[str, int]) -> Reservation:
        """Return the reservation of ``amounts`` and ``parts`` from a step on."""
        gang, begins = future.gang, future.begins(step)
        found = Reservation(
            gang.key, future.order, gang.priority, amounts, parts, begins, end_of(begins, gang.walltime), Basis.STATED, 0, -math.inf
        )
        units = awaited_by(found, future.snapshot, future.departures)
        # Gangs ahead that use a node before may end later than they are expected to, too.
        ahead = [each for each in future.ahead if future.in_order or not each.amounts.keys().isdisjoint(amounts)]
        if units is None:  # the gang fits by a rule that amounts don't show
            units = range(int(future.ended[step]))
        basis = min([basis_of(units, future.departures), *(each.basis for each in ahead)], key=BASES.index)
        effect = -math.inf if basis is Basis.STATED else future.now - self.waited(gang.key) + self.settings.after_seconds
        awaited = len(units) + (step > (future.step_after(units) if units else 0))
        last = tuple(named(units[-MOST_NAMED:], future.snapshot, future.departures))
        return replace(found, basis=basis, awaited=awaited, takes_effect=effect, last_awaited=last)


def _most(reservations: Iterable[Reservation], most: int) -> list[Reservation]:
    """Return the first ``most`` reservations in queue order, and those for which pods are evicted."""
    ordered = sorted(reservations, key=lambda each: each.order)
    first = [each.owner for each in ordered if not each.victims][:most]
    return [each for each in ordered if each.victims or each.owner in first]


def _step_of(old: Reservation, future: _Future) -> int | None:
    """Return the first step at which the capacity of ``old`` is free beside the reservations ahead; None if it never is."""
    units = awaited_by(old, future.snapshot, future.departures)
    if units is None:
        return None
    first = future.step_after(units)
    if not future.ahead:
        return first
    ends = {each.ends for each in future.ahead}
    return next((step for step in (first, *future.steps_at(ends, first)) if is_free(old, future.after(step))), None)


def _may_be_better(least: int, old: Reservation, future: _Future) -> bool:
    """Return whether a placement from the step ``least`` on may replace ``old``."""
    begins = future.begins(least)
    return begins < old.begins - _margin(old, future.now) or (begins <= old.begins and old.awaited > 1)


def _is_better(new: Reservation, old: Reservation, now: float) -> bool:
    """Return whether ``new`` replaces ``old``: it begins earlier by a margin, or it begins no later and waits for fewer units."""
    return new.begins < old.begins - _margin(old, now) or (new.begins <= old.begins and new.awaited < old.awaited)


def _margin(old: Reservation, now: float) -> float:
    return max(_LEAST_MARGIN_SECONDS, _MARGIN * (old.begins - now))
