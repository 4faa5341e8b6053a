"""Refused gangs whose room can be counted: as many are let in as there is room for."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.queueing.capacity_waitlist import Capacity, CapacityWaitlist, need_of
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn
from tests.unit.placement.clusters import GPU, Case, cases, pods
from tests.unit.scheduling.clocks import Clock

ONE, TWO = (SchedulingSpec((("gpu", amount), ("pods", 1))) for amount in (1, 2))
GPUS = WakeUpOn(frozenset({"gpu"}))
KEYS = [GangKey("default", f"{number}") for number in range(9)]


class Free:
    """So many GPUs are free, on one node."""

    def __init__(self, gpus: int = 0) -> None:
        self.gpus = gpus

    def __call__(self, specs: Sequence[SchedulingSpec]) -> Sequence[int]:
        return [self.gpus // spec.amount("gpu") for spec in specs]


def by_name(key: GangKey) -> Order:
    return Order(0, True, 2, 0, float(key.name), key)


def a_lobby(free: Free, *needs: CapacityNeed) -> CapacityWaitlist:
    lobby = CapacityWaitlist(by_name, free)
    for key, need in zip(KEYS, needs, strict=False):
        lobby.add(key, need)
    return lobby


def test_as_many_are_let_in_as_there_is_room_for_the_first_first() -> None:
    lobby = a_lobby(Free(16), *([((ONE, 8),)] * 9))
    assert list(lobby.admit()) == KEYS[:2]
    assert list(lobby.admit()) == KEYS[2:4]  # those that were let in wait here no longer


def test_kinds_are_counted_as_if_each_were_alone() -> None:
    lobby = a_lobby(Free(8), ((ONE, 8),), ((TWO, 4),), ((TWO, 5),))
    assert list(lobby.admit()) == KEYS[:2]


def test_several_kinds_of_one_gang_must_each_have_room() -> None:
    lobby = a_lobby(Free(8), ((ONE, 1), (TWO, 4)), ((ONE, 9), (TWO, 1)))
    assert list(lobby.admit()) == KEYS[:1]


def test_there_is_a_bound_for_kinds_of_needs() -> None:
    lobby = CapacityWaitlist(by_name, Free())
    for number in range(1000):
        if lobby.has_place(((ONE, number + 1),)):
            lobby.add(GangKey("default", str(number)), ((ONE, number + 1),))
    assert not lobby.has_place(((ONE, 5000),))
    assert lobby.has_place(((ONE, 1),))
    lobby.discard(GangKey("default", "0"), ((ONE, 1),))
    assert lobby.has_place(((ONE, 5000),))


def a_gang(*members: object, minimum: int, **fields: object) -> Gang:
    return Gang(GangKey("default", "g"), minimum, tuple(members), 0, 0.0, Objective.BINPACK, 60, **fields)  # type: ignore[arg-type]


def test_what_a_gang_needs_is_counted_where_that_tells_enough() -> None:
    workers, servers = pods("w", 3, {GPU: 1}), pods("s", 1, {"cpu": 1000})
    assert need_of(a_gang(*workers, minimum=2)) == ((workers[0].spec, 2),)
    assert need_of(a_gang(*workers, *servers, minimum=4)) == ((workers[0].spec, 3), (servers[0].spec, 1))


@pytest.mark.parametrize(
    "gang",
    [
        a_gang(minimum=1),
        a_gang(*pods("w", 3, {GPU: 1}), *pods("s", 1, {"cpu": 1000}), minimum=3),  # any three
        a_gang(*pods("w", 2, {GPU: 1}, host_ports=(HostPort("", "TCP", 80),)), minimum=2),
        a_gang(*pods("w", 2, {GPU: 1}), minimum=2, required_topology="rack"),
        a_gang(*pods("w", 2, {GPU: 1}), minimum=2, role_minimums=(("", 1),)),
    ],
)
def test_where_rules_or_choices_matter_it_takes_a_search(gang: Gang) -> None:
    assert need_of(gang) is None


@settings(max_examples=80)
@given(cases(most_roles=1, most_pods=6))
def test_counting_is_what_a_search_finds_for_one_kind(record: Case) -> None:
    gang = [replace(pod, spec=replace(pod.spec, host_ports=())) for pod in record.gang]
    view = ClusterView()
    for each in record.cluster.nodes:
        view.upsert_node(each)
    for row, column in zip(*record.cluster.used.nonzero(), strict=True):
        spec = SchedulingSpec(((record.cluster.resources[column], int(record.cluster.used[row, column])),))
        name = f"{row}-{column}"
        view.upsert_pod(replace(gang[0], name=name, uid=name, spec=spec, node_name=record.cluster.nodes[row].name, phase="Running"))
    (seats,) = Capacity(view)([gang[0].spec])
    for minimum in range(1, len(gang) + 1):
        plan = search(build_problem(gang, minimum, view.snapshot(), objective=Objective.BINPACK), SearchSettings(), 0)
        assert plan.feasible is (seats >= minimum)


async def drained(queue: GangQueue) -> list[GangKey]:
    await queue.drain()
    popped = []
    while (key := queue.pop()) is not None:
        popped.append(key)
    return popped


def a_queue(free: Free, clock: Clock) -> GangQueue:
    return GangQueue(by_name, slots=free, clock=clock)


def refuse(queue: GangQueue, key: GangKey, need: CapacityNeed) -> None:
    queue.requeue(key, Requeue.refused(GPUS, need=need, is_capacity_assumed=False), seen=queue.changes)


async def test_whoever_has_been_refused_many_times_is_due_at_once_when_there_is_room() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    for _ in range(8):
        refuse(queue, KEYS[0], ((ONE, 4),))
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []  # not even looked at
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == [KEYS[0]]


async def test_of_ten_thousand_that_wait_those_are_due_for_whom_there_is_room() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    keys = [GangKey("default", str(number)) for number in range(10_000)]
    for key in keys:
        refuse(queue, key, ((ONE, 4),))
    free.gpus = 9
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == keys[:2]


async def test_whoever_is_refused_though_there_is_room_by_count_sits_out_its_pause() -> None:
    free, clock = Free(8), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], ((ONE, 4),))
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []
    clock.now += 2
    async with asyncio.timeout(50):
        await queue.wait()
    assert queue.pop() == KEYS[0]


async def test_whoever_is_let_in_and_takes_no_seats_leaves_them_to_the_next() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    for key in KEYS[:2]:
        refuse(queue, key, ((ONE, 4),))
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == KEYS[:1]
    async with asyncio.timeout(50):
        await queue.wait()
    assert await drained(queue) == KEYS[1:2]


async def test_room_that_comes_while_one_is_looked_at_is_a_higher_priority_s_first() -> None:
    free, clock = Free(), Clock(1000.0)
    high, low = KEYS[:2]
    queue = GangQueue(lambda key: by_name(key)._replace(depth=-1 if key == high else 0), slots=free, clock=clock)
    refuse(queue, high, ((ONE, 4),))
    queue.mark(low)
    await queue.drain()
    assert queue.pop() == low
    assert not queue.outranks(low)
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert queue.outranks(low)
    assert queue.pop(beside=low) == high


async def test_whoever_changes_while_it_pauses_is_still_due_when_there_is_room() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], ((ONE, 4),))
    queue.mark(KEYS[0])
    assert await drained(queue) == []
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == [KEYS[0]]


async def test_whoever_is_gone_is_not_let_in() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], ((ONE, 4),))
    queue.requeue(KEYS[0], Requeue.gone())
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []
