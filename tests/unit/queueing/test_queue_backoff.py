"""The length of a gang's backoff after failed attempts."""

import asyncio

import pytest

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue, Returned
from allaboard.records.backoff import Backoff
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING, WakeUpOn
from tests.unit.queueing.queues import CPU, A, B, a_queue, drain, failures_of
from tests.unit.scheduling.clocks import Clock


def test_each_failure_doubles_the_backoff_up_to_a_bound() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    backoffs = []
    for _ in range(9):
        queue.requeue(A, Requeue.failed(ANYTHING), seen=queue.changes)
        queue.mark(A)
        start = clock.now
        while queue.pop() is None:
            clock.now += 1.0
        backoffs.append(clock.now - start)
    assert backoffs == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_successful_attempt_resets_the_number_of_failures() -> None:
    queue = a_queue(Clock(1000.0))
    queue.requeue(A, Requeue.failed(ANYTHING), seen=queue.changes)
    queue.requeue(A, Requeue.settled())
    assert failures_of(queue, A) == 0
    queue.mark(A)
    assert drain(queue) == [A]


@pytest.mark.parametrize("first", [0.01, 0.02])
async def test_waiting_for_a_due_gang_ends_when_a_backoff_ends(first: float) -> None:
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, 0.0, key))
    queue.requeue(A, Requeue.again(first))
    async with asyncio.timeout(50):
        await queue.wait()
    assert queue.pop() == A


def test_backoffs_that_have_ended_leave_no_entries() -> None:
    clock = Clock(1000.0)
    keys = [GangKey("default", f"gang-{number:02}") for number in range(50)]
    queue = GangQueue(lambda key: Order(-10 if key == A else 0, True, 2, 0, 0, 0.0, key), backoff=Backoff(60.0, 60.0), clock=clock)
    queue.requeue(A, Requeue.failed(ANYTHING), seen=queue.changes)
    for _ in range(100):
        for key in keys:
            queue.requeue(key, Requeue.failed(ANYTHING), seen=queue.changes)
        queue.mark(A)  # a gang with a longer backoff stays at the top
        queue.observe(Freed())
        clock.now += 60
        drain(queue)
        queue.requeue(A, Requeue.failed(ANYTHING), seen=queue.changes)
    assert len(queue._in_backoff._fronts) < 300
    assert sum(len(members.heap) for groups in queue._in_backoff._groups.values() for members in groups.values()) < 300


def test_a_gang_that_changes_during_an_attempt_in_backoff_is_due_again() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.observe(Freed(["cpu"]))
    queue.mark(B)
    assert drain(queue) == [A, B]  # A is in backoff, but has the higher priority
    queue.mark(A)  # one of its pods changes while it is searched for
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    clock.now += 2
    assert drain(queue) == [A]


def test_a_backoff_without_a_failure_is_as_long_as_the_backoff_after_the_last_failure() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(3):
        queue.requeue(A, Requeue.failed(ANYTHING), seen=queue.changes)
    queue.requeue(A, Requeue.searching(ANYTHING), seen=queue.changes)
    assert failures_of(queue, A) == 3
    queue.mark(A)
    clock.now += 3.9
    assert drain(queue) == []
    clock.now += 0.1
    assert drain(queue) == [A]


def test_a_backoff_lasts_at_least_as_long_as_requested_and_at_most_the_longest() -> None:
    clock = Clock(1000.0)
    for asked, backoff in ((0.0, 1), (7.0, 7), (86_400.0, 60)):
        queue = a_queue(clock)
        queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now, at_least=asked), seen=queue.changes)
        clock.now += backoff - 0.5
        assert queue.pop() is None
        clock.now += 0.5
        assert queue.pop() == A


@pytest.mark.parametrize("is_during_the_attempt", [True, False])
def test_a_refusal_has_no_backoff_once_assumed_capacity_is_returned(is_during_the_attempt: bool) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.requeue(A, Requeue.failed(CPU), seen=queue.changes)
    seen = queue.changes
    if is_during_the_attempt:
        queue.observe(Returned())
    queue.requeue(A, Requeue.refused(CPU), seen=seen)
    if not is_during_the_attempt:
        assert drain(queue) == []
        queue.observe(Returned())
    assert drain(queue) == [A]
    clock.now += 0.1
    queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    assert drain(queue) == []


def test_a_woken_gang_in_backoff_is_due_once_assumed_capacity_is_returned() -> None:
    queue = a_queue(Clock(1000.0))
    for _ in range(5):
        queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    queue.observe(Freed())
    assert drain(queue) == []
    queue.observe(Returned())
    assert drain(queue) == [A]


def test_a_backoff_after_a_failed_bind_goes_on_when_assumed_capacity_is_returned() -> None:
    queue = a_queue(Clock(1000.0))
    queue.requeue(A, Requeue.failed(CPU), seen=queue.changes)
    queue.observe(Returned())
    assert drain(queue) == []


def test_a_backoff_that_the_api_server_asks_for_is_not_shortened() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now, at_least=5), seen=queue.changes)
    queue.mark(A)
    queue.mark(B)
    assert drain(queue) == [B]
    clock.now += 5
    assert drain(queue) == [A]


@pytest.mark.parametrize("is_in_backoff", [False, True])
def test_a_hard_backoff_of_a_retried_gang_is_not_ended_by_events(is_in_backoff: bool) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    if is_in_backoff:
        queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    queue.mark(A)
    queue.requeue(A, Requeue.again(4, is_hard=True))
    queue.mark(A)
    queue.mark(B)
    assert drain(queue) == [B]
    clock.now += 4
    assert drain(queue) == [A]
    queue.requeue(A, Requeue.settled())
    queue.mark(A)
    assert drain(queue) == [A]


def test_gang_that_changes_during_an_attempt_before_the_end_of_its_backoff_is_due_again() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    queue.observe(Freed())
    queue.mark(B)
    assert queue.pop() == A  # before its backoff ends, since it goes before lower priorities
    queue.mark(A)
    queue.requeue(A, Requeue.settled())
    assert drain(queue) == [A, B]


def test_a_backoff_that_the_api_server_asks_for_outlasts_retries_and_other_failures() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now, at_least=30), seen=queue.changes)
    queue.requeue(A, Requeue.again(1))  # for instance since its time-out is over
    clock.now += 1
    assert drain(queue) == [A]
    queue.requeue(A, Requeue.resumed(1))
    clock.now += 1
    assert drain(queue) == []
    queue.requeue(A, Requeue.again(1))
    clock.now += 1
    assert drain(queue) == [A]
    queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now), seen=queue.changes)
    clock.now += 26
    assert drain(queue) == []
    clock.now += 1
    assert drain(queue) == [A]
    queue.requeue(A, Requeue.resumed(1))
    clock.now += 1
    assert drain(queue) == [A]


def test_a_backoff_for_lack_of_capacity_is_not_hard() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    for _ in range(6):
        queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now), seen=queue.changes)  # after so many failures the backoff is hard
    queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    queue.mark(B)
    queue.observe(Freed({"cpu"}))
    assert drain(queue) == [A, B]  # A goes before a lower priority even in backoff
