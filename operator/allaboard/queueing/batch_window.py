"""The batch window: a short wait before a cycle, in which pods are gathered.

The pods of one job or one ``kubectl apply`` come one by one, and should be planned in one cycle. The window closes as Karpenter's does
(provisioning/batcher.go): when no pod has come for a while, or when the window has been open for its longest time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from allaboard.kube.retry import Sleep

_FOLLOWED = 3
"""The idle time is multiplied by this once a second pod has come. A controller takes about as long for each pod, so more will follow."""
_ENOUGH = 64
"""The window closes when this many pods have come: at most this many gangs are placed together."""


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """A batch window. ``arrivals`` returns the number of all pods that have ever come.

    After a single pod the window stays open for ``idle_seconds``. It never stays open for longer than ``most_seconds``.
    """

    arrivals: Callable[[], int]
    idle_seconds: float
    most_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep

    async def gather(self) -> None:
        """Wait until the window, which opens now, closes."""
        first = seen = self.arrivals()
        ends, idle = self.clock() + self.most_seconds, self.idle_seconds
        while True:
            await self.sleep(min(idle, max(0.0, ends - self.clock())))
            now = self.arrivals()
            if now == seen or now - first >= _ENOUGH or self.clock() >= ends:
                return
            seen, idle = now, _FOLLOWED * self.idle_seconds
