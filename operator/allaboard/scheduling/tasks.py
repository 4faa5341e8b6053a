"""The tasks that act on gangs beside the cycle: transactions, releases and long searches, at most one for each gang."""

import asyncio
from collections.abc import Collection, Coroutine
from dataclasses import dataclass

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecord, GangRecords


@dataclass(frozen=True, slots=True)
class GangTasks:
    """The tasks of gangs. A gang that becomes due while its task runs is due again when the task ends."""

    records: GangRecords
    queue: GangQueue

    def __contains__(self, key: GangKey) -> bool:
        record = self.records.find(key)
        return record is not None and record.task is not None

    def tasks(self) -> Collection[asyncio.Task[None]]:
        """Return all running tasks."""
        return [record.task for record in self.records if record.task is not None]

    def start(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        """Start a task of a gang. ``work`` handles its own errors."""
        record = self.records.of(key)
        record.task = asyncio.create_task(self._run(record, work), name=f"transaction of {key}")

    def defer(self, key: GangKey) -> None:
        """Make the gang due when its task ends."""
        self.records.of(key).is_deferred = True

    async def wait_until_idle(self) -> None:
        """Wait until no task is running."""
        while tasks := self.tasks():
            await asyncio.wait(tasks)

    async def _run(self, record: GangRecord, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        finally:
            record.task = None
            if record.is_deferred:
                record.is_deferred = False
                self.queue.mark(record.key)
