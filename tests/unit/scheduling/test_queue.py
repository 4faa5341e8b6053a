"""Which gang is next, and when a refused one is worth another look."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey, Objective
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.scheduling.queue import ANYTHING, GangQueue, Lacks, Order
from tests.unit.placement.clusters import node, pods, snapshot

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


def test_what_comes_free_during_each_attempt_keeps_the_others_waiting_once_only() -> None:
    clock = Clock()
    queue = a_queue(clock, {A: 10})
    for key in (A, B):
        queue.mark(key)
    turns = []
    for _ in range(3):
        turns.append(queue.pop())
        seen = queue.changes
        queue.wake(["cpu"])  # somebody else's pod ends while A is searched for
        queue.fail(A, Lacks(frozenset({"cpu"})), seen=seen)
    assert turns == [A, A, B]
    clock.now += 60
    assert queue.pop() == A


def test_a_gang_whose_place_is_further_behind_than_when_it_was_marked_goes_there() -> None:
    priorities = {A: 10}
    queue = a_queue(Clock(), priorities)
    for key in (A, B, C):
        queue.mark(key)
    priorities[A] = -10
    assert not queue.outranks(B)
    assert drain(queue) == [B, C, A]


def test_pauses_that_have_ended_leave_nothing_behind() -> None:
    clock = Clock()
    keys = [GangKey("default", f"gang-{number:02}") for number in range(50)]
    queue = GangQueue(lambda key: (True, -10 if key == A else 0, 2, 0.0, key), backoff_initial=60, backoff_max=60, clock=clock)
    queue.fail(A, ANYTHING, seen=queue.changes)
    for _ in range(100):
        for key in keys:
            queue.fail(key, ANYTHING, seen=queue.changes)
        queue.mark(A)  # one that pauses for longer stays at the top
        queue.wake()
        clock.now += 60
        drain(queue)
        queue.fail(A, ANYTHING, seen=queue.changes)
    assert len(queue._pausing) < 300


def test_who_must_share_a_rack_may_be_helped_by_anything_that_comes_free_in_another() -> None:
    racks = [node(name, {"cpu": 12, "memory": memory}, labels={"rack": name}) for name, memory in (("a", 64), ("b", 12), ("c", 64))]
    used = {"a": {"cpu": 6}, "b": {"memory": 12}, "c": {"cpu": 6}}
    gang = pods("worker", 2, {"cpu": 6, "memory": 6})
    for emptied in ("a", "b"):
        plans = []
        for taken in (used, {name: amounts for name, amounts in used.items() if name != emptied}):
            shared = [("rack", {pod.uid for pod in gang})]
            problem = build_problem(gang, 2, snapshot(racks, taken), objective=Objective.BINPACK, together=shared)
            plans.append(search(problem, SearchSettings(), 0))
        lacks = Lacks.of(plans[0].explanation, gang)
        assert (plans[0].feasible, plans[1].feasible) == (False, True)
        assert lacks.anything or lacks.resources & used[emptied].keys()


def test_a_change_of_a_gang_that_is_tried_in_its_pause_is_not_slept_over() -> None:
    clock = Clock()
    queue = a_queue(clock, {A: 10})
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.wake(["cpu"])
    queue.mark(B)
    assert drain(queue) == [A, B]  # in spite of its pause
    queue.mark(A)  # one of its pods changes while it is searched for
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    clock.now += 2
    assert drain(queue) == [A]


async def test_of_thousands_that_are_woken_at_once_the_first_are_due_and_soon_all() -> None:
    clock = Clock()
    queue = a_queue(clock)
    keys = [GangKey("default", f"g{number:05d}") for number in range(5000)]
    for key in keys:
        queue.park(key, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.wake(["cpu"])
    assert 0 < queue.sizes()["active"] < len(keys)
    await queue.stirred()
    assert drain(queue) == keys
    assert queue.sizes() == {"active": 0, "backoff": 0, "unschedulable": 0}


async def test_whoever_waits_for_a_gang_finds_all_that_were_woken() -> None:
    queue = a_queue(Clock())
    keys = [GangKey("default", f"g{number:05d}") for number in range(2500)]
    for key in keys:
        queue.park(key, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.wake()
    await asyncio.wait_for(queue.wait(), 10)
    assert drain(queue) == keys


def test_who_lacks_something_else_is_not_even_looked_at() -> None:
    asked = []

    def exists(key: GangKey) -> bool:
        asked.append(key)
        return True

    queue = GangQueue(lambda key: (True, 0, 2, 0.0, key), exists)
    for number in range(1000):
        queue.park(GangKey("default", f"g{number}"), Lacks(frozenset({"memory"})), seen=queue.changes)
    queue.park(A, Lacks(frozenset({"cpu", "memory"})), seen=queue.changes)
    queue.wake(["cpu"])
    assert set(asked) == {A}
    assert queue.sizes()["unschedulable"] == 1000


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("park"), st.sampled_from([A, B, C]), st.sampled_from([ANYTHING, Lacks(), Lacks(frozenset({"cpu", "memory"}))])
            ),
            st.tuples(st.just("wake"), st.sampled_from([None, ("cpu",), ("gpu",)])),
            st.tuples(st.sampled_from(["mark", "settle", "pop"]), st.sampled_from([A, B, C])),
        ),
        max_size=20,
    )
)
def test_what_is_known_of_those_that_are_parked_goes_with_them(history: list[tuple[object, ...]]) -> None:
    queue = a_queue(Clock())
    for event in history:
        match event:
            case ("park", GangKey() as key, Lacks() as lacks):
                queue.park(key, lacks, seen=queue.changes)
            case ("wake", freed):
                queue.wake(freed)  # type: ignore[arg-type]
            case ("mark", GangKey() as key):
                queue.mark(key)
            case ("settle", GangKey() as key):
                queue.settle(key)
            case _:
                queue.pop()
        of_lacks = {key: {r for r, keys in queue._lacking.items() if key in keys} for key in (A, B, C)}
        expected = {
            key: (({None} if lacks.anything else set(lacks.resources)) if (lacks := queue._parked.get(key)) else set()) for key in (A, B, C)
        }
        assert of_lacks == expected
        assert not queue._woken
