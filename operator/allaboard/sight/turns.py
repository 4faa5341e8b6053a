"""Bounds how many requests are answered at once, and how many wait for that: more requests are refused at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from allaboard.sight.refusals import RefusedError

_RETRY_SECONDS = 5  # after which a refused request may be sent again


class Turns:
    """Turns, of which at most ``at_once`` are taken at once. ``most_waiting`` requests may wait; ``refusal`` says why more may not."""

    def __init__(self, at_once: int, most_waiting: int, refusal: str) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most_waiting, self._refusal = most_waiting, refusal
        self._waiting = 0

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        """Wait for a turn, and take it while the context lasts. Raises ``RefusedError`` if too many requests wait already."""
        if self._free.locked() and self._waiting >= self._most_waiting:
            raise RefusedError(503, f"{self._refusal}; try again later", retry_after=_RETRY_SECONDS)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()
