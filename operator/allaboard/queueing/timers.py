"""Timers that make gangs due: one for each gang, whose time is in its ``QueueState``."""

import heapq
from collections.abc import Callable, Iterator

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState


class Timers:
    """A heap of moments on the clock; entries that are none any more are dropped at the top. ``turn_of`` gives a turn to read."""

    def __init__(self, turn_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._turn_of = turn_of
        self._clock = clock
        self._heap: list[tuple[float, GangKey]] = []
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def set(self, key: GangKey, turn: QueueState, when: float) -> None:
        """Look at a gang then, and not at another moment."""
        self._number += turn.rings_at is None
        turn.rings_at = when
        heapq.heappush(self._heap, (when, key))

    def stop(self, turn: QueueState) -> None:
        """Don't look at a gang, unless something happens."""
        if turn.rings_at is not None:
            turn.rings_at = None
            self._number -= 1

    @property
    def seconds(self) -> float | None:
        """How long until the first rings, ``None`` without one."""
        return self._heap[0][0] - self._clock() if self._heap else None

    def rung(self) -> Iterator[GangKey]:
        """Those whose moment has come."""
        now = self._clock()
        while self._heap and (self._heap[0][0] <= now or self._turn_of(self._heap[0][1]).rings_at != self._heap[0][0]):
            when, key = heapq.heappop(self._heap)
            if self._turn_of(key).rings_at == when:
                yield key
