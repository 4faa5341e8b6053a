"""The order in which gangs are popped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.sort_key import PLAIN, Order
from allaboard.records.wake_up import ANYTHING, WakeUpOn
from tests.unit.queueing.queues import CPU, A, B, C, a_queue, a_queue_by_usage, drain, gang_of
from tests.unit.scheduling.clocks import Clock


def test_a_popped_gang_does_not_pass_a_gang_of_higher_priority_in_backoff() -> None:
    queue = a_queue(Clock(1000.0), {C: 10})
    for key in (B, C):
        queue.mark(key)
    assert queue.pop() == C
    queue.requeue(C, Requeue.refused(CPU), seen=queue.changes)
    assert queue.pop() == B
    assert not queue.outranks(B)
    queue.observe(Freed({"cpu"}))
    assert queue.pop() is None
    assert queue.outranks(B)
    assert not queue.outranks(C)
    assert queue.pop(beside=B) == C


def test_gangs_are_popped_by_priority_and_among_equals_by_name() -> None:
    queue = a_queue(Clock(1000.0), {C: 10})
    for key in (B, A, C):
        queue.mark(key)
    assert drain(queue) == [C, A, B]


@pytest.mark.parametrize(("high", "partially_bound"), [(10, None), (0, B), (0, None)])
def test_a_woken_gang_in_backoff_goes_before_gangs_of_lower_priority_and_if_partially_bound_before_absent_gangs(
    high: int, partially_bound: GangKey | None
) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {B: high}, partially_bound)
    for _ in range(3):
        queue.requeue(B, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    clock.now += 1
    queue.mark(A)
    assert drain(queue) == [A]
    queue.requeue(A, Requeue.failed(WakeUpOn(frozenset({"cpu"}))), seen=queue.changes)
    queue.observe(Freed(["cpu"]))
    assert drain(queue) == []
    clock.now += 2
    assert drain(queue) == ([B, A] if high or partially_bound else [A])
    clock.now += 2
    assert drain(queue) == ([] if high or partially_bound else [B])


def test_gang_whose_position_has_moved_back_since_it_was_marked_is_popped_later() -> None:
    priorities = {A: 10}
    queue = a_queue(Clock(1000.0), priorities)
    for key in (A, B, C):
        queue.mark(key)
    priorities[A] = -10
    assert not queue.outranks(B)
    assert drain(queue) == [B, C, A]


def test_gangs_of_a_namespace_with_much_search_time_go_behind_younger_gangs_of_their_priority() -> None:
    queue = a_queue_by_usage(Clock(1000.0), {"evil": 2})
    for key in (gang_of("evil", 1), gang_of("evil", 2), gang_of("team", 3)):
        queue.mark(key)
    assert drain(queue) == [gang_of("team", 3), gang_of("evil", 1), gang_of("evil", 2)]


def test_search_time_that_is_used_while_gangs_wait_changes_the_order_of_the_gangs() -> None:
    usages: dict[str, int] = {}
    queue = a_queue_by_usage(Clock(1000.0), usages)
    for key in (gang_of("evil", 1), gang_of("team", 3), gang_of("evil", 2), gang_of("team", 4)):
        queue.mark(key)
    usages["evil"] = 3
    assert queue.pop() == gang_of("team", 3)
    assert not queue.outranks(gang_of("team", 3))
    assert queue.outranks(gang_of("evil", 2))
    usages["evil"] = 0
    queue.promote({"evil": ()})
    assert drain(queue) == [gang_of("evil", 1), gang_of("evil", 2), gang_of("team", 4)]


def test_changes_of_search_time_leave_no_outdated_entries() -> None:
    usages: dict[str, int] = {}
    queue = a_queue_by_usage(Clock(1000.0), usages)
    for number in range(20):
        queue.mark(gang_of("evil", number))
    queue.mark(gang_of("team", 99))
    for _ in range(1000):
        usages["evil"] = 1
        assert queue.peek() == gang_of("team", 99)
        usages["evil"] = 0
        queue.promote({"evil": ()})
        assert queue.peek() == gang_of("evil", 0)
    assert len(queue._active._fronts) <= 200
    assert drain(queue) == [*(gang_of("evil", number) for number in range(20)), gang_of("team", 99)]


def test_a_gang_that_fails_again_and_again_despite_capacity_is_passed_by_lower_priorities() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    for times in range(1, 5):
        queue.requeue(A, Requeue.failed(ANYTHING, retry_by=clock.now), seen=queue.changes)
        queue.mark(A)
        queue.mark(B)
        assert drain(queue) == ([A, B] if times <= 3 else [B])


def test_gang_is_due_at_the_earliest_of_its_retry_times() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.requeue(A, Requeue.again(2))
    queue.requeue(A, Requeue.again(5))
    clock.now += 2
    assert drain(queue) == [A]


async def test_capacity_that_is_freed_before_a_retry_goes_to_the_gang_of_higher_priority() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.mark(A)
    assert queue.pop() == A
    queue.requeue(B, Requeue.refused(CPU), seen=queue.changes)
    clock.now += 1.0
    queue.requeue(A, Requeue.resumed(0.5))
    clock.now += 0.1
    queue.observe(Freed({"cpu"}))
    await queue.drain()
    assert drain(queue) == [A, B]


async def test_a_gang_that_moves_to_the_front_in_backoff_goes_first() -> None:
    created = {A: 2.0, B: 3.0}
    queue = GangQueue(lambda key: Order(0 if key == C else -10, True, 0, 0, 0, created.get(key, 0.0), key), clock=Clock(1000.0))
    for key in (A, B):
        queue.requeue(key, Requeue.refused(CPU), seen=queue.changes)
    queue.observe(Freed({"cpu"}))
    queue.mark(C)  # C has a lower priority: A and B go before it even in backoff
    created[B] = 1.0
    queue.promote({"default": [B]})
    await queue.drain()
    assert drain(queue) == [B, A, C]


@pytest.mark.parametrize("is_in_backoff", [False, True])
def test_a_popped_gang_is_outranked_by_a_gang_of_higher_priority_even_if_that_gang_is_in_backoff(is_in_backoff: bool) -> None:
    clock = Clock()
    queue = GangQueue(lambda key: Order(-int(key.name[-1]), True, 2, 0, 0, 0.0, key), clock=clock)
    queue.mark(_key_of(9))
    if is_in_backoff:
        queue.requeue(queue.pop() or _key_of(0), Requeue.failed(ANYTHING), seen=queue.changes)
        queue.mark(_key_of(9))
    queue.mark(_key_of(1))
    assert queue.outranks(_key_of(5))
    assert not queue.outranks(_key_of(9))


Rank = tuple[bool, int, int, int]
ranks = st.lists(st.tuples(st.booleans(), st.integers(-1, 1), st.integers(0, 2), st.integers(0, 1)), min_size=4, max_size=4)


@given(ranks, ranks)
def test_a_gang_that_was_put_back_is_not_popped_before_the_gang_that_outranks_it(at_first: list[Rank], later: list[Rank]) -> None:
    # Gangs change while they wait. For example a gang that has lost a member since it was queued now goes before other gangs.
    now = at_first

    keys = [GangKey(f"namespace-{number}", "gang") for number in range(4)]  # each namespace has a usage of its own

    def order(key: GangKey) -> Order:
        return Order(*now[keys.index(key)], 0, 0.0, key)

    queue = GangQueue(order)
    for key in keys:
        queue.mark(key)
    popped = queue.pop()
    now = later
    assert popped is not None
    if queue.outranks(popped):
        queue.put_back([popped])
        assert queue.peek() != popped


def test_a_gang_that_is_put_back_is_due_again() -> None:
    queue = GangQueue(lambda key: Order(0, True, PLAIN, 0, 0, 0.0, key), clock=Clock())
    for number in (1, 2, 3):
        queue.mark(_key_of(number))
    popped = [queue.pop(), queue.pop()]

    queue.put_back(key for key in popped if key)

    assert [queue.pop() for _ in range(4)] == [_key_of(1), _key_of(2), _key_of(3), None]


def _key_of(number: int) -> GangKey:
    return GangKey("default", f"gang-{number:03}")
