"""Checks each deletion, eviction and suspension at the moment it is carried out."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.gangs import SUSPENDED, GangSpec

from . import excuses
from .books import DELETION_SECONDS, IN_FLIGHT_SECONDS, OURS, REFUSALS, STALE_SECONDS, Books
from .entries import Request
from .facts import ENDED, Body, free_capacity, is_managed, most_placeable, name_of, node_of, owner_of, phase_of, uid_of, with_assignments
from .lives import MOMENT_SECONDS, Lives
from .preempting import Preempting
from .standing import FORWARD_SECONDS

EDIT_SECONDS = 3.0
LEAVING_SECONDS = 60.0
"""Seconds that the pods of a suspended Job may take to go."""
HELD_SECONDS = 40.0
"""Seconds after an edit in which a request may still rest on the state before the edit, if faults have delayed the request."""
_AWAITED_SECONDS = 40.0
"""Longest time in seconds for which a scheduler waits for released capacity; the gang's time-out may end it earlier."""
_SETTLED_SECONDS = 0.5
_AT_ONCE_SECONDS = 0.1
"""Seconds within which gangs are released together."""
EDITS = ("the minimum is edited", "the PodGroup is deleted")
_COMMIT_SECONDS = 20.0
"""Seconds after the refusal of one member in which the last answers of its commit may come."""
_STARTED_SECONDS = 1.0
"""Seconds a pod must have run to count as running when the suspension of its Job was decided."""


@dataclass(frozen=True, slots=True)
class _Question:
    """The question whether another gang needed the capacity of a partially bound gang, which was released at the time ``at``.

    The question is answered a moment later, when all gangs that are released at about that time have been released.
    """

    at: float
    spec: GangSpec
    what: str
    nodes: Mapping[str, Body]
    assigned: Sequence[Body]
    """All pods that held capacity at the time ``at``."""
    known: Sequence[Body]
    """Pods that held capacity as far as a restarted scheduler knows: it doesn't know of earlier binds in flight."""
    held: Sequence[Sequence[Body]]
    """Other sets of pods that may be taken to hold capacity: pods that couldn't be fenced, on every node, and pods in a dry run."""
    ever_bound: Mapping[GangSpec, frozenset[str]]
    waiting: Mapping[GangSpec, tuple[Sequence[Body], int]]
    """The waiting gangs for which a gang may have been released, each with its candidates and its number of missing members."""


@dataclass(slots=True)
class Releases:
    """Checks every release. ``timeout`` is how many seconds a gang may be partially bound before it is released for others."""

    books: Books
    lives: Lives
    preempting: Preempting
    accuse: Callable[[str, str], None]
    timeout: float
    released: int = 0
    suspended: dict[str, str] = field(default_factory=dict)
    """The names of Jobs that schedulers have suspended and not resumed, by UID."""
    _suspensions: dict[str, tuple[Request, set[str]]] = field(default_factory=dict)
    """By UID of each suspended Job: the request that suspended it, and the UIDs of its pods that were bound then."""
    _released_pods: dict[str, tuple[GangSpec, float]] = field(default_factory=dict)
    """The gang of each released pod, and when the pod was released, by the pod's UID."""
    _refused: dict[GangSpec, float] = field(default_factory=dict)
    """When a member of each gang was last refused for good."""
    _released_at: dict[GangSpec, float] = field(default_factory=dict)
    """When each partially bound gang was last released for others."""
    _failed_at: dict[GangSpec, float] = field(default_factory=dict)
    """When the API server last failed to release a member of each gang."""
    _questions: list[_Question] = field(default_factory=list)
    _released_for: dict[GangSpec, set[GangSpec]] = field(default_factory=dict)
    """By released gang: the gangs for which it may have been released."""

    def check_now(self) -> None:
        """Answer the questions that a moment had to pass for."""
        now = self.books.clock()
        for question in [each for each in self._questions if now - each.at >= _SETTLED_SECONDS]:
            self._questions.remove(question)
            self._released_for[question.spec] = needed_by = self._needed_by(question)
            if not needed_by:
                self.accuse("release", f"{question.what}, of {question.spec.name}, although no other gang needed its capacity")

    def arrived(self, request: Request) -> None:
        """Check the object and the UID of each request that deletes or evicts a pod, or changes a Job, when it reaches the API server."""
        if request.is_dry_run:
            return
        about = f"{request.verb} of {request.plural} {request.name}"
        if request.plural == "pods" and request.verb in ("delete", "evict"):
            if not _preconditions_of(request) >= {"uid", "resourceVersion"}:
                self.accuse("precondition", f"{about} lacks a UID or a resourceVersion")
            if self.books.is_stale(request.process, self._first_read(request)):
                self.accuse(
                    "stale", f"{about} was sent, although its scheduler's watch of pods or nodes was silent for {STALE_SECONDS:g} s"
                )
        elif request.plural == "jobs" and request.verb == "patch" and not request.metadata.get("resourceVersion"):
            self.accuse("precondition", f"{about} lacks a resourceVersion")

    def _first_read(self, request: Request) -> float:
        """Return when a scheduler first read a pod that it releases: faults may have delayed the release."""
        about = self.books.requests_about("pods", request.name)
        mine = [each for each in about if (each.process, each.namespace) == (request.process, request.namespace)]
        return min(each.sent for each in (*mine, request) if each.verb in ("get", "delete", "evict") and each.sent > request.sent - 60)

    def answered(self, request: Request) -> None:
        """Record the final refusal of a bind, and the failure of a release."""
        is_kept = request.verb in ("evict", "delete") and request.plural == "pods" and request.is_struck and not request.is_carried_out
        if is_kept or (request.is_bind and request.status in REFUSALS):
            pod = self.books.get("pods", request.namespace, request.name)
            spec = self.books.gang_of(pod) if pod else None
            if spec is not None:
                (self._failed_at if is_kept else self._refused)[spec] = self.books.clock()

    def carried_out(self, request: Request, pod: Body) -> None:
        """Check a release that was carried out. ``pod`` is the pod before it."""
        self.released += 1
        name, spec = name_of(pod), self.books.gang_of(pod)
        if pod["spec"].get("schedulerName") != OURS:
            self.accuse("stranger", f"pod {name} of another scheduler was deleted")
        if spec is None:
            return
        if not spec.may_be_undone:
            self.accuse("kept pod", f"pod {name} of a {spec.kind} gang was deleted")
        self._check_manner(request, spec, pod)
        if self.preempting.carried_out(request, pod):
            return
        life = self.lives.of(spec)
        life.released.add(uid_of(pod))
        self._released_pods[uid_of(pod)] = spec, self.books.clock()
        if not node_of(pod) or not (self._lacks_stamped(spec, pod) or self._is_edited(spec, request)):
            self.accuse("release", f"pod {name} was deleted, and nothing was missing of {spec.name}")
        elif excuses.is_forged(self.books, spec) or self._is_given_up(spec, request):
            return
        elif phase_of(pod) == "Running":
            self._judge_running(spec, request, f"pod {name} was deleted while it ran")
        elif self._was_whole(spec, request):
            self.accuse("release", f"pod {name} was deleted, of {spec.name}, which was whole before")
        else:
            self._judge_waiting(spec, pod, request)

    def job_written(self, request: Request, job: Body, before: Body) -> None:
        """Check a scheduler's write to a Job: suspending a Job releases all its pods, without counting a failure."""
        name, was_suspended, is_suspended = name_of(job), before["spec"].get("suspend"), job["spec"].get("suspend")
        if was_suspended and not is_suspended:
            is_ours = self.suspended.pop(uid_of(job), None) is not None or _is_labelled(before)
            if not is_ours or is_managed(before):
                self.accuse("stranger", f"job {name} was resumed, but another controller manages it")
            self._check_resumed(request, job)
        if was_suspended or not is_suspended:
            return
        self.suspended[uid_of(job)] = name
        bound_uids = {uid_of(pod) for pod in self.books.pods() if owner_of(pod) == uid_of(job) and node_of(pod)}
        self._suspensions[uid_of(job)] = request, bound_uids
        spec = self.books.gang_of_job(job)
        if spec is None or is_managed(before):
            self.accuse("stranger", f"job {name} was suspended, but another controller manages it or no gang has it")
            return
        if not _is_labelled(job):
            self.accuse("journal", f"job {name} was suspended without the label that says so")
        if not spec.suspends:
            self.accuse("release", f"job {name} was suspended, and its gang doesn't allow it")
        life, now = self.lives.of(spec), self.books.clock()
        if not (self._lacks_stamped(spec) or self._is_edited(spec, request)):
            self.accuse("release", f"job {name} was suspended, and nothing was missing of {spec.name}")
        elif excuses.is_forged(self.books, spec):
            return
        elif life.open_since is not None and request.sent - life.open_since < self.timeout - 1:
            self.accuse("release", f"job {name} was suspended before its gang's time-out")
        mine = [pod for pod in self.lives.alive(spec) if owner_of(pod) == uid_of(job)]
        running = [pod for pod in mine if now - (self.books.running_since(pod) or now) > _STARTED_SECONDS]
        if any(self.books.is_guarded(pod, request.sent) for pod in running):
            self.accuse("release", f"job {name} was suspended while its pods run, which a disruption budget forbids")
        self._released_pods.update({uid_of(pod): (spec, now) for pod in mine if node_of(pod)})
        if running and not self._is_given_up(spec, request):
            self._judge_running(spec, request, f"job {name} was suspended while pods of it ran")
        elif not self._is_given_up(spec, request) and self._was_whole(spec, request):
            self.accuse("release", f"job {name} was suspended, of {spec.name}, which was whole before")

    def _check_resumed(self, request: Request, job: Body) -> None:
        """Check that a Job is resumed only when its pods are gone, unless the scheduler was stopped or they take too long."""
        suspension, bound_uids = self._suspensions.pop(uid_of(job), (request, set()))
        if suspension.process != request.process or request.sent - suspension.sent > LEAVING_SECONDS - 1:
            return
        if any(deed.process == request.process and deed.at >= suspension.sent for deed in self.books.deeds):
            return
        if any(uid_of(pod) in bound_uids and phase_of(pod) not in ENDED for pod in self.books.pods()):
            self.accuse("release", f"job {name_of(job)} was resumed before its pods had gone")

    def _check_manner(self, request: Request, spec: GangSpec, pod: Body) -> None:
        """Check that a running pod, or one that its Job counts, is evicted, so that budgets hold, and keeps its grace period."""
        options = request.body.get("deleteOptions") if request.verb == "evict" else request.body
        if "gracePeriodSeconds" in (options or {}):
            self.accuse(
                "release", f"pod {name_of(pod)} was given {(options or {})['gracePeriodSeconds']} s to end, instead of its own grace period"
            )
        if request.verb != "evict" and (spec.kind == "job" or phase_of(pod) == "Running"):
            self.accuse("release", f"pod {name_of(pod)} of a {spec.kind} gang was deleted while it was {phase_of(pod)}, and not evicted")

    def _judge_running(self, spec: GangSpec, request: Request, what: str) -> None:
        life = self.lives.of(spec)
        if self._was_whole(spec, request):
            self.accuse("release", f"{what}, of {spec.name}, which was whole before")
        elif life.open_since is None or self.books.clock() - life.open_since < self.timeout - 1:
            self.accuse("release", f"{what}, of {spec.name}, before its time-out")
        elif self.books.clock() - self._decided_at(request) <= _SETTLED_SECONDS:
            self._question_release(spec, what, request.process)
        else:  # it was in flight since, and is released beside others all the same
            self._released_at[spec] = self.books.clock()

    def _decided_at(self, request: Request) -> float:
        """Return when the release of a pod was decided: before the pod was read, which a fault may have delayed."""
        reads = (
            each.sent
            for each in self.books.struck
            if (each.verb, each.plural, each.process) == ("get", request.plural, request.process)
            and (each.namespace, each.name) == (request.namespace, request.name)
            and each.answered is not None
            and 0 <= request.sent - each.answered < _AT_ONCE_SECONDS
        )
        return min(reads, default=request.sent)

    def _question_release(self, spec: GangSpec, what: str, process: str) -> None:
        now = self.books.clock()
        before, self._released_at[spec] = self._released_at.get(spec, -math.inf), now
        if now - before < _SETTLED_SECONDS:
            return  # another pod of the same gang; some of its capacity may be free already
        released_before = {each for each in self._released_around(now) if not self._has_helped(each)}  # released for the same gang
        missing = {other: self._lacks(other) for other in self.books.gangs if other not in released_before}
        waiting = {other: (self.lives.candidates(other), lacks) for other, lacks in missing.items() if lacks and self.lives.has_pods(other)}
        if any(other.percent or other.shares_rack for other in waiting):
            return  # whether these fit with more capacity isn't known for certain
        released = {each for each, when in self._released_pods.values() if now - when < _SETTLED_SECONDS}
        # Pods that come, hold no capacity, and rank below this gang make no difference, whatever a scheduler knows of them.
        below = [
            each for each in self.books.gangs if each.priority < spec.priority and self.lives.empty_since(each) < now - _SETTLED_SECONDS
        ]
        if waiting and (self.books.quiet_elsewhere(spec, *released, *below) < _SETTLED_SECONDS or excuses.are_events_late(self.books)):
            return  # what the scheduler knows may be as old
        self._questions.append(
            _Question(
                now,
                spec,
                what,
                dict(self.books.nodes),
                self.books.holding_capacity(spec),
                self.books.holding_capacity(spec, process=process),
                (self._unfenced(process), self._in_dry_run(process)),
                {each: frozenset(self.lives.of(each).ever_bound) for each in self.books.gangs},
                {
                    other: wanted
                    for other, wanted in waiting.items()
                    if (self.lives.ranks_before(other, spec) if self.lives.bound(other) else other.priority >= spec.priority)
                },
            )
        )

    def _lacks_stamped(self, spec: GangSpec, pod: Body | None = None) -> bool:
        """Return whether a member is missing of the stamped minimum.

        If a tenant has forged the stamp, the present minimum counts: the scheduler believes the stamp up to that.
        """
        if self.lives.missing_of_stamped(spec, pod):
            return True
        if not excuses.is_forged(self.books, spec):
            return False
        # Without a stated minimum, a forged stamp counts for as many members as exist.
        counts_for_all = self.books.minimum(spec) is None and bool(self.lives.candidates(spec))
        return counts_for_all or bool(self.lives.missing(spec, pod))

    def _lacks(self, spec: GangSpec) -> int:
        """Return how many members a gang waits for, as far as a scheduler knows."""
        # A gang whose PodGroup is deleted still waits for the stamped minimum of its bound members.
        lacks = max(self.lives.missing_of_stamped(spec), self.lives.missing(spec))
        if self.books.minimum(spec) is None and any(self.books.minima_since(spec, self.books.clock() - DELETION_SECONDS)):
            lacks = max(lacks, *(last - len(self.lives.bound(spec)) - self.lives.succeeded(spec) for last in self.books.last_minimum(spec)))
        return lacks

    def _has_helped(self, spec: GangSpec) -> bool:
        """Return whether another gang has become whole since a gang was last released for others."""
        return any(
            self.lives.of(other).whole_since >= self._released_at[spec]
            for other in self.books.gangs
            if self.lives.bound(other) and not self.lives.missing(other)
        )

    def _released_around(self, at: float, within: float = _SETTLED_SECONDS) -> set[GangSpec]:
        """Return the gangs that were released for others within ``within`` seconds of ``at``."""
        return {spec for spec, when in self._released_at.items() if abs(at - when) < within}

    def _needed_by(self, question: _Question) -> set[GangSpec]:
        """Return the waiting gangs that fit once all gangs released together are gone, and not without this one's capacity."""
        # Other gangs may be released a moment later, for another gang.
        beside = [self._released_around(question.at, within) for within in (_SETTLED_SECONDS, _AT_ONCE_SECONDS)]
        # One of several gangs that are released together may turn out not to be releasable. That doesn't excuse a release if another gang
        # was just released for the same reason.
        before = [spec for spec, when in self._released_at.items() if _AT_ONCE_SECONDS <= question.at - when < _AWAITED_SECONDS]
        kept = {spec for spec, when in self._failed_at.items() if abs(question.at - when) < _SETTLED_SECONDS}
        if all(spec not in self._released_for or self._released_for[spec] - kept - {question.spec} for spec in before):
            beside.append(beside[-1] | kept)
        return set[GangSpec]().union(*(self._needed_beside(question, others - {question.spec}) for others in beside))

    def _needed_beside(self, question: _Question, together: set[GangSpec]) -> set[GangSpec]:
        victims = frozenset[str]().union(*(question.ever_bound[spec] for spec in together))
        ago = {uid: (spec, question.at - at) for uid, (spec, at) in self._released_pods.items()}
        leaving = []
        # A pod that was released long ago and still exists may be waited for, or no longer: then it counts as if it stayed.
        for seconds in (math.inf, min(self.timeout, _AWAITED_SECONDS) - 1):
            overdue = {uid for uid, (_, since) in ago.items() if since >= seconds}
            going = {uid for uid, (spec, since) in ago.items() if spec is not question.spec and -_AT_ONCE_SECONDS < since < seconds}
            leaving.append((question.ever_bound[question.spec] - overdue, (victims - overdue) | going))
        return {
            other
            for (other, wanted), (mine, gone) in itertools.product(question.waiting.items(), leaving)
            if other not in together and self._makes_the_difference(question, other, wanted, mine, gone)
        }

    def _makes_the_difference(
        self, question: _Question, other: GangSpec, wanted: tuple[Sequence[Body], int], mine: frozenset[str], gone: frozenset[str]
    ) -> bool:
        """Return whether ``other`` fits once the pods ``gone`` and ``mine`` are gone, and not with ``gone`` alone.

        ``mine`` are pods of the gang in question.
        """
        candidates, missing = wanted
        # Capacity was assumed for other gangs before the decision, or in the same moment.
        assumed = self._with_assumed(question.assigned, question.at, other)
        for assigned in (question.assigned, question.known, assumed, *([*question.assigned, *held] for held in question.held)):
            fits = [
                most_placeable(candidates, question.nodes, free_capacity(question.nodes, assigned, without), missing) >= missing
                for without in (mine | gone, gone)
            ]
            if fits == [True, False]:
                return True
        return False

    def _unfenced(self, process: str) -> list[Body]:
        """Return the pending pods that ``process`` couldn't write to, as if each were bound on every node: where they land isn't known."""
        written = [each for each in self.books.requests if each.process == process and each.plural == "pods" and each.verb == "patch"]
        failed = {(each.namespace, each.name) for each in written if each.is_struck and not each.is_carried_out}
        failed -= {(each.namespace, each.name) for each in written if each.is_carried_out}
        pods = [pod for pod in self.books.pods() if not node_of(pod) and (pod["metadata"]["namespace"], name_of(pod)) in failed]
        return [pod for node in self.books.nodes for pod in with_assignments(pods, dict.fromkeys(map(uid_of, pods), node))]

    def _in_dry_run(self, process: str) -> list[Body]:
        """Return pending pods of gangs for which ``process`` waits for the answer to a bind or dry run, as if bound on its node.

        All pending members count, since one member may be dry-run for all that are alike.
        """
        now, pods = self.books.clock(), dict[str, Body]()
        for each in self.books.requests:
            if each.verb == "bind" and each.process == process and each.sent < now <= min(each.answered or now, each.abandoned or now):
                for gang in self.books.gangs:
                    if self.books.is_of(each, gang):
                        targets = dict.fromkeys(map(uid_of, self.lives.candidates(gang)), each.target)
                        pods |= {uid_of(pod): pod for pod in with_assignments(self.lives.candidates(gang), targets)}
        return list(pods.values())

    def _with_assumed(self, assigned: Sequence[Body], at: float, but: GangSpec) -> list[Body]:
        """Return the pods ``assigned``, as if pods of other gangs than ``but`` had the nodes to which they were sent around ``at``.

        Dry runs count as well as binds: capacity was assumed for them.
        """
        soon = {
            str(each.metadata.get("uid")): each.target
            for each in self.books.requests
            if each.verb == "bind" and abs(each.sent - at) < 2 * _SETTLED_SECONDS and not self.books.is_of(each, but)
        }
        return with_assignments(assigned, soon)

    def _is_given_up(self, spec: GangSpec, request: Request) -> bool:
        """Return whether a gang that was whole asks to be released, and its time-out has passed."""
        since = self.lives.of(spec).open_since
        return spec.gives_up and since is not None and request.sent - since >= self.timeout - 1

    def _was_whole(self, spec: GangSpec, request: Request) -> bool:
        """Return whether a gang was whole for longer than a moment, and not by an edit that the sender of ``request`` can't have known."""
        life = self.lives.of(spec)
        if not life.was_whole or (life.open_since or self.books.clock()) - life.whole_since < MOMENT_SECONDS:
            return False
        on_their_way = [
            (each.sent, each.answered or self.books.clock())
            for each in self.books.struck
            if each.is_bind and each.process == request.process and self.books.is_of(each, spec)
        ]
        if all(any(sent <= when <= until for sent, until in on_their_way) for when in (life.whole_since, life.open_since or request.sent)):
            return False  # it was whole only while its binds had no answer
        return not (self._is_edited(spec, request) and life.whole_since > request.sent - self._edit_window(spec))

    def _judge_waiting(self, spec: GangSpec, pod: Body, request: Request) -> None:
        """Check that a member that hasn't started is released only if a bind was refused, the time is over, or capacity is missing."""
        life = self.lives.of(spec)
        since = life.open_since if life.open_since is not None else request.sent
        # Binds that had no answer and land late belong to a commit whose time has run since they were sent.
        late = [
            each.sent
            for each in self.books.binds_since(request.sent - IN_FLIGHT_SECONDS)
            if each.is_struck and each.abandoned and self.books.is_of(each, spec)
        ]
        since = min([since, *late])
        if self._refused.get(spec, 0.0) >= since - _COMMIT_SECONDS or request.sent - since >= FORWARD_SECONDS - 0.1:
            return
        if self.books.quiet_elsewhere(spec) < _SETTLED_SECONDS:
            return  # what the scheduler knows of the free capacity may be as old
        assigned = {uid_of(each): each for each in self.books.holding_capacity(spec)} | {uid_of(pod): pod}
        taken = self._with_assumed(list(assigned.values()), request.sent, spec)
        # If the minimum was raised, the gang needs the raised one.
        free, missing = free_capacity(self.books.nodes, taken), max(self.lives.missing_of_stamped(spec, pod), self.lives.missing(spec, pod))
        if self.lives.fits(spec, free, missing) and not self.preempting.reserving.may_be_kept_from(spec):
            self.accuse("forward", f"pod {name_of(pod)} of {spec.name} was released, although its missing members had capacity and time")

    def _is_edited(self, spec: GangSpec, request: Request) -> bool:
        """Return whether the gang's minimum was just edited: the request may rest on the state before."""
        return self.books.was_done(spec, EDITS, request.sent - self._edit_window(spec))

    def _edit_window(self, spec: GangSpec) -> float:
        return HELD_SECONDS if excuses.struck_since(self.books, spec) > self.books.clock() - HELD_SECONDS else EDIT_SECONDS


def _is_labelled(job: Body) -> bool:
    return SUSPENDED in (job["metadata"].get("labels") or {})


def _preconditions_of(request: Request) -> set[str]:
    body = request.body
    options = body.get("deleteOptions") if request.verb == "evict" else body
    found = (options or {}).get("preconditions") or {}
    return {field for field, value in found.items() if value}
