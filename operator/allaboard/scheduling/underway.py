"""What is done beside the cycle: transactions, undoing and sealing, at most one of them for each gang."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field

from allaboard.model.gang import GangKey
from allaboard.scheduling.queue import GangQueue


@dataclass(slots=True)
class UnderWay:
    """The tasks by gang. A gang that was passed over meanwhile is due again when its task ends; ``survive`` hears of a defect."""

    queue: GangQueue
    survive: Callable[[GangKey], None]
    _tasks: dict[GangKey, asyncio.Task[None]] = field(default_factory=dict)
    _passed_over: set[GangKey] = field(default_factory=set)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._tasks

    def values(self) -> Collection[asyncio.Task[None]]:
        """The tasks."""
        return self._tasks.values()

    def start(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        """Do something of a gang."""
        self._tasks[key] = asyncio.create_task(self._guarded(key, work), name=f"transaction of {key}")

    def pass_over(self, key: GangKey) -> None:
        """Look at the gang again when its task ends."""
        self._passed_over.add(key)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def _guarded(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception:
            self.survive(key)
        finally:
            del self._tasks[key]
            if key in self._passed_over:
                self._passed_over.discard(key)
                self.queue.mark(key)
