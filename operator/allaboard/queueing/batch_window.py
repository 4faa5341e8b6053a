"""How long pods are gathered before a cycle starts: those of one job, or of one ``kubectl apply``, come one by one and are placed together.

It closes as Karpenter's does (provisioning/batcher.go): when nobody has come for a while, or when it has been open for long.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from allaboard.kube.retry import Sleep

_FOLLOWED = 3
"""So many times longer is waited for the next once one has followed: whoever makes them takes about as long for each."""
_ENOUGH = 64
"""Of so many who have come as many are placed together as may be."""


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """``arrivals`` counts the pods that have ever come.

    Who comes alone waits for ``idle_seconds``, and nobody for longer than ``most_seconds``.
    """

    arrivals: Callable[[], int]
    idle_seconds: float
    most_seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Sleep = asyncio.sleep

    async def gather(self) -> None:
        """Return when it is time to decide about those who have come."""
        first = seen = self.arrivals()
        ends, idle = self.clock() + self.most_seconds, self.idle_seconds
        while True:
            await self.sleep(min(idle, max(0.0, ends - self.clock())))
            now = self.arrivals()
            if now == seen or now - first >= _ENOUGH or self.clock() >= ends:
                return
            seen, idle = now, _FOLLOWED * self.idle_seconds
