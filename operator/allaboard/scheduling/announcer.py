"""Tells everybody what came of an attempt: pods by events and conditions, the PodGroup by its status, operators by log and metrics."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from allaboard.cluster.client import STRATEGIC_PATCH, ApiServer
from allaboard.cluster.paths import POD_GROUPS, PODS
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.placement import SearchReport
from allaboard.report.conditions import Opinion, Verdict, pod_unscheduled
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.metrics import Metrics
from allaboard.report.told import Wait
from allaboard.report.writer import Writer
from allaboard.scheduling.answers import Committed
from allaboard.scheduling.docket import Docket
from allaboard.scheduling.podgroups import PodGroupKeeper, api_time, utc_now

decisions = logging.getLogger("allaboard.decisions")

_FAILED = "FailedScheduling"
_SLICE = 200  # pods that are told of at a stretch: some milliseconds


class Announcer:
    """One place for all that is said, so that its parts agree."""

    def __init__(
        self,
        server: ApiServer,
        events: EventRecorder,
        keeper: PodGroupKeeper,
        docket: Docket,
        writer: Writer,
        metrics: Metrics,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._events = events
        self._keeper = keeper
        self._docket = docket
        self._writer = writer
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._unscheduled: dict[str, str] = {}
        self._untold: dict[tuple[str, str], Callable[[], None]] = {}  # by pod UID and reason: what gangs of thousands are yet to be told

    def repeat(self) -> None:
        """Say again of each pod why it waits, at its gang's next attempt: an earlier leader's words may have come late, over ours."""
        self._unscheduled.clear()

    def waiting_since(self, gang: Gang) -> float:
        """When the gang's present wait for seats began, on the clock; now, if that is news."""
        return self._wait(gang).since

    def _wait(self, gang: Gang) -> Wait:
        told = self._docket.case(gang.key).told
        if told.wait is None:
            told.wait = Wait(self._clock(), self._now())
        return told.wait

    def seconds_left(self, gang: Gang) -> float:
        """How long the gang may still wait for its seats; 0 or less once it has timed out."""
        return self.waiting_since(gang) + gang.timeout_seconds - self._clock()

    def has_timed_out(self, gang: Gang) -> bool:
        """Whether the gang has waited longer for its seats than it asked to."""
        return self.seconds_left(gang) <= 0

    def members_missing(self, gang: Gang, message: str) -> None:
        """The gang waits for pods that don't exist yet."""
        self._end_wait(gang.key)
        self._say(gang, Verdict.WAITING, message)

    def held(self, gang: Gang, reason: str, message: str, offender: Pod | None) -> None:
        """The gang can't be trusted until somebody mends ``offender``, or its PodGroup when that is ``None``."""
        about = self._reference(gang) if offender is None else ObjectReference.of_pod(offender)
        if about is not None:
            self._events.warning(about, reason, "Scheduling", message)
        self._tell_candidates(gang, message)
        self._say(gang, Verdict.HELD, message)
        self._metrics.attempts.labels("error").inc()
        self._log(gang, "held", None, 0.0, message)

    def refused(self, gang: Gang, messages: Mapping[str, str], message: str, report: SearchReport | None, seconds: float) -> None:
        """The gang fits nowhere: ``messages`` by pod UID, ``message`` for the gang."""
        self._tell_refused(gang, messages)
        self._time_out_if_due(gang, message)
        self._say(gang, Verdict.PARTIAL if gang.is_open else Verdict.UNSCHEDULABLE, message)
        self._count("unschedulable", len(messages), seconds)
        self._log(gang, "refused", report, seconds, message)

    def advised(self, gang: Gang, message: str, advised: str) -> None:
        """What would help a gang that was refused with ``message``, if that is still the last that was said of it."""
        opinion = self._keeper.opinion(gang.key)
        if opinion is not None and opinion.message == message:
            self._keeper.tell(gang, replace(opinion, message=advised))

    def surplus_refused(self, gang: Gang, messages: Mapping[str, str]) -> None:
        """The gang is whole; members beyond its minimum found no seat."""
        self._tell_refused(gang, messages)
        self._metrics.pods_scheduled.labels("unschedulable").inc(len(messages))

    def failed(self, gang: Gang, message: str, seconds: float) -> None:
        """The attempt itself failed: a worker died, the API server refused a bind."""
        self._tell_candidates(gang, message)
        if gang.missing:
            self._time_out_if_due(gang, message)
            self._say(gang, Verdict.PARTIAL if gang.is_open else Verdict.ERROR, message)
        self._count("error", len(gang.candidates), seconds)
        self._log(gang, "failed", None, seconds, message)

    def binds(self, gang: Gang) -> None:
        """Members are about to be bound, one before the other."""
        self._keeper.begin_bind(gang)

    def bound(self, gang: Gang, outcome: Committed, report: SearchReport, seconds: float) -> None:
        """Members were bound; the gang is whole unless some are still missing."""
        nodes = {seat.pod.uid: seat.node_name for seat in outcome.bound}
        for uid in nodes:
            self._unscheduled.pop(uid, None)
            self._untold.pop((uid, _FAILED), None)
        self._tell_each("Scheduled", [seat.pod for seat in outcome.bound], lambda pod: self._scheduled(pod, nodes[pod.uid]))
        problems = {
            seat.pod.uid: f"can't be bound to {seat.node_name}: {reply.message or reply.result}"
            for seat, reply in (*outcome.failed, *outcome.dropped)
        }
        losers = [seat.pod for seat, _ in (*outcome.failed, *outcome.dropped)]
        self._tell_each(_FAILED, losers, lambda pod: self._unschedulable(pod, problems[pod.uid], "SchedulerError"))
        self._count("error" if outcome.missing else "scheduled", len(outcome.bound), seconds)
        total = len(gang.bound) + len(outcome.bound)
        if outcome.missing:
            text = f"{total} of {gang.quorum} members bound, {outcome.missing} missing: {outcome.message}"
            self._say(gang, Verdict.PARTIAL, text)
            self._log(gang, "open", report, seconds, text, outcome.missing)
            return
        if gang.missing:
            self._metrics.gang_latency.observe(self._clock() - self.waiting_since(gang))
        self._say(gang, Verdict.SCHEDULED, f"{total} members bound", is_being_bound=True)
        self._end_wait(gang.key)
        self._log(gang, "bound", report, seconds, "", missing=0)

    def undone(self, gang: Gang, released: Iterable[Pod], message: str) -> None:
        """Bound members were released because the rest could not be seated."""
        released = tuple(released)
        self._tell_each("GangUndone", released, lambda pod: self._released(pod, f"released: {message}"))
        self._metrics.releases.inc(len(released))
        text = f"undone, released {', '.join(pod.name for pod in released)}: {message}"
        self._say(gang, Verdict.UNSCHEDULABLE, text)
        self._log(gang, "undone", None, 0.0, text)

    def kept_open(self, gang: Gang, message: str) -> None:
        """Bound members of a half gang stay bound, since releasing them would cost more than their seats."""
        if (about := self._reference(gang)) is not None:
            self._events.warning(about, "KeptOpen", "Binding", message)
        self._say(gang, Verdict.PARTIAL, message)

    def unchanged(self, gang: Gang) -> None:
        """Nothing to decide; the PodGroup's counts, or what was last said, may not be so any more."""
        before = self._keeper.opinion(gang.key)
        if gang.is_whole and gang.bound:
            message = f"{len(gang.bound)} members bound"
            if before is None or before.verdict is not Verdict.SCHEDULED or before.message != message:
                self._say(gang, Verdict.SCHEDULED, message)
                self._end_wait(gang.key)
                return
        elif gang.members and not gang.alive:
            succeeded = gang.in_phase("Succeeded")
            self._say(gang, Verdict.SCHEDULED, f"ended: {succeeded} members succeeded, {gang.in_phase('Failed')} failed")
            return
        self._keeper.tell(gang)

    def forget_pod(self, pod: Pod) -> None:
        """The pod is gone."""
        self._unscheduled.pop(pod.uid, None)
        self._untold.pop((pod.uid, _FAILED), None)

    def _end_wait(self, key: GangKey) -> None:
        """The gang is whole, lacks members or is gone: a later wait for seats is counted from its own beginning."""
        if (case := self._docket.find(key)) is not None:
            case.told.wait = None

    def _say(self, gang: Gang, verdict: Verdict, message: str, *, is_being_bound: bool = False) -> None:
        told = self._docket.case(gang.key).told
        wait, before = told.wait, told.opinion
        opinion = Opinion(
            verdict,
            message,
            started=api_time(wait.started) if wait else "",
            whole_since=api_time(self._now()) if verdict is Verdict.SCHEDULED else before.whole_since if before else "",
            has_timed_out=wait is not None and wait.has_timed_out and verdict is not Verdict.SCHEDULED,
            is_being_bound=is_being_bound,
        )
        self._keeper.tell(gang, opinion)

    def _time_out_if_due(self, gang: Gang, message: str) -> None:
        wait = self._wait(gang)
        if wait.has_timed_out or not self.has_timed_out(gang):
            return
        wait.has_timed_out = True
        about = self._reference(gang)
        if about is not None:
            note = f"not scheduled within {gang.timeout_seconds} s: {message}"
            self._events.warning(about, "Timeout", "Scheduling", note)

    def _reference(self, gang: Gang) -> ObjectReference | None:
        """What an event about the whole gang is about: its PodGroup, or the pod of a gang of one."""
        if gang.is_single:
            return ObjectReference.of_pod(gang.members[0]) if gang.members else None
        return ObjectReference(POD_GROUPS.api_version, POD_GROUPS.kind, gang.key.namespace, gang.key.name, gang.uid)

    def _tell_refused(self, gang: Gang, messages: Mapping[str, str]) -> None:
        refused = [pod for pod in gang.candidates if pod.uid in messages]
        self._tell_each(_FAILED, refused, lambda pod: self._unschedulable(pod, messages[pod.uid]))

    def _tell_candidates(self, gang: Gang, message: str) -> None:
        self._tell_each(_FAILED, gang.candidates, lambda pod: self._unschedulable(pod, message, "SchedulerError"))

    def _tell_each(self, reason: str, pods: Sequence[Pod], tell: Callable[[Pod], None]) -> None:
        """Tell of each of ``pods``: of the first ones now, and of the others beside, or a gang of thousands would hold everybody up.

        What was to be told of a pod for the same reason, and hasn't been, is not so any more.
        """
        for pod in pods[:_SLICE]:
            self._untold.pop((pod.uid, reason), None)
            tell(pod)
        if len(pods) > _SLICE:
            self._untold.update(((pod.uid, reason), partial(tell, pod)) for pod in pods[_SLICE:])
            self._writer.put("words of pods", self._tell_rest)

    async def _tell_rest(self) -> None:
        while self._untold:
            for key in list(islice(self._untold, _SLICE)):
                self._untold.pop(key)()
            await asyncio.sleep(0)

    def _scheduled(self, pod: Pod, node_name: str) -> None:
        self._events.normal(ObjectReference.of_pod(pod), "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node_name}")

    def _released(self, pod: Pod, note: str) -> None:
        self._events.warning(ObjectReference.of_pod(pod), "GangUndone", "Binding", note)

    def _unschedulable(self, pod: Pod, message: str, reason: str = "Unschedulable") -> None:
        """FailedScheduling and PodScheduled=False, which autoscalers react to. Words that haven't changed are not repeated."""
        self._events.warning(ObjectReference.of_pod(pod), _FAILED, "Scheduling", message)
        if self._unscheduled.get(pod.uid) == message:
            return
        self._unscheduled[pod.uid] = message
        self._writer.put(f"condition of pod {pod.key}", partial(self._write_condition, pod, message, reason), pod.namespace)

    async def _write_condition(self, pod: Pod, message: str, reason: str) -> None:
        if self._unscheduled.get(pod.uid) != message:
            return  # bound or gone in the meantime
        body: dict[str, Any] = {
            "metadata": {"uid": pod.uid},  # never the condition of a pod that has only the name in common
            "status": {"conditions": [pod_unscheduled(message, utc_now(), reason)]},
        }
        try:
            await self._server.write(PODS.named(pod.namespace, pod.name, "status"), body, STRATEGIC_PATCH)
        except Exception:
            if self._unscheduled.get(pod.uid) == message:
                del self._unscheduled[pod.uid]  # it is said again at the next attempt
            raise

    def _count(self, result: str, pods: int, seconds: float) -> None:
        self._metrics.attempts.labels(result).inc()
        self._metrics.pods_scheduled.labels(result).inc(pods)
        self._metrics.attempt_seconds.labels(result).observe(seconds)

    def _log(self, gang: Gang, outcome: str, report: SearchReport | None, seconds: float, reason: str, missing: int | None = None) -> None:
        """The one line per gang and attempt."""
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
            }
        facts["durationMs"] = round(seconds * 1000, 1)
        if reason:
            facts["reason"] = reason
        line = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())
        decisions.info("%s", line, extra={"decision": facts, "history": report.history if report else ()})


def _quoted(value: object) -> str:
    """``value`` on one line, in quotes when it isn't one word: parts of it may be a tenant's or a webhook's."""
    text = str(value)
    return text if text.isprintable() and not set(text) & {" ", '"'} else json.dumps(text, ensure_ascii=False)
