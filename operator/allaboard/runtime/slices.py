"""Cut long work on the event loop into slices, so that other ready tasks run in between."""

import asyncio
import time
from collections.abc import Callable

SLICE_SECONDS = 0.005
"""Seconds that a slice lasts at least. Shorter slices would delay the work: other tasks may run for as long after each slice."""


class Slices:
    """One piece of work that is cut into slices. The first slice begins when the object is created."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    async def give_way(self) -> None:
        """Let other tasks run if the present slice is over, and begin the next slice."""
        if self._clock() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = self._clock()
