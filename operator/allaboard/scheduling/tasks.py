"""What is done beside the cycle: transactions, undoing and sealing, at most one of them for each gang."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecord, GangRecords


@dataclass(slots=True)
class GangTasks:
    """The tasks of gangs. One that was passed over meanwhile is due again when its task ends; ``survive`` hears of a defect."""

    records: GangRecords
    queue: GangQueue
    survive: Callable[[GangKey], None]

    def __contains__(self, key: GangKey) -> bool:
        record = self.records.find(key)
        return record is not None and record.task is not None

    def tasks(self) -> Collection[asyncio.Task[None]]:
        """All that are under way."""
        return [record.task for record in self.records if record.task is not None]

    def start(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        """Do something of a gang."""
        record = self.records.of(key)
        record.task = asyncio.create_task(self._guarded(record, work), name=f"transaction of {key}")

    def pass_over(self, key: GangKey) -> None:
        """Look at the gang again when its task ends."""
        self.records.of(key).is_passed_over = True

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while tasks := self.tasks():
            await asyncio.wait(tasks)

    async def _guarded(self, record: GangRecord, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception:
            self.survive(record.key)
        finally:
            record.task = None
            if record.is_passed_over:
                record.is_passed_over = False
                self.queue.mark(record.key)
