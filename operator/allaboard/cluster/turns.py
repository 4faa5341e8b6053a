"""How many requests may be under way at once: a turn is held for one request, never for a pause between two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


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
