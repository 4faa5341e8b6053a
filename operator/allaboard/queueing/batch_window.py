"""The batch window: how long pods are gathered before a cycle, since pods of one job or one ``kubectl apply`` come one by one.

The window closes as Karpenter's does (provisioning/batcher.go): when no pod has come for a while, or when it has been open for long.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from allaboard.kube.retry import Sleep

_FOLLOWED = 3
"""How many times longer the window waits for the next pod once one has followed: a controller takes about as long for each pod."""
_ENOUGH = 64
"""When so many pods have come, as many gangs are placed together as possible."""


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """A batch window. ``arrivals`` counts all pods that have ever come.

    A single pod waits for ``idle_seconds``, and no pod for longer than ``most_seconds``.
    """

    arrivals: Callable[[], int]
    idle_seconds: float
    most_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep

    async def gather(self) -> None:
        """Return when the window closes."""
        first = seen = self.arrivals()
        ends, idle = self.clock() + self.most_seconds, self.idle_seconds
        while True:
            await self.sleep(min(idle, max(0.0, ends - self.clock())))
            now = self.arrivals()
            if now == seen or now - first >= _ENOUGH or self.clock() >= ends:
                return
            seen, idle = now, _FOLLOWED * self.idle_seconds
