"""Refreshes of messages: a waiting gang's message is up to date a few seconds after capacity was taken or freed, at a low cost."""

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
    """Return a pod that another scheduler has bound."""
    return replace(pods(name, 1, {"cpu": cpus * 1000})[0], scheduler_name="default-scheduler", node_name=on, phase="Running")


async def pass_time(world: World, seconds: float) -> None:
    """Run the scheduler for ``seconds``."""
    ends = world.now + seconds
    while world.now < ends - 1e-6:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await world.queue.wait()
        if world.queue.peek() is not None:
            await world.run_cycle()
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


@pytest.mark.parametrize("fields", [COUNTED, WITH_PORTS], ids=["counted", "with_ports"])
@pytest.mark.parametrize("failures", [1, 8])
@pytest.mark.parametrize("change", [bind_another, bind_a_foreign_pod, free_some, free_and_take, shrink, grow])
async def test_the_message_of_a_waiting_gang_is_up_to_date_within_five_seconds(
    change: Callable[[World], None], failures: int, fields: dict[str, object]
) -> None:
    async with World(cpus=8) as world:
        world.view.upsert_pod(a_foreign_pod("first", 2))
        key = world.add("g", 2, cpus=8)
        for member in world.gang(key).members:
            world.view.upsert_pod(replace(member, spec=replace(member.spec, **fields)))  # type: ignore[arg-type]
        for _ in range(failures):
            world.queue.mark(key)
            world.now += 60.0
            await pass_time(world, 0.1)
        before = world.message_of(key)
        await pass_time(world, 2.0)
        change(world)
        await pass_time(world, 5.0)
        message = world.message_of(key)
        world.queue.mark(key)
        world.now += 60.0
        await pass_time(world, 0.1)
        assert before
        assert message == world.message_of(key)


async def test_without_changes_no_message_of_a_waiting_gang_is_refreshed() -> None:
    async with World(cpus=1) as world:
        world.add("g", 2)
        await pass_time(world, 5.0)
        asked = len(world.searcher.searches)
        await pass_time(world, 30.0)
        assert len(world.searcher.searches) == asked


async def test_on_a_busy_cluster_a_gangs_message_is_refreshed_once_a_second_and_its_backoff_goes_on() -> None:
    async with World(cpus=1) as world:
        key = world.add("g", 2)
        await pass_time(world, 0.1)
        asked, attempts = len(world.searcher.searches), failures_of(world.queue, key)
        for number in range(100):
            world.view.upsert_pod(a_foreign_pod(f"late-{number}", 0))
            await pass_time(world, 0.1)
        assert len(world.searcher.searches) - asked <= 11
        assert failures_of(world.queue, key) == attempts


def refuse(queue: GangQueue, key: GangKey) -> None:
    assert queue.pop() == key
    queue.requeue(key, Requeue.refused(CPU), seen=queue.changes)


async def due(queue: GangQueue) -> GangKey | None:
    """Return the first gang that is due now; None if no gang is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await queue.wait()
    return queue.peek()


async def test_messages_are_refreshed_one_after_another_the_oldest_first() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for key in (B, C, A):
        queue.mark(key)
        refuse(queue, key)
        clock.now += 0.1
    clock.now += 1.0
    queue.observe(Taken())
    refreshed = []
    for _ in range(3):
        key = await due(queue)
        assert key is not None
        refreshed.append(key)
        refuse(queue, key)
        assert await due(queue) is None
        clock.now += 0.02
    assert refreshed == [B, C, A]
    clock.now += 60.0
    assert failures_of(queue, A) == 1


async def test_due_gangs_are_attempted_before_gangs_whose_message_is_only_refreshed() -> None:
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


async def test_message_of_a_gang_that_was_refused_while_others_took_capacity_is_refreshed() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    queue.mark(A)
    queue.pop()
    queue.observe(Taken())
    queue.requeue(A, Requeue.refused(CPU), seen=queue.changes)
    assert await due(queue) is None
    clock.now += 1.0
    assert await due(queue) == A


async def test_a_backoff_after_failures_is_not_shortened_when_messages_are_refreshed() -> None:
    clock = Clock(1000.0)
    queue = a_queue(clock)
    for _ in range(5):
        queue.mark(A)
        clock.now += 60.0
        await due(queue)
        refuse(queue, A)
    ends = queue._read_state(A).not_before
    assert ends == clock.now + 16.0
    for _ in range(3):
        clock.now += 2.0
        queue.observe(Taken())
        assert await due(queue) == A
        refuse(queue, A)
        assert (failures_of(queue, A), queue._read_state(A).not_before) == (5, ends)


@pytest.mark.parametrize("ending", ["fail", "settle", "forget"])
async def test_a_message_that_is_not_about_capacity_is_not_refreshed(ending: str) -> None:
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


class Refused:
    """Gangs that are refused after attempts of given lengths, and the refresh of their messages."""

    def __init__(self) -> None:
        self.clock, self.records = Clock(1000.0), GangRecords()
        self.refresh = MessageRefresh(lambda key: self.records.of(key).queue, self.clock)

    def state(self, key: GangKey) -> QueueState:
        return self.records.of(key).queue

    def attempt(self, key: GangKey, seconds: float = 0.0) -> None:
        self.refresh.begin_attempt(self.state(key))
        self.clock.now += seconds
        self.refresh.refused(key, self.state(key))


def test_refreshing_messages_takes_a_quarter_of_the_time_at_most() -> None:
    refused, keys = Refused(), [GangKey("default", str(number)) for number in range(1000)]
    for key in keys:
        refused.attempt(key)
    began, refreshed = refused.clock.now, 0.0
    while refused.clock.now < began + 30.0:
        refused.refresh.changed()
        key = refused.refresh.take()
        if key is None:
            refused.clock.now += 0.01
        else:
            refused.attempt(key, 0.1)
            refreshed += 0.1
    assert 6.0 < refreshed <= 8.0


def test_a_gang_whose_attempt_takes_long_does_not_delay_refreshes_of_other_messages() -> None:
    refused, quick = Refused(), [GangKey("default", str(number)) for number in range(20)]
    for number in range(50):
        refused.attempt(GangKey("default", f"hard-{number}"), 1.0)
    for key in quick:
        refused.attempt(key)
    refused.clock.now += 5.0
    refused.refresh.changed()
    began, taken = refused.clock.now, []
    while refused.clock.now < began + 2.0:
        if (key := refused.refresh.take()) is not None:
            taken.append(key)
            refused.attempt(key, 0.001)
        refused.clock.now += 0.01
    assert sorted(taken) == sorted(quick)


def test_message_of_a_gang_whose_attempt_takes_long_is_refreshed_once_a_minute() -> None:
    refused = Refused()
    refused.attempt(A, 1.0)
    refused.refresh.changed()
    refused.clock.now += 58.0
    assert refused.refresh.take() is None
    refused.clock.now += 1.0
    assert refused.refresh.take() == A


def test_changes_cost_the_same_however_many_gangs_wait_and_leave_no_outdated_entries() -> None:
    refused = Refused()
    for number in range(1000):
        refused.attempt(GangKey("default", str(number)))
    reads = 0

    def state_of(key: GangKey) -> QueueState:
        nonlocal reads
        reads += 1
        return refused.state(key)

    refused.refresh._state_of = state_of
    for _ in range(1000):
        refused.refresh.changed()
        assert refused.refresh.seconds is not None
    assert reads <= 3000
    for _ in range(100):
        for number in range(100):
            refused.attempt(GangKey("default", str(number)))
    assert sum(map(len, refused.refresh._attempts.values())) < 3000
