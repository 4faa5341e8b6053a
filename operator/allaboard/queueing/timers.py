"""Timers that make gangs due: one for each gang, whose time is in its ``QueueState``."""

import heapq
from collections.abc import Callable, Iterator

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState


class Timers:
    """A heap of times on the clock; outdated entries are dropped at the top. ``state_of`` returns a gang's state, to be read only."""

    def __init__(self, state_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._state_of = state_of
        self._clock = clock
        self._heap: list[tuple[float, GangKey]] = []
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def set(self, key: GangKey, state: QueueState, when: float) -> None:
        """Make a gang due at ``when``, instead of at an earlier set time."""
        self._number += state.due_at is None
        state.due_at = when
        heapq.heappush(self._heap, (when, key))

    def stop(self, state: QueueState) -> None:
        """Stop the timer of a gang."""
        if state.due_at is not None:
            state.due_at = None
            self._number -= 1

    @property
    def seconds(self) -> float | None:
        """Seconds until the first timer; None without one."""
        return self._heap[0][0] - self._clock() if self._heap else None

    def expired(self) -> Iterator[GangKey]:
        """Yield the gangs whose time has come."""
        now = self._clock()
        while self._heap and (self._heap[0][0] <= now or self._state_of(self._heap[0][1]).due_at != self._heap[0][0]):
            when, key = heapq.heappop(self._heap)
            if self._state_of(key).due_at == when:
                yield key
