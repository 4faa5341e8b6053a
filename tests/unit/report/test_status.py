"""Tests the status of a PodGroup."""

from typing import Any

import pytest

from allaboard.gangs.podgroup import scheduled_since
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.model.times import parse_time
from allaboard.records.report_state import GangStatus
from allaboard.report.status import pod_group_status, pod_unscheduled


@pytest.mark.parametrize("stated", ["x", 7, ["x", None, 3], {"type": "Timeout"}, [{"type": ["Timeout"]}]])
def test_status_is_computed_even_if_the_stored_conditions_are_malformed(stated: Any) -> None:
    """Without a schema the stored status of a PodGroup may be any JSON value."""
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    status = pod_group_status(gang, "Pending", GangStatus(Code.WAITING, "waits"), {"conditions": stated}, "2026-01-01T00:00:00Z")
    assert [condition["type"] for condition in status["conditions"]] == ["PodGroupInitiallyScheduled"]


def test_status_keeps_the_time_since_when_a_gang_was_whole_after_it_lost_members() -> None:
    """The next leader must not take the gang for one that has never been whole."""
    gang = Gang(GangKey("ml", "g"), 3, (), 0, 0.0, Objective.BINPACK, 60)
    whole_since = "2026-01-01T00:00:02Z"
    status = pod_group_status(gang, "Scheduling", GangStatus(Code.RETRYING, "1 of 3", whole_since=whole_since), {}, "2026-01-01T00:00:09Z")
    assert scheduled_since(status) == parse_time(whole_since)


@pytest.mark.parametrize(("is_being_bound", "expected"), [(True, []), (False, ["True"])])
def test_gang_with_some_bound_members_is_partially_bound_unless_it_is_being_bound(is_being_bound: bool, expected: list[str]) -> None:
    pods = [Pod("ml", name, name, "1", 0.0, "allaboard", node, "Pending", 0, SchedulingSpec(())) for name, node in (("a", "n1"), ("b", ""))]
    gang = Gang(GangKey("ml", "g"), 2, tuple(pods), 0, 0.0, Objective.BINPACK, 60)
    opinion = GangStatus(Code.WAITING, "waits", is_being_bound=is_being_bound)
    status = pod_group_status(gang, "Scheduling", opinion, {}, "2026-01-01T00:00:00Z")
    assert [condition["status"] for condition in status["conditions"] if condition["type"] == "PartiallyBound"] == expected


def test_condition_partially_bound_turns_false_if_it_was_true() -> None:
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    before = {"conditions": [{"type": "PartiallyBound", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    status = pod_group_status(gang, "Running", GangStatus(Code.SCHEDULED, "1 member bound"), before, "2026-01-01T00:00:09Z")
    (condition,) = [each for each in status["conditions"] if each["type"] == "PartiallyBound"]
    assert (condition["status"], condition["message"], condition["lastTransitionTime"]) == ("False", "no longer", "2026-01-01T00:00:09Z")


def test_summary_has_eighty_characters_and_the_message_is_complete() -> None:
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    long = " ".join(["needs much"] * 20)
    status = pod_group_status(
        gang, "Pending", GangStatus(Code.INSUFFICIENT, f"podgroup ml/g: {long}", short=long), {}, "2026-01-01T00:00:00Z"
    )
    assert status["reason"] == "Insufficient"
    assert len(status["summary"]) == 80
    assert status["summary"].endswith("…")
    assert status["message"] == f"podgroup ml/g: {long}"
    (condition,) = status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Insufficient")


def test_condition_initially_scheduled_never_turns_false_again() -> None:
    """The condition stays true even if the scheduler has never seen the gang whole, as after a restart."""
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    before = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    status = pod_group_status(gang, "Scheduling", GangStatus(Code.RETRYING, "lost a member"), before, "2026-01-01T00:00:09Z")
    (condition,) = [each for each in status["conditions"] if each["type"] == "PodGroupInitiallyScheduled"]
    assert (condition["status"], condition["lastTransitionTime"]) == ("True", "2026-01-01T00:00:00Z")


def test_webhook_message_with_line_ends_is_put_on_one_line_of_a_status() -> None:
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    status = pod_group_status(gang, "Pending", GangStatus(Code.RETRYING, "denied\nall is well"), {}, "2026-01-01T00:00:00Z")
    messages = [status["summary"], status["message"], *(condition["message"] for condition in status["conditions"])]
    messages.append(pod_unscheduled("denied\nall is well", "2026-01-01T00:00:00Z")["message"])
    assert set(messages) == {"denied\\nall is well"}


@pytest.mark.parametrize(
    "message",
    [
        "1 of 2 members bound, 1 missing: pod b: no",
        "stays partially bound with 1 of 2 members bound: a already running; no capacity",
        "no capacity",
    ],
)
def test_message_of_the_condition_partially_bound_has_the_number_of_bound_members_once(message: str) -> None:
    pods = [Pod("ml", name, name, "1", 0.0, "allaboard", node, "Pending", 0, SchedulingSpec(())) for name, node in (("a", "n1"), ("b", ""))]
    gang = Gang(GangKey("ml", "g"), 2, tuple(pods), 0, 0.0, Objective.BINPACK, 60)
    status = pod_group_status(gang, "Scheduling", GangStatus(Code.RETRYING, message), {}, "2026-01-01T00:00:00Z")
    (condition,) = [each for each in status["conditions"] if each["type"] == "PartiallyBound"]
    assert condition["message"].count("1 of 2 members bound") == 1
    assert condition["message"].endswith(message)
