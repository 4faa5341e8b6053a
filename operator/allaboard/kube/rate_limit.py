"""Limit the number of requests that are sent a second after a first burst, like client-go's ``qps`` and ``burst``.

This is the generic cell rate algorithm (ITU-T I.371). Its only state is the time at which the next request is due at an even rate.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable


class RateLimit:
    """A rate limit that sends requests in the order in which they come. ``per_second`` 0 means no limit."""

    def __init__(
        self,
        per_second: float = 0.0,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._interval = 1 / per_second if per_second else 0.0
        self._ahead = max(0, burst - 1) * self._interval
        self._clock = clock
        self._sleep = sleep
        self._due = 0.0

    async def wait(self) -> None:
        """Wait until the next request may be sent."""
        if not self._interval:
            return
        now = self._clock()
        pause = self._due - self._ahead - now
        self._due = max(self._due, now) + self._interval
        if pause > 0:
            await self._sleep(pause)
