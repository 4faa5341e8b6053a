"""Tells everybody what came of an attempt: pods by events and conditions, the PodGroup by its status, operators by log and metrics."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from allaboard.binding.outcomes import Committed
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod, by_age
from allaboard.model.reasons import Code
from allaboard.placement import SearchReport
from allaboard.records.record import GangRecords, Wait
from allaboard.records.report_state import GangStatus
from allaboard.records.waiting import WaitClock
from allaboard.report import messages
from allaboard.report.changes import ChangeReporter, reference_of
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.messages import Refusal
from allaboard.report.metrics import Metrics
from allaboard.report.podgroup_writer import PodGroupWriter
from allaboard.report.pods import PodReporter
from allaboard.report.status import api_time

logger = logging.getLogger(__name__)
decisions = logging.getLogger("allaboard.decisions")

_NEW_WORDS_SECONDS = 60.0
_AWAITED_SECONDS = 2.0  # in which the pods of a gang are made, as a rule: those that are there aren't told that they wait for the others
_AWAITED_AGAIN_SECONDS = 10.0  # how often they are told that others have come, or gone


class Reporter:
    """One place for all that is said, so that its parts agree."""

    def __init__(
        self,
        events: EventRecorder,
        pods: PodReporter,
        keeper: PodGroupWriter,
        records: GangRecords,
        waits: WaitClock,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._events = events
        self._pods = pods
        self._keeper = keeper
        self._records = records
        self._waits = waits
        self._metrics = metrics
        self._changes = ChangeReporter(events, records)
        self._clock = clock
        self._now = now

    def repeat(self) -> None:
        """Say again of each pod why it waits, at its gang's next attempt: an earlier leader's words may have come late, over ours."""
        self._pods.repeat()

    def members_missing(self, gang: Gang, message: str, short: str) -> float | None:
        """Tell that the gang waits for pods that don't exist yet; returns in how many seconds there may be more to tell, None for never.

        Its PodGroup says so at once, its pods and events only when that lasts: most gangs' pods are made within a moment.
        """
        wait, now = self._waits.of(gang, is_for_pods=True), self._clock()
        self._time_out_if_due(gang, wait, message)
        self._say(gang, Code.WAITING, message, short)
        dues = [] if wait.has_timed_out else [wait.since + gang.timeout_seconds]
        begins, again = wait.since + _AWAITED_SECONDS, wait.pods_told_at + _AWAITED_AGAIN_SECONDS
        if now < begins:
            dues.append(begins)
        elif wait.pods_told in ("", message) or now >= again:
            if wait.pods_told != message:
                wait.pods_told, wait.pods_told_at = message, now
            self._changes.waits(gang, Code.WAITING, message, gang.candidates)
            self._pods.awaiting(gang.candidates, message)
        else:
            dues.append(again)
        return min(dues) - now if dues else None

    def waits_behind(self, gang: Gang) -> None:
        """Tell pods of later runs of the gang that the run whose turn it is goes first."""
        # A run that was passed over is told why it can't start, and not that it waits for one that came after it.
        first = min(map(by_age, gang.members))
        later = [pod for pod in gang.others if pod.is_candidate and by_age(pod) > first]
        if later:
            self._pods.awaiting(later, f"podgroup {gang.key}: waiting for an earlier run of this gang, that of pod {gang.members[0].name}")

    def held(self, gang: Gang, reason: str, message: str, offender: Pod | None) -> None:
        """The gang can't be trusted until somebody mends ``offender``, or its PodGroup when that is ``None``."""
        about = reference_of(gang) if offender is None else ObjectReference.of_pod(offender)
        if about is not None:
            self._events.warning(about, reason, "Scheduling", message)
        self._pods.unscheduled(gang.candidates, lambda pod: message, "SchedulerError", is_event=False)
        self._say(gang, Code.HELD, message)
        self._changes.waits(gang, f"{Code.HELD}: {reason}", message, gang.candidates, beside=about)
        self._metrics.attempts.labels("error").inc()
        self._log(gang, "held", None, 0.0, message)

    def refused(self, gang: Gang, refusal: Refusal, report: SearchReport | None, seconds: float) -> None:
        """The gang fits nowhere."""
        self._tell_refused(gang, refusal.of_pods, is_event=gang.is_single)
        self._time_out_if_due(gang, self._waits.of(gang), refusal.message)
        self._say(gang, refusal.code, refusal.message, refusal.short)
        self._changes.waits(gang, refusal.code, refusal.message, gang.candidates, lambda pod: refusal.of_pods.get(pod.uid, refusal.message))
        self._count("unschedulable", len(refusal.of_pods), seconds)
        self._log(gang, "refused", report, seconds, refusal.message)

    def advised(self, gang: Gang, message: str, advised: str) -> None:
        """What would help a gang that was refused with ``message``, if that is still the last that was said of it."""
        opinion = self._keeper.opinion(gang.key)
        if opinion is not None and opinion.message == message:
            self._keeper.tell(gang, replace(opinion, message=advised))

    def strategy_failed(self, gang: Gang, message: str) -> None:
        """The strategy that the gang has chosen has failed, and another decided. Words that change each time are told once a minute."""
        told, about = self._records.report_state(gang.key), reference_of(gang)
        before = told.strategy
        if before is not None and before[0] != message and self._clock() - before[1] < _NEW_WORDS_SECONDS:
            return
        if before is None or before[0] != message:
            logger.warning("gang %s: %s", gang.key, message)
        told.strategy = (message, self._clock())
        if about is not None:
            self._events.warning(about, "StrategyFailed", "Scheduling", message)

    def surplus_refused(self, gang: Gang, messages: Mapping[str, str]) -> None:
        """The gang is whole; members beyond its minimum found no seat."""
        self._tell_refused(gang, messages, is_event=True)
        self._metrics.pods_scheduled.labels("unschedulable").inc(len(messages))

    def failed(self, gang: Gang, message: str, seconds: float) -> None:
        """The attempt itself failed: a worker died, the API server refused a bind."""
        self._retries(gang, message)
        self._count("error", len(gang.candidates), seconds)
        self._log(gang, "failed", None, seconds, message)

    def backs_off(self, gang: Gang, message: str) -> None:
        """Members were lost again and again, soon after they were bound: the next are bound later."""
        self._retries(gang, message)
        self._log(gang, "backs off", None, 0.0, message)

    def _retries(self, gang: Gang, message: str) -> None:
        """Report to the candidates, and of a gang that lacks members to its PodGroup, why the gang is attempted again later."""
        is_told_of_gang = bool(gang.missing) and not gang.is_single
        self._pods.unscheduled(gang.candidates, lambda pod: message, "SchedulerError", is_event=not is_told_of_gang)
        if gang.missing:
            self._time_out_if_due(gang, self._waits.of(gang), message)
            self._say(gang, Code.RETRYING, message)
            self._changes.waits(gang, Code.RETRYING, message, gang.candidates)

    def binds(self, gang: Gang) -> None:
        """Members are about to be bound, one before the other."""
        self._keeper.begin_bind(gang)

    def bound(self, gang: Gang, outcome: Committed, report: SearchReport, seconds: float) -> None:
        """Members were bound; the gang is whole unless some are still missing."""
        nodes = {seat.pod.uid: seat.node_name for seat in outcome.bound}
        self._pods.scheduled([seat.pod for seat in outcome.bound], lambda pod: nodes[pod.uid])
        problems = {seat.pod.uid: messages.seat_not_taken(seat, reply) for seat, reply in (*outcome.failed, *outcome.dropped)}
        losers = [seat.pod for seat, _ in (*outcome.failed, *outcome.dropped)]
        self._pods.unscheduled(losers, lambda pod: problems[pod.uid], "SchedulerError", is_event=True)
        self._count("error" if outcome.missing else "scheduled", len(outcome.bound), seconds)
        total = len(gang.bound) + len(outcome.bound)
        if outcome.missing:
            text = f"{total} of {gang.quorum} members bound, {outcome.missing} missing: {messages.not_bound(outcome)}"
            self._say(gang, Code.RETRYING, text)
            self._changes.waits(gang, Code.RETRYING, text)
            self._log(gang, "open", report, seconds, text, outcome.missing)
            return
        if gang.missing:
            self._metrics.gang_latency.observe(self._clock() - self._waits.of(gang).since)
        self._say(gang, Code.SCHEDULED, messages.members_bound(total), is_being_bound=True)
        self._changes.scheduled(gang, messages.members_bound(total))
        self._waits.end(gang.key)
        self._log(gang, "bound", report, seconds, "", missing=0)

    def undone(self, gang: Gang, released: Iterable[Pod], message: str) -> None:
        """Bound members were released because the rest could not be seated."""
        released = tuple(released)
        self._pods.released(released, f"released: {message}")
        self._metrics.releases.inc(len(released))
        text = f"undone, released {', '.join(pod.name for pod in released)}: {message}"
        self._say(gang, Code.RETRYING, text)
        self._changes.waits(gang, Code.RETRYING, text)
        self._log(gang, "undone", None, 0.0, text)

    def kept_open(self, gang: Gang, message: str) -> None:
        """Bound members of a half gang stay bound, since releasing them would cost more than their seats."""
        if (about := reference_of(gang)) is not None:
            self._events.warning(about, "KeptOpen", "Binding", message)
        before = self._keeper.opinion(gang.key)
        code = before.code if before and before.code.is_waiting else Code.RETRYING
        self._say(gang, code, message)
        self._changes.waits(gang, code, message, gang.candidates)

    def unchanged(self, gang: Gang) -> None:
        """Nothing to decide; the PodGroup's counts, or what was last said, may not be so any more."""
        before = self._keeper.opinion(gang.key)
        if gang.is_whole and gang.bound:
            message = messages.members_bound(len(gang.bound))
            if before is None or before.code is not Code.SCHEDULED or before.message != message:
                self._say(gang, Code.SCHEDULED, message)
                self._changes.scheduled(gang, message)
                self._waits.end(gang.key)
                return
        elif not gang.alive_in_all_runs and not gang.is_single:
            self._none_lives(gang)
            return
        self._keeper.tell(gang)

    def _none_lives(self, gang: Gang) -> None:
        """Say how a gang has ended; or, if its members were deleted before they ended, that it waits for pods again."""
        if not self._keeper.is_known(gang):
            return
        ending = self._keeper.ending(gang)
        self._waits.end(gang.key)
        if ending is not None:
            self._say(gang, Code.ENDED, messages.ended(ending))
            self._changes.ended(gang)
        else:
            self._say(gang, Code.WAITING, messages.members_missing(gang), messages.members_missing_in_short(gang))

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of a pod: how it has ended is told of its gang, and nothing more is told of one that is gone."""
        self._keeper.observe_pod(old, new)
        if new is None and old is not None:
            self._pods.forget(old.uid)

    def _say(self, gang: Gang, code: Code, message: str, short: str = "", *, is_being_bound: bool = False) -> None:
        told = self._records.report_state(gang.key)
        wait, before = self._waits.find(gang.key), told.opinion
        opinion = GangStatus(
            code,
            message,
            short,
            started=api_time(wait.started) if wait and not wait.is_for_pods else "",
            whole_since=api_time(self._now()) if code is Code.SCHEDULED else before.whole_since if before else "",
            has_timed_out=wait is not None and wait.has_timed_out and code.is_waiting,
            is_being_bound=is_being_bound,
        )
        self._keeper.tell(gang, opinion)

    def _time_out_if_due(self, gang: Gang, wait: Wait, message: str) -> None:
        """Tell, once, that a gang has waited for longer than it asked to."""
        if wait.has_timed_out or self._clock() < wait.since + gang.timeout_seconds:
            return
        wait.has_timed_out = True
        if (about := reference_of(gang)) is not None:
            self._events.warning(about, "Timeout", "Scheduling", f"not scheduled within {gang.timeout_seconds} s: {message}")

    def _tell_refused(self, gang: Gang, messages: Mapping[str, str], *, is_event: bool) -> None:
        refused = [pod for pod in gang.candidates if pod.uid in messages]
        self._pods.unscheduled(refused, lambda pod: messages[pod.uid], is_event=is_event)

    def _count(self, result: str, pods: int, seconds: float) -> None:
        self._metrics.attempts.labels(result).inc()
        self._metrics.pods_scheduled.labels(result).inc(pods)
        self._metrics.attempt_seconds.labels(result).observe(seconds)

    def _log(self, gang: Gang, outcome: str, report: SearchReport | None, seconds: float, reason: str, missing: int | None = None) -> None:
        """Log the one line per gang and attempt; a refusal that was logged last, word for word, is for debugging only."""
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
        told, entry = self._records.report_state(gang.key), f"{outcome} {reason}"
        level = logging.DEBUG if reason and told.logged == entry else logging.INFO
        told.logged = entry
        if not decisions.isEnabledFor(level):
            return
        line = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())
        decisions.log(level, "%s", line, extra={"decision": facts, "history": report.history if report else ()})


def _quoted(value: object) -> str:
    """``value`` on one line, in quotes when it isn't one word: parts of it may be a tenant's or a webhook's."""
    text = str(value)
    return text if text.isprintable() and not set(text) & {" ", '"'} else json.dumps(text, ensure_ascii=False)
