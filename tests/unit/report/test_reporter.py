"""Reports on gangs of thousands, which delay no other gang."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from allaboard.binding.outcomes import Assignment, Committed
from allaboard.binding.reasons import Held, Kept, MembersMissing, NotFinished, SearchFailed
from allaboard.gangs.podgroup_reader import PodGroupReader
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiError, ApiServer
from allaboard.kube.paths import ApiPath
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Hold, Objective
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.placement import SearchReport
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from allaboard.report.changes import MEMBERS_TOLD
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.messages import Refusal
from allaboard.report.metrics import Metrics
from allaboard.report.podgroup_writer import PodGroupWriter
from allaboard.report.pods import PodReporter
from allaboard.report.reporter import Reporter
from allaboard.report.waiting import _waiting_for_capacity
from allaboard.report.writer import Writer

MANY = 1000
FOUND = SearchReport(0, 0, 0, "bound", (), "x")


def a_gang(members: int) -> Gang:
    spec = SchedulingSpec((("pods", 1),))
    pods = tuple(Pod("ns", f"w{each}", f"u{each}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for each in range(members))
    return Gang(GangKey("ns", "g"), members, pods, 0, 0.0, Objective.BINPACK, 60, uid="group")


class Server(ApiServer):
    """Records the pods whose condition was written, and the last reason of each."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.reasons: dict[str, str] = {}
        self.is_deaf = False

    async def write(self, path: ApiPath, body: Any, content_type: str = "") -> None:
        if self.is_deaf:
            raise ApiError(403, "Forbidden", "denied")
        self.conditions.append(body["metadata"]["uid"])
        self.reasons[body["metadata"]["uid"]] = body["status"]["conditions"][0]["reason"]


class Recorder(EventRecorder):
    """Records events instead of posting them."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []
        self.low: list[str] = []

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        self.reported.append((about.uid, reason))
        self.low += [about.uid] if is_low else []

    def of(self, reason: str) -> Counter[str]:
        return Counter(uid for uid, reported in self.reported if reported == reason)


class Stage:
    """A reporter, and what it has written."""

    def __init__(self) -> None:
        self.server, self.recorder, self.writer = Server(), Recorder(), Writer(sleep=instantly)
        records = GangRecords()
        self.keeper = PodGroupWriter(PodGroupReader(cast(ApiServer, self.server), GangRegistry(["allaboard"])), records, self.writer)
        self.pods = PodReporter(self.server, self.recorder, self.writer)
        self.now = 0.0
        self.waits = WaitClock(records, lambda: self.now)
        self.reporter = Reporter(self.recorder, self.pods, self.keeper, records, self.waits, Metrics(), clock=lambda: self.now)

    def refuse(self, gang: Gang, code: Code = Code.INSUFFICIENT) -> None:
        refusal = Refusal(code, "no room", "none", {pod.uid: "no room" for pod in gang.members})
        self.reporter._publish(gang, _waiting_for_capacity(gang, refusal, None, FOUND), 1.0)

    def bind(self, gang: Gang, pods: Sequence[Pod]) -> None:
        self.reporter.report_bound(gang, Committed(tuple(Assignment(pod, "n1") for pod in pods)), FOUND, 1.0)

    async def write_all(self) -> None:
        writing = asyncio.create_task(self.writer.run(never_busy))
        async with asyncio.timeout(50):
            await self.writer.drain(with_low=True)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def instantly(seconds: float) -> None:
    await asyncio.sleep(0)


async def never_busy(patience: float) -> None:
    pass


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    """Yield a stage whose writer begins to write at the end."""
    stage = Stage()
    yield stage
    await stage.write_all()


def awaits(stage: Stage, gang: Gang) -> float | None:
    """Report that members are missing, and return in how many seconds there is more to report."""
    return stage.reporter.report_wait(gang, MembersMissing(), 0.0).next_seconds


def once_each(gang: Gang) -> Mapping[str, int]:
    return Counter(pod.uid for pod in gang.members)


async def test_every_member_of_a_gang_of_thousands_gets_its_result_once() -> None:
    gang = a_gang(MANY)
    async with a_stage() as refused:
        refused.refuse(gang)
    async with a_stage() as bound:
        bound.bind(gang, gang.members)
    async with a_stage() as undone:
        undone.reporter.report_release(gang, gang.members, NotFinished(1, 5.0), None)
    assert Counter(refused.server.conditions) == once_each(gang)
    assert bound.recorder.of("Scheduled") == once_each(gang) + Counter(["group"])
    assert undone.recorder.of("GangUndone") == once_each(gang)


async def test_reporting_to_many_members_does_not_block_the_event_loop() -> None:
    """Other tasks run in between."""
    stretches = []
    async with a_stage() as stage:
        gang = a_gang(MANY)
        stage.bind(gang, gang.members)
        telling, reported = asyncio.create_task(stage.pods.tell_rest()), 0
        while not telling.done():
            stretches.append(len(stage.recorder.reported) - reported)
            reported = len(stage.recorder.reported)
            await asyncio.sleep(0)
    assert max(stretches) <= MANY // 5 + 1  # the longest is that of the gang
    assert sum(stretches) == MANY + 1


async def test_members_of_a_small_gang_get_their_result_at_once() -> None:
    async with a_stage() as stage:
        gang = a_gang(64)
        stage.bind(gang, gang.members)
        assert len(stage.recorder.reported) == 64 + 1


async def test_a_queued_refusal_is_dropped_when_its_pod_is_bound_or_gone() -> None:
    gang = a_gang(MANY)
    *others, last_but_one, last = gang.members
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.bind(gang, [last])
        stage.reporter.observe_pod(last_but_one, None)
    assert set(stage.server.conditions) == {pod.uid for pod in others}
    assert set(stage.recorder.of("Scheduled")) == {last.uid, "group"}


async def test_a_newer_refusal_replaces_a_queued_one() -> None:
    gang = a_gang(MANY)
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.refuse(gang)
    assert Counter(stage.server.conditions)[gang.members[-1].uid] == 1


async def test_a_condition_that_could_not_be_written_is_written_at_the_next_attempt() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.server.is_deaf = True
        await stage.write_all()
        assert not stage.server.conditions
        stage.server.is_deaf = False
        stage.refuse(gang)
    assert Counter(stage.server.conditions) == once_each(gang)


async def test_conditions_are_written_again_once_no_earlier_leader_can_write_any_more() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(gang)
        await stage.write_all()
        stage.refuse(gang)
        await stage.write_all()
        assert Counter(stage.server.conditions) == once_each(gang)
        stage.reporter.repeat()
        stage.refuse(gang)
        stage.refuse(gang)
    assert Counter(stage.server.conditions) == once_each(gang) + once_each(gang)


async def test_a_later_report_keeps_since_when_a_gang_was_whole() -> None:
    """The gang may have lost members before its PodGroup was written."""
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.bind(gang, gang.members)
        stage.refuse(gang)
        opinion = stage.keeper.opinion(gang.key)
    assert opinion is not None
    assert opinion.code is Code.INSUFFICIENT
    assert opinion.whole_since


async def test_a_gang_and_its_members_get_one_event_for_each_change_of_reason_and_one_when_bound() -> None:
    gang = a_gang(13)
    async with a_stage() as stage:
        for code in (Code.INSUFFICIENT, Code.INSUFFICIENT, Code.FRAGMENTED, Code.FRAGMENTED, Code.INSUFFICIENT):
            stage.refuse(gang, code)
        stage.bind(gang, gang.members)
    assert stage.recorder.of("FailedScheduling") == Counter({"group": 3, **dict.fromkeys(once_each(gang), 3)})
    assert set(stage.recorder.low) == set(once_each(gang))
    assert stage.recorder.of("Scheduled") == once_each(gang) + Counter(["group"])


@pytest.mark.parametrize("ends", [True, False])
async def test_a_gang_gets_a_second_event_scheduled_only_after_it_has_ended(*, ends: bool) -> None:
    gang = a_gang(2)
    done = tuple(replace(pod, node_name="n1", phase="Succeeded") for pod in gang.members)
    async with a_stage() as stage:
        stage.bind(gang, gang.members)
        if ends:
            stage.reporter.unchanged(replace(gang, members=done))
        stage.bind(gang, gang.members)
    assert stage.recorder.of("Scheduled")["group"] == 1 + ends


async def test_only_the_first_members_of_a_large_gang_get_events() -> None:
    gang = a_gang(MANY)
    async with a_stage() as stage:
        stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling") == Counter(["group", *(f"u{each}" for each in range(MEMBERS_TOLD))])


async def test_a_later_member_gets_an_event_why_its_gang_waits() -> None:
    gang = a_gang(3)
    async with a_stage() as stage:
        for number in (2, 3):
            stage.refuse(replace(gang, members=gang.members[:number]))
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1", "u2"])


async def test_a_podgroup_created_for_labels_gets_the_event_that_its_first_pod_got() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(replace(gang, uid=""))
        assert stage.recorder.of("FailedScheduling") == Counter(["u0", "u1"])
        for _ in range(2):
            stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling")["group"] == 1


@pytest.mark.parametrize("has_group", [True, False])
async def test_each_member_of_a_held_gang_gets_an_event_and_its_podgroup_if_it_exists(has_group: bool) -> None:
    gang = a_gang(3) if has_group else replace(a_gang(3), uid="")
    async with a_stage() as stage:
        for _ in range(2):
            stage.reporter.report_wait(gang, Held(Hold("BadLabel", "pod w1: wrong", gang.members[1])), 0.0)
    assert stage.recorder.of("BadLabel") == Counter({"u1": 2})  # one event with a count
    assert stage.recorder.of("FailedScheduling") == Counter(["u0", "u2", *(["group"] if has_group else [])])
    assert set(stage.server.reasons.values()) == {"SchedulerError"}


async def test_missing_members_are_reported_after_a_moment_with_a_reason_that_autoscalers_ignore() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        assert awaits(stage, gang) == 2.0
        assert not stage.recorder.reported
        stage.now = 2.0
        assert awaits(stage, gang) == 58.0
        awaits(stage, gang)
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])
    assert Counter(stage.server.conditions) == once_each(gang)
    assert set(stage.server.reasons.values()) == {"WaitingForMembers"}


async def test_members_get_few_updates_while_others_are_created_one_after_another() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        for second in range(32):
            stage.now = float(second)
            due = awaits(stage, replace(gang, min_member=99, deleted_successes=second))
            await stage.write_all()
    assert due == 1.0
    assert set(Counter(stage.server.conditions).values()) == {3}
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])


async def test_a_time_out_while_waiting_for_members_is_reported_once_and_shown_by_the_podgroup() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        for stage.now in (0.0, 2.0, 60.0, 61.0):
            due = awaits(stage, gang)
        opinion = stage.keeper.opinion(gang.key)
    assert due is None
    assert stage.recorder.of("Timeout") == Counter(["group"])
    assert opinion is not None
    assert opinion.has_timed_out
    assert not opinion.started


async def test_a_single_pod_gets_the_events_itself() -> None:
    gang = replace(a_gang(1), key=GangKey("ns", "w0", "Pod"), uid="u0")
    async with a_stage() as stage:
        stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling") == Counter({"u0": 1})


async def test_advice_does_not_replace_a_newer_message() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.reporter.report_wait(gang, SearchFailed("a webhook said no"), 1.0)
        stage.reporter.advised(gang, "no room", "no room. Would fit with more.")
        late = stage.keeper.opinion(gang.key)
        stage.refuse(gang)
        stage.reporter.advised(gang, "no room", "no room. Would fit with more.")
        in_time = stage.keeper.opinion(gang.key)
    assert late is not None
    assert in_time is not None
    assert (late.message, in_time.message) == ("a webhook said no", "no room. Would fit with more.")


async def test_a_gang_that_is_kept_open_keeps_its_reason_to_wait() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(gang, Code.FRAGMENTED)
        stage.reporter.report_release(gang, (), SearchFailed("late"), Kept(SearchFailed("members run"), gang.members))
        refused = stage.keeper.opinion(gang.key)
        stage.bind(gang, gang.members)
        stage.reporter.report_release(gang, (), SearchFailed("late"), Kept(SearchFailed("members run"), gang.members))
        whole_before = stage.keeper.opinion(gang.key)
    assert refused is not None
    assert whole_before is not None
    assert (refused.code, whole_before.code) == (Code.FRAGMENTED, Code.RETRYING)


async def test_a_time_out_is_reported_once_and_runs_anew_after_members_were_missing() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        for stage.now in (0.0, 61.0, 62.0, 63.0):
            stage.refuse(gang)
        assert stage.recorder.of("Timeout") == Counter(["group"])
        awaits(stage, gang)
        stage.now = 70.0
        stage.refuse(gang)
        assert stage.waits.of(gang).since == 70.0


async def test_only_the_last_series_of_events_are_remembered() -> None:
    writer = Mock(spec=Writer)
    recorder = EventRecorder(Mock(spec=ApiServer), writer, "allaboard", "allaboard-1")
    for number in range(10_001):
        recorder.normal(ObjectReference("v1", "Pod", "ns", "p", f"u{number}"), "Scheduled", "Binding", "bound")
    begun = writer.put.call_count
    for uid in ("u10000", "u0"):  # the first is known, with a recent event; the second is forgotten
        recorder.normal(ObjectReference("v1", "Pod", "ns", "p", uid), "Scheduled", "Binding", "bound")
    assert writer.put.call_count == begun + 1


async def test_a_refusal_is_logged_once_until_something_else_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="allaboard.decisions")
    gang = a_gang(2)
    async with a_stage() as stage:
        for _ in range(3):
            stage.refuse(gang)
        stage.reporter.report_wait(gang, SearchFailed("a webhook said no"), 1.0)
        stage.refuse(gang)
        for _ in range(2):
            stage.bind(gang, gang.members)
    outcomes = [record.decision["outcome"] for record in caplog.records if record.name == "allaboard.decisions"]  # type: ignore[attr-defined]
    assert outcomes == ["refused", "failed", "refused", "bound", "bound"]
