"""Checks preemptions: pods are evicted only for a gang of a higher priority that starts in their place, and no more than it needs.

The scheduler writes a mark of the gang to each pod before it evicts the pod. The judge takes from the mark only for which gang an eviction
is said to be. It computes itself whether that gang needs the capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s

from tests.faults.gangs import GangSpec

from . import excuses
from .books import NEWS_SECONDS, Accuse, Books
from .entries import Request
from .facts import Body, free_capacity, is_leaving, most_placeable, name_of, uid_of
from .lives import Lives
from .reserving import Reserving

EVICTED = "the gang is preempted"
"""The deed that is noted when a gang loses pods to a gang of a higher priority."""
_SERIES_SECONDS = 0.5
"""The evictions of one preemption are carried out within so many seconds, unless a fault delays them."""


@dataclass(frozen=True, slots=True)
class _Series:
    """The evictions for one gang that begin ``at`` a time, and the cluster just before the first of them."""

    spec: GangSpec
    at: float
    process: str
    nodes: Mapping[str, Body]
    pods: Sequence[Body]
    waiting: Sequence[Body]
    missing: int
    marked: Mapping[str, GangSpec | None]
    """The pods with the mark of the gang, by UID, each with its gang."""
    leaving: frozenset[str]
    may_be_kept: bool
    """True if capacity may have been kept from the gang for a gang ahead of it."""
    was_quiet: bool


@dataclass(slots=True)
class Preempting:
    """Checks every eviction of a pod that carries the mark of a gang, if the scheduler preempts (``Reserving.is_on``)."""

    books: Books
    lives: Lives
    reserving: Reserving
    accuse: Accuse
    evicted: int = 0
    """The number of pods that schedulers have evicted for gangs of a higher priority."""
    _marked_at: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The mark of each pod by its UID, and when the mark was written."""
    _begun: dict[str, float] = field(default_factory=dict)
    """When the last series of evictions for each mark began."""
    _gone: dict[str, dict[str, float]] = field(default_factory=dict)
    """The pods that were evicted for each mark, and when, by UID."""
    _series: list[_Series] = field(default_factory=list)

    def noted(self, pod: Body) -> None:
        """Record the mark that a pod carries. The eviction API replaces the condition, which leaves the pod marked."""
        mark, uid = mark_in(pod), uid_of(pod)
        if mark and self._mark_of(pod) != mark:
            self._marked_at[uid] = mark, self.books.clock()
        elif not mark and not is_disrupted(pod):
            self._marked_at.pop(uid, None)

    def _mark_of(self, pod: Body) -> str:
        return self._marked_at.get(uid_of(pod), ("", 0.0))[0]

    def carried_out(self, request: Request, pod: Body) -> bool:
        """Check an eviction that was carried out, of ``pod`` as it was before it. Return False if it is no eviction for another gang."""
        mark = self._mark_of(pod)
        if not self.reserving.is_on or not mark:
            return False
        self.evicted += 1
        now, victim = self.books.clock(), self.books.gang_of(pod)
        if victim is not None:
            self.lives.lose(victim, pod)
            self.books.note(EVICTED, gang=victim)
        found = [spec for spec in self.books.gangs if mark in _marks_of(spec)]
        if not found:
            self.accuse("preemption", f"pod {name_of(pod)} is evicted for a gang that never was")
        earlier = self._gone.setdefault(mark, {})
        if now - self._begun.get(mark, -1e9) > _SERIES_SECONDS:
            self._begin(request, pod, mark, found)
        marked_at = self._marked_at[uid_of(pod)][1]
        still_there = {uid_of(each) for each in self.books.pods()} - {uid_of(pod)}
        if any(at < marked_at for uid, at in earlier.items() if uid in still_there):
            what = f"pod {name_of(pod)} was marked and evicted"
            self.accuse("widened", f"{what} while pods that were evicted for the same gang were still there")
        earlier[uid_of(pod)] = now
        return True

    def _begin(self, request: Request, pod: Body, mark: str, found: Sequence[GangSpec]) -> None:
        """Record the cluster as it was before the first eviction of a series."""
        now = self._begun[mark] = self.books.clock()
        before = {uid_of(each): each for each in self.books.holding_capacity()} | {uid_of(pod): pod}
        marked = {uid: self.books.gang_of(each) for uid, each in before.items() if self._mark_of(each) == mark}
        leaving = frozenset(uid for uid, each in before.items() if is_leaving(each))
        delayed = any(each.is_struck for each in self.books.requests_about("pods", name_of(pod)) if each.sent > now - 3 * NEWS_SECONDS)
        for spec in found[:1] if len(found) == 1 else ():
            victims = {victim for victim in marked.values() if victim is not None}
            was_quiet = (
                not delayed
                and self.books.quiet_elsewhere(spec, *victims) > _SERIES_SECONDS
                and not excuses.are_events_late(self.books)
                and not excuses.is_searching_long(self.books)
                and not excuses.was_still(self.books, request.process, now - NEWS_SECONDS)
            )
            self._series.append(
                _Series(
                    spec,
                    now,
                    request.process,
                    dict(self.books.nodes),
                    list(before.values()),
                    self.lives.candidates(spec),
                    self.lives.missing(spec) if self.lives.has_pods(spec) else 0,
                    marked,
                    leaving,
                    self.reserving.may_be_kept_from(spec),
                    was_quiet,
                )
            )

    def check_now(self) -> None:
        """Judge the series of evictions that have begun."""
        for series in self._series:
            self._judge(series)
        self._series.clear()

    def _judge(self, series: _Series) -> None:
        spec, gone = series.spec, series.marked.keys() | series.leaving
        for victim in {each for each in series.marked.values() if each is not None}:
            if victim.priority >= spec.priority and not self._is_changed(victim):
                self.accuse("preemption", f"{victim.name} (priority {victim.priority}) loses pods to {spec.name} ({spec.priority})")
        if not series.was_quiet or self._is_changed(spec) or spec.least or spec.shares_rack or spec.percent:
            return  # what the scheduler knew may have been older, or whether the gang fits isn't known for certain
        what = f"{len(series.marked)} pods are evicted for {spec.name}"
        if not series.missing:
            self.accuse("preemption", f"{what}, which waits for nothing")
        elif not self._fits(series, gone):
            self.accuse("preemption", f"{what}, which doesn't fit in their place")
        elif series.may_be_kept:
            return
        elif self._fits(series, series.leaving - series.marked.keys()):
            self.accuse("preemption", f"{what}, which fits without that")
        else:
            for victim in {each for each in series.marked.values() if each is not None}:
                if self._fits(series, gone - {uid for uid, each in series.marked.items() if each is victim}):
                    self.accuse("preemption", f"{what}, which fits without the capacity of {victim.name}")

    @staticmethod
    def _fits(series: _Series, without: "frozenset[str] | set[str]") -> bool:
        free = free_capacity(series.nodes, series.pods, without)
        return most_placeable(series.waiting, series.nodes, free, series.missing) >= series.missing

    def _is_changed(self, spec: GangSpec) -> bool:
        """Return whether something was done to a gang a moment ago, so that a scheduler may know an older state of it."""
        return any(
            deed.gang == spec.key and deed.what != EVICTED and deed.until > self.books.clock() - NEWS_SECONDS for deed in self.books.deeds
        )


def mark_in(pod: Body) -> str:
    """Return the mark of the gang for which a scheduler says that it evicts a pod; empty without one."""
    for each in _disruptions(pod):
        message = str(each.get("message") or "")
        if each.get("reason") == "PreemptionByScheduler" and message.startswith("allaboard:"):
            return message.rpartition("(")[2].removesuffix(")")
    return ""


def is_disrupted(pod: Body) -> bool:
    """Return whether a condition says that a pod is about to be ended, for whatever reason."""
    return bool(_disruptions(pod))


def _disruptions(pod: Body) -> list[Body]:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return [each for each in conditions if each.get("type") == "DisruptionTarget" and each.get("status") == "True"]


def _marks_of(spec: GangSpec) -> set[str]:
    """Return the marks that stand for a gang."""
    names = {spec.name, *(spec.bare_names if spec.is_single else ())}
    return {blake2s(f"{spec.namespace}/{name}".encode(), digest_size=4).hexdigest() for name in names}
