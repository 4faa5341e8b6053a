"""What is asked of each commit and of each bind in it, in the moment it reaches the API server."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.gangs import STAMP, GangSpec

from .books import IN_FLIGHT_SECONDS, Books, Request
from .facts import (
    ENDED,
    Amounts,
    Body,
    capacity_of,
    demand_of,
    free_room,
    is_alive,
    is_gated,
    most_placeable,
    name_of,
    node_of,
    phase_of,
    refusal,
    uid_of,
)
from .lives import Lives

Accuse = Callable[[str, str], None]
"""Takes the rule that was broken, and how."""

OURS = "allaboard"
LULL_SECONDS = 0.3
"""All binds of one commit are sent at once: after so long without one, the next begins another."""
_NEWS_SECONDS = 3.0
_RETRY_SECONDS = 20.0
_HEEDED_SECONDS = 0.05
"""A scheduler that was told of something so long before it sent a request has had the time to heed it."""
_ROUNDS, _ROUND_SECONDS = 12, 20.0
_SETTLED_SECONDS = 0.5
_PAUSE_SECONDS = 15.0
_STAMP = re.compile(r"[0-9a-f]{1,32}/([1-9][0-9]{0,8})(/whole)?", re.ASCII)


@dataclass(slots=True)
class Burst:
    """The binds of one gang that one scheduler sends together. ``base`` are the members that were bound before."""

    spec: GangSpec
    who: str
    sent: float
    last: float
    base: set[str]
    succeeded: int
    began: float
    attempted: dict[str, Request] = field(default_factory=dict)
    demands: dict[str, Amounts] = field(default_factory=dict)
    outranking: list[tuple[GangSpec, dict[str, Amounts]]] = field(default_factory=list)
    """Gangs of a higher priority that would have fitted when it began, on what was free then."""


@dataclass(slots=True)
class Commits:
    """Watches every bind that arrives. ``landed`` binds are looked at once more; ``leads`` tells since when somebody schedules."""

    books: Books
    lives: Lives
    accuse: Accuse
    leads: Callable[[], float | None]
    patience: float = 1.0
    lull: float = LULL_SECONDS
    _bursts: dict[GangSpec, Burst] = field(default_factory=dict)
    _landings: dict[GangSpec, list[float]] = field(default_factory=dict)

    def arrived(self, request: Request) -> None:
        """A bind has reached the API server, whatever becomes of it there."""
        place = (request.namespace, request.name)
        pod = self.books.get("pods", *place) or self.books.gone.get(place)
        if pod is None:
            return
        self._check_candidate(request)
        self._check_doubt(request, pod)
        self._check_seat(request, pod)
        if (spec := self.books.gang_of(pod)) is not None:
            self._check_form(request, spec)
            self._join(request, spec, pod)
            if spec in self._bursts and not self._is_retry(request):
                self._check_rehearsal(request, spec)

    def landed(self, request: Request, pod: Body) -> None:
        """A bind was carried out."""
        spec = self.books.gang_of(pod)
        if pod["spec"].get("schedulerName") != OURS:
            self.accuse("stranger", f"pod {name_of(pod)} was bound, which is another scheduler's")
        self._check_room(request, pod)
        if spec is None:
            return
        now = self.books.clock()
        landings = self._landings.setdefault(spec, [])
        landings.append(now)
        while landings[0] < now - _ROUND_SECONDS:
            landings.pop(0)
        if len(landings) > _ROUNDS * max(spec.size, self.books.minimum(spec) or 0):
            self.accuse("storm", f"{len(landings)} pods of {spec.name} were bound within {_ROUND_SECONDS:g} s")

    def look(self) -> None:
        """Judge the commits that have come to their end."""
        for burst in [burst for burst in self._bursts.values() if self.books.clock() - burst.last > self.lull]:
            self._close(burst)

    # One bind.

    def _check_form(self, request: Request, spec: GangSpec) -> None:
        """What design says of every bind: it names what it was decided on, and carries the journal."""
        if not (request.metadata.get("uid") and request.metadata.get("resourceVersion")):
            self.accuse("precondition", f"a bind of pod {request.name} names no UID or no version")
        stamp = str((request.metadata.get("annotations") or {}).get(STAMP, ""))
        found = _STAMP.fullmatch(stamp)
        life = self.lives.of(spec)
        stated = {minimum for minimum in self.books.minima_since(spec, request.sent - _NEWS_SECONDS) if minimum is not None}
        if found is None:
            self.accuse("journal", f"a bind of pod {request.name} carries the stamp {stamp!r}")
        elif stated and int(found[1]) not in stated | {life.promise} and not self._is_retry(request):
            self.accuse("journal", f"a bind of pod {request.name} promises {found[1]}, and {spec.name} asked for {sorted(stated)}")

    def _check_candidate(self, request: Request) -> None:
        """The pod may be bound, by what its scheduler had been told."""
        if self._is_retry(request):
            return  # it may be an answer that is looked for
        pods = self.books.known(request.who, "pods", request.sent - _HEEDED_SECONDS)
        later = self.books.known(request.who, "pods", self.books.clock() + self.books.lag)
        told = [known.get((request.namespace, request.name)) for known in (pods, later)]
        if all(pod is not None and (is_gated(pod) or not is_alive(pod)) for pod in told):
            self.accuse("candidate", f"pod {request.name} is bound, which is gated, leaving or ended, as its scheduler had been told")

    def _check_rehearsal(self, request: Request, spec: GangSpec) -> None:
        """Where a bind can't be taken back it was tried without effect before, unless the gang needs no more than one."""
        minima = [minimum for minimum in self.books.minima_since(spec, request.sent - _NEWS_SECONDS) if minimum is not None]
        if spec.is_releasable or self._bursts[spec].base or len(self.lives.bound(spec)) >= min(minima, default=1) - 1:
            return  # nothing that is half bound would be left
        if not any(
            other.verb == "bind"
            and other.is_dry_run
            and other.who == request.who
            and other.metadata.get("uid") == request.metadata.get("uid")
            for other in self.books.requests
        ):
            self.accuse("rehearsal", f"pod {request.name} of a {spec.kind} gang is bound, and it was never tried without effect")

    def _check_doubt(self, request: Request, pod: Body) -> None:
        """A pod isn't sent elsewhere while an earlier bind of it may still be carried out."""
        for other in self.books.requests:
            if (
                other.is_bind
                and other is not request
                and other.who == request.who
                and (other.namespace, other.name) == (request.namespace, request.name)
                and other.metadata.get("uid") == uid_of(pod)
                and other.target != request.target
                and (other.answered is None or other.status == 0 or other.status >= 500)
                and other.sent < request.sent < other.sent + IN_FLIGHT_SECONDS
                and other.metadata.get("resourceVersion") == pod["metadata"]["resourceVersion"]  # else it will be refused
                and not node_of(pod)
            ):
                self.accuse(
                    "double", f"pod {request.name} is sent to {request.target} while its bind to {other.target} may still be carried out"
                )

    def _check_seat(self, request: Request, pod: Body) -> None:
        """The node admits the pod, by what the scheduler had been told of it when it sent the bind."""
        if node_of(pod):
            return  # it was bound before, and the answer lost
        nodes = self.books.known(request.who, "nodes", request.sent - _HEEDED_SECONDS)
        node = nodes.get(("", request.target))
        later = self.books.known(request.who, "nodes", self.books.clock() + self.books.lag).get(("", request.target))
        why = refusal(node, pod)
        if why and refusal(later, pod):
            self.accuse("node", f"pod {name_of(pod)} is sent to node {request.target}, which {why}, as its scheduler had been told")
        elif node is not None and not why:
            pods = self.books.known(request.who, "pods", request.sent - _HEEDED_SECONDS)
            here = {uid_of(each): each for each in pods.values() if node_of(each) == request.target and phase_of(each) not in ENDED}
            still = {uid_of(each) for each in self.books.pods() if node_of(each) == request.target and phase_of(each) not in ENDED}
            others = [each for uid, each in here.items() if uid in still and uid != uid_of(pod)]
            self._check_amounts(request, pod, others, capacity_of(node), later, "node", "are known to be there")

    def _check_room(self, request: Request, pod: Body) -> None:
        """No node has more of our own pods than it was known to hold when they were sent there."""
        node = self.books.known(request.who, "nodes", request.sent - _HEEDED_SECONDS).get(("", request.target))
        if node is None:
            return
        ours = [
            each
            for each in self.books.pods()
            if node_of(each) == request.target
            and phase_of(each) not in ENDED
            and each["spec"].get("schedulerName") == OURS
            and uid_of(each) != uid_of(pod)
        ]
        later = self.books.nodes.get(request.target)
        self._check_amounts(request, pod, ours, capacity_of(node), later, "over-commit", "of ours are there")

    def _check_amounts(
        self, request: Request, pod: Body, others: list[Body], capacity: Amounts, later: Body | None, rule: str, words: str
    ) -> None:
        now = capacity_of(later) if later is not None else {}
        used: Amounts = {}
        for each in others:
            for resource, amount in demand_of(each).items():
                used[resource] = used.get(resource, 0) + amount
        for resource, amount in demand_of(pod).items():
            offered = max(capacity.get(resource, 0), now.get(resource, 0))
            if amount and used.get(resource, 0) + amount > offered:
                text = (
                    f"pod {name_of(pod)} asks for {amount} {resource} of node {request.target}, where {used.get(resource, 0)} of {offered}"
                )
                self.accuse(rule, f"{text} {words}")

    # All binds of one commit.

    def _join(self, request: Request, spec: GangSpec, pod: Body) -> None:
        burst, now = self._bursts.get(spec), self.books.clock()
        if (burst is None or now - burst.last > self.lull) and self._is_retry(request):
            return  # of a commit that was judged already
        if burst is not None and (now - burst.last > self.lull or burst.who != request.who):
            self._close(burst)
            burst = None
        if burst is None:
            base = {uid_of(each) for each in self.lives.bound(spec)}
            life = self.lives.of(spec)
            burst = self._bursts[spec] = Burst(spec, request.who, request.sent, now, base, self.lives.succeeded(spec), life.began)
            burst.outranking = self._outranking(spec)
        # It may be another pod's name by now.
        uid = str(request.metadata.get("uid") or uid_of(pod))
        burst.attempted.setdefault(uid, request)
        burst.demands[uid] = demand_of(pod)
        burst.last = now

    def _is_retry(self, request: Request) -> bool:
        """Whether the same bind was sent before, and met a fault."""
        return any(
            other.is_bind
            and other is not request
            and other.who == request.who
            and (other.is_struck or not other.status)
            and (other.metadata.get("uid"), other.target) == (request.metadata.get("uid"), request.target)
            and other.metadata.get("annotations") == request.metadata.get("annotations")
            for other in self.books.requests
        )

    def _close(self, burst: Burst) -> None:
        """Was the whole quorum attempted, and nobody passed who goes before?"""
        del self._bursts[burst.spec]
        self._check_priority(burst)
        spec = burst.spec
        stated = self.books.minima_since(spec, burst.sent - _NEWS_SECONDS)
        if None in stated and not burst.base:
            return  # its PodGroup has gone in this moment
        promise = self.lives.of(spec).promise
        quorum = min([minimum for minimum in stated if minimum is not None] or [promise])
        if None in stated:
            quorum = min(quorum, promise) if promise else quorum
        pending = {
            str(request.metadata.get("uid"))
            for request in self.books.requests
            if request.is_bind
            and request.who == burst.who
            and burst.sent - _RETRY_SECONDS < request.sent <= burst.last
            and (request.namespace, request.name) in self._unbound(spec)
        }
        together = burst.base | burst.attempted.keys() | pending
        wave = burst.succeeded and any(self.books.born.get(uid, 0.0) > burst.began for uid in burst.attempted)
        was_whole = len(burst.base) + burst.succeeded >= quorum
        needed = quorum if was_whole and wave else 0 if was_whole else quorum - burst.succeeded
        if len(together) >= needed:
            return
        if not self._happened(burst):
            sent = f"at {burst.sent:.3f} s {len(burst.attempted)} members were sent beside {len(burst.base)} that were bound"
            self.accuse("quorum", f"a commit of {spec.name} was for less than its quorum of {needed}: {sent}")

    def _unbound(self, spec: GangSpec) -> set[tuple[str, str]]:
        return {(spec.namespace, name_of(pod)) for pod in self.lives.candidates(spec)}

    def _happened(self, burst: Burst) -> list[str]:
        """What may have kept the scheduler from sending the rest: its own end, or that of members."""
        name = (burst.spec.namespace, burst.spec.name)
        return [
            str(deed)
            for deed in self.books.deeds
            if deed.until >= burst.sent - 1.0
            and deed.at <= burst.last + self.lull
            and ((deed.gang == name and deed.what != "a member ends") or deed.who == burst.who)
        ]

    def _outranking(self, spec: GangSpec) -> list[tuple[GangSpec, dict[str, Amounts]]]:
        """Gangs of a higher priority that wait, undisturbed, and would fit on what is free now; with what is free."""
        now = self.books.clock()
        if all(other.priority <= spec.priority for other in self.books.gangs):
            return []
        if now - (self.leads() or now) < self.patience:
            return []  # it may not know yet whom an earlier leader may still bind
        if self.books.widenings(now - _SETTLED_SECONDS) > 1:
            return []  # room comes free bit by bit, and the other may have been searched for in between
        youngest = max((self.books.born[uid_of(pod)] for pod in self.lives.candidates(spec)), default=0.0)
        if now - self.books.widened < _SETTLED_SECONDS and now - youngest < self.patience:
            return []  # it may have been searched for before there was room for the other
        mine = {uid_of(pod) for pod in self.lives.candidates(spec)}
        if any(
            each.is_dry_run and each.metadata.get("uid") in mine and now - 3 * _RETRY_SECONDS < each.sent < now - _SETTLED_SECONDS
            for each in self.books.requests
        ):
            return []  # its seats were promised long ago
        if any(
            each.verb == "bind" and (each.answered or now) > now - _SETTLED_SECONDS and not self._is_of(each, spec)
            for each in self.books.requests
        ):
            return []  # seats are promised to others, or were a moment ago
        nodes, free = self.books.nodes, free_room(self.books.nodes, list(self.books.pods()))
        found = []
        for other in self.books.gangs:
            missing, waiting = self.lives.missing(other), self.lives.candidates(other)
            if other.priority <= spec.priority or not missing or len(waiting) < missing or self.books.minimum(other) is None:
                continue
            if (
                any(now - self.books.born[uid_of(pod)] < self.patience for pod in waiting)
                or now - self.books.struck_since(other) < _PAUSE_SECONDS
            ):
                continue
            if most_placeable(waiting, nodes, free, missing) >= missing:
                found.append((other, free))
        return found

    def _is_of(self, request: Request, spec: GangSpec) -> bool:
        return request.namespace == spec.namespace and request.name.startswith(f"{spec.name}-")

    def _check_priority(self, burst: Burst) -> None:
        """Nobody of a higher priority could have had the seats that were taken."""
        for other, free in burst.outranking:
            left = {name: dict(room) for name, room in free.items()}
            for uid, request in burst.attempted.items():
                for resource, amount in burst.demands[uid].items() if request.target in left else ():
                    left[request.target][resource] = left[request.target].get(resource, 0) - amount
            missing = self.lives.missing(other)
            if missing and most_placeable(self.lives.candidates(other), self.books.nodes, left, missing) < missing:
                text = f"{burst.spec.name} (priority {burst.spec.priority}) takes seats that {other.name} ({other.priority}) waits for"
                self.accuse("priority", text)
