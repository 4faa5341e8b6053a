"""Which gang is next, and when a refused one is worth another look."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey, Objective
from allaboard.model.rules import Rules
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.scheduling.order import ANYTHING, Lacks, Order
from allaboard.scheduling.queue import GangQueue
from allaboard.scheduling.ranks import Overtaking
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.scheduling.clocks import Clock

A, B, C = (GangKey("default", name) for name in "abc")
CPU = Lacks(frozenset({"cpu"}))


def an_indebted_queue(clock: Clock, debts: dict[str, int], protected: set[GangKey] | None = None) -> GangQueue:
    """A queue that orders by debts of namespaces, then by name."""

    def order(key: GangKey) -> Order:
        is_protected = queue.must_not_be_overtaken(key) or key in (protected or ())
        return Order(0, True, 1 if is_protected else 2, debts.get(key.namespace, 0), float(key.name), key)

    queue = GangQueue(order, clock=clock)
    return queue


def gang_of(namespace: str, name: int) -> GangKey:
    return GangKey(namespace, str(name))


def a_queue(clock: Clock, priorities: dict[GangKey, int] | None = None, half_bound: GangKey | None = None) -> GangQueue:
    def order(key: GangKey) -> Order:
        return Order(-(priorities or {}).get(key, 0), True, int(key != half_bound), 0, 0.0, key)

    return GangQueue(order, backoff_initial=1.0, backoff_max=60.0, clock=clock)


def drain(queue: GangQueue) -> list[GangKey]:
    popped = []
    while (key := queue.pop()) is not None:
        popped.append(key)
    return popped


def test_whoever_was_taken_out_passes_nobody_of_a_higher_priority_who_sits_out_a_pause() -> None:
    queue = a_queue(Clock(1000.0), {C: 10})
    for key in (B, C):
        queue.mark(key)
    assert queue.pop() == C
    queue.refuse(C, CPU, seen=queue.changes, is_promised=False)
    assert queue.pop() == B
    assert not queue.outranks(B)
    queue.wake({"cpu"})
    assert queue.pop() is None
    assert queue.outranks(B)
    assert not queue.outranks(C)
    assert queue.pop(beside=B) == C


def test_higher_priority_comes_first_then_name() -> None:
    queue = a_queue(Clock(1000.0), {C: 10})
    for key in (B, A, C):
        queue.mark(key)
    assert drain(queue) == [C, A, B]


def test_a_gang_marked_often_is_due_once() -> None:
    queue = a_queue(Clock(1000.0))
    for _ in range(5):
        queue.mark(A)
    assert drain(queue) == [A]


def test_each_failure_doubles_the_pause_up_to_a_bound() -> None:
    clock = Clock(1000.0)
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


def test_a_gang_that_has_gone_while_it_was_attempted_is_due_to_be_forgotten() -> None:
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0.0, key), exists=lambda key: False)
    seen = queue.changes
    queue.wake()
    queue.fail(A, ANYTHING, seen=seen)
    assert drain(queue) == [A]


def test_a_refused_gang_waits_for_the_resource_it_lacked() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"nvidia.com/gpu"})), seen=queue.changes)
    clock.now += 2
    queue.wake(["cpu", "memory"])
    assert drain(queue) == []
    queue.wake(["cpu", "nvidia.com/gpu"])
    assert drain(queue) == [A]


def test_a_change_of_a_node_wakes_everybody() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.fail(B, Lacks(), seen=queue.changes)
    clock.now += 2
    queue.wake()
    assert drain(queue) == [A, B]


def test_capacity_that_came_free_during_the_attempt_is_not_slept_over() -> None:
    clock = Clock(1000.0)
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
    clock = Clock(1000.0)
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
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    clock.now += 299
    assert drain(queue) == []
    clock.now += 2
    assert drain(queue) == [A]


def test_success_forgets_the_failures() -> None:
    queue = a_queue(Clock(1000.0))
    queue.fail(A, ANYTHING, seen=queue.changes)
    queue.settle(A)
    assert queue.attempts(A) == 0
    queue.mark(A)
    assert drain(queue) == [A]


def test_sizes_tell_where_gangs_wait() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    queue.fail(B, ANYTHING, seen=queue.changes)
    queue.fail(C, ANYTHING, seen=queue.changes)
    queue.wake()
    assert queue.sizes() == {"active": 1, "backoff": 2, "unschedulable": 0}


async def test_waiting_ends_when_a_gang_is_marked() -> None:
    queue = a_queue(Clock(1000.0))
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.mark(A)
    async with asyncio.timeout(5):
        await waiting


@pytest.mark.parametrize("first", [0.01, 0.02])
async def test_waiting_ends_when_a_pause_does(first: float) -> None:
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0.0, key))
    queue.retry(A, first)
    async with asyncio.timeout(5):
        await queue.wait()
    assert queue.pop() == A


def test_what_comes_free_during_each_attempt_keeps_the_others_waiting_once_only() -> None:
    clock = Clock(1000.0)
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
    queue = a_queue(Clock(1000.0), priorities)
    for key in (A, B, C):
        queue.mark(key)
    priorities[A] = -10
    assert not queue.outranks(B)
    assert drain(queue) == [B, C, A]


def test_pauses_that_have_ended_leave_nothing_behind() -> None:
    clock = Clock(1000.0)
    keys = [GangKey("default", f"gang-{number:02}") for number in range(50)]
    queue = GangQueue(lambda key: Order(-10 if key == A else 0, True, 2, 0, 0.0, key), backoff_initial=60, backoff_max=60, clock=clock)
    queue.fail(A, ANYTHING, seen=queue.changes)
    for _ in range(100):
        for key in keys:
            queue.fail(key, ANYTHING, seen=queue.changes)
        queue.mark(A)  # one that pauses for longer stays at the top
        queue.wake()
        clock.now += 60
        drain(queue)
        queue.fail(A, ANYTHING, seen=queue.changes)
    assert len(queue._pausing._heap) < 300


def test_who_must_share_a_rack_may_be_helped_by_anything_that_comes_free_in_another() -> None:
    racks = [node(name, {"cpu": 12, "memory": memory}, labels={"rack": name}) for name, memory in (("a", 64), ("b", 12), ("c", 64))]
    used = {"a": {"cpu": 6}, "b": {"memory": 12}, "c": {"cpu": 6}}
    gang = pods("worker", 2, {"cpu": 6, "memory": 6})
    for emptied in ("a", "b"):
        plans = []
        for taken in (used, {name: amounts for name, amounts in used.items() if name != emptied}):
            shared = Rules(together=[("rack", {pod.uid for pod in gang})])
            problem = build_problem(gang, 2, snapshot(racks, taken), objective=Objective.BINPACK, rules=shared)
            plans.append(search(problem, SearchSettings(), 0))
        lacks = Lacks.of(plans[0].explanation, gang)
        assert (plans[0].feasible, plans[1].feasible) == (False, True)
        assert lacks.anything or lacks.resources & used[emptied].keys()


def test_a_change_of_a_gang_that_is_tried_in_its_pause_is_not_slept_over() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    queue.wake(["cpu"])
    queue.mark(B)
    assert drain(queue) == [A, B]  # in spite of its pause
    queue.mark(A)  # one of its pods changes while it is searched for
    queue.fail(A, Lacks(frozenset({"cpu"})), seen=queue.changes)
    clock.now += 2
    assert drain(queue) == [A]


def test_those_in_debt_go_behind_younger_ones_of_their_priority() -> None:
    queue = an_indebted_queue(Clock(1000.0), {"evil": 2})
    for key in (gang_of("evil", 1), gang_of("evil", 2), gang_of("team", 3)):
        queue.mark(key)
    assert drain(queue) == [gang_of("team", 3), gang_of("evil", 1), gang_of("evil", 2)]


def test_a_debt_that_is_run_into_while_they_wait_counts_and_so_does_one_that_is_gone() -> None:
    debts: dict[str, int] = {}
    queue = an_indebted_queue(Clock(1000.0), debts)
    for key in (gang_of("evil", 1), gang_of("team", 3), gang_of("evil", 2), gang_of("team", 4)):
        queue.mark(key)
    debts["evil"] = 3
    assert queue.pop() == gang_of("team", 3)
    assert not queue.outranks(gang_of("team", 3))
    assert queue.outranks(gang_of("evil", 2))
    debts["evil"] = 0
    queue.eased({"evil"})
    assert drain(queue) == [gang_of("evil", 1), gang_of("evil", 2), gang_of("team", 4)]


def test_one_in_debt_is_passed_as_often_as_gangs_may_be_overtaken_and_then_goes_first_once() -> None:
    queue = an_indebted_queue(Clock(1000.0), {"evil": 1})
    old = gang_of("evil", 1)
    queue.mark(old)
    seated = []
    for number in range(2, 9):
        queue.mark(gang_of("team", number))
        key = queue.pop()
        assert key is not None
        if key == old:
            break
        queue.seated(key)
        queue.settle(key)
        seated.append(key)
    assert len(seated) == 3
    queue.fail(old, ANYTHING, seen=queue.changes)
    assert not queue.must_not_be_overtaken(old)


def test_a_debt_never_puts_anybody_behind_a_lower_priority_nor_behind_those_that_may_be_overtaken_still() -> None:
    queue = an_indebted_queue(Clock(1000.0), {"evil": 6}, protected={gang_of("evil", 9)})
    for key in (gang_of("team", 1), gang_of("evil", 9)):
        queue.mark(key)
    assert queue.pop() == gang_of("evil", 9)


def test_debts_that_come_and_go_leave_no_entries_behind() -> None:
    debts: dict[str, int] = {}
    queue = an_indebted_queue(Clock(1000.0), debts)
    for number in range(20):
        queue.mark(gang_of("evil", number))
    queue.mark(gang_of("team", 99))
    for _ in range(1000):
        debts["evil"] = 1
        assert queue.peek() == gang_of("team", 99)
        debts["evil"] = 0
        queue.eased({"evil"})
        assert queue.peek() == gang_of("evil", 0)
    assert len(queue._due._heap) <= 200
    assert drain(queue) == [*(gang_of("evil", number) for number in range(20)), gang_of("team", 99)]


def test_a_pause_without_a_failure_is_as_long_as_after_the_last_one() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(3):
        queue.fail(A, ANYTHING, seen=queue.changes)
    queue.pause(A, ANYTHING, seen=queue.changes)
    assert queue.attempts(A) == 3
    queue.mark(A)
    clock.now += 3.9
    assert drain(queue) == []
    clock.now += 0.1
    assert drain(queue) == [A]


def test_a_pause_is_no_shorter_than_what_is_asked_for_nor_longer_than_the_longest() -> None:
    clock = Clock(1000.0)
    for asked, pause in ((0.0, 1), (7.0, 7), (86_400.0, 60)):
        queue = a_queue(clock)
        queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now, at_least=asked)
        clock.now += pause - 0.5
        assert queue.pop() is None
        clock.now += 0.5
        assert queue.pop() == A


def test_whoever_loses_members_again_and_again_is_placed_at_once_first_and_then_rests() -> None:
    clock = Clock(1000.0)
    queue = GangQueue(lambda key: Order(0, key != A, 0, 0, 0.0, key), clock=clock)
    times = []
    waiting_since = clock.now
    for _ in range(9):
        times.append(clock.now - 1000)
        queue.placed(A, waiting_since, 0)
        clock.now += 0.5
        queue.mark(A)
        while A not in drain(queue):
            queue.mark(B)  # who is due meanwhile cuts no rest short
            clock.now += 0.5
        waiting_since = clock.now
    assert times == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 123.5]


@pytest.mark.parametrize(("stayed", "is_forgotten"), [(30.0, False), (60.0, True)])
def test_a_minute_as_a_whole_gang_is_forgiven(stayed: float, is_forgotten: bool) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(4):
        queue.placed(A, clock.now, 0)
    clock.now += stayed
    queue.placed(A, clock.now, 0)
    queue.mark(A)
    assert bool(drain(queue)) is is_forgotten


def test_surplus_that_fails_again_and_again_makes_the_gang_rest_and_surplus_that_is_added_does_not() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.placed(A, clock.now, 0)
    for _ in range(5):
        queue.placed(A, None, 0)
        queue.mark(A)
        assert drain(queue) == [A], "who joins a whole gang waits for nothing"
    pauses = []
    for failed in range(1, 5):
        queue.placed(A, None, failed)
        queue.mark(A)
        began = clock.now
        while not drain(queue):
            clock.now += 0.5
        pauses.append(clock.now - began)
    assert pauses == [1, 2, 4, 8]


def test_whoever_comes_by_the_name_of_one_that_is_gone_need_not_rest() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(4):
        queue.placed(A, clock.now, 0)
    queue.forget(A)
    queue.mark(A)
    assert drain(queue) == [A]


async def test_of_thousands_that_are_woken_at_once_the_first_are_due_and_soon_all() -> None:
    clock = Clock(1000.0)
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
    queue = a_queue(Clock(1000.0))
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

    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0.0, key), exists)
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
    queue = a_queue(Clock(1000.0))
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
        of_lacks = {key: {r for r, keys in queue._parked._lacking.items() if key in keys} for key in (A, B, C)}
        known = {key: queue._known(key).lacks for key in (A, B, C)}
        expected = {key: set(lacks.awaited) if lacks else set() for key, lacks in known.items()}
        assert of_lacks == expected
        assert not queue._parked.are_woken


def test_whoever_was_refused_while_seats_were_promised_pauses_for_a_moment_when_they_are_given_back() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.fail(A, CPU, seen=queue.changes)
    queue.refuse(A, CPU, seen=queue.changes, is_promised=True)
    queue.given_back()
    assert queue.attempts(A) == 5
    assert queue.peek() is None
    clock.now += 1
    assert drain(queue) == [A]


def test_so_does_whoever_pauses_already_since_something_came_free() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.refuse(A, CPU, seen=queue.changes, is_promised=True)
    queue.wake()
    queue.given_back()
    clock.now += 1
    assert drain(queue) == [A]


@pytest.mark.parametrize("times", [1, 2])
def test_so_does_whoever_is_refused_by_promises_that_are_none_any_more(times: int) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.fail(A, CPU, seen=queue.changes)
    for _ in range(times):
        seen = queue.changes
        queue.given_back()
        queue.refuse(A, CPU, seen=seen, is_promised=False)
    assert queue.attempts(A) == 5
    assert queue.peek() is None
    clock.now += 1
    assert drain(queue) == [A]


def test_a_refusal_beside_which_nothing_was_promised_counts_whatever_is_given_back() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for is_promised in (True, True, False):
        queue.refuse(A, CPU, seen=queue.changes, is_promised=is_promised)
    queue.given_back()
    clock.now += 3.9
    assert queue.peek() is None
    clock.now += 0.1
    assert drain(queue) == [A]


def test_a_pause_that_the_api_server_wants_is_cut_short_for_nobody() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now, at_least=5)
    queue.mark(A)
    queue.mark(B)
    assert drain(queue) == [B]
    clock.now += 5
    assert drain(queue) == [A]


def test_who_fails_again_and_again_though_there_is_room_lets_lower_priorities_pass() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    for times in range(1, 5):
        queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now)
        queue.mark(A)
        queue.mark(B)
        assert drain(queue) == ([A, B] if times <= 3 else [B])


def test_a_gang_is_looked_at_when_it_is_wanted_first() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.retry(A, 2)
    queue.retry(A, 5)
    clock.now += 2
    assert drain(queue) == [A]


@pytest.mark.parametrize("is_pausing", [False, True])
def test_a_firm_pause_of_a_gang_that_is_looked_at_again_is_not_ended_by_events(is_pausing: bool) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    if is_pausing:
        queue.refuse(A, CPU, seen=queue.changes, is_promised=False)
    queue.mark(A)
    queue.retry(A, 4, is_firm=True)
    queue.mark(A)
    queue.mark(B)
    assert drain(queue) == [B]
    clock.now += 4
    assert drain(queue) == [A]
    queue.settle(A)
    queue.mark(A)
    assert drain(queue) == [A]


def test_a_gang_that_is_placed_in_its_pause_and_has_lost_a_member_meanwhile_is_looked_at() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.refuse(A, CPU, seen=queue.changes, is_promised=False)
    queue.wake()
    queue.mark(B)
    assert queue.pop() == A  # before its pause is over, since nobody of a lower priority may pass it
    queue.mark(A)
    queue.placed(A, clock.now, 0)
    assert drain(queue) == [A, B]


async def test_what_comes_free_before_a_gang_is_looked_at_again_is_not_left_to_lower_ones() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    queue.mark(A)
    assert queue.pop() == A
    queue.refuse(B, CPU, seen=queue.changes, is_promised=False)
    clock.now += 1.0
    queue.resume(A, 0.5)
    clock.now += 0.1
    queue.wake({"cpu"})
    await queue.stirred()
    assert drain(queue) == [A, B]


def test_what_the_api_server_wants_to_be_waited_for_is_waited_for_though_the_gang_is_looked_at_or_fails_otherwise_meanwhile() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now, at_least=30)
    queue.retry(A, 1)  # its time is over, say
    clock.now += 1
    assert drain(queue) == [A]
    queue.resume(A, 1)
    clock.now += 1
    assert drain(queue) == []
    queue.retry(A, 1)
    clock.now += 1
    assert drain(queue) == [A]
    queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now)
    clock.now += 26
    assert drain(queue) == []
    clock.now += 1
    assert drain(queue) == [A]
    queue.resume(A, 1)
    clock.now += 1
    assert drain(queue) == [A]


@pytest.mark.parametrize("need", [None, (("pod", 1),)])
def test_room_that_comes_while_a_gang_is_searched_for_is_not_slept_over_whatever_its_pauses(need: Any) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(6):
        queue.refuse(A, CPU, seen=queue.changes, is_promised=False)
    assert queue.peek() is None
    attempts, seen = queue.attempts(A), queue.changes
    queue.wake({"cpu"})
    clock.now += 0.1
    queue.refuse(A, CPU, seen=seen, is_promised=False, need=need)
    assert drain(queue) == [A]
    assert queue.attempts(A) == attempts  # on what is there now it hasn't failed
    queue.wake({"cpu"})
    queue.refuse(A, CPU, seen=seen, is_promised=False, need=need)
    assert drain(queue) == []  # or it would keep others waiting on a busy cluster


def test_nothing_is_firm_of_a_pause_for_want_of_room() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock, {A: 10})
    for _ in range(6):
        queue.fail(A, ANYTHING, seen=queue.changes, retry_by=clock.now)  # so often that the pause is firm
    queue.refuse(A, CPU, seen=queue.changes, is_promised=False)
    queue.mark(B)
    queue.wake({"cpu"})
    assert drain(queue) == [A, B]  # it goes before a lower priority, pause or not


def test_whoever_is_seated_passes_only_gangs_of_its_own_priority() -> None:
    clock = Clock(1000.0)
    queue = GangQueue(lambda key: Order(0 if key in (A, C) else -10, True, 2, 0, float(ord(key.name)), key), clock=clock)
    for key in (A, B):
        queue.refuse(key, CPU, seen=queue.changes, is_promised=False)
    queue.wake({"cpu"})
    for _ in range(100):
        queue.seated(C)
    assert queue.attempts(A) == 1
    assert [queue._known(key).passed > 0 for key in (A, B)] == [True, False]


def test_losses_are_forgiven_only_after_twice_the_rest() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(9):  # the ninth in a row rests for more than half a minute
        queue.placed(A, clock.now, 0)
    clock.now += 70
    queue.placed(A, clock.now, 0)
    queue.mark(A)
    assert drain(queue) == []


def test_how_long_a_gang_has_been_overtaken_is_counted_from_the_first_time() -> None:
    clock = Clock(1000.0)
    queue = GangQueue(lambda key: Order(0, True, 2, 0, 0.0, key), overtaking=Overtaking(100, 50.0), clock=clock)
    for _ in range(3):
        queue.overtaken(A)
        clock.now += 20
    assert queue.must_not_be_overtaken(A)
