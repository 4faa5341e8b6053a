"""Records since when each gang waits for capacity or for pods. A gang's time-out begins when its wait begins."""

import time
from collections.abc import Callable

from allaboard.model.gang import Gang, GangKey
from allaboard.records.record import GangRecords, Wait


class WaitClock:
    """Begins and ends the waits in the gangs' records. ``clock`` is monotonic. ``now`` returns seconds since the epoch."""

    def __init__(self, records: GangRecords, clock: Callable[[], float] = time.monotonic, now: Callable[[], float] = time.time) -> None:
        self._records = records
        self._clock = clock
        self.now = now

    def of(self, gang: Gang, *, is_for_pods: bool = False) -> Wait:
        """Return the gang's current wait for capacity, or for pods if it ``is_for_pods``.

        A new wait begins if the gang didn't wait, or waited for pods instead of capacity, or for capacity instead of pods.
        """
        record = self._records.of(gang.key)
        if record.wait is None or record.wait.is_for_pods != is_for_pods:
            record.wait = Wait(self._clock(), self._began(gang), is_for_pods)
        return record.wait

    def _began(self, gang: Gang) -> float:
        """Return when a gang that waits from now on began to wait, in seconds since the epoch: when its newest member was created.

        A gang that a new leader finds has waited for longer than the leader knows.
        """
        return min(self.now(), max((pod.created for pod in gang.candidates), default=gang.created))

    def find(self, key: GangKey) -> Wait | None:
        """Return the gang's current wait; None if the gang doesn't wait."""
        record = self._records.find(key)
        return record.wait if record else None

    def end(self, key: GangKey) -> None:
        """End the gang's wait, if it waits. If the gang waits again later, its time-out begins from zero."""
        if (record := self._records.find(key)) is not None:
            record.wait = None

    def retry_by(self, gang: Gang, next_look: float | None) -> float | None:
        """Return the time, on the clock, by which a refused gang must be attempted again.

        It is the end of the gang's time-out, or ``next_look`` if that is earlier. It is None if the time-out is over and ``next_look`` is
        None, and also for a whole gang.
        """
        if gang.is_whole:
            return None
        timeout = self.of(gang).since + gang.timeout_seconds
        times = [when for when in (next_look, timeout if timeout > self._clock() else None) if when is not None]
        return min(times, default=None)
