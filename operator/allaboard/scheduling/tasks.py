"""What is done beside the cycle: transactions, undoing and sealing, at most one of them for each gang."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass

from allaboard.model.gang import GangKey
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import Case, Docket


@dataclass(slots=True)
class UnderWay:
    """The tasks of gangs. One that was passed over meanwhile is due again when its task ends; ``survive`` hears of a defect."""

    docket: Docket
    queue: GangQueue
    survive: Callable[[GangKey], None]

    def __contains__(self, key: GangKey) -> bool:
        case = self.docket.find(key)
        return case is not None and case.task is not None

    def tasks(self) -> Collection[asyncio.Task[None]]:
        """All that are under way."""
        return [case.task for case in self.docket if case.task is not None]

    def start(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        """Do something of a gang."""
        case = self.docket.case(key)
        case.task = asyncio.create_task(self._guarded(case, work), name=f"transaction of {key}")

    def pass_over(self, key: GangKey) -> None:
        """Look at the gang again when its task ends."""
        self.docket.case(key).is_passed_over = True

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while tasks := self.tasks():
            await asyncio.wait(tasks)

    async def _guarded(self, case: Case, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception:
            self.survive(case.key)
        finally:
            case.task = None
            if case.is_passed_over:
                case.is_passed_over = False
                self.queue.mark(case.key)
