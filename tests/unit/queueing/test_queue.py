"""The queue: the gangs that are due, and the changes that make a refused gang due again."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey, Objective
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.queueing.order import wakes_up_on
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue, Returned
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING, NOTHING, CapacityNeed, WakeUpOn
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.queueing.queues import CPU, A, B, C, a_queue, drain
from tests.unit.scheduling.clocks import Clock


def test_a_gang_that_is_marked_as_due_several_times_is_attempted_once() -> None:
    queue = a_queue(Clock(1000.0))
    for _ in range(5):
        queue.mark(A)
    assert drain(queue) == [A]


async def test_a_gang_that_gets_an_older_member_moves_to_the_front() -> None:
    created = {A: 2.0, B: 1.0}
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, created[key], key))
    for key in created:
        queue.mark(key)
    created[A] = 0.0
    queue.mark(A)
    await queue.drain()
    assert drain(queue) == [A, B]


async def test_draining_the_queue_does_not_wait_for_gangs_that_are_marked_as_due_meanwhile() -> None:
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, 0.0, key))
    queue.mark(A)
    marks = 0

    async def mark_again() -> None:
        nonlocal marks
        while marks < 1000:
            queue.mark(A)
            marks += 1
            await asyncio.sleep(0)

    marking = asyncio.create_task(mark_again())
    await asyncio.sleep(0)
    await queue.drain()
    assert marks < 10
    await marking


def test_gang_that_is_deleted_during_its_attempt_is_due_once_more_to_be_forgotten() -> None:
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, 0.0, key), exists=lambda key: False)
    seen = queue.changes
    queue.observe(Freed())
    queue.requeue(A, Requeue.failed(ANYTHING), seen=seen)
    assert drain(queue) == [A]


def test_a_refused_gang_waits_for_the_resource_it_lacked() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"nvidia.com/gpu"}))), seen=queue.changes)
    clock.now += 2
    queue.observe(Freed(["cpu", "memory"]))
    assert drain(queue) == []
    queue.observe(Freed(["cpu", "nvidia.com/gpu"]))
    assert drain(queue) == [A]


def test_a_change_of_a_node_wakes_all_gangs() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.requeue(B, Requeue.failed(WakeUpOn()), seen=queue.changes)
    clock.now += 2
    queue.observe(Freed())
    assert drain(queue) == [A, B]


def test_capacity_that_is_freed_during_an_attempt_wakes_the_gang() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    seen = queue.changes
    queue.observe(Freed(["cpu"]))
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=seen)
    clock.now += 2
    assert drain(queue) == [A]


def test_unschedulable_gang_whose_event_was_missed_is_retried_after_five_minutes() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    clock.now += 299
    assert drain(queue) == []
    clock.now += 2
    assert drain(queue) == [A]


def test_queue_reports_its_numbers_of_active_backoff_and_unschedulable_gangs() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    queue.requeue(B, Requeue.failed(ANYTHING), seen=queue.changes)
    queue.requeue(C, Requeue.failed(ANYTHING), seen=queue.changes)
    queue.observe(Freed())
    assert queue.sizes() == {"active": 1, "backoff": 2, "unschedulable": 0}


async def test_waiting_for_a_due_gang_ends_when_a_gang_is_marked_as_due() -> None:
    queue = a_queue(Clock(1000.0))
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.mark(A)
    async with asyncio.timeout(50):
        await waiting


def test_capacity_that_is_freed_during_each_attempt_does_not_delay_other_gangs() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    for key in (A, B):
        queue.mark(key)
    rounds = []
    for _ in range(2):
        rounds.append(queue.pop())
        seen = queue.changes
        queue.observe(Freed(["cpu"]))  # a pod of another gang ends while A is searched for
        queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=seen)
    assert rounds == [A, B]
    clock.now += 2
    assert queue.pop() == A


def test_a_gang_that_must_share_a_rack_is_woken_by_any_freed_resource() -> None:
    racks = [node(name, {"cpu": 12, "memory": memory}, labels={"rack": name}) for name, memory in (("a", 64), ("b", 12), ("c", 64))]
    used = {"a": {"cpu": 6}, "b": {"memory": 12}, "c": {"cpu": 6}}
    gang = pods("worker", 2, {"cpu": 6, "memory": 6})
    for emptied in ("a", "b"):
        plans = []
        for taken in (used, {name: amounts for name, amounts in used.items() if name != emptied}):
            shared = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
            problem = build_problem(gang, 2, snapshot(racks, taken), objective=Objective.BINPACK, rules=shared)
            plans.append(search(problem, SearchSettings(), 0))
        wake_on = wakes_up_on(plans[0].explanation, gang)
        assert (plans[0].feasible, plans[1].feasible) == (False, True)
        assert wake_on.anything or wake_on.resources & used[emptied].keys()


async def test_first_of_thousands_of_woken_gangs_are_due_at_once_and_the_others_soon() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    keys = [GangKey("default", f"g{number:05d}") for number in range(5000)]
    for key in keys:
        queue.requeue(key, Requeue.waiting(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.observe(Freed(["cpu"]))
    assert 0 < queue.sizes()["active"] < len(keys)
    await queue.drain()
    assert drain(queue) == keys
    assert queue.sizes() == {"active": 0, "backoff": 0, "unschedulable": 0}


async def test_waiting_for_woken_gangs_ends_when_all_of_them_are_due() -> None:
    queue = a_queue(Clock(1000.0))
    keys = [GangKey("default", f"g{number:05d}") for number in range(2500)]
    for key in keys:
        queue.requeue(key, Requeue.waiting(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.observe(Freed())
    await asyncio.wait_for(queue.wait(), 10)
    assert drain(queue) == keys


def test_freeing_a_resource_does_not_visit_gangs_that_lack_another_resource() -> None:
    visited = []

    def exists(key: GangKey) -> bool:
        visited.append(key)
        return True

    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, 0.0, key), exists)
    for number in range(1000):
        queue.requeue(GangKey("default", f"g{number}"), Requeue.waiting(WakeUpOn(frozenset({"memory"}))), seen=queue.changes)
    queue.requeue(A, Requeue.waiting(WakeUpOn(frozenset({"cpu", "memory"}))), seen=queue.changes)
    visited.clear()
    queue.observe(Freed(["cpu"]))
    assert set(visited) == {A}
    assert queue.sizes()["unschedulable"] == 1000


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("wait"), st.sampled_from([A, B, C]), st.sampled_from([ANYTHING, WakeUpOn(), WakeUpOn(frozenset({"cpu", "memory"}))])
            ),
            st.tuples(st.just("wake"), st.sampled_from([None, ("cpu",), ("gpu",)])),
            st.tuples(st.sampled_from(["mark", "settle", "pop"]), st.sampled_from([A, B, C])),
        ),
        max_size=20,
    )
)
def test_index_of_unschedulable_gangs_has_no_entries_of_removed_gangs(history: list[tuple[object, ...]]) -> None:
    queue = a_queue(Clock(1000.0))
    for event in history:
        match event:
            case ("wait", GangKey() as key, WakeUpOn() as wake_on):
                queue.requeue(key, Requeue.waiting(wake_on), seen=queue.changes)
            case ("wake", freed):
                queue.observe(Freed(freed))  # type: ignore[arg-type]
            case ("mark", GangKey() as key):
                queue.mark(key)
            case ("settle", GangKey() as key):
                queue.requeue(key, Requeue.settled())
            case _:
                queue.pop()
        indexed = {key: {r for r, keys in queue._unschedulable._by_wake_up_key.items() if key in keys} for key in (A, B, C)}
        known = {key: queue._read_state(key).wake_on for key in (A, B, C)}
        expected = {key: set(wake_on.awaited) if wake_on else set() for key, wake_on in known.items()}
        assert indexed == expected
        assert not queue._unschedulable.are_woken


@pytest.mark.parametrize(("kinds", "is_due"), [(0, False), (1, True), (2, False)])
def test_capacity_that_is_freed_during_a_search_ends_the_backoff_if_counting_is_exact(kinds: int, is_due: bool) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    pods = tuple((SchedulingSpec((("cpu", number),)), 1) for number in range(kinds))
    for _ in range(6):
        queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    seen = queue.changes
    queue.observe(Freed({"cpu"}))
    queue.requeue(A, Requeue.refused(CPU, need=CapacityNeed(pods) if pods else None), seen=seen)
    assert drain(queue) == ([A] if is_due else [])
    clock.now += 60
    assert drain(queue) == ([] if is_due else [A])


async def test_admitting_many_gangs_does_not_block_the_event_loop() -> None:
    """At most 500 gangs are admitted before other tasks of the event loop run."""
    places = 0

    def order(key: GangKey) -> Order:
        nonlocal places
        places += 1
        return Order(0, True, 2, 0, 0, float(key.name), key)

    free = 0
    queue = GangQueue(order, slots=lambda specs, priority, walltime: [free] * len(specs))
    keys, need = [GangKey("default", str(number)) for number in range(3000)], CapacityNeed(((SchedulingSpec((("pods", 1),)), 1),))
    for key in keys:
        queue.requeue(key, Requeue.refused(WakeUpOn(frozenset({"pods"})), need=need), seen=queue.changes)
    free, most, rounds = len(keys), 0, 0
    queue.observe(Freed(["pods"]))
    task = asyncio.create_task(queue.drain())
    while not task.done():
        places, rounds = 0, rounds + 1
        await asyncio.sleep(0)
        most = max(most, places)
    assert rounds >= 6
    assert most <= 3 * 500
    assert [queue.pop() for _ in keys] == keys


async def test_returning_assumed_capacity_to_many_refused_gangs_does_not_block_the_event_loop() -> None:
    clock = Clock(1000.0)
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, float(key.name), key), clock=clock)
    keys = [GangKey("default", str(number)) for number in range(3000)]
    for key in keys:
        for _ in range(3):
            queue.requeue(key, Requeue.refused(NOTHING), seen=queue.changes)
    clock.now += 1.0
    queue.observe(Returned())
    assert queue.sizes()["active"] == 500
    await queue.drain()
    assert queue.sizes()["active"] == len(keys)
