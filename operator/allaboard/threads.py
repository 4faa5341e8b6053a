"""Loops of our own in threads of their own: what is done there goes on whatever holds the scheduler's loop up, and doesn't hold that up."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

Answer = TypeVar("Answer")


@asynccontextmanager
async def own_loop(name: str) -> AsyncIterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread called ``name`` for as long as the context lasts. What goes on there then is for the caller to end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


async def there(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What comes of ``work`` on ``loop``; it is cancelled with whoever waits for it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
