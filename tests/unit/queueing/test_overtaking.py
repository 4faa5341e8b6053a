"""Gangs that are placed together may overtake a gang that would have fitted in queue order, but not for ever."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import GangKey, Objective
from allaboard.placement import SearchSettings
from allaboard.placement.contest.contest import Waiting, contest_of
from allaboard.placement.contest.joint import place_together
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.ranks import Overtaking
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING
from tests.unit.placement.clusters import GPU, node, pods, snapshot
from tests.unit.queueing.queues import must_not_be_overtaken
from tests.unit.scheduling.clocks import Clock

QUICK = SearchSettings(generations=6, min_generations=2, patience=3, population_size=8)
GPUS = 8


def key_of(number: int) -> GangKey:
    return GangKey("default", f"gang-{number:03}")


def a_queue(clock: Clock, *, times: int = 3, seconds: float = 300.0) -> GangQueue:
    def order(key: GangKey) -> Order:
        return Order(0, True, 1 if must_not_be_overtaken(queue, key) else 2, 0, 0.0, key)

    queue = GangQueue(order, overtaking=Overtaking(times, seconds), clock=clock)
    return queue


def test_gang_may_be_overtaken_as_often_as_the_setting_allows() -> None:
    queue, key = a_queue(Clock(), times=2), key_of(1)

    assert not must_not_be_overtaken(queue, key)
    queue.placed(None, [key])
    assert not must_not_be_overtaken(queue, key)
    queue.placed(None, [key])
    assert must_not_be_overtaken(queue, key)


def test_gang_may_be_overtaken_for_as_long_as_the_setting_allows() -> None:
    clock = Clock()
    queue, key = a_queue(clock, seconds=300), key_of(1)
    queue.placed(None, [key])
    clock.now = 299.0
    assert not must_not_be_overtaken(queue, key)
    clock.now = 300.0
    assert must_not_be_overtaken(queue, key)


def test_a_gang_that_has_been_placed_may_be_overtaken_again() -> None:
    queue, key = a_queue(Clock(), times=1), key_of(1)
    queue.placed(None, [key])
    queue.requeue(key, Requeue.settled())

    assert not must_not_be_overtaken(queue, key)


def test_a_gang_that_must_not_be_overtaken_goes_first_even_in_backoff() -> None:
    queue = a_queue(Clock(), times=1)
    queue.placed(None, [key_of(2)])
    queue.requeue(key_of(2), Requeue.failed(ANYTHING), seen=queue.changes)
    queue.mark(key_of(1))
    assert queue.peek() == key_of(1)

    queue.observe(Freed())  # capacity was freed for both

    assert [queue.pop(), queue.pop(), queue.pop()] == [key_of(2), key_of(1), None]


@pytest.mark.parametrize("is_in_backoff", [False, True])
def test_a_popped_gang_is_outranked_by_a_gang_of_higher_priority_even_if_that_gang_is_in_backoff(is_in_backoff: bool) -> None:
    clock = Clock()
    queue = GangQueue(lambda key: Order(-int(key.name[-1]), True, 2, 0, 0.0, key), clock=clock)
    queue.mark(key_of(9))
    if is_in_backoff:
        queue.requeue(queue.pop() or key_of(0), Requeue.failed(ANYTHING), seen=queue.changes)
        queue.mark(key_of(9))
    queue.mark(key_of(1))
    assert queue.outranks(key_of(5))
    assert not queue.outranks(key_of(9))


Rank = tuple[bool, int, int, int]
ranks = st.lists(st.tuples(st.booleans(), st.integers(-1, 1), st.integers(0, 2), st.integers(0, 1)), min_size=4, max_size=4)


@given(ranks, ranks)
def test_a_gang_that_was_put_back_is_not_popped_before_the_gang_that_outranks_it(at_first: list[Rank], later: list[Rank]) -> None:
    # Gangs change while they wait. For example a gang that has lost a member since it was queued now goes before other gangs.
    now = at_first

    keys = [GangKey(f"namespace-{number}", "gang") for number in range(4)]  # each namespace has a usage of its own

    def order(key: GangKey) -> Order:
        return Order(*now[keys.index(key)], 0.0, key)

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
    queue = a_queue(Clock())
    for number in (1, 2, 3):
        queue.mark(key_of(number))
    popped = [queue.pop(), queue.pop()]

    queue.put_back(key for key in popped if key)

    assert [queue.pop() for _ in range(4)] == [key_of(1), key_of(2), key_of(3), None]


@given(st.lists(st.lists(st.integers(1, GPUS), max_size=3), min_size=1, max_size=10), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_no_gang_is_overtaken_more_often_than_the_setting_allows(arrivals: list[list[int]], times: int) -> None:
    queue = a_queue(Clock(), times=times)
    cluster = snapshot([node("node", {"cpu": 64_000, GPU: GPUS})])
    size: dict[GangKey, int] = {}
    waiting: list[GangKey] = []
    overtaken: Counter[GangKey] = Counter()
    longest = sum(map(len, arrivals)) + 1
    for newcomers in [*arrivals, *[[] for _ in range(longest)]]:
        for gpus in newcomers:
            key = key_of(len(size))
            size[key] = gpus
            waiting.append(key)
        waiting.sort(key=lambda key: (not must_not_be_overtaken(queue, key), key))
        # Placed gangs end before the next round.
        gangs = [
            Waiting(
                pods(key.name, size[key], {GPU: 1}),
                size[key],
                seed=0,
                objective=Objective.BINPACK,
                must_not_be_overtaken=must_not_be_overtaken(queue, key),
            )
            for key in waiting
        ]
        if not gangs:
            continue
        joint = place_together(contest_of(gangs, cluster), QUICK)
        for position in joint.overtaken:
            queue.placed(None, [waiting[position]])
            overtaken[waiting[position]] += 1
        waiting = [key for position, key in enumerate(waiting) if joint.plans[position] is None]
    assert max(overtaken.values(), default=0) <= times
    assert not waiting


def test_gang_in_backoff_is_passed_no_more_often_than_the_setting_allows() -> None:
    clock = Clock()
    queue, old = a_queue(clock), key_of(1)
    for _ in range(4):
        queue.requeue(old, Requeue.refused(ANYTHING, is_capacity_assumed=False), seen=queue.changes)
    placed = []
    for number in range(2, 9):
        queue.observe(Freed())  # capacity was freed for both, but the old gang stays in backoff
        queue.mark(key_of(number))
        popped = queue.pop()
        if popped is None or popped == old:
            break
        queue.placed(popped)
        queue.requeue(popped, Requeue.settled())
        placed.append(popped)
    assert placed == [key_of(2), key_of(3), key_of(4)]


def test_only_the_oldest_gang_in_backoff_that_may_still_be_passed_is_counted_as_passed() -> None:
    queue = a_queue(Clock(), times=1)
    for number in (2, 3, 9):
        queue.requeue(key_of(number), Requeue.failed(ANYTHING), seen=queue.changes)
    queue.observe(Freed())
    for _ in range(3):
        queue.placed(key_of(5))
    assert [number for number in (2, 3, 9) if must_not_be_overtaken(queue, key_of(number))] == [2, 3]


def test_a_passed_gang_that_went_first_and_did_not_fit_may_be_passed_again() -> None:
    queue, old = a_queue(Clock(), times=1), key_of(1)
    queue.requeue(old, Requeue.failed(ANYTHING), seen=queue.changes)
    queue.observe(Freed())
    queue.placed(key_of(2))
    assert must_not_be_overtaken(queue, old)
    queue.requeue(old, Requeue.failed(ANYTHING), seen=queue.changes)
    assert not must_not_be_overtaken(queue, old)


def test_an_overtaken_gang_that_would_have_fitted_stays_first_until_it_is_placed() -> None:
    queue, old = a_queue(Clock(), times=1), key_of(1)
    queue.placed(None, [old])
    queue.requeue(old, Requeue.failed(ANYTHING), seen=queue.changes)
    assert must_not_be_overtaken(queue, old)
