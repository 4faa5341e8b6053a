"""Gangs that a transaction of ours left half bound: finished forward while there is hope, undone when there is none.

Only gangs that *we* opened are ever undone. One that was whole and has lost a member since is healed, however long that takes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from allaboard.cluster.bind import Binder
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.report.metrics import Metrics
from allaboard.scheduling.announcer import Announcer
from allaboard.scheduling.queue import ANYTHING, GangQueue
from allaboard.scheduling.transaction import Committed, undo

FORWARD_SECONDS = 5.0
"""How long the missing members may take to be bound around the bound ones."""

_RETRY_SECONDS = 0.5


@dataclass(slots=True)
class OpenGangs:
    """What we left half bound, and how far each has come: being finished, undone, or kept open because nobody may be released."""

    queue: GangQueue
    binder: Binder
    announcer: Announcer
    metrics: Metrics
    clock: Callable[[], float] = time.monotonic
    _deadlines: dict[GangKey, float] = field(default_factory=dict)
    _kept_open: set[GangKey] = field(default_factory=set)
    _undone: set[GangKey] = field(default_factory=set)

    def __contains__(self, key: GangKey) -> bool:
        """Whether the gang is being finished."""
        return key in self._deadlines

    def was_undone(self, key: GangKey) -> bool:
        """Whether the gang was undone before, so that every member is to be tried beforehand."""
        return key in self._undone

    def add(self, key: GangKey) -> None:
        """The gang was left half bound just now; its time runs from the first time that is said."""
        self._deadlines.setdefault(key, self.clock() + FORWARD_SECONDS)

    def close(self, key: GangKey) -> None:
        """The gang is whole or absent."""
        self._deadlines.pop(key, None)
        self._kept_open.discard(key)

    def forget(self, key: GangKey) -> None:
        """The gang is gone."""
        self.close(key)
        self._undone.discard(key)

    def is_overdue(self, gang: Gang) -> bool:
        """Whether the gang is half bound still, although finishing it has had its time."""
        deadline = self._deadlines.get(gang.key)
        if deadline is None:
            return False
        if not gang.is_open:
            self.close(gang.key)
            return False
        return self.clock() >= deadline

    def retry_when_overdue(self, key: GangKey) -> None:
        """Have a gang that can't be finished now looked at when its time is over."""
        if key in self._deadlines:
            self.queue.retry(key, max(0.0, self._deadlines[key] - self.clock()))

    async def finish_forward(self, gang: Gang, outcome: Committed, changes: int) -> None:
        """Have the missing placed around the bound, before anybody else; undo at once when a member was refused for good."""
        key = gang.key
        if key in self._kept_open:
            self.queue.fail(key, ANYTHING, seen=changes, retry_by=self.clock())
            return
        self.add(key)
        if outcome.is_final:
            await self.undo(gang, [*gang.bound, *(seat.pod for seat in outcome.bound)], outcome.message)
        else:
            self.queue.retry(key, _RETRY_SECONDS)

    async def undo_overdue(self, gang: Gang) -> None:
        """Undo a gang whose time is over."""
        text = f"{gang.missing} missing members could not be bound within {FORWARD_SECONDS:g} s"
        await self.undo(gang, gang.bound, text)

    async def undo(self, gang: Gang, pods: Sequence[Pod], message: str) -> None:
        """Release the bound ``pods`` that may be released. What the API server doesn't let us release is tried again."""
        undone = await undo(pods, self.binder)
        if undone.released:
            self._undone.add(gang.key)
            self.metrics.transactions.labels("undone").inc()
            self.announcer.undone(gang, undone.released, message)
        if undone.is_unfinished:
            self._deadlines[gang.key] = self.clock()
            self.queue.retry(gang.key, _RETRY_SECONDS)
            return
        self._deadlines.pop(gang.key, None)
        if len(undone.released) < len(pods):
            self._kept_open.add(gang.key)
        self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock())
