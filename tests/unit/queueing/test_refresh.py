"""What a waiting gang was told is true a few seconds after others took or freed capacity, and telling it costs little."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from allaboard.model.constraints import HostPort
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.refresh import MessageRefresh
from allaboard.queueing.requeue import Requeue, Taken
from allaboard.records.record import GangRecords, QueueState
from tests.unit.placement.clusters import node, pods
from tests.unit.queueing.queues import CPU, A, B, C, a_queue, failures_of
from tests.unit.scheduling.clocks import Clock
from tests.unit.scheduling.schedulers import World


def a_foreign_pod(name: str, cpus: int, on: str = "n") -> Pod:
    """A pod that another scheduler has bound."""
    return replace(pods(name, 1, {"cpu": cpus * 1000})[0], scheduler_name="default-scheduler", node_name=on, phase="Running")


async def pass_time(world: World, seconds: float) -> None:
    """Let the scheduler run for so long."""
    ends = world.now + seconds
    while world.now < ends - 1e-6:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await world.queue.wait()
        if world.queue.peek() is not None:
            await world.cycle()
        world.now += 0.1


def bind_another(world: World) -> None:
    world.add("other", 2, bound=2)


def bind_a_foreign_pod(world: World) -> None:
    world.view.upsert_pod(a_foreign_pod("late", 2))


def free_some(world: World) -> None:
    world.view.remove_pod(a_foreign_pod("first", 2).key)


def free_and_take(world: World) -> None:
    free_some(world)
    world.view.upsert_pod(a_foreign_pod("late", 3))


def shrink(world: World) -> None:
    world.resize(5)


def grow(world: World) -> None:
    world.view.upsert_node(node("m", {"cpu": 1000}))


COUNTED, WITH_PORTS = {}, {"host_ports": (HostPort("", "TCP", 80),)}


@pytest.mark.parametrize("asks", [COUNTED, WITH_PORTS], ids=["counted", "with_ports"])
@pytest.mark.parametrize("failures", [1, 8])
@pytest.mark.parametrize("change", [bind_another, bind_a_foreign_pod, free_some, free_and_take, shrink, grow])
async def test_a_waiting_gang_is_told_within_five_seconds_what_others_left_of_capacity(
    change: Callable[[World], None], failures: int, asks: dict[str, object]
) -> None:
    async with World(cpus=8) as world:
        world.view.upsert_pod(a_foreign_pod("first", 2))
        key = world.add("g", 2, cpus=8)
        for member in world.gang(key).members:
            world.view.upsert_pod(replace(member, spec=replace(member.spec, **asks)))  # type: ignore[arg-type]
        for _ in range(failures):
            world.queue.mark(key)
            world.now += 60.0
            await pass_time(world, 0.1)
        before = world.said(key)
        await pass_time(world, 2.0)
        change(world)
        await pass_time(world, 5.0)
        told = world.said(key)
        world.queue.mark(key)
        world.now += 60.0
        await pass_time(world, 0.1)
        assert before
        assert told == world.said(key)


async def test_while_nothing_changes_nobody_is_looked_at() -> None:
    async with World(cpus=1) as world:
        world.add("g", 2)
        await pass_time(world, 5.0)
        asked = len(world.searched.asked)
        await pass_time(world, 30.0)
        assert len(world.searched.asked) == asked


async def test_a_cluster_that_changes_all_the_time_has_a_gang_looked_at_once_a_second_and_its_pause_goes_on() -> None:
    async with World(cpus=1) as world:
        key = world.add("g", 2)
        await pass_time(world, 0.1)
        asked, attempts = len(world.searched.asked), failures_of(world.queue, key)
        for number in range(100):
            world.view.upsert_pod(a_foreign_pod(f"late-{number}", 0))
            await pass_time(world, 0.1)
        assert len(world.searched.asked) - asked <= 11
        assert failures_of(world.queue, key) == attempts


def refuse(queue: GangQueue, key: GangKey) -> None:
    assert queue.pop() == key
    queue.requeue(key, Requeue.refused(CPU, is_capacity_assumed=False), seen=queue.changes)


async def due(queue: GangQueue) -> GangKey | None:
    """The first gang that is due without any time passing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await queue.wait()
    return queue.peek()


async def test_the_oldest_message_is_looked_into_first_and_one_after_another() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for key in (B, C, A):
        queue.mark(key)
        refuse(queue, key)
        clock.now += 0.1
    clock.now += 1.0
    queue.observe(Taken())
    looked = []
    for _ in range(3):
        key = await due(queue)
        assert key is not None
        looked.append(key)
        refuse(queue, key)
        assert await due(queue) is None
        clock.now += 0.02
    assert looked == [B, C, A]
    clock.now += 60.0
    assert failures_of(queue, A) == 1


async def test_gangs_that_are_due_go_before_those_that_are_only_told() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    refuse(queue, A)
    clock.now += 1.0
    queue.observe(Taken())
    queue.mark(B)
    assert await due(queue) == B
    queue.pop()
    assert await due(queue) == A


async def test_a_gang_that_was_refused_while_others_took_capacity_is_looked_at_again() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    queue.pop()
    queue.observe(Taken())
    queue.requeue(A, Requeue.refused(CPU, is_capacity_assumed=False), seen=queue.changes)
    assert await due(queue) is None
    clock.now += 1.0
    assert await due(queue) == A


async def test_a_pause_after_failures_is_not_cut_short_by_looks_that_are_for_the_message() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.mark(A)
        clock.now += 60.0
        await due(queue)
        refuse(queue, A)
    ends = queue._known(A).not_before
    assert ends == clock.now + 16.0
    for _ in range(3):
        clock.now += 2.0
        queue.observe(Taken())
        assert await due(queue) == A
        refuse(queue, A)
        assert (failures_of(queue, A), queue._known(A).not_before) == (5, ends)


@pytest.mark.parametrize("ending", ["fail", "settle", "forget"])
async def test_a_gang_whose_message_tells_of_no_capacity_is_not_looked_at(ending: str) -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    refuse(queue, A)
    match ending:
        case "fail":
            queue.requeue(A, Requeue.failed(CPU, at_least=30.0), seen=queue.changes)
        case "settle":
            queue.requeue(A, Requeue.settled())
        case _:
            queue.requeue(A, Requeue.gone())
    clock.now += 2.0
    queue.observe(Taken())
    assert await due(queue) is None


class Told:
    """Gangs that were refused after looks of so many seconds."""

    def __init__(self) -> None:
        self.clock, self.records = Clock(1000.0), GangRecords()
        self.retelling = MessageRefresh(lambda key: self.records.of(key).queue, self.clock)

    def state(self, key: GangKey) -> QueueState:
        return self.records.of(key).queue

    def look(self, key: GangKey, seconds: float = 0.0) -> None:
        self.retelling.looks(self.state(key))
        self.clock.now += seconds
        self.retelling.refused(key, self.state(key))


def test_looks_for_messages_take_a_quarter_of_the_time_at_most() -> None:
    told, keys = Told(), [GangKey("default", str(number)) for number in range(1000)]
    for key in keys:
        told.look(key)
    began, looked = told.clock.now, 0.0
    while told.clock.now < began + 30.0:
        told.retelling.changed()
        key = told.retelling.take()
        if key is None:
            told.clock.now += 0.01
        else:
            told.look(key, 0.1)
            looked += 0.1
    assert 6.0 < looked <= 8.0


def test_a_gang_whose_look_takes_long_keeps_no_others_from_being_told() -> None:
    told, small = Told(), [GangKey("default", str(number)) for number in range(20)]
    for number in range(50):
        told.look(GangKey("default", f"hard-{number}"), 1.0)
    for key in small:
        told.look(key)
    told.clock.now += 5.0
    told.retelling.changed()
    began, taken = told.clock.now, []
    while told.clock.now < began + 2.0:
        if (key := told.retelling.take()) is not None:
            taken.append(key)
            told.look(key, 0.001)
        told.clock.now += 0.01
    assert sorted(taken) == sorted(small)


def test_a_gang_whose_look_takes_long_is_looked_at_once_a_minute() -> None:
    told = Told()
    told.look(A, 1.0)
    told.retelling.changed()
    told.clock.now += 58.0
    assert told.retelling.take() is None
    told.clock.now += 1.0
    assert told.retelling.take() == A


def test_changes_cost_the_same_however_many_gangs_wait_and_what_is_over_leaves_nothing_behind() -> None:
    told = Told()
    for number in range(1000):
        told.look(GangKey("default", str(number)))
    asked = 0

    def state_of(key: GangKey) -> QueueState:
        nonlocal asked
        asked += 1
        return told.state(key)

    told.retelling._state_of = state_of
    for _ in range(1000):
        told.retelling.changed()
        assert told.retelling.seconds is not None
    assert asked <= 3000
    for _ in range(100):
        for number in range(100):
            told.look(GangKey("default", str(number)))
    assert sum(map(len, told.retelling._looks.values())) < 3000
