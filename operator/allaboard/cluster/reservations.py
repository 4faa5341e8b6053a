"""The ledger of reservations: capacity that is kept for waiting gangs from a time on, and what that leaves to other gangs.

A reservation names the nodes on which a gang will be placed once running pods have ended. Of each node it keeps from other gangs what these
pods don't free. Example: a gang will need 6 GPUs of a node from 14:05 on. 3 GPUs are free now, and pods that are expected to end before
14:05 use 5. So 1 GPU is kept, and other gangs may use 2 GPUs of the node without an end.

A gang that will have ended when the reservation begins may use the kept capacity, too (EASY backfill: Lifka, JSSPP 1995; here it is checked
for each node and resource). A gang of lower priority may not.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from allaboard.cluster.running import BASES, Basis, Departures, RunningPods, parts_of
from allaboard.model.arrays import Integers
from allaboard.model.backfill import Backfill
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.node import Node
from allaboard.model.snapshot import Snapshot
from allaboard.model.walltime import end_of
from allaboard.records.sort_key import Order

MOST_NAMED = 64
"""The most awaited units that a reservation names."""


class Applicant(NamedTuple):
    """A gang that asks for capacity, by the facts that decide which reservations bind it.

    ``order`` is its position in the queue. It is None for a gang that ranks behind all gangs of its priority, such as the surplus of a
    gang that is whole. ``ends`` is when it will have ended if it starts now, in seconds since the epoch; infinite if that isn't known.
    """

    key: GangKey | None
    order: Order | None
    priority: int
    ends: float


class _Held(NamedTuple):
    """The capacity that a reservation keeps, by the rows and columns of a snapshot with these ``nodes`` and ``resources``.

    ``rows``: int64[rows]. ``amounts``: int64[rows, resources]. ``parts``: int64[rows]. ``are_all``: all nodes and resources exist.
    """

    nodes: tuple[Node, ...]
    resources: tuple[str, ...]
    rows: Integers
    amounts: Integers
    parts: Integers
    are_all: bool


class Awaited(NamedTuple):
    """A unit (``cluster.running``) on whose end a waiting gang waits, by the UID and the node of one of its pods.

    ``ends`` is its expected end, in seconds since the epoch, and ``basis`` the facts from which that is expected.
    """

    uid: str
    node: str
    ends: float
    basis: Basis


@dataclass(frozen=True, slots=True)
class Reservation:
    """The capacity that is kept for one waiting gang.

    ``order`` is the gang's position in the queue. ``amounts`` are what its members request on each node, by node and resource. ``parts``
    are thousandths of GPUs, by node. ``begins`` is the expected start of the gang, in seconds since the epoch. ``ends`` is when the gang
    will have ended; infinite if it states no walltime. ``awaited`` is the number of units (``cluster.running``) on whose end it waits.
    ``takes_effect`` is the time from which the reservation binds gangs of the same priority; gangs of lower priority are bound at once.
    ``victims`` are the UIDs of pods that are evicted for the gang: until they are gone, the reservation stays as it is.
    ``last_awaited`` are the last of the awaited units, in the order of their ends.
    """

    owner: GangKey
    order: Order
    priority: int
    amounts: Mapping[str, Mapping[str, int]]
    parts: Mapping[str, int]
    begins: float
    ends: float
    basis: Basis
    awaited: int
    takes_effect: float
    victims: frozenset[str] = frozenset()
    last_awaited: tuple[Awaited, ...] = field(default=(), compare=False, repr=False)
    _held: list[_Held] = field(default_factory=list, compare=False, repr=False)
    """The last result of ``in_snapshot``: a gang may have thousands of pods, and its reservation is read many times."""

    def in_snapshot(self, snapshot: Snapshot) -> _Held:
        """Return the capacity that this reservation keeps, by the rows and columns of ``snapshot``."""
        if not self._held or self._held[0].nodes is not snapshot.nodes or self._held[0].resources != snapshot.resources:
            self._held[:] = [_held_by(self, snapshot)]
        return self._held[0]

    def binds(self, other: Applicant, now: float) -> bool:
        """Return whether ``other``, which asks for capacity ``now``, must leave this reservation's capacity to its owner."""
        if other.key == self.owner or (self.priority <= other.priority and now < self.takes_effect):
            return False
        return self.order < other.order if other.order is not None else self.priority >= other.priority

    def delays(self, other: Applicant, when: float) -> bool:
        """Return whether ``other`` may still hold capacity ``when`` this reservation needs it; always if its priority is lower."""
        return other.ends > when or other.priority < self.priority


def _held_by(reservation: Reservation, snapshot: Snapshot) -> _Held:
    rows = {name: row for name in reservation.amounts if (row := snapshot.row_of(name)) is not None}
    columns = {resource: column for column, resource in enumerate(snapshot.resources)}
    amounts, are_all = np.zeros((len(rows), len(columns)), dtype=np.int64), len(rows) == len(reservation.amounts)
    for position, name in enumerate(rows):
        for resource, amount in reservation.amounts[name].items():
            if (column := columns.get(resource)) is None:
                are_all = False
            else:
                amounts[position, column] = amount
    parts = np.array([reservation.parts.get(name, 0) for name in rows], dtype=np.int64)
    return _Held(snapshot.nodes, snapshot.resources, np.array(list(rows.values()), dtype=np.int64), amounts, parts, are_all)


def amounts_of(assignments: Collection[tuple[SchedulingSpec, str]]) -> tuple[dict[str, dict[str, int]], dict[str, int]]:
    """Return what pods request on each node, by node and resource, and thousandths of GPUs by node. Each pod is a spec and a node name."""
    amounts: dict[str, dict[str, int]] = {}
    parts: dict[str, int] = {}
    for spec, node in assignments:
        of_node = amounts.setdefault(node, {})
        for resource, amount in spec.requests:
            of_node[resource] = of_node.get(resource, 0) + amount
        parts[node] = parts.get(node, 0) + parts_of(spec.requests, spec.gpu_share)
    return amounts, parts


@dataclass(slots=True)
class Ledger:
    """The reservations in force, in queue order, and what they leave to other gangs.

    ``running`` are the pods that run. ``place`` returns a gang's position in the queue. ``now`` returns seconds since the epoch.
    """

    running: RunningPods
    place: Callable[[GangKey], Order]
    now: Callable[[], float]
    backfill: Backfill = Backfill.EASY
    reservations: tuple[Reservation, ...] = ()
    _departures: tuple[object, object, Departures] | None = None
    """(Nodes, other facts, departures): the departures that were last computed."""

    def find(self, key: GangKey) -> Reservation | None:
        """Return the reservation of a gang; None if it has none."""
        return next((each for each in self.reservations if each.owner == key), None)

    def awaits_victims(self, reservation: Reservation | None) -> bool:
        """Return whether pods that are evicted for the owner of ``reservation`` are still there."""
        return reservation is not None and any(uid in self.running for uid in reservation.victims)

    def drop(self, key: GangKey) -> None:
        """Give up the reservation of a gang, if it has one."""
        if self.find(key) is not None:
            self.replace_all(each for each in self.reservations if each.owner != key)

    def replace_all(self, reservations: Iterable[Reservation]) -> None:
        """Replace all reservations."""
        self.reservations = tuple(sorted(reservations, key=lambda each: each.order))

    def rank(self) -> None:
        """Bring the queue positions of all owners up to date: they depend on the search time that the owners' namespaces have used.

        An owner that is gone keeps its position until its reservation ends.
        """
        ranked = []
        for each in self.reservations:
            with suppress(LookupError):
                each = replace(each, order=self.place(each.owner))
            ranked.append(each)
        if any(one.order != other.order for one, other in zip(self.reservations, ranked, strict=True)):
            self.replace_all(ranked)

    def revise(self, before: Sequence[Reservation], after: Iterable[Reservation]) -> None:
        """Replace the reservations ``before``, which were read some time ago, by ``after``. What has changed since stays as it is now."""
        now = {each.owner: each for each in self.reservations}
        known = {each.owner for each in before}
        same = {each.owner for each in before if (here := now.get(each.owner)) and replace(here, order=each.order) == each}
        new = (each for each in after if each.owner in same or not (each.owner in known or each.owner in now))
        self.replace_all([*(each for each in self.reservations if each.owner not in same), *new])

    def applicant(self, gang: Gang) -> Applicant:
        """Return ``gang`` as a gang that asks for capacity now."""
        order = None if gang.is_whole else self.place(gang.key)
        return Applicant(gang.key, order, gang.priority, end_of(self.now(), gang.walltime))

    def departures(self, snapshot: Snapshot, staying: Sequence[str] = ()) -> Departures:
        """Return when capacity of the nodes of ``snapshot`` will be free, as expected now. Pods with the UIDs ``staying`` don't end."""
        now = math.floor(self.now())
        if staying:
            return self.running.departures(snapshot.nodes, snapshot.resources, now, staying)
        state = self.running.version, now, snapshot.resources
        known = self._departures
        if known is None or known[0] is not snapshot.nodes or known[1] != state:
            known = self._departures = (snapshot.nodes, state, self.running.departures(snapshot.nodes, snapshot.resources, now))
        return known[2]

    def binding(self, other: Applicant) -> Sequence[Reservation]:
        """Return the reservations whose capacity ``other`` must leave to their owners, in queue order."""
        now = self.now()
        return [each for each in self.reservations if each.binds(other, now)]

    def left_to(self, other: Applicant, snapshot: Snapshot) -> Snapshot:
        """Return ``snapshot`` as ``other`` may use it: without the capacity that reservations keep from it."""
        binding = self.binding(other)
        if not binding:
            return snapshot
        if self.backfill is Backfill.OFF:
            return snapshot.with_used(np.maximum(snapshot.free, 0))
        kept = kept_from(other, binding, snapshot, self.departures(snapshot))
        return snapshot if kept is None else snapshot.with_used(*kept)


def after(
    units: int, departures: Departures, snapshot: Snapshot, other: Applicant, reservations: Sequence[Reservation], begins: float
) -> Snapshot:
    """Return ``snapshot`` as ``other`` may use it from ``begins`` on, once the first ``units`` have ended.

    What ``reservations`` keep from ``other`` then is left out.
    """
    freed, parts = departures.freed(units)
    kept = kept_from(other, reservations, snapshot, departures, begins, units) if reservations else None
    return snapshot.with_used(*(-freed, -parts) if kept is None else (kept[0] - freed, kept[1] - parts))


def kept_from(
    other: Applicant,
    reservations: Sequence[Reservation],
    snapshot: Snapshot,
    departures: Departures,
    begins: float = -math.inf,
    units: int = 0,
) -> tuple[Integers, Integers] | None:
    """Return what ``reservations`` keep from ``other``, of the capacity that is free once the first ``units`` have ended.

    int64[nodes, resources], and thousandths of GPUs: int64[nodes]; None if nothing is kept. ``other`` holds its capacity from ``begins`` on
    until it ends. At each time in between at which a reservation begins, what is free then must be enough for all reservations that hold
    capacity then.
    """
    times = sorted({max(each.begins, begins) for each in reservations if each.ends > begins and each.delays(other, each.begins)})
    if not times:
        return None
    held = [each.in_snapshot(snapshot) for each in reservations]
    rows = np.unique(np.concatenate([each.rows for each in held]))
    places = [np.searchsorted(rows, each.rows) for each in held]
    here = departures.of_nodes(rows)
    before, parts_before = here.freed(units)
    kept, kept_parts = np.zeros_like(before), np.zeros_like(parts_before)
    for when in times:
        freed, parts = here.freed(max(units, here.number_by(when)))
        needed, needed_parts = before - freed, parts_before - parts
        for each, arrays, place in zip(reservations, held, places, strict=True):
            if max(each.begins, begins) <= when < each.ends:
                needed[place] += arrays.amounts
                needed_parts[place] += arrays.parts
        np.maximum(kept, needed, out=kept)
        np.maximum(kept_parts, needed_parts, out=kept_parts)
    if not kept.any() and not kept_parts.any():
        return None
    found, found_parts = np.zeros_like(snapshot.used), np.zeros(len(snapshot.nodes), dtype=np.int64)
    found[rows], found_parts[rows] = kept, kept_parts
    return found, found_parts


def awaited_by(reservation: Reservation, snapshot: Snapshot, departures: Departures) -> Sequence[int] | None:
    """Return the units that have to end before the capacity of ``reservation`` is free, in the order of their ends.

    None if the capacity isn't free even when all units have ended, for instance since a node is gone.
    """
    found = lacking_of(reservation, snapshot)
    if found is None:
        return None
    rows, lacking = found
    here = departures.of_nodes(rows)
    # Of each node, the pods that end before enough is free, in the order of their ends.
    pods = np.argsort(here.row, kind="stable")
    node = here.row[pods]
    is_awaited = np.zeros(len(pods), dtype=np.bool_)
    for column in np.flatnonzero((lacking > 0).any(axis=0)).tolist():
        amounts = here.amounts[pods, column]
        freed = np.concatenate([[0], np.cumsum(amounts)])
        first = np.searchsorted(node, np.arange(len(rows) + 1))
        if (freed[first[1:]] - freed[first[:-1]] < lacking[:, column]).any():
            return None
        is_awaited |= freed[:-1] - freed[first[node]] < lacking[node, column]
    units: list[int] = np.unique(here.unit[pods[is_awaited]]).tolist()
    return units


def named(units: Sequence[int], snapshot: Snapshot, departures: Departures) -> Iterator[Awaited]:
    """Yield ``units`` of ``departures`` from the nodes of ``snapshot``, each by one of its pods."""
    for unit, place in zip(units, np.searchsorted(departures.unit, units).tolist(), strict=True):
        if place < len(departures.unit) and departures.unit[place] == unit:  # else none of its pods is on a node
            node, basis = snapshot.nodes[int(departures.row[place])].name, BASES[int(departures.basis[unit])]
            yield Awaited(departures.uids[place], node, float(departures.ends[unit]), basis)


def is_free(reservation: Reservation, snapshot: Snapshot) -> bool:
    """Return whether the capacity of ``reservation`` is free in ``snapshot``."""
    found = lacking_of(reservation, snapshot)
    return found is not None and not (found[1] > 0).any()


def lacking_of(reservation: Reservation, snapshot: Snapshot) -> tuple[Integers, Integers] | None:
    """Return the rows of the reservation's nodes, and what each node lacks of the reservation's amounts: int64[rows, resources].

    None if a node or a resource is gone. A resource that the reservation doesn't need isn't lacking.
    """
    asked = reservation.in_snapshot(snapshot)
    if not asked.are_all:
        return None
    return asked.rows, np.where(asked.amounts > 0, asked.amounts - snapshot.free[asked.rows], 0)


def basis_of(awaited: Sequence[int], departures: Departures) -> Basis:
    """Return the facts from which the end of the units ``awaited`` is expected: those of the least certain unit."""
    return BASES[int(departures.basis[list(awaited)].min(initial=len(BASES) - 1))]
