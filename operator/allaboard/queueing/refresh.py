"""Refreshes the messages of waiting gangs: attempts gangs again whose message may be out of date, the oldest message first.

A refusal message names free capacity, which changes with each pod that is bound or deleted. A refresh is an attempt like any other, but
a refusal doesn't count as another failure of the gang. The cost is bounded:

- Counting a change takes the same time however many gangs wait.
- The next refresh waits three times as long as the last one took, so refreshes take at most a quarter of the time.
- A gang whose last attempt took more than 0.2 s isn't refreshed for a minute.
"""

import heapq
from collections.abc import Callable

from allaboard.model.gang import GangKey
from allaboard.records.record import QueueState

_FRESH_SECONDS = 1.0  # Age at which a message may be refreshed.
_PAUSE_RATIO = 3.0  # After a refresh the next one waits for so many times as long as the refresh took.
_LEAST_PAUSE_SECONDS = 0.02
_LONG_SECONDS = 0.2  # An attempt that takes longer keeps other gangs waiting.
_LONG_FRESH_SECONDS = 60.0  # Age at which a message may be refreshed if its attempt took that long.
_MOST_ENTRIES = 64  # Outdated entries that are allowed, besides one for each current entry.


class MessageRefresh:
    """The waiting gangs whose messages are refreshed, in the order of their messages' ages.

    A gang is refreshed only if a change was counted since the attempt that its message is from. ``state_of`` returns a gang's state for
    reading.
    """

    def __init__(self, state_of: Callable[[GangKey], QueueState], clock: Callable[[], float]) -> None:
        self._state_of = state_of
        self._clock = clock
        self._changes = 0
        # Heaps of (time at which the attempt began, gang), by the age at which the message may be refreshed. Outdated entries are dropped
        # when they reach the top.
        self._attempts: dict[float, list[tuple[float, GangKey]]] = {_FRESH_SECONDS: [], _LONG_FRESH_SECONDS: []}
        self._most = _MOST_ENTRIES
        self._paused_until = 0.0
        self._refreshed: GangKey | None = None

    def changed(self) -> None:
        """Count a change that may make messages out of date."""
        self._changes += 1

    def begin_attempt(self, state: QueueState) -> None:
        """Record that an attempt of a gang begins, so that the gang's old message needs no refresh."""
        state.last_attempt, state.message_from = (self._clock(), self._changes), None

    def refused(self, key: GangKey, state: QueueState) -> float | None:
        """Record that the gang's last attempt was refused, so that its message is from that attempt.

        Return the end of the gang's earlier backoff if the attempt was a refresh, since that backoff goes on; else None.
        """
        now, until = self._clock(), None
        state.last_attempt = state.last_attempt or (now, self._changes)
        state.message_from, took = state.last_attempt[0], now - state.last_attempt[0]
        if key == self._refreshed:
            self._refreshed, until = None, state.not_before
            self._paused_until = now + max(_LEAST_PAUSE_SECONDS, _PAUSE_RATIO * took)
        heapq.heappush(self._attempts[_FRESH_SECONDS if took <= _LONG_SECONDS else _LONG_FRESH_SECONDS], (state.message_from, key))
        if sum(map(len, self._attempts.values())) > self._most:
            self._drop_stale()
        return until

    def take(self) -> GangKey | None:
        """Return the gang to refresh now; None if there is none. The gang counts as being refreshed until it is refused."""
        if (first := self._first()) is None or first[0] > self._clock():
            return None
        _, self._refreshed = first
        self._state_of(self._refreshed).message_from = None
        self._paused_until = self._clock() + _LEAST_PAUSE_SECONDS
        return self._refreshed

    @property
    def seconds(self) -> float | None:
        """Seconds until the next refresh; None if no gang is to be refreshed."""
        first = self._first()
        return first[0] - self._clock() if first is not None else None

    def _first(self) -> tuple[float, GangKey] | None:
        """Return the time of the next refresh and its gang; None if no gang is to be refreshed."""
        found: list[tuple[float, GangKey]] = []
        for fresh_seconds, attempts in self._attempts.items():
            while attempts and self._is_stale(attempts[0]):
                heapq.heappop(attempts)
            # Attempts are in order of time. So if nothing has changed since the first attempt, nothing has since the later ones.
            if attempts and (last_attempt := self._state_of(attempts[0][1]).last_attempt) is not None and last_attempt[1] < self._changes:
                found.append((max(attempts[0][0] + fresh_seconds, self._paused_until), attempts[0][1]))
        return min(found, default=None)

    def _is_stale(self, attempt: tuple[float, GangKey]) -> bool:
        return self._state_of(attempt[1]).message_from != attempt[0]

    def _drop_stale(self) -> None:
        for fresh_seconds, attempts in self._attempts.items():
            self._attempts[fresh_seconds] = kept = [attempt for attempt in set(attempts) if not self._is_stale(attempt)]
            heapq.heapify(kept)
        self._most = 2 * sum(map(len, self._attempts.values())) + _MOST_ENTRIES
