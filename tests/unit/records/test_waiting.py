"""The times at which a gang's wait began, and at which the gang is attempted again."""

from dataclasses import replace

import pytest

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from tests.unit.placement.clusters import pods
from tests.unit.scheduling.clocks import Clock

GANG = Gang(GangKey("default", "g"), 1, tuple(pods("p", 1, {})), 0, 0.0, Objective.BINPACK, 60)
WHOLE = replace(GANG, members=tuple(replace(pod, node_name="n") for pod in GANG.members))


def test_waiting_time_of_a_gang_starts_when_it_is_first_asked_for_and_ends_with_the_wait() -> None:
    clock = Clock(1000.0)
    waits = WaitClock(GangRecords(), clock, lambda: 5.0)
    assert waits.find(GANG.key) is None
    wait = waits.of(GANG)
    clock.now += 10
    assert waits.of(GANG) is waits.find(GANG.key) is wait
    assert (wait.since, wait.started) == (1000.0, 0.0)
    waits.end(GANG.key)
    waits.end(GangKey("default", "unknown"))
    assert waits.find(GANG.key) is None
    assert waits.of(GANG).since == 1010.0


@pytest.mark.parametrize(("created", "started"), [((1.0, 3.0), 3.0), ((1.0, 9.0), 5.0)])
def test_a_new_leader_shows_the_wait_since_the_newest_member_was_created(created: tuple[float, float], started: float) -> None:
    """The clock of the API server may be ahead."""
    members = tuple(replace(pod, created=when) for pod, when in zip(pods("p", 2, {}), created, strict=True))
    assert WaitClock(GangRecords(), now=lambda: 5.0).of(replace(GANG, members=members)).started == started


def test_waiting_times_for_pods_and_for_capacity_begin_separately() -> None:
    clock = Clock(1000.0)
    waits = WaitClock(GangRecords(), clock)
    waits.of(GANG, is_for_pods=True)
    clock.now += 10
    assert waits.of(GANG).since == 1010.0


@pytest.mark.parametrize(
    ("waited", "next_look", "expected"),
    [(0.0, None, 60.0), (0.0, 30.0, 30.0), (0.0, 90.0, 60.0), (60.0, None, None), (60.0, 90.0, 90.0)],
)
def test_a_refused_gang_is_attempted_again_at_its_time_out_or_before(
    waited: float, next_look: float | None, expected: float | None
) -> None:
    clock = Clock(0.0)
    waits = WaitClock(GangRecords(), clock)
    waits.of(GANG)
    clock.now += waited
    assert waits.retry_by(GANG, next_look) == expected
    assert waits.retry_by(WHOLE, next_look) is None
