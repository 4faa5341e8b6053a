"""Tests the reports on gangs: on each member once, in the background for large gangs, and events only for new reasons."""

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
from allaboard.report.changes import MEMBERS_WITH_EVENTS
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
        self.nominated: list[tuple[str, str | None]] = []
        self.refuses = False

    async def write(self, path: ApiPath, body: Any, content_type: str = "") -> None:
        if self.refuses:
            raise ApiError(403, "Forbidden", "denied")
        if "nominatedNodeName" in body["status"]:
            self.nominated.append((body["metadata"]["uid"], body["status"]["nominatedNodeName"]))
            return
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


class Fixture:
    """A reporter and the server, events and writer to which it reports."""

    def __init__(self) -> None:
        self.server, self.recorder, self.writer = Server(), Recorder(), Writer(sleep=instantly)
        records = GangRecords()
        self.podgroup_writer = PodGroupWriter(
            PodGroupReader(cast(ApiServer, self.server), GangRegistry(["allaboard"])), records, self.writer
        )
        self.pods = PodReporter(self.server, self.recorder, self.writer)
        self.now = 0.0
        self.waits = WaitClock(records, lambda: self.now)
        self.reporter = Reporter(self.recorder, self.pods, self.podgroup_writer, records, self.waits, Metrics(), clock=lambda: self.now)

    def refuse(self, gang: Gang, code: Code = Code.INSUFFICIENT) -> None:
        refusal = Refusal(code, "no capacity", "none", {pod.uid: "no capacity" for pod in gang.members})
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
async def a_fixture() -> AsyncIterator[Fixture]:
    """Yield a fixture whose writer writes everything at the end of the block."""
    fixture = Fixture()
    yield fixture
    await fixture.write_all()


def next_report(fixture: Fixture, gang: Gang) -> float | None:
    """Report that members are missing, and return the seconds until the next report; None if none is due."""
    return fixture.reporter.report_wait(gang, MembersMissing(), 0.0).next_seconds


def once_each(gang: Gang) -> Mapping[str, int]:
    return Counter(pod.uid for pod in gang.members)


async def test_each_member_of_a_large_gang_is_reported_on_once() -> None:
    gang = a_gang(MANY)
    async with a_fixture() as refused:
        refused.refuse(gang)
    async with a_fixture() as bound:
        bound.bind(gang, gang.members)
    async with a_fixture() as undone:
        undone.reporter.report_release(gang, gang.members, NotFinished(1, 5.0), None)
    assert Counter(refused.server.conditions) == once_each(gang)
    assert bound.recorder.of("Scheduled") == once_each(gang) + Counter(["group"])
    assert undone.recorder.of("GangUndone") == once_each(gang)


async def test_reports_on_many_members_let_other_tasks_run_in_between() -> None:
    stretches = []
    async with a_fixture() as fixture:
        gang = a_gang(MANY)
        fixture.bind(gang, gang.members)
        reporting, reported = asyncio.create_task(fixture.pods.report_rest()), 0
        while not reporting.done():
            stretches.append(len(fixture.recorder.reported) - reported)
            reported = len(fixture.recorder.reported)
            await asyncio.sleep(0)
    assert max(stretches) <= MANY // 5 + 1  # the longest stretch includes the event on the gang
    assert sum(stretches) == MANY + 1


async def test_members_of_a_small_gang_are_reported_on_at_once() -> None:
    async with a_fixture() as fixture:
        gang = a_gang(64)
        fixture.bind(gang, gang.members)
        assert len(fixture.recorder.reported) == 64 + 1


async def test_queued_refusal_of_a_pod_is_dropped_when_the_pod_is_bound_or_deleted() -> None:
    gang = a_gang(MANY)
    *others, last_but_one, last = gang.members
    async with a_fixture() as fixture:
        fixture.refuse(gang)
        fixture.bind(gang, [last])
        fixture.reporter.observe_pod(last_but_one, None)
    assert set(fixture.server.conditions) == {pod.uid for pod in others}
    assert set(fixture.recorder.of("Scheduled")) == {last.uid, "group"}


async def test_newer_refusal_of_a_pod_replaces_a_queued_refusal() -> None:
    gang = a_gang(MANY)
    async with a_fixture() as fixture:
        fixture.refuse(gang)
        fixture.refuse(gang)
    assert Counter(fixture.server.conditions)[gang.members[-1].uid] == 1


async def test_condition_that_could_not_be_written_is_written_at_the_next_attempt() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.refuse(gang)
        fixture.server.refuses = True
        await fixture.write_all()
        assert not fixture.server.conditions
        fixture.server.refuses = False
        fixture.refuse(gang)
    assert Counter(fixture.server.conditions) == once_each(gang)


async def test_condition_with_another_reason_is_written_although_its_message_is_the_same() -> None:
    fixture, gang = Fixture(), a_gang(1)
    for reason in ("Reserved", "Reserved", "Unschedulable"):
        fixture.pods.report_wait(gang.members, lambda pod: "no capacity", reason, is_event=False)
        await fixture.write_all()
    assert fixture.server.conditions == ["u0", "u0"]
    assert fixture.server.reasons == {"u0": "Unschedulable"}


async def test_conditions_are_written_again_after_the_reporter_was_asked_to_repeat_them() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.refuse(gang)
        await fixture.write_all()
        fixture.refuse(gang)
        await fixture.write_all()
        assert Counter(fixture.server.conditions) == once_each(gang)
        fixture.reporter.repeat()
        fixture.refuse(gang)
        fixture.refuse(gang)
    assert Counter(fixture.server.conditions) == once_each(gang) + once_each(gang)


async def test_later_report_keeps_the_time_since_when_a_gang_was_whole() -> None:
    """The gang may lose members before the status of its PodGroup is written."""
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.bind(gang, gang.members)
        fixture.refuse(gang)
        opinion = fixture.podgroup_writer.opinion(gang.key)
    assert opinion is not None
    assert opinion.code is Code.INSUFFICIENT
    assert opinion.whole_since


async def test_gang_and_its_members_get_an_event_when_the_reason_changes_and_when_they_are_bound() -> None:
    gang = a_gang(13)
    async with a_fixture() as fixture:
        for code in (Code.INSUFFICIENT, Code.INSUFFICIENT, Code.FRAGMENTED, Code.FRAGMENTED, Code.INSUFFICIENT):
            fixture.refuse(gang, code)
        fixture.bind(gang, gang.members)
    assert fixture.recorder.of("FailedScheduling") == Counter({"group": 3, **dict.fromkeys(once_each(gang), 3)})
    assert set(fixture.recorder.low) == set(once_each(gang))
    assert fixture.recorder.of("Scheduled") == once_each(gang) + Counter(["group"])


@pytest.mark.parametrize("has_ended", [True, False])
async def test_pod_group_gets_a_second_event_with_the_reason_scheduled_only_after_its_gang_has_ended(*, has_ended: bool) -> None:
    gang = a_gang(2)
    done = tuple(replace(pod, node_name="n1", phase="Succeeded") for pod in gang.members)
    async with a_fixture() as fixture:
        fixture.bind(gang, gang.members)
        if has_ended:
            fixture.reporter.unchanged(replace(gang, members=done))
        fixture.bind(gang, gang.members)
    assert fixture.recorder.of("Scheduled")["group"] == 1 + has_ended


async def test_only_the_first_members_of_a_large_gang_get_events() -> None:
    gang = a_gang(MANY)
    async with a_fixture() as fixture:
        fixture.refuse(gang)
    assert fixture.recorder.of("FailedScheduling") == Counter(["group", *(f"u{each}" for each in range(MEMBERS_WITH_EVENTS))])


async def test_member_that_is_created_later_gets_an_event_with_the_reason() -> None:
    gang = a_gang(3)
    async with a_fixture() as fixture:
        for number in (2, 3):
            fixture.refuse(replace(gang, members=gang.members[:number]))
    assert fixture.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1", "u2"])


async def test_podgroup_that_is_created_later_gets_the_event_that_the_first_pod_got() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.refuse(replace(gang, uid=""))
        assert fixture.recorder.of("FailedScheduling") == Counter(["u0", "u1"])
        for _ in range(2):
            fixture.refuse(gang)
    assert fixture.recorder.of("FailedScheduling")["group"] == 1


@pytest.mark.parametrize("has_group", [True, False])
async def test_each_member_of_a_held_gang_gets_an_event_and_its_podgroup_if_it_exists(has_group: bool) -> None:
    gang = a_gang(3) if has_group else replace(a_gang(3), uid="")
    async with a_fixture() as fixture:
        for _ in range(2):
            fixture.reporter.report_wait(gang, Held(Hold("BadLabel", "pod w1: wrong", gang.members[1])), 0.0)
    assert fixture.recorder.of("BadLabel") == Counter({"u1": 2})  # one event with a count
    assert fixture.recorder.of("FailedScheduling") == Counter(["u0", "u2", *(["group"] if has_group else [])])
    assert set(fixture.server.reasons.values()) == {"SchedulerError"}


async def test_missing_members_are_reported_after_two_seconds_with_a_reason_that_autoscalers_ignore() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        assert next_report(fixture, gang) == 2.0
        assert not fixture.recorder.reported
        fixture.now = 2.0
        assert next_report(fixture, gang) == 58.0
        next_report(fixture, gang)
    assert fixture.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])
    assert Counter(fixture.server.conditions) == once_each(gang)
    assert set(fixture.server.reasons.values()) == {"WaitingForMembers"}


async def test_members_are_reported_on_rarely_while_further_members_are_created_one_by_one() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        for second in range(32):
            fixture.now = float(second)
            due = next_report(fixture, replace(gang, min_member=99, deleted_successes=second))
            await fixture.write_all()
    assert due == 1.0
    assert set(Counter(fixture.server.conditions).values()) == {3}
    assert fixture.recorder.of("FailedScheduling") == Counter(["group", "u0", "u1"])


async def test_time_out_while_waiting_for_members_is_reported_once_and_shown_by_the_podgroup() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        for fixture.now in (0.0, 2.0, 60.0, 61.0):
            due = next_report(fixture, gang)
        opinion = fixture.podgroup_writer.opinion(gang.key)
    assert due is None
    assert fixture.recorder.of("Timeout") == Counter(["group"])
    assert opinion is not None
    assert opinion.has_timed_out
    assert not opinion.started


async def test_single_pod_gets_its_events_only_once() -> None:
    gang = replace(a_gang(1), key=GangKey("ns", "w0", "Pod"), uid="u0")
    async with a_fixture() as fixture:
        fixture.refuse(gang)
    assert fixture.recorder.of("FailedScheduling") == Counter({"u0": 1})


async def test_advice_does_not_replace_a_newer_message() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.refuse(gang)
        fixture.reporter.report_wait(gang, SearchFailed("a webhook said no"), 1.0)
        fixture.reporter.advised(gang, "no capacity", "no capacity. Would fit with more.")
        late = fixture.podgroup_writer.opinion(gang.key)
        fixture.refuse(gang)
        fixture.reporter.advised(gang, "no capacity", "no capacity. Would fit with more.")
        in_time = fixture.podgroup_writer.opinion(gang.key)
    assert late is not None
    assert in_time is not None
    assert (late.message, in_time.message) == ("a webhook said no", "no capacity. Would fit with more.")


async def test_gang_that_is_kept_open_still_shows_the_reason_of_its_last_refusal_while_it_is_partially_bound() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        fixture.refuse(gang, Code.FRAGMENTED)
        fixture.reporter.report_release(gang, (), SearchFailed("late"), Kept(SearchFailed("members run"), gang.members))
        refused = fixture.podgroup_writer.opinion(gang.key)
        fixture.bind(gang, gang.members)
        fixture.reporter.report_release(gang, (), SearchFailed("late"), Kept(SearchFailed("members run"), gang.members))
        whole = fixture.podgroup_writer.opinion(gang.key)
    assert refused is not None
    assert whole is not None
    assert (refused.code, whole.code) == (Code.FRAGMENTED, Code.RETRYING)


async def test_time_out_is_reported_once_and_starts_again_after_members_were_missing() -> None:
    gang = a_gang(2)
    async with a_fixture() as fixture:
        for fixture.now in (0.0, 61.0, 62.0, 63.0):
            fixture.refuse(gang)
        assert fixture.recorder.of("Timeout") == Counter(["group"])
        next_report(fixture, gang)
        fixture.now = 70.0
        fixture.refuse(gang)
        assert fixture.waits.of(gang).since == 70.0


async def test_only_the_last_10000_series_of_events_are_remembered() -> None:
    writer = Mock(spec=Writer)
    recorder = EventRecorder(Mock(spec=ApiServer), writer, "allaboard", "allaboard-1")
    for number in range(10_001):
        recorder.normal(ObjectReference("v1", "Pod", "ns", "p", f"u{number}"), "Scheduled", "Binding", "bound")
    begun = writer.put.call_count
    for uid in ("u10000", "u0"):  # the first series is remembered, with a recent event; the second is forgotten
        recorder.normal(ObjectReference("v1", "Pod", "ns", "p", uid), "Scheduled", "Binding", "bound")
    assert writer.put.call_count == begun + 1


async def test_repeated_refusal_is_logged_once_until_another_outcome_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="allaboard.decisions")
    gang = a_gang(2)
    async with a_fixture() as fixture:
        for _ in range(3):
            fixture.refuse(gang)
        fixture.reporter.report_wait(gang, SearchFailed("a webhook said no"), 1.0)
        fixture.refuse(gang)
        for _ in range(2):
            fixture.bind(gang, gang.members)
    outcomes = [record.decision["outcome"] for record in caplog.records if record.name == "allaboard.decisions"]  # type: ignore[attr-defined]
    assert outcomes == ["refused", "failed", "refused", "bound", "bound"]


async def test_pods_are_nominated_to_the_nodes_that_are_kept_for_them_until_they_are_bound_or_wait_again() -> None:
    gang = a_gang(3)
    fixture = Fixture()
    fixture.reporter.report_preempting(gang, {"u0": "n0", "u1": "n1"})
    await fixture.write_all()
    assert fixture.server.nominated == [("u0", "n0"), ("u1", "n1")]
    fixture.bind(gang, gang.members[:1])
    next_report(fixture, gang)
    next_report(fixture, gang)
    await fixture.write_all()
    assert fixture.server.nominated[2:] == [("u1", None)]


async def test_a_pod_that_is_bound_before_its_nomination_is_written_is_not_nominated() -> None:
    gang = a_gang(1)
    async with a_fixture() as fixture:
        fixture.reporter.report_preempting(gang, {"u0": "n0"})
        fixture.bind(gang, gang.members)
    assert fixture.server.nominated == []
