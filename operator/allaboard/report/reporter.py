"""Reports the result of each attempt: on pods by events and conditions, on the PodGroup by its status, to operators by log and metrics."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from allaboard.binding import reasons
from allaboard.binding.outcomes import Committed, Refused
from allaboard.binding.reasons import Reason
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod, by_age
from allaboard.model.reasons import Code
from allaboard.model.times import api_time, parse_time
from allaboard.placement import SearchReport
from allaboard.records.record import GangRecords, Wait
from allaboard.records.report_state import GangStatus
from allaboard.records.waiting import WaitClock
from allaboard.report import messages
from allaboard.report.changes import ChangeReporter, reference_of
from allaboard.report.events import EventRecorder
from allaboard.report.metrics import Metrics
from allaboard.report.podgroup_writer import PodGroupWriter
from allaboard.report.pods import PodReporter
from allaboard.report.waiting import Waiting, waiting_of

logger = logging.getLogger(__name__)
decisions = logging.getLogger("allaboard.decisions")

_NEW_MESSAGE_SECONDS = 60.0  # least time between reports of a strategy's failure in different words.
_AWAITED_SECONDS = 2.0  # most gangs' pods are created within this time; until then no pod is reported to wait for others.
_AWAITED_AGAIN_SECONDS = 10.0  # least time between two reports of a changed number of members to the gang's pods.


@dataclass(frozen=True, slots=True)
class ReportedWait:
    """The report on a waiting gang: its ``message``, empty if only surplus members of a whole gang wait.

    ``to_advise``: the message for which advice is to be computed; empty if none is. ``next_seconds``: seconds until the next report is due;
    None if no report is due.
    """

    message: str = ""
    to_advise: str = ""
    next_seconds: float | None = None


class Reporter:
    """Makes all reports on gangs, so that the reports on pods, PodGroups and gangs agree."""

    def __init__(
        self,
        events: EventRecorder,
        pods: PodReporter,
        podgroup_writer: PodGroupWriter,
        records: GangRecords,
        waits: WaitClock,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._events = events
        self._pods = pods
        self._podgroups = podgroup_writer
        self._records = records
        self._waits = waits
        self._metrics = metrics
        self._changes = ChangeReporter(events, records)
        self._clock = clock
        self._now = now

    def repeat(self) -> None:
        """Report on each pod again at its gang's next attempt: a late report of an earlier leader may have replaced ours."""
        self._pods.repeat()

    def report_wait(self, gang: Gang, because: Reason, seconds: float) -> ReportedWait:
        """Report why a gang waits, after an attempt that took ``seconds``."""
        if isinstance(because, reasons.NoCapacity) and because.cause is None:
            self._report_surplus(gang, messages.surplus_refusals(because.plan))
            self.unchanged(gang)
            return ReportedWait()
        if not (isinstance(because, reasons.NoCapacity) and because.reservation and because.reservation.victims):
            self._pods.nominate(gang.candidates, lambda pod: "")  # no node is kept for the gang any longer
        record = self._records.of(gang.key)
        waiting = waiting_of(gang, because, advice=record.advice)
        is_for_pods = waiting.code is Code.WAITING
        if is_for_pods and not self._reports_to_pods(gang, waiting.message):
            waiting = replace(waiting, of_pods={}, has_event=False)
        self._publish(gang, waiting, seconds)
        return ReportedWait(waiting.message, waiting.to_advise, self._next_seconds(gang, waiting.message) if is_for_pods else None)

    def _reports_to_pods(self, gang: Gang, message: str) -> bool:
        """Return whether the gang's pods get a report now on the members that are missing, and record that report.

        The PodGroup shows the number of members at once. Pods and events show the number after 2 s, since most pods are created sooner.
        """
        wait, now = self._waits.of(gang, is_for_pods=True), self._clock()
        if now < wait.since + _AWAITED_SECONDS:
            return False
        if wait.pods_report not in ("", message) and now < wait.pods_reported_at + _AWAITED_AGAIN_SECONDS:
            return False
        if wait.pods_report != message:
            wait.pods_report, wait.pods_reported_at = message, now
        return True

    def _next_seconds(self, gang: Gang, message: str) -> float | None:
        """Return the seconds until the next report on a gang that waits for pods; None if no report is due.

        A report is due at the gang's time-out, and when ``message``, which the PodGroup shows, may be reported to the pods as well.
        """
        wait, now = self._waits.of(gang, is_for_pods=True), self._clock()
        times = [] if wait.has_timed_out else [wait.since + gang.timeout_seconds]
        if now < wait.since + _AWAITED_SECONDS:
            times.append(wait.since + _AWAITED_SECONDS)
        elif wait.pods_report != message:
            times.append(wait.pods_reported_at + _AWAITED_AGAIN_SECONDS)
        return min(times) - now if times else None

    def _publish(self, gang: Gang, waiting: Waiting, seconds: float) -> None:
        """Report one reason to wait in all ways: on the pods and the PodGroup, by events and metrics, and in the log."""
        is_held, is_for_pods = waiting.code is Code.HELD, waiting.code is Code.WAITING
        if waiting.about is not None:
            self._events.warning(waiting.about, waiting.topic, "Scheduling", waiting.message)
        if waiting.over_limit:
            self._metrics.over_limit.labels(waiting.over_limit).inc()
        pods = [pod for pod in gang.candidates if pod.uid in waiting.of_pods]
        self._pods.report_wait(
            pods, lambda pod: waiting.of_pods[pod.uid], waiting.pod_reason, is_event=waiting.is_pod_event, is_low=is_for_pods
        )
        if waiting.is_of_gang:
            if not is_held:
                self._time_out_if_due(gang, self._waits.of(gang, is_for_pods=is_for_pods), waiting.message)
            self._report_reason(gang, waiting.code, waiting.message, waiting.short, waiting=waiting)
        if waiting.result:
            self._count(waiting.result, waiting.pods, seconds)
        if is_held:
            self._metrics.attempts.labels("error").inc()
        if waiting.outcome:
            self._log(gang, waiting.outcome, waiting.search, seconds if waiting.result else 0.0, waiting.message)

    def _report_reason(self, gang: Gang, code: Code, message: str, short: str = "", *, waiting: Waiting | None = None) -> None:
        """Report on the PodGroup why the gang waits, and by events if the reason is new; on the members as ``waiting`` says, if given."""
        expected = api_time(waiting.expected_start) if waiting and waiting.expected_start else ""
        self._set_status(gang, code, message, short, expected)
        if waiting is None:
            self._changes.report_wait(gang, code, message)
        elif waiting.has_event:
            of_pods = waiting.of_pods
            topic = f"{code}: {waiting.topic}" if code is Code.HELD else waiting.topic
            self._changes.report_wait(
                gang, topic, message, gang.candidates, lambda pod: of_pods.get(pod.uid, message), reported=waiting.about
            )

    def waits_behind(self, gang: Gang) -> None:
        """Report on the pods of later runs of the gang that they wait for the current run."""
        # An older run that was deferred keeps its own reason: it doesn't wait for the current, younger run.
        first = min(map(by_age, gang.members))
        later = [pod for pod in gang.others if pod.is_candidate and by_age(pod) > first]
        message = f"podgroup {gang.key}: waiting for an earlier run of this gang, that of pod {gang.members[0].name}"
        self._pods.report_wait(later, lambda pod: message, Code.WAITING, is_event=False, is_low=True)

    def advised(self, gang: Gang, message: str, advised: str) -> None:
        """Replace ``message`` by ``advised``, the same refusal with advice, if ``message`` is the last report on the gang."""
        opinion = self._podgroups.opinion(gang.key)
        if opinion is not None and opinion.message == message:
            self._podgroups.report(gang, replace(opinion, message=advised))

    def strategy_failed(self, gang: Gang, message: str) -> None:
        """Report that the gang's strategy has failed, and the default one has placed the gang. New messages are reported once a minute."""
        state, about = self._records.report_state(gang.key), reference_of(gang)
        before = state.strategy
        if before is not None and before[0] != message and self._clock() - before[1] < _NEW_MESSAGE_SECONDS:
            return
        if before is None or before[0] != message:
            logger.warning("gang %s: %s", gang.key, message)
        state.strategy = (message, self._clock())
        if about is not None:
            self._events.warning(about, "StrategyFailed", "Scheduling", message)

    def _report_surplus(self, gang: Gang, messages: Mapping[str, str]) -> None:
        """Report on members beyond a whole gang's minimum why there is no capacity for them; ``messages`` are by UID."""
        refused = [pod for pod in gang.candidates if pod.uid in messages]
        self._pods.report_wait(refused, lambda pod: messages[pod.uid], is_event=True)
        self._metrics.pods_scheduled.labels("unschedulable").inc(len(messages))

    def mark_being_bound(self, gang: Gang) -> None:
        """Record that members are about to be bound, so that the gang isn't reported as partially bound meanwhile."""
        self._podgroups.mark_being_bound(gang)

    def report_bound(
        self, gang: Gang, outcome: Committed, report: SearchReport, seconds: float, surplus: Mapping[str, str] | None = None
    ) -> None:
        """Report that members were bound; the gang is whole unless members are missing.

        ``surplus``: why there is no capacity for members beyond the minimum, by UID.
        """
        nodes = {each.pod.uid: each.node_name for each in outcome.bound}
        self._pods.report_bound([each.pod for each in outcome.bound], lambda pod: nodes[pod.uid])
        problems = {each.pod.uid: messages.member_not_bound(each, reply) for each, reply in (*outcome.failed, *outcome.dropped)}
        not_bound = [each.pod for each, _ in (*outcome.failed, *outcome.dropped)]
        self._pods.report_wait(not_bound, lambda pod: problems[pod.uid], "SchedulerError", is_event=True)
        self._count("error" if outcome.missing else "scheduled", len(outcome.bound), seconds)
        total = len(gang.bound) + len(outcome.bound)
        if outcome.missing:
            text = f"{total} of {gang.quorum} members bound, {outcome.missing} missing: {messages.not_bound(outcome)}"
            self._report_reason(gang, Code.RETRYING, text)
            self._log(gang, "open", report, seconds, text, outcome.missing)
            return
        if gang.missing:
            before = self._podgroups.opinion(gang.key)
            expected = parse_time(before.expected_start) if before and before.expected_start else None
            waited = self._clock() - self._waits.of(gang).since
            self._metrics.started(total, waited, None if expected is None else self._now() - expected)
        self._set_status(gang, Code.SCHEDULED, messages.members_bound(total), is_being_bound=True)
        self._changes.report_scheduled(gang, messages.members_bound(total))
        self._waits.end(gang.key)
        self._log(gang, "bound", report, seconds, "", missing=0)
        if surplus:
            self._report_surplus(gang, surplus)

    def committed(self, outcome: Committed | Refused, result: str) -> None:
        """Count a transaction by its ``result``, and its binds by their results."""
        if isinstance(outcome, Committed):
            for _, each in outcome.failed:
                self._metrics.binds.labels(each.result).inc()
            self._metrics.binds.labels("bound").inc(len(outcome.bound))
        self._metrics.transactions.labels(result).inc()

    def report_release(self, gang: Gang, released: Sequence[Pod], because: Reason, kept: reasons.Kept | None) -> None:
        """Report that bound members were released ``because`` of a reason, and why further members are ``kept``; None if none are."""
        before, message = self._podgroups.opinion(gang.key), messages.why(gang, because)
        if released:
            self._metrics.transactions.labels("undone").inc()
            self._metrics.releases.inc(len(released))
            self._pods.report_released(released, f"released: {message}")
            text = f"undone, released {', '.join(pod.name for pod in released)}: {message}"
            self._report_reason(gang, Code.RETRYING, text)
            self._log(gang, "undone", None, 0.0, text)
        if kept is not None:
            code = before.code if before and before.code.is_waiting and not released else Code.RETRYING
            self._report_kept(gang, code, messages.why(gang, kept))

    def report_preempting(self, gang: Gang, nodes: Mapping[str, str]) -> None:
        """Report that pods were evicted for ``gang``. ``nodes`` are the nodes that are kept for its members, by UID."""
        self._metrics.preemptions.inc()
        self._pods.nominate(gang.candidates, lambda pod: nodes.get(pod.uid, ""))

    def report_preempted(self, gang: Gang, pods: Sequence[Pod], because: reasons.Preempted) -> None:
        """Report that ``pods`` of ``gang`` are evicted for a gang of higher priority."""
        message = messages.why(gang, because)
        self._metrics.victims.inc(len(pods))
        self._pods.report_preempted(pods, message)
        if (about := reference_of(gang)) is not None and not gang.is_single:
            self._events.warning(about, "Preempted", "Preempting", message)
        self._log(gang, "preempted", None, 0.0, message)

    def report_progress(self, gang: Gang, because: reasons.NoCapacity) -> None:
        """Report again why a gang waits, now that an autoscaler was asked for its nodes. The attempt was reported and counted before."""
        waiting = waiting_of(gang, because, advice=self._records.of(gang.key).advice)
        self._publish(gang, replace(waiting, result="", outcome=""), 0.0)

    def report_given_up(self, gang: Gang, message: str) -> None:
        """Report that the request for the gang's nodes was given up."""
        logger.info("gang %s: %s", gang.key, message)
        if (about := reference_of(gang)) is not None:
            self._events.warning(about, "ProvisioningGivenUp", "Scheduling", message)

    def _report_kept(self, gang: Gang, code: Code, message: str) -> None:
        if (about := reference_of(gang)) is not None:
            self._events.warning(about, "KeptOpen", "Binding", message)
        self._report_reason(gang, code, message, waiting=Waiting(code, message, {}, code, ""))

    def unchanged(self, gang: Gang) -> None:
        """Update the report on a gang about which nothing was decided: its counts or its last message may be out of date."""
        before = self._podgroups.opinion(gang.key)
        if gang.is_whole and gang.bound:
            message = messages.members_bound(len(gang.bound))
            if before is None or before.code is not Code.SCHEDULED or before.message != message:
                self._set_status(gang, Code.SCHEDULED, message)
                self._changes.report_scheduled(gang, message)
                self._waits.end(gang.key)
                return
        elif not gang.alive_in_all_runs and not gang.is_single:
            self._report_ended(gang)
            return
        self._podgroups.report(gang)

    def _report_ended(self, gang: Gang) -> None:
        """Report how a gang has ended; or that it waits for pods, if its members were deleted before they succeeded or failed."""
        if not self._podgroups.is_known(gang):
            return
        ending = self._podgroups.ending(gang)
        self._waits.end(gang.key)
        if ending is not None:
            self._set_status(gang, Code.ENDED, messages.ended(ending))
            self._changes.record_end(gang)
        else:
            self._set_status(gang, Code.WAITING, messages.members_missing(gang), messages.members_missing_in_short(gang))

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Record whether a changed pod has succeeded or failed, and drop the reports on a pod that is deleted."""
        self._podgroups.observe_pod(old, new)
        if new is None and old is not None:
            self._pods.forget(old.uid)

    def _set_status(
        self, gang: Gang, code: Code, message: str, short: str = "", expected: str = "", *, is_being_bound: bool = False
    ) -> None:
        state = self._records.report_state(gang.key)
        wait, before = self._waits.find(gang.key), state.opinion
        opinion = GangStatus(
            code,
            message,
            short,
            expected,
            started=api_time(wait.started) if wait and not wait.is_for_pods else "",
            whole_since=api_time(self._now()) if code is Code.SCHEDULED else before.whole_since if before else "",
            has_timed_out=wait is not None and wait.has_timed_out and code.is_waiting,
            is_being_bound=is_being_bound,
        )
        self._podgroups.report(gang, opinion)

    def _time_out_if_due(self, gang: Gang, wait: Wait, message: str) -> None:
        """Report, once for each wait, that a gang waits longer than its time-out."""
        if wait.has_timed_out or self._clock() < wait.since + gang.timeout_seconds:
            return
        wait.has_timed_out = True
        if (about := reference_of(gang)) is not None:
            self._events.warning(about, "Timeout", "Scheduling", f"not scheduled within {gang.timeout_seconds} s: {message}")

    def _count(self, result: str, pods: int, seconds: float) -> None:
        self._metrics.attempts.labels(result).inc()
        self._metrics.pods_scheduled.labels(result).inc(pods)
        self._metrics.attempt_seconds.labels(result).observe(seconds)

    def _log(self, gang: Gang, outcome: str, report: SearchReport | None, seconds: float, reason: str, missing: int | None = None) -> None:
        """Log one line for an attempt at the gang. If outcome and reason are those of the gang's last line, the level is DEBUG."""
        facts: dict[str, object] = {
            "gang": str(gang.key),
            "outcome": outcome,
            "members": len(gang.alive),
            "minMember": gang.min_member,
            "missing": gang.missing if missing is None else missing,
        }
        if report is not None:
            facts |= {
                "generations": report.generations,
                "seedScore": round(report.seed_score, 3),
                "score": round(report.score, 3),
                "bestSeed": report.best_seed,
                "stoppedBy": report.stopped_by,
                "foundBy": report.found_by or "nobody",
                "steps": messages.steps(report),
            } | ({"wantedGenerations": report.wanted} if report.wanted else {})
        facts["durationMs"] = round(seconds * 1000, 1)
        if reason:
            facts["reason"] = reason
        state, entry = self._records.report_state(gang.key), f"{outcome} {reason}"
        level = logging.DEBUG if reason and state.logged == entry else logging.INFO
        state.logged = entry
        if not decisions.isEnabledFor(level):
            return
        line = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())
        decisions.log(level, "%s", line, extra={"decision": facts, "history": report.history if report else ()})


def _quoted(value: object) -> str:
    """Return ``value`` on one line, in quotes unless it is one word: text of a tenant or a webhook must not forge a line of the log."""
    text = str(value)
    return text if text.isprintable() and not set(text) & {" ", '"'} else json.dumps(text, ensure_ascii=False)
