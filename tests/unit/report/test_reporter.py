"""What is said of a gang of thousands, and that nobody waits for it."""

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
    """Notes the pods whose condition was written, and the last reason of each."""

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
    """Notes events instead of posting them."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.low: list[str] = []

    def _record(self, kind: str, about: ObjectReference, reason: str, action: str, note: str, *, is_low: bool = False) -> None:
        self.told.append((about.uid, reason))
        self.low += [about.uid] if is_low else []

    def of(self, reason: str) -> Counter[str]:
        return Counter(uid for uid, told in self.told if told == reason)


class Stage:
    """A reporter, and what comes of what it says."""

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
    """With a writer that begins to write at the end, and has written all of it then."""
    stage = Stage()
    yield stage
    await stage.write_all()


def awaits(stage: Stage, gang: Gang) -> float | None:
    """Report that members are missing, and return in how many seconds there is more to report."""
    return stage.reporter.report_wait(gang, MembersMissing(), 0.0).next_seconds


def once_each(gang: Gang) -> Mapping[str, int]:
    return Counter(pod.uid for pod in gang.members)


async def test_every_member_of_a_gang_of_thousands_is_told_once_what_has_become_of_it() -> None:
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


async def test_few_members_are_told_at_a_stretch_however_many_there_are() -> None:
    """Others have their turns in between."""
    stretches = []
    async with a_stage() as stage:
        gang = a_gang(MANY)
        stage.bind(gang, gang.members)
        telling, told = asyncio.create_task(stage.pods.tell_rest()), 0
        while not telling.done():
            stretches.append(len(stage.recorder.told) - told)
            told = len(stage.recorder.told)
            await asyncio.sleep(0)
    assert max(stretches) <= MANY // 5 + 1  # that of the gang
    assert sum(stretches) == MANY + 1


async def test_a_small_gang_is_told_at_once() -> None:
    async with a_stage() as stage:
        gang = a_gang(64)
        stage.bind(gang, gang.members)
        assert len(stage.recorder.told) == 64 + 1


async def test_who_was_bound_or_is_gone_before_it_was_told_of_a_refusal_never_is() -> None:
    gang = a_gang(MANY)
    *others, last_but_one, last = gang.members
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.bind(gang, [last])
        stage.reporter.observe_pod(last_but_one, None)
    assert set(stage.server.conditions) == {pod.uid for pod in others}
    assert set(stage.recorder.of("Scheduled")) == {last.uid, "group"}


async def test_who_was_refused_twice_before_it_was_told_hears_of_the_second_time_alone() -> None:
    gang = a_gang(MANY)
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.refuse(gang)
    assert Counter(stage.server.conditions)[gang.members[-1].uid] == 1


async def test_words_that_were_lost_are_said_again_at_the_next_attempt() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(gang)
        stage.server.is_deaf = True
        await stage.write_all()
        assert not stage.server.conditions
        stage.server.is_deaf = False
        stage.refuse(gang)
    assert Counter(stage.server.conditions) == once_each(gang)


async def test_everything_is_said_once_more_when_an_earlier_leader_can_say_nothing_any_more() -> None:
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


async def test_that_a_gang_was_whole_is_not_forgotten_when_something_else_is_said_of_it() -> None:
    """It may have lost members before its PodGroup was written."""
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.bind(gang, gang.members)
        stage.refuse(gang)
        opinion = stage.keeper.opinion(gang.key)
    assert opinion is not None
    assert opinion.code is Code.INSUFFICIENT
    assert opinion.whole_since


async def test_a_gang_and_its_members_have_one_event_for_each_change_of_its_reason_and_one_when_it_is_bound() -> None:
    gang = a_gang(13)
    async with a_stage() as stage:
        for code in (Code.INSUFFICIENT, Code.INSUFFICIENT, Code.FRAGMENTED, Code.FRAGMENTED, Code.INSUFFICIENT):
            stage.refuse(gang, code)
        stage.bind(gang, gang.members)
    assert stage.recorder.of("FailedScheduling") == Counter({"group": 3, **dict.fromkeys(once_each(gang), 3)})
    assert set(stage.recorder.low) == set(once_each(gang))
    assert stage.recorder.of("Scheduled") == once_each(gang) + Counter(["group"])


@pytest.mark.parametrize("ends", [True, False])
async def test_a_gang_has_a_second_event_scheduled_only_if_it_has_ended_before(*, ends: bool) -> None:
    gang = a_gang(2)
    done = tuple(replace(pod, node_name="n1", phase="Succeeded") for pod in gang.members)
    async with a_stage() as stage:
        stage.bind(gang, gang.members)
        if ends:
            stage.reporter.unchanged(replace(gang, members=done))
        stage.bind(gang, gang.members)
    assert stage.recorder.of("Scheduled")["group"] == 1 + ends


async def test_of_a_large_gang_the_first_members_have_events() -> None:
    gang = a_gang(MANY)
    async with a_stage() as stage:
        stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling") == Counter(["group", *(f"u{each}" for each in range(MEMBERS_TOLD))])


async def test_a_member_that_comes_later_is_told_why_its_gang_waits() -> None:
    gang = a_gang(3)
    async with a_stage() as stage:
        for number in (2, 3):
            stage.refuse(replace(gang, members=gang.members[:number]))
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1", "u2"])


async def test_a_podgroup_that_is_made_for_labels_is_told_what_its_first_pod_was_told() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        stage.refuse(replace(gang, uid=""))
        assert stage.recorder.of("FailedScheduling") == Counter(["u0", "u1"])
        for _ in range(2):
            stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling")["group"] == 1


@pytest.mark.parametrize("has_group", [True, False])
async def test_each_member_of_a_held_gang_is_told_and_its_podgroup_if_there_is_one(has_group: bool) -> None:
    gang = a_gang(3) if has_group else replace(a_gang(3), uid="")
    async with a_stage() as stage:
        for _ in range(2):
            stage.reporter.report_wait(gang, Held(Hold("BadLabel", "pod w1: wrong", gang.members[1])), 0.0)
    assert stage.recorder.of("BadLabel") == Counter({"u1": 2})  # one event with a count
    assert stage.recorder.of("FailedScheduling") == Counter(["u0", "u2", *(["group"] if has_group else [])])
    assert set(stage.server.reasons.values()) == {"SchedulerError"}


async def test_members_are_told_after_a_moment_that_others_are_awaited_by_a_reason_that_autoscalers_leave_alone() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        assert awaits(stage, gang) == 2.0
        assert not stage.recorder.told
        stage.now = 2.0
        assert awaits(stage, gang) == 58.0
        awaits(stage, gang)
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])
    assert Counter(stage.server.conditions) == once_each(gang)
    assert set(stage.server.reasons.values()) == {"WaitingForMembers"}


async def test_members_are_told_seldom_while_others_come_one_after_another() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        for second in range(32):
            stage.now = float(second)
            due = awaits(stage, replace(gang, min_member=99, deleted_successes=second))
            await stage.write_all()
    assert due == 1.0
    assert set(Counter(stage.server.conditions).values()) == {3}
    assert stage.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])


async def test_that_members_are_awaited_for_too_long_is_told_once_and_shown_by_the_podgroup() -> None:
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


async def test_a_single_pod_has_its_events_itself() -> None:
    gang = replace(a_gang(1), key=GangKey("ns", "w0", "Pod"), uid="u0")
    async with a_stage() as stage:
        stage.refuse(gang)
    assert stage.recorder.of("FailedScheduling") == Counter({"u0": 1})


async def test_what_would_help_is_not_told_over_newer_words() -> None:
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


async def test_who_is_kept_open_waits_for_the_reason_that_it_waited_for() -> None:
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


async def test_that_a_gang_has_waited_too_long_is_told_once_and_counted_anew_when_it_has_lacked_members() -> None:
    gang = a_gang(2)
    async with a_stage() as stage:
        for stage.now in (0.0, 61.0, 62.0, 63.0):
            stage.refuse(gang)
        assert stage.recorder.of("Timeout") == Counter(["group"])
        awaits(stage, gang)
        stage.now = 70.0
        stage.refuse(gang)
        assert stage.waits.of(gang).since == 70.0


async def test_of_series_of_events_the_last_are_remembered() -> None:
    writer = Mock(spec=Writer)
    recorder = EventRecorder(Mock(spec=ApiServer), writer, "allaboard", "allaboard-1")
    for number in range(10_001):
        recorder.normal(ObjectReference("v1", "Pod", "ns", "p", f"u{number}"), "Scheduled", "Binding", "bound")
    begun = writer.put.call_count
    for uid in ("u10000", "u0"):  # the one is known, and just now; the other is forgotten
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
