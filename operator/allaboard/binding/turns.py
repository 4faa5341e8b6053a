"""How many requests may be under way at once: a turn is held for one request, never for a pause between two.

And how many begin at a stretch: thousands would hold the event loop up before the first is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import TypeVar
from weakref import WeakValueDictionary

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_AT_A_STRETCH = 100  # some milliseconds


async def in_slices(call: Callable[[Item], Awaitable[Answer]], items: Sequence[Item]) -> list[Answer | BaseException]:
    """What ``call`` answers to each of ``items``, or raises, in their order; all are under way together.

    The first hundred begin at once, each further hundred one turn of the event loop later.
    """

    async def begun(first: int) -> list[Answer | BaseException]:
        for _ in range(0, first, _AT_A_STRETCH):
            await asyncio.sleep(0)
        return await asyncio.gather(*map(call, items[first : first + _AT_A_STRETCH]), return_exceptions=True)

    if len(items) <= _AT_A_STRETCH:
        return await begun(0)
    return list(chain.from_iterable(await asyncio.gather(*map(begun, range(0, len(items), _AT_A_STRETCH)))))


class Turns:
    """So many requests in all, and so many about one namespace, so that none can take the others' turns."""

    def __init__(self, total: int, each: int) -> None:
        self._all = asyncio.Semaphore(total)
        self._each = each
        # A namespace that nobody waits for is forgotten.
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Around one request."""
        own = self._of.get(namespace)
        if own is None:
            own = self._of[namespace] = asyncio.Semaphore(self._each)
        async with own, self._all:
            yield
