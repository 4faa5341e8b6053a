"""Work on the event loop in slices, so that whatever else has come gets its turn in between."""

import asyncio
import time
from collections.abc import Callable

SLICE_SECONDS = 0.01
"""How long a slice lasts. What else is ready may take as long between two slices, so none is ended after each piece of work."""


class Slices:
    """One stretch of work; the first slice begins when it is made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()

    async def give_way(self) -> None:
        """Give the event loop its turn if the present slice is over."""
        if self._clock() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = self._clock()
