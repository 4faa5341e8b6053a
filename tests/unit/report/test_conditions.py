"""What a PodGroup's status is made of."""

from typing import Any

import pytest

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import parse_time
from allaboard.report.conditions import Opinion, Verdict, pod_group_status, scheduled_since


@pytest.mark.parametrize("stated", ["x", 7, ["x", None, 3], {"type": "Timeout"}, [{"type": ["Timeout"]}]])
def test_whatever_stands_where_conditions_are_expected_a_status_is_made(stated: Any) -> None:
    """Where no schema says what a PodGroup's status is, anybody may write anything."""
    gang = Gang(GangKey("ml", "g"), 1, (), 0, 0.0, Objective.BINPACK, 60)
    status = pod_group_status(gang, "Pending", Opinion(Verdict.WAITING, "waits"), {"conditions": stated}, "2026-01-01T00:00:00Z")
    assert [condition["type"] for condition in status["conditions"]] == ["PodGroupInitiallyScheduled"]


def test_a_gang_that_was_whole_says_since_when_though_it_was_not_written_while_it_was() -> None:
    """Whoever is the scheduler next must not hold it for one that has never been."""
    gang = Gang(GangKey("ml", "g"), 3, (), 0, 0.0, Objective.BINPACK, 60)
    whole_since = "2026-01-01T00:00:02Z"
    status = pod_group_status(gang, "Scheduling", Opinion(Verdict.PARTIAL, "1 of 3", whole_since=whole_since), {}, "2026-01-01T00:00:09Z")
    assert scheduled_since(status) == parse_time(whole_since)
