"""Checks each commit: it is for the whole quorum, dry-run before, sent at once, and no gang that ranks before is passed."""

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tests.faults.gangs import GangSpec

from . import excuses
from .books import DELETION_SECONDS, HEEDED_SECONDS, IN_FLIGHT_SECONDS, NEWS_SECONDS, REFUSALS, RETRY_SECONDS, STOP_SECONDS, Accuse, Books
from .entries import Request
from .facts import Amounts, Body, demand_of, free_capacity, name_of, node_of, phase_of, uid_of, with_assignments
from .lives import Lives
from .reserving import Reserving

IDLE_SECONDS = 0.3
"""Seconds without a bind after which the next bind begins another commit: a commit sends all its binds at once."""
_AT_ONCE_SECONDS = 0.005
_TOGETHER_SECONDS = 0.05
"""A bind whose first try is sent more than so many seconds after a commit began belongs to another commit."""
_SETTLED_SECONDS = 0.5
_HARMLESS = ("a member ends", "a job is submitted again")
"""Recorded actions that don't excuse a scheduler if it sends only some binds of a commit."""
_PAUSE_SECONDS = 15.0
_REST_SECONDS = 11.0
"""Seconds in which a gang that has lost members again and again begins its next attempt: its longest pause, and a moment more."""
FRESH_SECONDS = 2.0
"""Seconds from the last answer to a dry run to the first bind, at most."""
_PATIENCE_SECONDS = 11.0
"""Seconds after which a process may stop waiting for an answer: its lease ends 14 s after a renewal, and it renews every 2 s."""
_REACH_SECONDS, _KEPT_SECONDS = 90.0, 1.5
"""Seconds in which an earlier leader's binds may still arrive, and seconds after which a fenced pod's capacity is no longer reserved."""
_VAIN_SECONDS, _MOST_IN_VAIN = 30.0, 12
"""So many seconds may have at most so many attempts in vain at one absent gang, since its pauses grow from one second to ten."""


@dataclass(slots=True)
class Burst:
    """The binds of one gang that one scheduler sends together. ``base`` are the UIDs of members that were bound before."""

    spec: GangSpec
    process: str
    sent: float
    last: float
    base: set[str]
    succeeded: int
    began: float
    lost: int = 0
    """Lost members of the run that hadn't been replaced when the commit began."""
    replaceable: int = 0
    """Members of the last run that may be replaced, while no member is bound."""
    next_wave: frozenset[str] = frozenset()
    """The UIDs in ``base`` of members that belong to a Job's next wave."""
    attempted: dict[str, Request] = field(default_factory=dict)
    demands: dict[str, Amounts] = field(default_factory=dict)
    outranking: list[tuple[GangSpec, dict[str, Amounts]]] = field(default_factory=list)
    """Gangs of a higher priority that would have fitted when the commit began, each with the capacity that was free then."""
    reserved_for: list[GangSpec] = field(default_factory=list)
    """Gangs of a higher priority that surely had a reservation when the commit began."""


@dataclass(slots=True)
class Commits:
    """Checks every bind that arrives. ``leads`` returns when the present scheduler began to lead, None while none leads."""

    books: Books
    lives: Lives
    accuse: Accuse
    leads: Callable[[], float | None]
    reserving: Reserving
    patience: float = 1.0
    wait_until_idle: float = IDLE_SECONDS
    fresh: float = FRESH_SECONDS
    dry_runs_from: float = 0.0
    """The time from which schedulers know that admission may refuse binds, so that binds must be dry-run."""
    _bursts: dict[GangSpec, Burst] = field(default_factory=dict)
    _in_vain: dict[tuple[GangSpec, str], list[float]] = field(default_factory=dict)  # times of commits that bound no pod

    def arrived(self, request: Request, pod: Body) -> None:
        """Check a bind of ``pod`` that has reached the API server, whatever the server answers."""
        if (spec := self.books.gang_of(pod)) is not None:
            self._join(request, spec, pod)
            if spec in self._bursts and not self.books.is_retry(request) and request.sent >= self.dry_runs_from:
                self._check_dry_run(request, spec)

    def check_now(self) -> None:
        """Judge the commits that are complete."""
        for burst in [burst for burst in self._bursts.values() if self.books.clock() - burst.last > self.wait_until_idle]:
            self._close(burst)

    def answered(self, request: Request) -> None:
        """Count an attempt as made in vain if a dry run for an absent gang was refused."""
        if request.verb == "bind" and request.is_dry_run and request.status in REFUSALS:
            pod = self.books.get("pods", request.namespace, request.name)
            spec = self.books.gang_of(pod) if pod is not None else None
            if spec is not None and not self.lives.bound(spec):
                self._note_in_vain(spec, request.process, request.sent)

    def stopped(self, process: str, began: float) -> None:
        """Check that a process that has shut down gracefully waited for the answers to its binds."""
        if self.books.clock() - began > STOP_SECONDS:
            return
        for request in self.books.requests:
            if request.is_bind and request.process == process and began <= (request.abandoned or 0.0) < request.sent + _PATIENCE_SECONDS:
                self.accuse("open", f"a scheduler has shut down and didn't wait for its bind of pod {request.name}")

    def _check_dry_run(self, request: Request, spec: GangSpec) -> None:
        """Check that a bind that can't be undone was dry-run before, unless a single bind makes the gang whole."""
        minima = [
            # A gang whose PodGroup is deleted goes on with the members that exist.
            len(self.books.known_members(spec, request.process, request.sent - HEEDED_SECONDS)) if minimum is None else minimum
            for minimum in self.books.minima_since(spec, request.sent - NEWS_SECONDS)
        ]
        minima.append(self.books.still_made(spec))
        minima += [lost] if (lost := self._bursts[spec].replaceable) else []
        bound = len(self._known_bound(spec, request.process, request.sent - HEEDED_SECONDS))
        bound = max(bound, len(self.lives.bound(spec)) + self.lives.losses_since(spec, request.sent - HEEDED_SECONDS))
        if spec.is_releasable or self._bursts[spec].base or bound >= min(minima, default=1) - 1:
            return  # no partially bound gang would be left
        tried = self.books.dry_runs_of(request)
        if not tried:
            self.accuse("dry run", f"pod {request.name} of a {spec.kind} gang is bound, and was never dry-run")
        elif not self._is_fresh(request.process, spec, request.sent):
            self.accuse("dry run", f"pod {request.name} of a {spec.kind} gang is bound long after its dry run")
        elif not 200 <= tried[-1].status < 300 or tried[-1].target != request.target:
            result = f"{tried[-1].status or 'nothing'} on node {tried[-1].target}"
            self.accuse("dry run", f"pod {request.name} of a {spec.kind} gang is sent to {request.target}, and the dry run gave {result}")

    def _is_fresh(self, process: str, spec: GangSpec, sent: float) -> bool:
        """Return whether the last answer to a dry run of a gang came shortly before ``sent``, when its binds begin."""
        if any(deed.process == process and deed.until > sent - self.fresh and deed.at <= sent for deed in self.books.deeds):
            return True  # the process was stopped in between
        return any(
            other.is_dry_run
            and other.verb == "bind"
            and other.process == process
            and sent - self.fresh < (other.answered or sent) <= sent + self.fresh
            and self.books.is_of(other, spec)
            for other in self.books.requests_since(sent - self.fresh - IN_FLIGHT_SECONDS)
        )

    def _check_roles(self, burst: Burst) -> None:
        """Check that a pod of each role was dry-run before the binds of a commit, and that no refused pod is bound.

        If binds can't be undone, each pod must have been dry-run.
        """
        first = [request for request in burst.attempted.values() if request.sent - burst.sent < _AT_ONCE_SECONDS]
        if len(first) < 2 or not (burst.spec.is_releasable or burst.base) or burst.sent < self.dry_runs_from:
            return  # a single bind needs no dry run, and binds of members that can't be released are checked one by one
        if not self._is_fresh(burst.process, burst.spec, burst.sent):
            self.accuse("dry run", f"{len(first)} members of {burst.spec.name} are bound, and no member was dry-run just before")
        tried: dict[str, Request] = {}
        by_uid: dict[str, Request] = {}
        for other in self.books.requests_since(burst.sent - 3 * RETRY_SECONDS):  # the last dry run of each pod counts
            if (
                other.verb == "bind"
                and other.is_dry_run
                and other.process == burst.process
                and burst.sent - 3 * RETRY_SECONDS < other.sent < burst.sent
            ):
                uid = str(other.metadata.get("uid"))
                by_uid.setdefault(uid, other)
                if uid in self.books.apps and burst.spec.is_releasable:
                    tried.setdefault(self.books.apps[uid], other)
        for request in first:
            uid = str(request.metadata.get("uid"))
            found = [each for each in (by_uid.get(uid), tried.get(self.books.apps.get(uid, ""))) if each is not None]
            if not found:
                self.accuse("dry run", f"pod {request.name} is bound with others, and no pod of its role was dry-run")
            elif not any(200 <= each.status < 300 for each in found):
                self.accuse("dry run", f"pod {request.name} is bound, and the answer to its dry run was {found[0].status or 'none'}")

    def _check_pauses(self, burst: Burst) -> None:
        """Count a commit as an attempt in vain if it bound no pod and its gang was absent."""
        if burst.base or any(request.is_carried_out for request in burst.attempted.values()):
            return
        self._note_in_vain(burst.spec, burst.process, burst.sent)

    def _note_in_vain(self, spec: GangSpec, process: str, sent: float) -> None:
        times = self._in_vain.setdefault((spec, process), [])
        if times and sent - times[-1] < IDLE_SECONDS:
            return  # other pods of the same attempt
        times.append(sent)
        while times[0] < sent - _VAIN_SECONDS:
            times.pop(0)
        if len(times) > _MOST_IN_VAIN:
            self.accuse("storm", f"{spec.name} was attempted in vain {len(times)} times within {_VAIN_SECONDS:g} s")

    def _check_pace(self, burst: Burst, needed: int) -> None:
        """Check that the binds of a commit were in flight together, not one after the other."""
        sent = sorted(burst.attempted.values(), key=lambda request: request.sent)
        if needed - len(burst.base) < 3 or len(sent) < 3 or any(request.is_struck for request in sent):
            return
        if not all(request.is_seen_sent for request in sent):
            return  # the server may have taken one after the other
        if all(one.answered is not None and one.answered <= next_one.sent for one, next_one in itertools.pairwise(sent)):
            self.accuse("quorum", f"the {len(sent)} binds of a commit of {burst.spec.name} were sent one after the other")

    # The binds of one commit.

    def _join(self, request: Request, spec: GangSpec, pod: Body) -> None:
        burst, now = self._bursts.get(spec), self.books.clock()
        if (burst is None or now - burst.last > self.wait_until_idle) and self.books.is_retry(request):
            return  # it belongs to a commit that was judged already
        if burst is not None and (
            now - burst.last > self.wait_until_idle or burst.process != request.process or self._is_later(request, burst)
        ):
            self._close(burst)
            burst = None
        if burst is None:
            base = {uid_of(each) for each in self.lives.bound(spec)}
            life = self.lives.of(spec)
            burst = self._bursts[spec] = Burst(spec, request.process, request.sent, now, base, self.lives.succeeded(spec), life.began)
            burst.replaceable = self.lives.replaceable(spec)
            burst.lost, burst.next_wave = self.lives.lost(spec), frozenset(life.next_wave.ever_bound if life.next_wave else ()) & base
            burst.outranking = self._outranking(spec, request)
            burst.reserved_for = [] if base or self.books.is_retry(request) else self.reserving.bound_by(spec)
        # The pod that has the name now may be another one.
        uid = str(request.metadata.get("uid") or uid_of(pod))
        burst.attempted.setdefault(uid, request)
        burst.demands[uid] = demand_of(pod)
        burst.last = now

    def _is_later(self, request: Request, burst: Burst) -> bool:
        """Return whether a bind was sent so long after the other binds that it belongs to another commit."""
        return request.is_seen_sent and request.sent - burst.sent > _TOGETHER_SECONDS and not self.books.is_retry(request)

    def _close(self, burst: Burst) -> None:
        """Check that the whole quorum was attempted, and no gang of a higher priority passed."""
        del self._bursts[burst.spec]
        self._check_priority(burst)
        self.reserving.check_commit(burst.spec, burst.reserved_for)
        self._check_roles(burst)
        self._check_pauses(burst)
        spec = burst.spec
        if not burst.base and not any(self.books.minima_since(spec, burst.sent - DELETION_SECONDS)):
            self.accuse("quorum", f"{spec.name} is begun, although its PodGroup has been gone for {DELETION_SECONDS:g} s")
        stated = self.books.minima_since(spec, burst.sent - NEWS_SECONDS)
        stamped_minimum = self.lives.stamped_minimum(spec, burst.process, burst.sent) if None in stated or not stated else 0
        quorum = min([minimum for minimum in stated if minimum is not None] or [stamped_minimum])
        if None in stated:
            quorum = min(quorum, stamped_minimum) if stamped_minimum else quorum
        pending = {
            str(request.metadata.get("uid"))
            for request in self.books.binds_since(burst.sent - RETRY_SECONDS)
            if request.process == burst.process
            and (request.status not in REFUSALS or request.sent > burst.sent - _AT_ONCE_SECONDS)
            and burst.sent - RETRY_SECONDS < request.sent <= burst.last
            and (request.namespace, request.name) in self._unbound(spec)
            and not self.books.is_given_up(request, burst.last)
        }
        together = burst.base | burst.attempted.keys() | pending | self._known_bound(spec, burst.process, burst.sent)
        was_whole = len(burst.base) + burst.succeeded >= quorum
        needed = 0 if was_whole else min(quorum - burst.succeeded, self.books.still_made(spec))
        if burst.base and self.lives.of(spec).was_whole:  # a run that was whole may go on with the replacements that exist
            needed = min(needed, len(burst.base) + len(self.lives.candidates(spec)))
        if len(burst.attempted) <= burst.replaceable:
            needed = 0
        # By a forged stamp, the running wave may seem to lack members, which pods of the next wave then replace.
        if self._begins_wave(burst) and not excuses.is_forged(self.books, spec):
            stragglers = burst.base - burst.next_wave
            together, needed = together - stragglers, min(quorum, self.books.still_made(spec, len(stragglers)))
        self._check_pace(burst, needed)
        lacking = max(0, spec.least - self._of_role(spec, together))
        if len(together) >= needed and not (lacking and needed):
            return
        if burst.base and None in stated and not {uid_of(pod) for pod in self.lives.candidates(spec)} - together:
            return  # no object states a minimum: all members that exist complete the run
        if not self._hindrances(burst):
            if lacking:
                self.accuse("quorum", f"a commit of {spec.name} leaves {lacking} missing of the {spec.least} {spec.roles[-1].name}")
                return
            sent = f"at {burst.sent:.3f} s {len(burst.attempted)} members were sent beside {len(burst.base)} that were bound"
            self.accuse("quorum", f"a commit of {spec.name} was for less than its quorum of {needed}: {sent}")

    def _begins_wave(self, burst: Burst) -> bool:
        """Return whether a commit begins or continues a Job's next wave: it has more new pods than lost members."""
        later = [uid for uid in burst.attempted if self.books.created_at.get(uid, 0.0) > burst.began]
        return bool(burst.base and burst.succeeded) and burst.spec.kind == "job" and len(later) > max(0, burst.lost)

    def _known_bound(self, spec: GangSpec, process: str, when: float) -> set[str]:
        """Return the UIDs of members that were bound, as far as a scheduler had received by ``when``."""
        return {uid_of(pod) for pod in self.books.known_members(spec, process, when) if node_of(pod)}

    def _of_role(self, spec: GangSpec, uids: Collection[str]) -> int:
        """Return how many of ``uids``, and of the run's successes, belong to the role that has a minimum of its own."""
        ever_bound = self.lives.of(spec).ever_bound
        ended = {uid_of(pod) for pod in self.books.members(spec) if phase_of(pod) == "Succeeded" and uid_of(pod) in ever_bound}
        return sum(self.books.roles.get(uid) == spec.roles[-1].name for uid in {*uids, *ended})

    def _unbound(self, spec: GangSpec) -> set[tuple[str, str]]:
        return {(spec.namespace, name_of(pod)) for pod in self.lives.candidates(spec)}

    def _hindrances(self, burst: Burst) -> list[str]:
        """Return what may have kept the scheduler from sending the other binds: its own end, or that of members."""
        name = burst.spec.key
        delay = _SETTLED_SECONDS if not excuses.are_events_late(self.books) else NEWS_SECONDS
        return [
            str(deed)
            for deed in self.books.deeds
            if deed.until >= burst.sent - delay
            and deed.at <= burst.last + self.wait_until_idle
            and ((deed.gang == name and deed.what not in _HARMLESS) or deed.process == burst.process)
        ]

    def _outranking(self, spec: GangSpec, request: Request) -> list[tuple[GangSpec, dict[str, Amounts]]]:
        """Return the gangs of a higher priority that wait, undisturbed, and that fit in the capacity that is free as a bind arrives.

        They must fit both by the actual capacity and by what the sender had received. Each comes with the free capacity.
        """
        now, sent = self.books.clock(), request.sent
        if all(other.priority <= spec.priority for other in self.books.gangs):
            return []
        if now - sent > _SETTLED_SECONDS:
            return []  # the commit was decided long ago
        if now - (self.leads() or now) < self.patience:
            return []  # the scheduler may not know yet which pods an earlier leader may still bind
        if self.books.nodes_freed_since(now - _SETTLED_SECONDS) > 1:
            return []  # capacity is freed bit by bit, and the other gang may have been searched for in between
        if self._reserves_capacity(request.process) or excuses.is_searching_long(self.books):
            return []
        youngest = max((self.books.created_at[uid_of(pod)] for pod in self.lives.candidates(spec)), default=0.0)
        if now - self.books.freed < _SETTLED_SECONDS and now - youngest < self.patience:
            return []  # the other gang may have been searched for before there was capacity for it
        mine = {uid_of(pod) for pod in self.lives.candidates(spec)}
        tried = [each for each in self.books.requests if each.is_dry_run and each.metadata.get("uid") in mine]
        late = [each for each in tried if (each.answered or now) > now - _SETTLED_SECONDS]
        if late and any(
            now - 3 * RETRY_SECONDS < each.sent < now - _SETTLED_SECONDS and (each.is_struck or each in late) for each in tried
        ):
            return []  # its capacity was assumed long ago, and the answer to its dry run came late
        if any(
            each.verb == "bind" and (each.answered or now) > now - _SETTLED_SECONDS and not self.books.is_of(each, spec)
            for each in self.books.requests
        ):
            return []  # capacity is assumed for other gangs, or was a moment ago
        decided = min(
            (each.sent for each in tried if each.process == request.process and each.sent > sent - _SETTLED_SECONDS), default=sent
        )
        known = self._known_free(request.process, decided)
        found = []
        for other in self.books.gangs:
            missing, waiting = self.lives.missing(other), self.lives.candidates(other)
            if other.priority <= spec.priority or not missing or not self.lives.has_pods(other) or self.books.minimum(other) is None:
                continue
            if (
                any(now - self.books.created_at[uid_of(pod)] < self.patience for pod in waiting)
                or not self.books.news.has_received(waiting, request.process, decided - _SETTLED_SECONDS)
                or now - max(excuses.struck_since(self.books, other), self.lives.released_at(other)) < _PAUSE_SECONDS
                or self._is_backing_off(other)
                or self.reserving.may_be_kept_from(other)
            ):
                continue
            free = free_capacity(self.books.nodes, self.books.holding_capacity(other, spec))
            if self.lives.fits(other, free) and self.lives.fits(other, known):
                found.append((other, free))
        return found

    def _reserves_capacity(self, process: str) -> bool:
        """Return whether capacity may be reserved for pods that a new leader couldn't fence, because its writes met faults."""
        now, last, struck = self.books.clock(), dict[tuple[str, str], Request](), set[tuple[str, str]]()
        for each in self.books.requests_since(now - _REACH_SECONDS):
            if each.process == process and each.verb == "patch" and each.plural == "pods":
                place = each.namespace, each.name
                last[place] = each
                if each.is_struck:
                    struck.add(place)
        return any(last[place].is_struck or (last[place].answered or now) > now - _KEPT_SECONDS for place in struck)

    def _known_free(self, process: str, when: float) -> dict[str, Amounts]:
        """Return what was free as far as a scheduler had received by ``when``, less what it had bound itself."""
        pods, nodes = (self.books.news.known(process, plural, when) for plural in ("pods", "nodes"))
        mine = {
            str(request.metadata.get("uid")): request.target
            for request in self.books.requests
            if request.is_bind and request.process == process and request.sent < when and request.status not in REFUSALS
        }
        there = {name_of(node): node for node in nodes.values()}
        return {name: {} for name in self.books.nodes} | free_capacity(there, with_assignments(pods.values(), mine))

    def _is_backing_off(self, spec: GangSpec) -> bool:
        """Return whether a gang pauses before its next bind, since it has lost members again a moment ago."""
        return self.lives.losses_since(spec, 0.0) > 1 and self.lives.losses_since(spec, self.books.clock() - _REST_SECONDS) > 0

    def _check_priority(self, burst: Burst) -> None:
        """Check that no gang of a higher priority could have used the capacity that a commit took."""
        first = min((request.sent for request in burst.attempted.values()), default=0.0)
        for other, free in burst.outranking:
            if any(
                each.is_bind and self.books.is_of(each, other) and abs(each.sent - first) < _SETTLED_SECONDS for each in self.books.requests
            ):
                continue  # capacity was assumed for the other gang too, whatever has happened to it since
            left = {name: dict(amounts) for name, amounts in free.items()}
            for uid, request in burst.attempted.items():
                for resource, amount in burst.demands[uid].items() if request.target in left else ():
                    left[request.target][resource] = left[request.target].get(resource, 0) - amount
            if self.lives.missing(other) and not self.lives.fits(other, left):
                text = f"{burst.spec.name} (priority {burst.spec.priority}) takes capacity that {other.name} ({other.priority}) waits for"
                self.accuse("priority", text)
