"""Tests of the tasks that act on gangs beside the cycle: at most one for each gang."""

import asyncio

import pytest

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from allaboard.scheduling.tasks import GangTasks

A, B = GangKey("default", "a"), GangKey("default", "b")


class Scene:
    """The tasks of two gangs; ``work`` runs until ``is_over`` is set."""

    def __init__(self) -> None:
        self.records, self.is_over = GangRecords(), asyncio.Event()
        self.queue = GangQueue(lambda key: Order(0, True, 2, 0, 0, 0.0, key), records=self.records, clock=lambda: 1000.0)
        self.tasks = GangTasks(self.records, self.queue)

    async def work(self) -> None:
        await self.is_over.wait()

    async def end(self) -> None:
        self.is_over.set()
        async with asyncio.timeout(50):
            await self.tasks.wait_until_idle()


async def test_a_gang_has_a_task_beside_the_cycle_until_its_work_is_done() -> None:
    scene = Scene()
    scene.tasks.start(A, scene.work())
    assert [key in scene.tasks for key in (A, B)] == [True, False]
    await scene.end()
    assert A not in scene.tasks


async def test_a_gang_that_becomes_due_while_it_has_a_task_is_due_when_the_task_ends() -> None:
    scene = Scene()
    scene.tasks.start(A, scene.work())
    scene.tasks.start(B, scene.work())
    scene.tasks.defer(A)
    assert scene.queue.pop() is None
    await scene.end()
    assert [scene.queue.pop(), scene.queue.pop()] == [A, None]
    scene.tasks.start(A, scene.work())
    await scene.end()
    assert scene.queue.pop() is None  # the gang wasn't deferred during its second task


async def test_a_gang_whose_task_was_cancelled_may_have_another_task() -> None:
    scene = Scene()
    scene.tasks.start(A, scene.work())
    await asyncio.sleep(0)  # the task begins
    (task,) = scene.tasks.tasks()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert A not in scene.tasks


async def test_waiting_until_idle_includes_tasks_that_start_during_the_wait() -> None:
    scene = Scene()

    async def later() -> None:
        for _ in range(9):
            await asyncio.sleep(0)

    async def first() -> None:
        await scene.work()
        scene.tasks.start(B, later())

    scene.tasks.start(A, first())
    await scene.end()
    assert B not in scene.tasks
