"""Retries waiting gangs whose message may be out of date: the oldest message first, at a bounded cost.

A refusal names what is free, and that changes with each pod that is bound or gone. A change only increments a counter, however many gangs
wait. A refresh is an attempt like any other, but counts no failure. Refreshes take a quarter of the time at most. A gang whose last attempt
took long, such as one that needed a long search, isn't refreshed for a minute.
"""

import heapq
from collections.abc import Callable

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState

_FRESH_SECONDS = 1.0  # a message is taken to be true for so long
_REST_SHARE = 3.0  # after a refresh there is none for so many times as long as it took
_LEAST_REST_SECONDS = 0.02
_LONG_SECONDS = 0.2  # a longer attempt keeps other gangs waiting
_LONG_FRESH_SECONDS = 60.0
_MOST_ENTRIES = 64  # before outdated entries are dropped


class MessageRefresh:
    """Waiting gangs by when they are refreshed, if anything has changed since the attempt that their message is from.

    ``state_of`` returns a gang's state, to be read only.
    """

    def __init__(self, state_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._state_of = state_of
        self._clock = clock
        self._news = 0
        # Heaps of attempts, by how long their messages are left alone; outdated entries are dropped at the top.
        self._looks: dict[float, list[tuple[float, GangKey]]] = {_FRESH_SECONDS: [], _LONG_FRESH_SECONDS: []}
        self._most = _MOST_ENTRIES
        self._rests_until = 0.0
        self._refreshed: GangKey | None = None

    def changed(self) -> None:
        """Count a change that may make messages out of date."""
        self._news += 1

    def looks(self, state: QueueState) -> None:
        """Record that a gang is being attempted: its message will be up to date."""
        state.looked, state.message_from = (self._clock(), self._news), None

    def refused(self, key: GangKey, state: QueueState) -> float | None:
        """Record that the last attempt at a gang was refused, and that its message is from that attempt.

        Return the end of the gang's unexpired backoff if the attempt was a refresh.
        """
        now, until = self._clock(), None
        state.looked = state.looked or (now, self._news)
        state.message_from, took = state.looked[0], now - state.looked[0]
        if key == self._refreshed:
            self._refreshed, until = None, state.not_before
            self._rests_until = now + max(_LEAST_REST_SECONDS, _REST_SHARE * took)
        heapq.heappush(self._looks[_FRESH_SECONDS if took <= _LONG_SECONDS else _LONG_FRESH_SECONDS], (state.message_from, key))
        if sum(map(len, self._looks.values())) > self._most:
            self._drop_stale()
        return until

    def take(self) -> GangKey | None:
        """Return the gang that is to be refreshed now; None without one."""
        if (first := self._first()) is None or first[0] > self._clock():
            return None
        _, self._refreshed = first
        self._state_of(self._refreshed).message_from = None
        self._rests_until = self._clock() + _LEAST_REST_SECONDS
        return self._refreshed

    @property
    def seconds(self) -> float | None:
        """Seconds until a gang is to be refreshed; None without one."""
        first = self._first()
        return first[0] - self._clock() if first is not None else None

    def _first(self) -> tuple[float, GangKey] | None:
        """Return when the next gang is to be refreshed, and which gang that is."""
        found: list[tuple[float, GangKey]] = []
        for fresh, looks in self._looks.items():
            while looks and self._is_stale(looks[0]):
                heapq.heappop(looks)
            # Attempts are in order of time: if nothing has changed since the first, nothing has since the others.
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
