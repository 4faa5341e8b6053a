"""How fast requests may follow each other: so many a second, and so many at once before that holds, as client-go's ``qps`` and ``burst``.

It is the generic cell rate algorithm (ITU-T I.371): all there is to remember is when the next one would be due at an even pace.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable


class Pace:
    """Holds requests up in the order in which they come; ``per_second`` 0 holds nobody up."""

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
        """Until one more request may be sent."""
        if not self._interval:
            return
        now = self._clock()
        pause = self._due - self._ahead - now
        self._due = max(self._due, now) + self._interval
        if pause > 0:
            await self._sleep(pause)
