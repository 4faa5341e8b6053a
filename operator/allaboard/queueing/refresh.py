"""Waiting gangs whose message may no longer be true, so that they are looked at again: the oldest message first, at a bounded cost.

A refusal tells what is free, and that changes with each pod that is bound or gone. A change only counts one more, however many gangs wait.
A look for this purpose is an attempt like any other, but no failure. Looks take a quarter of the time at most. A gang whose last look took
long, such as one that needed a long search, isn't looked at for this purpose for a minute.
"""

import heapq
from collections.abc import Callable

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState

_FRESH_SECONDS = 1.0  # a message is true for so long at least, as far as this goes
_REST_SHARE = 3.0  # so many times longer than a look took there is none
_LEAST_REST_SECONDS = 0.02
_LONG_SECONDS = 0.2  # a look that takes longer keeps others waiting
_LONG_FRESH_SECONDS = 60.0
_MOST_ENTRIES = 64  # before those that stand for nothing any more are dropped


class MessageRefresh:
    """Gangs by when they are to be looked at, if anything has changed since the look that their message is from.

    ``state_of`` gives what is remembered of a gang, to be read only.
    """

    def __init__(self, state_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._state_of = state_of
        self._clock = clock
        self._news = 0
        # Heaps of looks, by how long their messages are left alone; entries that stand for nothing any more are dropped at the top.
        self._looks: dict[float, list[tuple[float, GangKey]]] = {_FRESH_SECONDS: [], _LONG_FRESH_SECONDS: []}
        self._most = _MOST_ENTRIES
        self._rests_until = 0.0
        self._retold: GangKey | None = None

    def changed(self) -> None:
        """Count a change that may make messages untrue."""
        self._news += 1

    def looks(self, state: QueueState) -> None:
        """Note that a gang is being looked at: its message will be of what is known now."""
        state.looked, state.message_from = (self._clock(), self._news), None

    def refused(self, key: GangKey, state: QueueState) -> float | None:
        """Note that the last look at a gang has ended in a refusal, of which its message tells.

        Return the end of the pause that goes on if the gang was looked at for its message only.
        """
        now, until = self._clock(), None
        state.looked = state.looked or (now, self._news)
        state.message_from, took = state.looked[0], now - state.looked[0]
        if key == self._retold:
            self._retold, until = None, state.not_before
            self._rests_until = now + max(_LEAST_REST_SECONDS, _REST_SHARE * took)
        heapq.heappush(self._looks[_FRESH_SECONDS if took <= _LONG_SECONDS else _LONG_FRESH_SECONDS], (state.message_from, key))
        if sum(map(len, self._looks.values())) > self._most:
            self._drop_stale()
        return until

    def take(self) -> GangKey | None:
        """Return the gang that is to be looked at now, ``None`` without one."""
        if (first := self._first()) is None or first[0] > self._clock():
            return None
        _, self._retold = first
        self._state_of(self._retold).message_from = None
        self._rests_until = self._clock() + _LEAST_REST_SECONDS
        return self._retold

    @property
    def seconds(self) -> float | None:
        """How long until a gang is to be looked at, ``None`` without one."""
        first = self._first()
        return first[0] - self._clock() if first is not None else None

    def _first(self) -> tuple[float, GangKey] | None:
        """Return when the next gang is to be looked at, and which one that is."""
        found: list[tuple[float, GangKey]] = []
        for fresh, looks in self._looks.items():
            while looks and self._is_stale(looks[0]):
                heapq.heappop(looks)
            # Looks are in order of time: if nothing has changed since the first, nothing has since the others.
            if looks and (looked := self._state_of(looks[0][1]).looked) is not None and looked[1] < self._news:
                found.append((max(looks[0][0] + fresh, self._rests_until), looks[0][1]))
        return min(found, default=None)

    def _is_stale(self, look: tuple[float, GangKey]) -> bool:
        return self._state_of(look[1]).message_from != look[0]

    def _drop_stale(self) -> None:
        for fresh, looks in self._looks.items():
            self._looks[fresh] = kept = [look for look in set(looks) if not self._is_stale(look)]
            heapq.heapify(kept)
        self._most = 2 * sum(map(len, self._looks.values())) + _MOST_ENTRIES
