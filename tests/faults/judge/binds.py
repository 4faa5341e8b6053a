"""Checks each bind by itself, when it reaches the API server and when it is carried out."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.gangs import DEVICES_OF_POD, STAMP, GangSpec

from .books import HEEDED_SECONDS, IN_FLIGHT_SECONDS, NEWS_SECONDS, OURS, STALE_SECONDS, Accuse, Books
from .entries import Request
from .facts import (
    ENDED,
    Amounts,
    Body,
    capacity_of,
    demand_of,
    devices_in,
    devices_of,
    held_devices,
    is_alive,
    is_gated,
    name_of,
    node_of,
    parts_of,
    phase_of,
    rack_of,
    refusal,
    uid_of,
    volumes_refusal,
)
from .lives import Lives, rack_group

_HEARD_SECONDS = 5.0
"""Only the Retry-After of an answer within so many seconds must be kept: the scheduler may have given up waiting for a later answer."""
LEFT_ALONE_SECONDS = 5.0
"""If a Retry-After is longer, only so many seconds of it must be kept: a partially bound gang has no time for more."""
AT_ONCE_SECONDS = 0.005
"""Seconds within which the binds of one commit are sent."""
_WHOLE = 100
_ROUNDS, _ROUND_SECONDS = 12, 20.0
_STAMP = re.compile(r"[0-9a-f]{1,32}/([1-9][0-9]{0,8})(/whole)?", re.ASCII)


@dataclass(slots=True)
class Binds:
    """Checks every bind and dry run. ``is_elected`` returns whether there is an election, so that leaders may follow each other."""

    books: Books
    lives: Lives
    accuse: Accuse
    is_elected: Callable[[], bool]
    _landings: dict[tuple[GangSpec, str], list[float]] = field(default_factory=dict)

    def arrived(self, request: Request, pod: Body) -> None:
        """Check a bind that has reached the API server. ``pod`` may be gone."""
        self._check_candidate(request)
        if self.books.get("pods", request.namespace, request.name) is not None:  # otherwise the bind is refused, whatever it asks for
            self._check_doubt(request, pod)
            self._check_node(request, pod)
        if (spec := self.books.gang_of(pod)) is not None:
            self._check_form(request, spec)
            self._check_devices(request, pod)
            if spec.shares_rack and not self.books.is_retry(request):
                self._check_rack(request, spec, pod)

    def landed(self, request: Request, pod: Body) -> None:
        """Check a bind that was carried out."""
        spec = self.books.gang_of(pod)
        if pod["spec"].get("schedulerName") != OURS:
            self.accuse("stranger", f"pod {name_of(pod)} of another scheduler was bound")
        self._check_capacity(request, pod)
        self._check_shared(request, pod)
        self._check_volumes(request, pod)
        if spec is None:
            return
        now = self.books.clock()
        landings = self._landings.setdefault((spec, request.process), [])
        landings.append(now)
        while landings[0] < now - _ROUND_SECONDS:
            landings.pop(0)
        if len(landings) > _ROUNDS * max(spec.size, self.books.minimum(spec) or 0):
            self.accuse("storm", f"{len(landings)} pods of {spec.name} were bound within {_ROUND_SECONDS:g} s")

    def sent(self, request: Request) -> None:
        """Check that Retry-After is kept, and that no bind rests on state older than ``STALE_SECONDS``."""
        for other in self.books.requests_since(request.sent - _HEARD_SECONDS - LEFT_ALONE_SECONDS):
            if (
                other.retry_after
                and (other.status == 429 or other.status >= 500)
                and other.answered is not None
                and other.answered - other.sent < _HEARD_SECONDS
                and (other.verb, other.process, other.plural) == (request.verb, request.process, request.plural)
                and (other.namespace, other.name, other.metadata.get("uid"))
                == (request.namespace, request.name, request.metadata.get("uid"))
                and other.answered < request.sent < other.answered + min(other.retry_after, LEFT_ALONE_SECONDS) - HEEDED_SECONDS
            ):
                self.accuse(
                    "haste",
                    f"a bind of pod {request.name} was sent again, although the answer asked for a pause of {other.retry_after:g} s",
                )
        if request.is_bind and not self.books.is_retry(request) and self.books.is_stale(request.process, request.sent):
            self.accuse(
                "stale", f"pod {request.name} is bound, although its scheduler's watch of pods or nodes was silent for {STALE_SECONDS:g} s"
            )

    def _check_form(self, request: Request, spec: GangSpec) -> None:
        """Check that a bind names UID and resourceVersion, and carries the stamp."""
        if not (request.metadata.get("uid") and request.metadata.get("resourceVersion")):
            self.accuse("precondition", f"a bind of pod {request.name} lacks a UID or a resourceVersion")
        stamp = str((request.metadata.get("annotations") or {}).get(STAMP, ""))
        found = _STAMP.fullmatch(stamp)
        minima = self.books.minima_since(spec, request.sent - NEWS_SECONDS)
        stated = {max(minimum, spec.least) for minimum in minima if minimum is not None}
        if stated and None in minima:  # the stamped minimum goes on, but for no more members than exist
            stated.add(len(self.books.known_members(spec, request.process, request.sent)))
        if found is None:
            self.accuse("journal", f"a bind of pod {request.name} carries the stamp {stamp!r}")
        elif stated and int(found[1]) not in stated and not self._is_stamped(int(found[1]), request, spec):
            self.accuse("journal", f"a bind of pod {request.name} carries the minimum {found[1]}, and {spec.name} stated {sorted(stated)}")

    def _check_rack(self, request: Request, spec: GangSpec, pod: Body) -> None:
        """Check that a pod goes to the rack of the members with which it must share one: those bound before, or sent with it."""
        if spec.has_group and None in self.books.minima_since(spec, request.sent - NEWS_SECONDS):
            return  # the rule was stated on the PodGroup, which is gone
        group, rack = rack_group(spec, pod), rack_of(self.books.nodes.get(request.target))
        known = map(uid_of, self.books.known_members(spec, request.process, request.sent - HEEDED_SECONDS))
        bound = {uid_of(each): each for each in self.lives.bound(spec)}
        there = {uid: node_of(bound[uid]) for uid in known if uid in bound and rack_group(spec, bound[uid]) == group}
        for other in self.books.binds_since(request.sent):
            beside = self.books.get("pods", other.namespace, other.name)
            is_sent_with = other.process == request.process and abs(other.sent - request.sent) < AT_ONCE_SECONDS
            if beside is not None and is_sent_with and self.books.gang_of(beside) is spec and rack_group(spec, beside) == group:
                there[uid_of(beside)] = other.target
        others = {rack_of(node) for name in there.values() if (node := self.books.nodes.get(name)) is not None} - {rack}
        if rack and others:
            self.accuse("topology", f"pod {request.name} is sent to {rack}, and others of {spec.name} are in {', '.join(sorted(others))}")

    def _check_devices(self, request: Request, pod: Body) -> None:
        """Check that a bind names as many GPUs as the pod requests, where the node's GPUs are counted one by one."""
        listed = devices_of(self.books.nodes.get(request.target))
        named = devices_in(str((request.metadata.get("annotations") or {}).get(DEVICES_OF_POD, "")))
        parts = parts_of(pod)
        if listed is not None and (len(set(named)) != len(parts) or not set(named) <= set(listed)):
            self.accuse("device", f"a bind of pod {request.name} names {named}, and the pod requests {len(parts)} of {listed}")

    def _check_shared(self, request: Request, pod: Body) -> None:
        """Check that no GPU has more pods of ours than it holds."""
        for device in set(held_devices(pod)):
            used = {
                name_of(each): part
                for each in self.books.pods()
                if node_of(each) == request.target and phase_of(each) not in ENDED
                for held, part in zip(held_devices(each), parts_of(each), strict=False)
                if held == device
            }
            if sum(used.values()) > _WHOLE:
                self.accuse("device", f"pod {name_of(pod)} is bound to {device}, which is given to {used}")

    def _check_volumes(self, request: Request, pod: Body) -> None:
        """Check that each claim of a pod has a volume that the pod's node can use."""
        if why := volumes_refusal(pod, request.target, self.books.get):
            self.accuse("volume", f"pod {name_of(pod)} is bound to {request.target}, and {why}")

    def _is_stamped(self, number: int, request: Request, spec: GangSpec) -> bool:
        """Return whether a bind may be stamped with the minimum ``number``.

        It may if that is the gang's stamped minimum, or if the bind repeats an earlier one. For a gang of Jobs it may also be less than the
        present minimum, but not less than the number of pods that the Jobs will still make.
        """
        if spec.kind == "job" and self.books.still_made(spec, len(self.lives.bound(spec))) <= number <= (self.books.minimum(spec) or 0):
            return True
        return self.books.is_retry(request) or number == self.lives.stamped_minimum(spec, request.process, request.sent)

    def _check_candidate(self, request: Request) -> None:
        """Check that the pod may be bound, as far as its scheduler knew."""
        if self.books.is_retry(request):
            return  # it may only fetch the answer of an earlier try
        uid, place = str(request.metadata.get("uid")), (request.namespace, request.name)
        times = (request.sent - HEEDED_SECONDS, self.books.clock() + self.books.news.lag)
        versions = [self.books.news.known_of(request.process, "pods", place, when) for when in times]
        if all(pod is not None and (is_gated(pod) or not is_alive(pod)) for pod in versions):
            self.accuse("candidate", f"pod {request.name} is bound although it is gated, terminating or ended, as its scheduler knew")
        if self.books.news.is_known_gone(request.process, place, uid, request.sent - HEEDED_SECONDS):
            self.accuse("candidate", f"pod {request.name} is bound although it is gone, as its scheduler knew")

    def _check_doubt(self, request: Request, pod: Body) -> None:
        """Check that a pod isn't sent elsewhere while an earlier bind of it may still be carried out."""
        for other in self.books.requests_about("pods", request.name):
            if (
                other is not request
                and other.is_bind
                and other.process == request.process
                and (other.namespace, other.name, other.metadata.get("uid"))
                == (request.namespace, request.name, request.metadata.get("uid"))
                and other.metadata.get("uid") == uid_of(pod)
                and other.target != request.target
                and (other.answered is None or other.status == 0 or other.status >= 500)
                and other.sent < request.sent < other.sent + IN_FLIGHT_SECONDS
                and other.metadata.get("resourceVersion") == pod["metadata"]["resourceVersion"]  # otherwise that bind will be refused
                and not node_of(pod)
            ):
                self.accuse(
                    "double", f"pod {request.name} is sent to {request.target} while its bind to {other.target} may still be carried out"
                )

    def _check_node(self, request: Request, pod: Body) -> None:
        """Check that the node admits the pod and has capacity for it, as far as the scheduler knew when it sent the bind."""
        if node_of(pod) or request.metadata.get("uid") not in (None, uid_of(pod)):
            return  # the pod was bound before and the answer lost, or its name belongs to another pod
        place = ("", request.target)
        node = self.books.news.known_of(request.process, "nodes", place, request.sent - HEEDED_SECONDS)
        later = self.books.news.known_of(request.process, "nodes", place, self.books.clock() + self.books.news.lag)
        why = refusal(node, pod)
        if why and refusal(later, pod):
            self.accuse("node", f"pod {name_of(pod)} is sent to node {request.target}, which {why}, as its scheduler knew")
        elif node is not None and not why:
            pods = self.books.news.known(request.process, "pods", request.sent - HEEDED_SECONDS)
            here = {uid_of(each): each for each in pods.values() if node_of(each) == request.target and phase_of(each) not in ENDED}
            still = {uid_of(each) for each in self.books.pods() if node_of(each) == request.target and phase_of(each) not in ENDED}
            others = [each for uid, each in here.items() if uid in still and uid != uid_of(pod)]
            self._check_amounts(request, pod, others, capacity_of(node), later, "node", "are known to be used")
            doubtful = [each for each in self._expected_on(request) if uid_of(each) not in here and uid_of(each) != uid_of(pod)]
            self._check_amounts(request, pod, [*others, *doubtful], capacity_of(node), later, "double", "are used or may still be")

    def _expected_on(self, request: Request) -> list[Body]:
        """Return pods that an earlier bind of this scheduler, or of an earlier leader, may still give the node of ``request``."""
        return [
            pod
            for pod, other in self.books.in_doubt()
            if other.target == request.target
            and other.sent < request.sent - HEEDED_SECONDS
            and (other.process == request.process or self.is_elected())
        ]

    def _check_capacity(self, request: Request, pod: Body) -> None:
        """Check that our own pods on a node request no more than the scheduler knew the node to offer."""
        node = self.books.news.known_of(request.process, "nodes", ("", request.target), request.sent - HEEDED_SECONDS)
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
        self._check_amounts(request, pod, ours, capacity_of(node), later, "over-commit", "are used by our pods")

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
                    f"pod {name_of(pod)} requests {amount} {resource} of node {request.target}, where {used.get(resource, 0)} of {offered}"
                )
                self.accuse(rule, f"{text} {words}")
