"""Which gang is next, and when a refused one is worth another look."""

import asyncio

import pytest

from allaboard.model.gang import GangKey
from allaboard.scheduling.queue import ANYTHING, GangQueue, Lacks, Order

A, B, C = (GangKey("default", name) for name in "abc")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def a_queue(clock: Clock, priorities: dict[GangKey, int] | None = None, half_bound: GangKey | None = None) -> GangQueue:
    def order(key: GangKey) -> Order:
        return (True, -(priorities or {}).get(key, 0), key != half_bound, 0.0, key)

    return GangQueue(order, backoff_initial=1.0, backoff_max=60.0, clock=clock)


def drain(queue: GangQueue) -> list[GangKey]:
    popped = []
    while (key := queue.pop()) is not None:
        popped.append(key)
    return popped


def test_higher_priority_comes_first_then_name() -> None:
    queue = a_queue(Clock(), {C: 10})
    for key in (B, A, C):
        queue.mark(key)
    assert drain(queue) == [C, A, B]


def test_a_gang_marked_often_is_due_once() -> None:
    queue = a_queue(Clock())
    for _ in range(5):
        queue.mark(A)
    assert drain(queue) == [A]


def test_each_failure_doubles_the_pause_up_to_a_bound() -> None:
    clock = Clock()
    queue = a_queue(clock)
    pauses = []
    for _ in range(9):
        queue.fail(A, ANYTHING, seen=queue.changes)
        queue.mark(A)
        start = clock.now
        while queue.pop() is None:
            clock.now += 1.0
        pauses.append(clock.now - start)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_refused_gang_waits_for_the_resource_it_lacked() -> None:
    clock = Clock()
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"nvidia.com/gpu"})), seen=queue.changes)
    clock.now += 2
    queue.wake(["cpu", "memory"])
    assert drain(queue) == []
    queue.wake(["cpu", "nvidia.com/gpu"])
    assert drain(queue) == [A]


def test_a_change_of_a_node_wakes_everybody() -> None:
    clock = Clock()
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.fail(B, Lacks(), seen=queue.changes)
    clock.now += 2
    queue.wake()
    assert drain(queue) == [A, B]


def test_capacity_that_came_free_during_the_attempt_is_not_slept_over() -> None:
    clock = Clock()
    queue = a_queue(clock)
    seen = queue.changes
    queue.wake(["cpu"])
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=seen)
    clock.now += 2
    assert drain(queue) == [A]


@pytest.mark.parametrize(("high", "half_bound"), [(10, None), (0, B), (0, None)])
def test_a_pause_lets_pass_nobody_of_lower_priority_nor_without_a_seat_when_something_came_free_for_both(
    high: int, half_bound: GangKey | None
) -> None:
    clock = Clock()
    queue = a_queue(clock, {B: high}, half_bound)
    for _ in range(3):
        queue.fail(B, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    clock.now += 1
    queue.mark(A)
    assert drain(queue) == [A]
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.wake(["cpu"])
    assert drain(queue) == []
    clock.now += 2
    assert drain(queue) == ([B, A] if high or half_bound else [A])
    clock.now += 2
    assert drain(queue) == ([] if high or half_bound else [B])


def test_a_forgotten_event_is_made_up_for_by_a_slow_flush() -> None:
    clock = Clock()
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    clock.now += 299
    assert drain(queue) == []
    clock.now += 2
    assert drain(queue) == [A]


def test_success_forgets_the_failures() -> None:
    queue = a_queue(Clock())
    queue.fail(A, ANYTHING, seen=queue.changes)
    queue.settle(A)
    assert queue.attempts(A) == 0
    queue.mark(A)
    assert drain(queue) == [A]


def test_sizes_tell_where_gangs_wait() -> None:
    clock = Clock()
    queue = a_queue(clock)
    queue.mark(A)
    queue.fail(B, ANYTHING, seen=queue.changes)
    queue.fail(C, ANYTHING, seen=queue.changes)
    queue.wake()
    assert queue.sizes() == {"active": 1, "backoff": 2, "unschedulable": 0}


async def test_waiting_ends_when_a_gang_is_marked() -> None:
    queue = a_queue(Clock())
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.mark(A)
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("first", [0.01, 0.02])
async def test_waiting_ends_when_a_pause_does(first: float) -> None:
    queue = GangQueue(lambda key: (True, 0, 0.0, key))
    queue.retry(A, first)
    async with asyncio.timeout(5):
        await queue.wait()
    assert queue.pop() == A
