"""Loops of our own in threads of their own: what is done there goes on whatever holds the scheduler's loop up, and doesn't hold that up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Answer = TypeVar("Answer")


_PATIENCE_SECONDS = 5.0
"""How long tasks that were cancelled may take to clear away, before they are cancelled once more."""


@asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread called ``name`` for as long as the context lasts, and then until what goes on there has ended.

    Whoever leaves the context in a hurry, cancelled once more, leaves the thread to end by itself.
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


async def there(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What comes of ``work`` on ``loop``; it is cancelled with whoever waits for it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
