"""Since when a gang waits, for capacity or for pods that don't exist yet. Its time-out runs from then."""

import time
from collections.abc import Callable

from allaboard.model.gang import Gang, GangKey
from allaboard.records.record import GangRecords, Wait


class WaitClock:
    """Begins and ends the waits of gangs, in their records. ``clock`` is monotonic, ``now`` is in seconds since the epoch."""

    def __init__(self, records: GangRecords, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self.now = now

    def of(self, gang: Gang, *, is_for_pods: bool = False) -> Wait:
        """Return the gang's current wait. A new one begins if the gang waited for something else, or for nothing."""
        record = self._records.of(gang.key)
        if record.wait is None or record.wait.is_for_pods != is_for_pods:
            record.wait = Wait(self._clock(), self.now(), is_for_pods)
        return record.wait

    def find(self, key: GangKey) -> Wait | None:
        """Return the gang's current wait; None if it doesn't wait."""
        record = self._records.find(key)
        return record.wait if record else None

    def end(self, key: GangKey) -> None:
        """End the gang's wait: the gang is whole, lacks pods or is gone. A later wait has a beginning of its own."""
        if (record := self._records.find(key)) is not None:
            record.wait = None

    def retry_by(self, gang: Gang, next_look: float | None) -> float | None:
        """Return when a refused gang must be attempted again at the latest: at its time-out, or at ``next_look`` if that is earlier.

        None if neither is to come, and for the surplus of a whole gang.
        """
        if gang.is_whole:
            return None
        timeout = self.of(gang).since + gang.timeout_seconds
        times = [when for when in (next_look, timeout if timeout > self._clock() else None) if when is not None]
        return min(times, default=None)
