"""Watches the objects of job operators that state walltimes, as far as the cluster serves them and the operator may read them.

No other part depends on these watches: a cluster without Kubeflow and KubeRay is normal, and so is an operator that may not read their
objects. Without them the walltimes are unknown, and everything else works.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from allaboard.gangs.owner_walltimes import OWNER_KINDS, OwnerKind, OwnerStore, OwnerWalltime
from allaboard.kube.client import ApiServer
from allaboard.kube.first_served import RETRY_SECONDS, FirstServed
from allaboard.kube.retry import Sleep

logger = logging.getLogger(__name__)

_WATCH_SECONDS = 30  # Walltimes needn't be as new as pods and nodes.

Observe = Callable[[OwnerWalltime | None, OwnerWalltime | None], None]


class OwnerWatches:
    """The watches of all kinds of owners. ``observe(old, new)`` is called after each change of an owner's walltime."""

    def __init__(self, server: ApiServer, observe: Observe, kinds: Sequence[OwnerKind] = OWNER_KINDS, sleep: Sleep = asyncio.sleep) -> None:
        self._sleep = sleep
        self._watches = {
            kind.name: FirstServed(server, kind.resources, kind.read, OwnerStore(observe), watch_seconds=_WATCH_SECONDS, sleep=sleep)
            for kind in kinds
        }

    async def run(self) -> None:
        """Read all kinds until cancelled. A warning lists the kinds that the operator may not read, whenever these kinds change."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches.values():
                tasks.create_task(watch.run())
            reported: list[str] = []
            while True:
                await self.wait_until_read(RETRY_SECONDS)
                names = [name for name, watch in self._watches.items() if watch.refusal]
                if names and names != reported:
                    logger.warning("walltimes of %s aren't read: %s", ", ".join(names), self._watches[names[0]].refusal)
                reported = names
                await self._sleep(RETRY_SECONDS)

    async def wait_until_read(self, seconds: float) -> None:
        """Wait for up to ``seconds`` until each kind has been listed, or can't be read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for watch in self._watches.values():
                    await watch.settled.wait()
