"""Timers that make gangs due. Each gang has at most one; its time is ``QueueState.due_at``."""

import heapq
from collections.abc import Callable, Iterator

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState


class Timers:
    """A heap of gangs by the times of their timers, on the clock. ``state_of`` returns a gang's state for reading.

    An entry that differs from the gang's ``due_at`` is outdated, and dropped when it reaches the top.
    """

    def __init__(self, state_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._state_of = state_of
        self._clock = clock
        self._heap: list[tuple[float, GangKey]] = []
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def set(self, key: GangKey, state: QueueState, when: float) -> None:
        """Set a gang's timer to ``when``. An earlier setting is replaced."""
        self._number += state.due_at is None
        state.due_at = when
        heapq.heappush(self._heap, (when, key))

    def stop(self, state: QueueState) -> None:
        """Stop a gang's timer, if it is set."""
        if state.due_at is not None:
            state.due_at = None
            self._number -= 1

    @property
    def seconds(self) -> float | None:
        """Seconds until the first entry of the heap, which may be outdated; None without entries."""
        return self._heap[0][0] - self._clock() if self._heap else None

    def expired(self) -> Iterator[GangKey]:
        """Yield the gangs whose timers have expired. The caller must stop or set the timer of each."""
        now = self._clock()
        while self._heap and (self._heap[0][0] <= now or self._state_of(self._heap[0][1]).due_at != self._heap[0][0]):
            when, key = heapq.heappop(self._heap)
            if self._state_of(key).due_at == when:
                yield key
