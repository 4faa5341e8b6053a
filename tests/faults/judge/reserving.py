"""Checks reservations from outside: what may be kept from a gang, who may take it, and that expected starts don't become later.

Which capacity is reserved isn't written anywhere. So the judge derives what must hold for every choice. A reservation is for a gang that
waits and that fits once running pods have ended. No gang of a lower priority makes its start impossible.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tests.faults.gangs import GangSpec

from . import excuses
from .books import Accuse, Books
from .facts import Amounts, Body, demand_of, free_capacity, most_placeable, node_of, phase_of, uid_of
from .lives import Lives

_SERVICES = ("controlled", "deployed")
"""Kinds of gangs whose pods never end by themselves, so that no reservation counts on their end."""
_LATER_SECONDS = 61.0
"""Seconds, at least, by which an expected start must become later to count as later: status is written to the second."""
_LATER = 0.11
"""The part of the time until the expected start by which the start must become later, at least, to count as later."""
_SETTLED_SECONDS = 0.5
_PAUSE_SECONDS = 15.0
_WITHDRAWN_SECONDS = 5.0
"""Seconds within which a gang starts whose expected start was withdrawn."""
_MOST = 4
"""The number of gangs that get a reservation: the setting's default."""


@dataclass(frozen=True, slots=True)
class _Promise:
    """The expected start in the status of a gang, as it was written ``at`` a time: seconds since the epoch."""

    at: float
    expected: float
    pods: frozenset[str]


@dataclass(slots=True)
class Reserving:
    """The rules of reservations. ``is_on``: the scheduler reserves capacity, and evicts pods of lower priority."""

    books: Books
    lives: Lives
    accuse: Accuse
    is_on: bool = False
    epoch: float = 0.0
    """Seconds since the epoch when the judge's clock was 0."""
    _promises: dict[GangSpec, _Promise] = field(default_factory=dict)
    _withdrawn: dict[GangSpec, tuple[float, _Promise]] = field(default_factory=dict)
    """When the expected start of a gang was withdrawn, and what it was."""

    def may_be_kept_from(self, spec: GangSpec, *, from_equals: bool = True) -> bool:
        """Return whether free capacity may be kept from a gang for another one that waits.

        ``from_equals``: also for a gang of the same priority.
        """
        if not self.is_on:
            return False
        least = spec.priority if from_equals else spec.priority + 1
        return any(other.priority >= least and _share_nodes(other, spec) and self.is_waiting(other) for other in self._others(spec))

    def is_waiting(self, spec: GangSpec) -> bool:
        """Return whether a gang has all its pods, doesn't fit now, and would fit if all pods ended that may end or be evicted."""
        missing, waiting = self.lives.missing(spec), self.lives.candidates(spec)
        if not missing or not self.lives.has_pods(spec) or self.books.minimum(spec) is None:
            return False
        if spec.percent or self.lives.bound(spec):
            return True  # whether it fits isn't known for certain, or a single member of it may be reserved for
        free = free_capacity(self.books.nodes, self.books.holding_capacity(spec))
        return not self.lives.fits(spec, free) and most_placeable(waiting, self.books.nodes, self.one_day(spec), missing) >= missing

    def one_day(self, spec: GangSpec, *staying: Body) -> dict[str, Amounts]:
        """Return what will be free for a gang when all pods have ended or gone that may, except the pods ``staying``."""
        kept = [pod for pod in self.books.holding_capacity(spec) if not self._may_go_for(spec, pod)]
        return free_capacity(self.books.nodes, [*kept, *staying])

    def _may_go_for(self, spec: GangSpec, pod: Body) -> bool:
        """Return whether a pod may end, or be evicted for a gang."""
        other = self.books.gang_of(pod)
        if other is None:
            return not node_of(pod) or phase_of(pod) in ("Succeeded", "Failed") or not _is_foreign_service(pod)
        if other.kind not in _SERVICES:
            return True
        return self.is_on and other.priority < spec.priority

    def _others(self, spec: GangSpec) -> Iterable[GangSpec]:
        return (other for other in self.books.gangs if other is not spec)

    # No gang of a lower priority takes reserved capacity.

    def bound_by(self, spec: GangSpec) -> list[GangSpec]:
        """Return the gangs of a higher priority that surely have a reservation, as a bind of ``spec`` arrives."""
        if not self.is_on or excuses.are_events_late(self.books) or excuses.is_searching_long(self.books):
            return []
        now = self.books.clock()
        if self.books.quiet_elsewhere(spec) < _SETTLED_SECONDS:
            return []  # what the scheduler knows may be as old
        ahead = [other for other in self._others(spec) if other.priority > spec.priority and self.lives.missing(other)]
        if len(ahead) > _MOST:
            return []
        return [
            other
            for other in ahead
            if not (other.percent or other.shares_rack or other.least or other.gives_up or self.lives.bound(other))
            and not self.lives.losses_since(other, 0.0)
            and now - max(excuses.quiet_since(self.books, other), self.lives.released_at(other)) > _PAUSE_SECONDS
            and all(now - self.books.created_at[uid_of(pod)] > _PAUSE_SECONDS for pod in self.lives.candidates(other))
            and self.is_waiting(other)
        ]

    def check_commit(self, spec: GangSpec, outranking: Iterable[GangSpec]) -> None:
        """Check that a commit of ``spec`` leaves a way for each gang of ``outranking`` to start one day."""
        mine = self.lives.bound(spec)
        for other in outranking:
            waiting, missing = self.lives.candidates(other), self.lives.missing(other)
            if not missing or excuses.quiet_since(self.books, other) > self.books.clock() - _SETTLED_SECONDS:
                continue
            fits = [
                most_placeable(waiting, self.books.nodes, free, missing) >= missing
                for free in (self._without(self.one_day(other), ()), self._without(self.one_day(other), mine))
            ]
            if fits == [True, False]:
                text = f"{spec.name} (priority {spec.priority}) takes capacity that is reserved for {other.name} ({other.priority})"
                self.accuse("reserved", text)

    @staticmethod
    def _without(free: dict[str, Amounts], pods: Iterable[Body]) -> dict[str, Amounts]:
        """Return what ``free`` is once ``pods``, which were taken to end, stay."""
        for pod in pods:
            for resource, amount in demand_of(pod).items() if node_of(pod) in free else ():
                free[node_of(pod)][resource] = free[node_of(pod)].get(resource, 0) - amount
        return free

    # Expected starts don't become later.

    def reported(self, group: Body) -> None:
        """Check the expected start in the status of a PodGroup that a scheduler has written."""
        metadata = group["metadata"]
        found = [spec for spec in self.books.gangs if (spec.namespace, spec.name) == (metadata.get("namespace"), metadata["name"])]
        if not self.is_on or len(found) != 1:
            return
        spec, now = found[0], self.books.clock()
        text = str((group.get("status") or {}).get("expectedStart") or "")
        before = self._promises.pop(spec, None)
        if text:
            expected, pods = datetime.fromisoformat(text).timestamp(), frozenset(uid_of(pod) for pod in self.lives.candidates(spec))
            self._promises[spec] = _Promise(now, expected, pods)
            if before is not None and self._is_kept_waiting(spec, before):
                later = expected - before.expected
                if later > max(_LATER_SECONDS, _LATER * (before.expected - self.epoch - now)) and not self._has_changed(spec, before):
                    self.accuse("expected", f"{spec.name} was expected to start at {before.expected:.0f}, and is now {later:.0f} s later")
        elif before is not None and self._is_kept_waiting(spec, before) and not self._has_changed(spec, before):
            self._withdrawn[spec] = now, before

    def check_now(self) -> None:
        """Check that a gang whose expected start was withdrawn has started since."""
        now = self.books.clock()
        for spec, (at, before) in list(self._withdrawn.items()):
            if spec in self._promises or not self._is_kept_waiting(spec, before):
                del self._withdrawn[spec]
            elif now - at > _WITHDRAWN_SECONDS:
                self.accuse("expected", f"{spec.name} was expected to start at {before.expected:.0f}, and now no start is expected")
                del self._withdrawn[spec]

    def _is_kept_waiting(self, spec: GangSpec, before: _Promise) -> bool:
        """Return whether a gang still waits with the pods that it had when it was promised a start."""
        pods = frozenset(uid_of(pod) for pod in self.lives.candidates(spec))
        return pods == before.pods and not self.lives.bound(spec) and self.lives.missing(spec) > 0 and self.lives.has_pods(spec)

    def _has_changed(self, spec: GangSpec, before: _Promise) -> bool:
        """Return whether anything but gangs that rank behind may have delayed a gang since it was promised a start."""
        if self.epoch + self.books.clock() > before.expected - 1:
            return True  # pods have run longer than they were expected to
        if next(excuses.causes(self.books, before.at - _PAUSE_SECONDS, self.books.clock()), ""):
            return True
        behind = [other for other in self._others(spec) if self._ranks_behind(other, spec) and not self.lives.losses_since(other, 0.0)]
        return self.books.quiet_elsewhere(spec, *behind) < self.books.clock() - before.at + 1

    def _ranks_behind(self, other: GangSpec, spec: GangSpec) -> bool:
        if other.priority != spec.priority:
            return other.priority < spec.priority
        return bool(self.lives.alive(other)) and self.lives.ranks_before(spec, other)


def _share_nodes(one: GangSpec, other: GangSpec) -> bool:
    """Return whether a node may admit pods of both gangs."""
    return not one.pool or not other.pool or one.pool == other.pool


def _is_foreign_service(pod: Body) -> bool:
    return any(each.get("kind") in ("ReplicaSet", "DaemonSet", "StatefulSet") for each in pod["metadata"].get("ownerReferences") or ())
