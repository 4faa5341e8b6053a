"""Finds reservations: where and when a refused gang will start, once gangs that run now have ended.

The first gangs in queue order that don't fit get a reservation each (``cluster.reservations``). It is found by the planner's own search, on
the cluster as it will be when the first running units have ended, in the order of their expected ends:

1. Counting says how many units have to end at least: a binary search over the ends.
2. The planner searches on the cluster as it will be then. If the gang doesn't fit, more units have to end: 1, 2, 4, ... more, and then a
   binary search between the last number without a placement and the first with one.

Each reservation sees those ahead of it in the queue as capacity in use from their beginning on. Nothing is stored: the same facts give the
same reservations. So that expected starts don't flap, a gang's earlier placement is kept until another one is better by a margin.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from allaboard.cluster.reservations import Applicant, Reservation, after, amounts_of, awaited_by, basis_of, is_free
from allaboard.cluster.running import Basis, Departures
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
from allaboard.settings.options import Settings

_MOST_SEARCHES = 10  # For one reservation.
_LEAST_MARGIN_SECONDS = 60.0  # Another placement must begin so much earlier than the one that is kept.
_MARGIN = 0.1  # The same, as a part of the time until the kept placement begins.
_PAUSE_RATIO = 5.0  # After a search that found no better placement the next one may wait for so many times as long as the search took.

_MISTAKEN_SECONDS = 5.0  # The pause until an owner is woken again that was refused although its capacity was free.

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

    ``ahead`` are the reservations that bind the gang.
    """

    gang: PreparedGang
    snapshot: Snapshot
    departures: Departures
    ahead: Sequence[Reservation]
    order: Order
    now: float

    @property
    def units(self) -> int:
        """The number of units that are expected to end."""
        return len(self.departures.ends)

    def begins(self, units: int) -> float:
        """Return when the first ``units`` have ended."""
        return float(self.departures.ends[units - 1]) if units else self.now

    def after(self, units: int) -> Snapshot:
        """Return the cluster once the first ``units`` have ended, without what the reservations ahead keep from then on."""
        begins = self.begins(units)
        applicant = Applicant(self.gang.key, self.order, self.gang.priority, end_of(begins, self.gang.walltime))
        return after(units, self.departures, self.snapshot, applicant, self.ahead, begins)


@dataclass(frozen=True, slots=True)
class _InVain:
    """A search that found no better placement, although counting promised one: once ``least`` units have ended, at ``begins``.

    ``seconds`` is the time until then: that of a guessed end stays the same for a while, since the end moves. ``until`` is the time, on the
    clock, until which a gang waits for its next such search if counting isn't exact for it.
    """

    least: int
    begins: float
    seconds: float
    until: float


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
    _mistaken: dict[GangKey, float] = field(default_factory=dict)
    """The time, on the clock, until which the owner of a reservation isn't woken, although its capacity is free: it was refused even so."""

    async def refresh(self, resolved: GangOf) -> Sequence[GangKey]:
        """Recompute all reservations by the present facts. Return the owners whose capacity is free now.

        A reservation ends when its gang is gone, bound or held. ``resolved`` returns the current state of a gang, with the requirements of
        other objects.
        """
        ledger, free_now = self.planner.ledger, []
        kept: list[Reservation] = []
        has_ended = False
        for old in ledger.reservations:
            gang = resolved(old.owner)
            if gang is None or not gang.can_act or not gang.missing:
                has_ended = True
                continue
            if ledger.awaits_victims(old):
                kept.append(old)
                continue
            if (found := await self._revised(prepared(gang), old, kept)) is not None:
                kept.append(found)
                if not found.awaited and self._may_wake(found.owner):
                    free_now.append(found.owner)
        ledger.replace_all(kept)
        self._in_vain = {key: last for key, last in self._in_vain.items() if ledger.find(key)}
        self._mistaken = {key: until for key, until in self._mistaken.items() if ledger.find(key)}
        if has_ended:
            self.on_end()
        return free_now

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
        others = [each for each in ledger.reservations if each.owner != gang.key]
        ahead = [each for each in others if each.order < order]
        if ledger.awaits_victims(held := ledger.find(gang.key)):
            return held
        # Amounts beyond those of the members aren't reserved, so that no tenant keeps capacity from others that its pods don't need.
        if not gang.missing or self._are_enough(ahead) or beyond_members(gang):
            ledger.drop(gang.key)
            return None
        found = await self._revised(gang, held, ahead, is_refused=True)
        ledger.replace_all(_most([*others, *([found] if found else [])], self.settings.most))
        # A rule may refuse the gang that the amounts of its placement don't show. A gang that is woken again and again starves the others.
        if (held is not None and not held.awaited) or (found is not None and self._is_free(found)):
            self._mistaken[gang.key] = self.planner.costs.clock() + _MISTAKEN_SECONDS
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
        future = _Future(gang, snapshot, departures, ahead, ledger.place(gang.key), ledger.now())
        awaited = None if old is None else _awaited_by(old, future)
        if old is not None and awaited is not None and (awaited or not is_refused):
            old = self._reservation(future, awaited, old.amounts, old.parts)
        else:
            old = None
        least = self._least_units(future, int(is_refused))
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

    def _least_units(self, future: _Future, least: int) -> int | None:
        """Return how many units have to end before counting finds enough capacity, at least ``least``; None if all are too few."""

        def may_fit(units: int) -> bool:
            return self._may_fit(future.gang, future.after(units))

        if least > future.units or not may_fit(future.units):
            return None
        too_few, enough = least - 1, future.units
        while enough - too_few > 1:
            units = (too_few + enough) // 2
            too_few, enough = (too_few, units) if may_fit(units) else (units, enough)
        return enough

    async def _searched(self, future: _Future, least: int) -> Reservation | None:
        """Return the reservation for which the fewest units have to end, at least ``least``; None if no search finds a placement."""
        too_few, step, searches = least - 1, 1, 0
        best: Reservation | None = None
        units = most = least
        while searches < _MOST_SEARCHES:
            searches += 1
            found = await self._placed(future, units)
            if found is not None:
                best, most = found, units
            elif units == future.units:
                return best
            else:
                too_few = max(too_few, units)
            if best is None:
                units, step = min(future.units, too_few + step), 2 * step
            elif most - too_few > 1:
                units = (too_few + most) // 2
            else:
                break
        return best

    async def _placed(self, future: _Future, units: int) -> Reservation | None:
        """Return the reservation on the cluster after the first ``units`` have ended; None if the gang doesn't fit there."""
        gang = future.gang
        try:
            plan = await self.planner.plan_on(gang, future.after(units))
        except SearchError:
            return None
        if not plan.feasible:
            return None
        specs = {pod.uid: pod.spec for pod in gang.candidates}
        amounts, parts = amounts_of([(specs[uid], node) for uid, node in plan.assignments])
        found = self._reservation(future, range(units), amounts, parts)
        awaited = awaited_by(found, future.snapshot, future.departures)
        return found if awaited is None else replace(found, awaited=len(awaited), basis=basis_of(awaited, future.departures))

    def _reservation(self, future: _Future, awaited: Sequence[int], amounts: Amounts, parts: Mapping[str, int]) -> Reservation:
        """Return the reservation of ``amounts`` and ``parts`` from the time on at which the units ``awaited`` have ended."""
        gang = future.gang
        begins, basis = future.begins(awaited[-1] + 1 if awaited else 0), basis_of(awaited, future.departures)
        effect = -math.inf if basis is Basis.STATED else future.now - self.waited(gang.key) + self.settings.after_seconds
        ends = end_of(begins, gang.walltime)
        return Reservation(gang.key, future.order, gang.priority, amounts, parts, begins, ends, basis, len(awaited), effect)


def _most(reservations: Iterable[Reservation], most: int) -> list[Reservation]:
    """Return the first ``most`` reservations in queue order, and those for which pods are evicted."""
    ordered = sorted(reservations, key=lambda each: each.order)
    first = [each.owner for each in ordered if not each.victims][:most]
    return [each for each in ordered if each.victims or each.owner in first]


def _awaited_by(old: Reservation, future: _Future) -> Sequence[int] | None:
    """Return the units that have to end before the capacity of ``old`` is free beside the reservations ahead; None if it never is."""
    awaited = awaited_by(old, future.snapshot, future.departures)
    units = awaited[-1] + 1 if awaited else 0
    return awaited if awaited is not None and (not future.ahead or is_free(old, future.after(units))) else None


def _may_be_better(least: int, old: Reservation, future: _Future) -> bool:
    """Return whether a placement for which ``least`` units have to end may replace ``old``."""
    begins = future.begins(least)
    return begins < old.begins - _margin(old, future.now) or (begins <= old.begins and old.awaited > 1)


def _is_better(new: Reservation, old: Reservation, now: float) -> bool:
    """Return whether ``new`` replaces ``old``: it begins earlier by a margin, or it begins no later and waits for fewer units."""
    return new.begins < old.begins - _margin(old, now) or (new.begins <= old.begins and new.awaited < old.awaited)


def _margin(old: Reservation, now: float) -> float:
    return max(_LEAST_MARGIN_SECONDS, _MARGIN * (old.begins - now))
