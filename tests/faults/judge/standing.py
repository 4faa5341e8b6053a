"""Checks the state of every gang again and again: whole, absent, or partially bound with an excuse that cites its cause."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.faults.gangs import EPOCH, GangSpec

from . import excuses
from .books import IN_FLIGHT_SECONDS, NEWS_SECONDS, Books
from .entries import Request
from .facts import Body, demand_of, free_capacity, most_placeable, name_of, phase_of, refusal, uid_of
from .lives import Lives
from .reserving import Reserving

GRACE_SECONDS = 1.0
"""Seconds that a gang may be partially bound while its members are bound one after the other."""
RESOLVE_SECONDS = 25.0
"""Seconds without faults after which a partially bound gang is finished or released, and a gang that fits is placed.

They cover 5 s for finishing, pauses of 10 s, and the searches.
"""
FORWARD_SECONDS = 5.0
"""Seconds for which capacity may be sought for the missing members of a partially bound gang."""
_TRIES = 8
"""The number of tries of a bind that gets no answer: four in one attempt, and four in the next."""
DEAD_WATCH_SECONDS = 15.0
"""Seconds after which a dead watch is replaced. If watches were refused, four times as long at most, since pauses between tries grow."""
_BEFORE_SECONDS = 0.5
_RESYNC_SECONDS = 90.0
_REPEATED_SECONDS = 90.0 + 300.0
"""Seconds within which a leader corrects a pod's message that an earlier leader has overwritten: at the next attempt after 90 s."""
_MESSAGE_SECONDS = 5.0
"""Age in seconds that the facts of a message may have: messages wait while there is other work."""
_FIT_ERROR = re.compile(r"(?:(\d+) of (\d+) members placeable.*?)?0/(\d+) nodes are available(?:: (.*?)\.)?(?: |$)", re.DOTALL)
_EARLIER_RUN = "waiting for an earlier run of this gang"
_COUNTED = re.compile(r"(\d+) (.+)")


@dataclass(slots=True)
class Standing:
    """Checks all gangs. ``leads`` returns when the present scheduler began to lead, None while none leads."""

    books: Books
    lives: Lives
    accuse: Callable[[str, str], None]
    timeout: float
    leads: Callable[[], float | None]
    leading_process: Callable[[], str]
    reserving: Reserving
    shows_conditions: bool = True
    excuses: dict[GangSpec, str] = field(default_factory=dict)
    """The reasons why gangs may be partially bound, as of the last check."""

    def check_now(self) -> None:
        """Judge the present state of every gang."""
        self.excuses.clear()
        now, leading = self.books.clock(), self.leads()
        for spec in self.books.gangs:
            life = self.lives.of(spec)
            if life.open_since is not None and now - life.open_since > GRACE_SECONDS:
                self._judge_open(spec)
            if leading is None or now - max(leading, self.books.moved) < RESOLVE_SECONDS:
                continue
            if now - excuses.quiet_since(self.books, spec) >= RESOLVE_SECONDS:
                self._judge_idle(spec)
                self._judge_surplus(spec)
                self._judge_status(spec)
        self._check_watches()

    def _judge_open(self, spec: GangSpec) -> None:
        """Check that a partially bound gang has a cause, and isn't partially bound for longer than it must be."""
        life, now = self.lives.of(spec), self.books.clock()
        assert life.open_since is not None
        if not life.cause:
            life.cause = next(excuses.causes(self.books, life.open_since - _BEFORE_SECONDS, life.open_since + GRACE_SECONDS, spec), "")
        bound, missing_of_stamped = self.lives.bound(spec), self.lives.missing_of_stamped(spec)
        state = f"{spec.kind} gang {spec.name} is partially bound with {len(bound)} of {len(bound) + missing_of_stamped}"
        if not life.cause:
            self.accuse("open", f"{state}, and no fault or foreign action caused it")
            life.cause = "accused already"
            return
        self._judge_slow(spec, bound, state)
        leading = self.leads()
        # A gang that can be released isn't kept while binds of its members are refused, unless a tenant forged that it was whole.
        looks_whole = life.was_whole or excuses.is_forged(self.books, spec)
        is_undoable = spec.may_be_undone and not looks_whole and all(phase_of(pod) == "Pending" for pod in bound)
        quiet = excuses.quiet_since(self.books, spec, but_binds=is_undoable)
        rested = now - max(quiet, leading or now, life.open_since, self.books.moved)
        if rested < RESOLVE_SECONDS:
            self.excuses[spec] = f"a moment ago: {life.cause}"
            return
        self.excuses[spec] = self._excuse(spec, bound, missing_of_stamped)
        if not self.excuses[spec]:
            self.accuse("unresolved", f"{state} for {rested:.0f} s after all was quiet, since {life.cause}")
        elif (
            self.shows_conditions
            and not self._is_reported(spec)
            and not self._is_reported_later(spec)
            and not excuses.is_forged(self.books, spec)  # by a forged stamp, the scheduler counts other members as missing
        ):
            self.accuse("unreported", f"{state} and its status doesn't say so")

    def _judge_slow(self, spec: GangSpec, bound: list[Body], state: str) -> None:
        """Check that a gang that may be released is released once the time for finishing it is over, whatever else goes on."""
        life, leading = self.lives.of(spec), self.leads()
        if (
            leading is None
            or life.open_since is None
            or not spec.may_be_undone
            or life.was_whole
            or self.lives.may_look_whole(spec, leading)
        ):
            return
        if any(phase_of(pod) != "Pending" for pod in bound):
            return
        began, until = max(life.open_since, leading), life.open_since + FORWARD_SECONDS
        answered = max(began, self._answered(spec, life.open_since, until))
        if answered > until:  # there was no time for another try
            answered = max(answered, self._answered(spec, life.open_since, answered + FORWARD_SECONDS))
        since = answered + 2 * FORWARD_SECONDS  # the deadline is moved once
        if self.books.clock() - since < GRACE_SECONDS or excuses.is_disturbed(self.books, life.open_since - GRACE_SECONDS, spec):
            return
        if not any(
            request.sent > life.open_since and (request.verb in ("delete", "evict") and self.books.is_of(request, spec))
            for request in self.books.requests
        ):
            self.accuse("forward", f"{state} for {self.books.clock() - life.open_since:.0f} s, and its release hasn't begun")

    def _answered(self, spec: GangSpec, since: float, until: float) -> float:
        """Return when the last answer came to binds of a gang that were first sent before ``until``; 0.0 without any."""
        series: dict[tuple[str, str], list[Request]] = {}
        answers = [0.0]
        for request in self.books.requests:
            if not request.is_bind or not self.books.is_of(request, spec):
                continue
            tries = series.setdefault((str(request.metadata.get("uid")), request.target), [])
            is_made_again = 0 < len(tries) < _TRIES and not tries[-1].was_answered(since, request.sent)
            if is_made_again or request.sent < until:
                tries.append(request)
                answers.append(request.answered or self.books.clock())
        return max(answers)

    def _excuse(self, spec: GangSpec, bound: list[Body], missing_of_stamped: int) -> str:
        """Return the rule that keeps a gang partially bound when all has been quiet; empty without one."""
        life, waiting = self.lives.of(spec), self.lives.candidates(spec)
        free = free_capacity(self.books.nodes, self.books.holding_capacity(spec))
        missing = max(missing_of_stamped, self.lives.missing(spec))
        because = f", since {life.cause}"
        if self._has_no_minimum(spec) and excuses.is_forged(self.books, spec):
            return f"only a forged stamp states its minimum{because}"
        if self.reserving.may_be_kept_from(spec):
            return f"capacity may be reserved for other gangs{because}"
        if self._may_be_assumed(spec):
            return f"capacity may be assumed for other gangs{because}"
        if len(waiting) >= missing and self.lives.has_pods(spec) and self.lives.fits(spec, free, missing):
            return ""  # the missing members could be bound
        replaces = life.was_whole and waiting and not spec.least and not self.lives.has_pods(spec)
        if replaces and self.lives.placeable(spec, free, len(waiting)) == len(waiting):
            return ""  # the run was whole and has fewer replacements than lost members: those are bound together
        if not spec.may_be_undone and not (spec.kind == "job" and spec.suspends):
            return f"its members can't be recreated{because}"
        if spec.gives_up:
            return "" if self._is_over(spec) else f"its time-out hasn't passed{because}"
        if life.was_whole:
            return f"it was whole{because}"
        if excuses.is_forged(self.books, spec):
            return f"its tenant has forged its history{because}"
        if self.lives.may_look_whole(spec, self.leads()):
            return f"whether it was whole isn't known, since members went while no scheduler led{because}"
        if any(phase_of(pod) == "Running" for pod in bound):
            return "" if self._blocked_by(spec) else f"members run, and no gang waits for their capacity{because}"
        if not spec.may_be_undone and not self._is_over(spec):
            return f"the time-out after which its Job may be suspended hasn't passed{because}"
        return ""

    def _is_over(self, spec: GangSpec) -> bool:
        """Return whether the gang's time-out, and then the time that a release takes, have passed since the last fault."""
        life, now, leading = self.lives.of(spec), self.books.clock(), self.leads()
        return now - max(life.open_since or now, leading or now, excuses.quiet_since(self.books, spec)) >= self.timeout + RESOLVE_SECONDS

    def _blocked_by(self, spec: GangSpec) -> bool:
        """Return whether another gang fits only with the capacity of a partially bound gang whose time-out has passed."""
        life, now, leading = self.lives.of(spec), self.books.clock(), self.leads()
        since = max(life.open_since or now, leading or now, excuses.quiet_since(self.books, spec))
        if not self._is_over(spec):
            return False
        mine = [uid_of(pod) for pod in self.lives.bound(spec)]
        for other in self.books.gangs:
            missing, waiting = self.lives.missing(other), self.lives.candidates(other)
            if (
                other is spec
                or not missing
                or not self.lives.has_pods(other)
                or self._has_no_minimum(other)
                or other.priority < spec.priority
            ):
                continue
            if max(self.books.created_at[uid_of(pod)] for pod in waiting) > since:
                continue
            if self.lives.bound(other) and not self.lives.ranks_before(other, spec):
                continue  # of two partially bound gangs the later one is released
            assigned = self.books.holding_capacity(other)
            # Capacity that is assumed for a third gang may be returned again and again. Then this gang doesn't block the other.
            without = free_capacity(self.books.nodes, list(self.books.pods()))
            if other.least or other.percent or most_placeable(waiting, self.books.nodes, without, missing) >= missing:
                continue
            if self.lives.fits(other, free_capacity(self.books.nodes, assigned, mine)):
                return True
        return False

    def _lacks_volumes(self, pods: list[Body]) -> bool:
        """Return whether a claim of one of ``pods`` has no volume, or got it a moment ago."""
        if self.books.clock() < self.books.claims_changed_at + NEWS_SECONDS:
            return True
        claims = self.books.objects.get("persistentvolumeclaims", {})
        keys = [(pod["metadata"]["namespace"], f"data-{name_of(pod)}") for pod in pods]
        return any((claims.get(key, {}).get("status") or {}).get("phase") != "Bound" for key in keys)

    def _judge_idle(self, spec: GangSpec) -> None:
        """Check that no gang waits that fits, and that the messages of waiting pods are true."""
        missing, waiting = self.lives.missing(spec), self.lives.candidates(spec)
        if (
            not missing
            or not self.lives.has_pods(spec)
            or self._has_no_minimum(spec)
            or self.lives.bound(spec)
            or self._may_be_assumed(spec)
            or (spec.storage_class and self._lacks_volumes(waiting))
        ):
            return
        free = free_capacity(self.books.nodes, self.books.holding_capacity(spec))
        if self._waits_for_another_run(spec) or self.books.asks_for_more_than_jobs_make(spec):
            return
        if self.lives.fits(spec, free) and self.reserving.may_be_kept_from(spec):
            return
        if self.lives.fits(spec, free):
            self.accuse("idle", f"{spec.kind} gang {spec.name} of {missing} waits, although it fits and all has been quiet")
            return
        if not spec.least and most_placeable(waiting, self.books.nodes, free, missing) >= missing:
            return
        replaces = self.lives.replaceable(spec) > 0 and any(_FIT_ERROR.search(message_of(pod)) for pod in waiting)
        for pod in waiting:
            about = self.books.requests_about("pods", name_of(pod))
            reports = [each for each in about if each.verb == "patch" and each.namespace == spec.namespace]
            is_struck = any(each.is_struck for each in reports)
            if (
                not is_struck
                and not self._came_late(reports, _REPEATED_SECONDS)
                and not _FIT_ERROR.search(message_of(pod))
                and not (replaces and _EARLIER_RUN in message_of(pod))  # this pod belongs to the wave after that of a pod that replaces
                and self.books.nodes
            ):
                self.accuse("reason", f"pod {name_of(pod)} waits, since it doesn't fit, and its message is {message_of(pod)!r}")
                return

    def _waits_for_another_run(self, spec: GangSpec) -> bool:
        """Return whether an earlier submission under the gang's name waits: it is attempted before the later one."""
        earlier = (
            each
            for each in self.books.gangs
            if (each.namespace, each.name) == (spec.namespace, spec.name) and each.submission < spec.submission
        )
        return any(self.lives.candidates(each) and self.lives.missing(each) and self.lives.has_pods(each) for each in earlier)

    def _judge_surplus(self, spec: GangSpec) -> None:
        """Check that a pod that joins a whole gang is bound as soon as it fits."""
        waiting = self.lives.candidates(spec)
        if (
            not waiting
            or not self.lives.bound(spec)
            or self.lives.missing(spec)
            or self._has_no_minimum(spec)
            or self._may_be_assumed(spec)
        ):
            return
        if self.lives.succeeded(spec) or self.lives.losses_since(spec, self.books.clock() - 4 * RESOLVE_SECONDS):
            return  # they are the next wave, of which all are bound or none, or the gang pauses after losses
        free = free_capacity(self.books.nodes, self.books.holding_capacity(spec))
        if self.lives.placeable(spec, free, 1) and not self.reserving.may_be_kept_from(spec):
            self.accuse("idle", f"{len(waiting)} pods of {spec.name}, which is whole, wait although one fits and all has been quiet")

    def _may_be_assumed(self, spec: GangSpec) -> bool:
        """Return whether capacity may be assumed for other gangs, because answers to their binds were slow or missing.

        Also true while an earlier leader's binds may land on unknown nodes, or while pods of other gangs can't be fenced.
        """
        now, leading = self.books.clock(), self.leads() or 0.0
        if now - leading < IN_FLIGHT_SECONDS + RESOLVE_SECONDS and any(
            request.verb == "patch" and EPOCH in (request.metadata.get("annotations") or {})
            for request in self.books.struck
            if request.sent > leading - RESOLVE_SECONDS
        ):
            return True
        binds = [each for each in self.books.struck if each.verb == "bind" and not self.books.is_of(each, spec)]
        if any((each.answered or now) > max(now - RESOLVE_SECONDS, each.sent + GRACE_SECONDS) for each in binds):
            return True
        # Pods of other gangs whose binds had no answer can't be fenced while the fencing writes fail.
        doubtful = {(each.namespace, each.name) for each in binds if each.is_bind and each.sent > now - IN_FLIGHT_SECONDS - RESOLVE_SECONDS}
        return any(
            each.verb == "patch" and each.sent > now - RESOLVE_SECONDS and (each.namespace, each.name) in doubtful
            for each in self.books.struck
            if EPOCH in (each.metadata.get("annotations") or {})
        )

    def _judge_status(self, spec: GangSpec) -> None:
        """Check that the status of a PodGroup is true, its counts above all."""
        group = self.books.get("podgroups", spec.namespace, spec.name)
        if group is None or excuses.is_forged(self.books, spec) or self.books.is_shared(spec):
            return  # the status covers several submissions together
        if any(each.verb != "create" for each in self._failed_reports(spec)) or self._is_overwritten(spec):
            return
        status, alive = group.get("status") or {}, self.lives.alive(spec)
        if not self.books.members(spec):
            return  # the present leader can't know whose PodGroup it was
        if self.books.clock() - self.books.minima[spec.namespace, spec.name][-1][0] < GRACE_SECONDS:
            return  # the PodGroup is new, or states another minimum
        jobs = self.books.objects.get("jobs", {}).values()
        if any(job["spec"].get("suspend") and name_of(job).startswith(spec.name) for job in jobs):
            return  # the scheduler waits for the Job's pods to go
        counts = {"scheduled": len(self.lives.bound(spec)), "running": sum(phase_of(pod) == "Running" for pod in alive)}
        for phase in ("Succeeded", "Failed"):
            counts[phase.lower()] = sum(phase_of(pod) == phase for pod in self.books.members(spec))
        for field_name, count in counts.items():
            if status.get(field_name, 0) != count:
                self.accuse("status", f"podgroup {spec.name} says {status.get(field_name, 0)} of its members are {field_name}: {count} are")
        is_open = bool(self.lives.bound(spec)) and self.lives.missing(spec) > 0
        is_short = self.books.asks_for_more_than_jobs_make(spec)  # so members that no Job makes are missing
        if self.shows_conditions and not is_short and self._reports_partially_bound(group) != is_open:
            self.accuse(
                "status",
                f"podgroup {spec.name} says that it is {'not ' if is_open else ''}partially bound, which it is{'' if is_open else 'n’t'}",
            )

    def _check_watches(self) -> None:
        """Check that a dead watch is replaced within seconds."""
        now, leading, process = self.books.clock(), self.leads(), self.leading_process()
        if leading is None or not process or excuses.is_cut_off(self.books, now - 4 * DEAD_WATCH_SECONDS, process):
            return
        for plural in ("pods", "nodes"):
            last_contact = self.books.news.last_contact.get((process, plural), now)
            if now - max(last_contact, leading) > DEAD_WATCH_SECONDS:
                self.accuse("stale", f"the watch of {plural} has been silent for {now - last_contact:.0f} s, and wasn't replaced")

    def check_message(self, pod: Body, before: Body | None, request: Request) -> None:
        """Check that a message to a pod is true of the state that lasted for a while before it was sent."""
        spec, message = self.books.gang_of(pod), message_of(pod)
        found = _FIT_ERROR.search(message)
        is_news = before is None or message_of(before) != message
        if spec is None or spec.percent or found is None or not is_news or request.sent - self.books.free_changed < _MESSAGE_SECONDS:
            return
        if excuses.are_events_late(self.books) or excuses.was_still(self.books, request.process, request.sent - _MESSAGE_SECONDS):
            return
        nodes, waiting, bound = self.books.nodes, self.lives.candidates(spec), self.lives.bound(spec)
        named = re.search(r"; pod (\S+): 0/", message)  # of several roles, the message names a pod of the one that is hardest to place
        about = self.books.get("pods", spec.namespace, named[1]) if named else pod
        wrong = "" if spec.shares_rack else self._error_in(about or pod, found[4] or "", int(found[3]))
        succeeded = self.lives.succeeded(spec) or self.lives.succeeded_before(spec)
        most = len(bound) + succeeded + most_placeable(waiting, nodes, free_capacity(nodes, list(self.books.pods())))
        if found[1] is not None and not 0 <= int(found[1]) <= most:
            wrong = wrong or f"at most {most} members can be placed"
        if wrong:
            self.accuse("reason", f"pod {name_of(pod)} has the message {message!r}: {wrong}")

    def _error_in(self, pod: Body, reasons: str, total: int) -> str:
        """Return what is wrong with the counts of nodes by reason; empty if nothing is."""
        nodes = self.books.nodes
        if total != len(nodes):
            return f"there are {len(nodes)} nodes"
        refusals = [refusal(node, pod) for node in nodes.values()]
        asked = demand_of(pod)
        counted = 0
        cordoned = sum(bool((node.get("spec") or {}).get("unschedulable")) for node in nodes.values())
        for part in filter(None, reasons.split(", ")):
            found = _COUNTED.fullmatch(part)
            if found is None:
                return f"{part!r} has no count"
            count, reason = int(found[1]), found[2]
            counted += count
            if reason.startswith("Insufficient ") and reason.removeprefix("Insufficient ") not in asked:
                return f"the pod doesn't request {reason.removeprefix('Insufficient ')}"
            if "unschedulable" in reason and not sum(each == "is cordoned" for each in refusals) <= count <= cordoned:
                return f"{cordoned} nodes are cordoned"
            if reason.startswith("Insufficient ") and count > sum(not each for each in refusals):
                return f"only {sum(not each for each in refusals)} nodes admit the pod"
        return "" if counted >= len(nodes) else f"{len(nodes) - counted} nodes aren't mentioned"

    def _has_no_minimum(self, spec: GangSpec) -> bool:
        """Return whether a gang may not be scheduled because no object states its minimum."""
        return self.books.minimum(spec) is None

    def _is_reported(self, spec: GangSpec) -> bool:
        group = self.books.get("podgroups", spec.namespace, spec.name)
        if group is None:
            return spec.has_group  # the PodGroup is deleted, so there is no status to write
        return self._reports_partially_bound(group)

    def _is_reported_later(self, spec: GangSpec) -> bool:
        """Return whether a fault has kept a scheduler from reporting the state of a gang; the next resync reports it."""
        since = self.books.clock() - _RESYNC_SECONDS
        if self.books.was_done(spec, ("the PodGroup is deleted",), since):
            return True  # the scheduler may not have received that
        return any((each.answered or since) >= since for each in self._failed_reports(spec))

    def _is_overwritten(self, spec: GangSpec) -> bool:
        """Return whether an earlier leader's status came late, and the present leader hasn't resynced since."""
        about = [each for each in self.books.requests_about("podgroups", spec.name) if each.status == 200]
        return self._came_late(about, _RESYNC_SECONDS)

    def _came_late(self, reports: Sequence[Request], seconds: float) -> bool:
        """Return whether an earlier leader sent the last report, less than ``seconds`` ago. Later the present leader must have reported."""
        last = max(reports, key=lambda each: each.answered or 0.0, default=None)
        return last is not None and last.process != self.leading_process() and self.books.clock() - (last.answered or 0.0) < seconds

    def _failed_reports(self, spec: GangSpec) -> Iterator[Request]:
        """Yield the requests about a gang's PodGroup that a fault has hit."""
        return (each for each in self.books.struck if each.plural == "podgroups" and each.name == spec.name)

    @staticmethod
    def _reports_partially_bound(group: Body) -> bool:
        conditions = (group.get("status") or {}).get("conditions") or ()
        return any(each["type"] == "PartiallyBound" and each["status"] == "True" for each in conditions)


def message_of(pod: Body) -> str:
    """Return the message of a pod's PodScheduled condition, empty without one."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(each.get("message") or "") for each in conditions if each.get("type") == "PodScheduled"), "")
