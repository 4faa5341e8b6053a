"""An event loop in a thread of its own ends with the block that opened it, after its tasks have cleaned up."""

import asyncio
import threading

import pytest

from allaboard.runtime import threads
from allaboard.runtime.threads import own_loop, run_on


def names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def test_result_of_work_on_another_loop_is_returned_and_its_thread_ends() -> None:
    async def where() -> str:
        return threading.current_thread().name

    async with own_loop("mine") as loop:
        assert await run_on(loop, where()) == "mine"
    assert loop.is_closed()
    assert "mine" not in names()


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_work_cleans_up_however_often_its_caller_is_cancelled(times: int) -> None:
    has_begun, has_cleaned_up, may_end = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        try:
            has_begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(may_end.wait, 10)
            has_cleaned_up.set()

    async def own() -> None:
        async with own_loop("mine") as loop:
            await run_on(loop, work())

    task = asyncio.create_task(own())
    await asyncio.to_thread(has_begun.wait)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait({task})
    assert task.cancelled()
    assert await asyncio.to_thread(has_cleaned_up.wait, 10)
    for thread in threading.enumerate():
        if thread.name == "mine":
            await asyncio.to_thread(thread.join, 10)
    assert "mine" not in names()


async def test_work_that_is_still_running_is_cancelled_when_the_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_PATIENCE_SECONDS", 0.01)
    ended = threading.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with own_loop("mine") as loop:
        asyncio.run_coroutine_threadsafe(work(), loop)
    assert ended.is_set()
    assert "mine" not in names()
