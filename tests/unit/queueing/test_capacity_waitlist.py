"""The capacity waitlist, which admits as many refused gangs as fit by count."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.walltime import UNKNOWN
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.queueing.capacity_waitlist import Capacity, CapacityWaitlist, need_of
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Freed, Requeue
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn
from tests.unit.placement.clusters import GPU, Case, cases, pods
from tests.unit.planning.ledgers import a_ledger
from tests.unit.scheduling.clocks import Clock

ONE, TWO = (SchedulingSpec((("gpu", amount), ("pods", 1))) for amount in (1, 2))
GPUS = WakeUpOn(frozenset({"gpu"}))
KEYS = [GangKey("default", f"{number}") for number in range(9)]


class Free:
    """The free GPUs of one node; a call returns how many pods of each spec they suffice for, as the waitlist asks."""

    def __init__(self, gpus: int = 0) -> None:
        self.gpus = gpus

    def __call__(self, specs: Sequence[SchedulingSpec], priority: int, walltime: float) -> Sequence[int]:
        return [self.gpus // spec.amount("gpu") for spec in specs]


def by_name(key: GangKey) -> Order:
    return Order(0, True, 2, 0, 0, float(key.name), key)


def a_waitlist(free: Free, *needs: CapacityNeed) -> CapacityWaitlist:
    waitlist = CapacityWaitlist(by_name, free)
    for key, need in zip(KEYS, needs, strict=False):
        waitlist.add(key, need)
    return waitlist


def test_capacity_waitlist_admits_as_many_gangs_as_fit_in_queue_order() -> None:
    waitlist = a_waitlist(Free(16), *([CapacityNeed(((ONE, 8),))] * 9))
    assert list(waitlist.admit()) == KEYS[:2]
    assert list(waitlist.admit()) == KEYS[2:4]  # admitted gangs are removed


def test_each_waiting_gangs_need_is_counted_as_if_no_other_gang_waited() -> None:
    waitlist = a_waitlist(Free(8), CapacityNeed(((ONE, 8),)), CapacityNeed(((TWO, 4),)), CapacityNeed(((TWO, 5),)))
    assert list(waitlist.admit()) == KEYS[:2]


def test_each_kind_of_pods_of_a_gang_must_fit() -> None:
    waitlist = a_waitlist(Free(8), CapacityNeed(((ONE, 1), (TWO, 4))), CapacityNeed(((ONE, 9), (TWO, 1))))
    assert list(waitlist.admit()) == KEYS[:1]


def test_the_number_of_different_needs_on_the_capacity_waitlist_is_limited() -> None:
    waitlist = CapacityWaitlist(by_name, Free())
    for number in range(1000):
        if waitlist.can_add(CapacityNeed(((ONE, number + 1),))):
            waitlist.add(GangKey("default", str(number)), CapacityNeed(((ONE, number + 1),)))
    assert not waitlist.can_add(CapacityNeed(((ONE, 5000),)))
    assert waitlist.can_add(CapacityNeed(((ONE, 1),)))
    waitlist.discard(GangKey("default", "0"), CapacityNeed(((ONE, 1),)))
    assert waitlist.can_add(CapacityNeed(((ONE, 5000),)))


def a_gang(*members: object, minimum: int, **fields: object) -> Gang:
    return Gang(GangKey("default", "g"), minimum, tuple(members), 0, 0.0, Objective.BINPACK, 60, **fields)  # type: ignore[arg-type]


def test_the_need_of_a_gang_with_one_kind_of_pods_is_counted() -> None:
    workers, servers = pods("w", 3, {GPU: 1}), pods("s", 1, {"cpu": 1000})
    assert need_of(a_gang(*workers, minimum=2)) == CapacityNeed(((workers[0].spec, 2),))
    assert need_of(a_gang(*workers, *servers, minimum=4)) == CapacityNeed(((workers[0].spec, 3), (servers[0].spec, 1)))


@pytest.mark.parametrize(
    "gang",
    [
        a_gang(minimum=1),
        a_gang(*pods("w", 3, {GPU: 1}), *pods("s", 1, {"cpu": 1000}), minimum=3),  # any three of the four pods
        a_gang(*pods("w", 2, {GPU: 1}, host_ports=(HostPort("", "TCP", 80),)), minimum=2),
        a_gang(*pods("w", 2, {GPU: 1}), minimum=2, required_topology="rack"),
        a_gang(*pods("w", 2, {GPU: 1}), minimum=2, role_minimums=(("", 1),)),
    ],
)
def test_need_of_a_gang_with_rules_between_members_or_more_pods_than_needed_is_not_counted(gang: Gang) -> None:
    assert need_of(gang) is None


@settings(max_examples=80)
@given(cases(most_roles=1, most_pods=6))
def test_counting_agrees_with_a_search_for_one_kind_of_pods(case: Case) -> None:
    gang = [replace(pod, spec=replace(pod.spec, host_ports=())) for pod in case.gang]
    view = ClusterView()
    for each in case.cluster.nodes:
        view.upsert_node(each)
    for row, column in zip(*case.cluster.used.nonzero(), strict=True):
        spec = SchedulingSpec(((case.cluster.resources[column], int(case.cluster.used[row, column])),))
        name = f"{row}-{column}"
        view.upsert_pod(replace(gang[0], name=name, uid=name, spec=spec, node_name=case.cluster.nodes[row].name, phase="Running"))
    (slots,) = Capacity(view, a_ledger(view))([gang[0].spec], 0, UNKNOWN)
    for minimum in range(1, len(gang) + 1):
        plan = search(build_problem(gang, minimum, view.snapshot(), objective=Objective.BINPACK), SearchSettings(), 0)
        assert plan.feasible is (slots >= minimum)


async def drained(queue: GangQueue) -> list[GangKey]:
    await queue.drain()
    popped = []
    while (key := queue.pop()) is not None:
        popped.append(key)
    return popped


def a_queue(free: Free, clock: Clock) -> GangQueue:
    return GangQueue(by_name, slots=free, clock=clock)


def refuse(queue: GangQueue, key: GangKey, need: CapacityNeed) -> None:
    queue.requeue(key, Requeue.refused(GPUS, need=need), seen=queue.changes)


async def test_a_gang_that_was_refused_many_times_is_due_at_once_when_it_fits() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    for _ in range(8):
        refuse(queue, KEYS[0], CapacityNeed(((ONE, 4),)))
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []  # the gang isn't even attempted
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == [KEYS[0]]


async def test_only_the_gangs_that_fit_are_due_among_ten_thousand_waiting_gangs() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    keys = [GangKey("default", str(number)) for number in range(10_000)]
    for key in keys:
        refuse(queue, key, CapacityNeed(((ONE, 4),)))
    free.gpus = 9
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == keys[:2]


async def test_a_gang_that_is_refused_although_it_fits_by_count_stays_in_backoff() -> None:
    free, clock = Free(8), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], CapacityNeed(((ONE, 4),)))
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []
    clock.now += 2
    async with asyncio.timeout(50):
        await queue.wait()
    assert queue.pop() == KEYS[0]


async def test_an_admitted_gang_that_is_not_placed_leaves_its_capacity_to_the_next() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    for key in KEYS[:2]:
        refuse(queue, key, CapacityNeed(((ONE, 4),)))
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == KEYS[:1]
    async with asyncio.timeout(50):
        await queue.wait()
    assert await drained(queue) == KEYS[1:2]


async def test_capacity_that_is_freed_during_an_attempt_goes_to_a_gang_of_higher_priority_first() -> None:
    free, clock = Free(), Clock(1000.0)
    high, low = KEYS[:2]
    queue = GangQueue(lambda key: by_name(key)._replace(depth=-1 if key == high else 0), slots=free, clock=clock)
    refuse(queue, high, CapacityNeed(((ONE, 4),)))
    queue.mark(low)
    await queue.drain()
    assert queue.pop() == low
    assert not queue.outranks(low)
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert queue.outranks(low)
    assert queue.pop(beside=low) == high


async def test_a_gang_that_changes_during_its_backoff_is_still_due_when_it_fits() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], CapacityNeed(((ONE, 4),)))
    queue.mark(KEYS[0])
    assert await drained(queue) == []
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == [KEYS[0]]


async def test_a_deleted_gang_is_not_admitted_from_the_capacity_waitlist() -> None:
    free, clock = Free(), Clock(1000.0)
    queue = a_queue(free, clock)
    refuse(queue, KEYS[0], CapacityNeed(((ONE, 4),)))
    queue.requeue(KEYS[0], Requeue.gone())
    free.gpus = 4
    queue.observe(Freed(["gpu"]))
    assert await drained(queue) == []
