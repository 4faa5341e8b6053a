"""Event loops in threads of their own. Their tasks run on while the scheduler's loop is blocked, and can't block that loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Answer = TypeVar("Answer")


_PATIENCE_SECONDS = 5.0
"""Seconds that the remaining tasks of a loop may take to end after the loop's block; then they are cancelled."""


@asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """Yield an event loop that runs in a thread called ``name`` until the block and the loop's tasks have ended.

    If the caller is cancelled while the thread ends, the caller doesn't wait for that, and the thread ends by itself.
    """
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop, is_left = runner.get_loop(), asyncio.Event()

    async def run() -> None:
        await is_left.wait()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=_PATIENCE_SECONDS)

    def run_to_the_end() -> None:
        with runner:
            runner.run(run())

    thread = threading.Thread(target=run_to_the_end, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(is_left.set)
        await asyncio.to_thread(thread.join)


async def run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run ``work`` on another thread's ``loop`` and return its result. If the caller is cancelled, ``work`` is cancelled, too."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
