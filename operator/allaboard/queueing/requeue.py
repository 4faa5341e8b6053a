"""Values that change the queue: the result of a gang's attempt (``Requeue``), and changes of the cluster's capacity."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from allaboard.records.wake_up import ANYTHING, CapacityNeed, WakeUpOn


class Reason(Enum):
    """The result of an attempt, from which the queue decides when to attempt the gang again."""

    REFUSED = auto()
    """There was no capacity. A failure is counted, and freed capacity wakes the gang."""
    FAILED = auto()
    """The attempt failed for another reason. A failure is counted, and the gang's backoff begins."""
    SEARCHING = auto()
    """A longer search follows. No failure is counted, and a backoff begins that is as long as after the last failure."""
    WAITING = auto()
    """The gang waits for a change, without backoff."""
    AGAIN = auto()
    """The gang is attempted again after a given time, and no failure is counted."""
    RESUMED = auto()
    """Like ``AGAIN``, but after work other than placement. A hard backoff goes on, and freed capacity wakes the gang."""
    NOW = auto()
    """The gang has changed. It is due now, or when its backoff ends."""
    SETTLED = auto()
    """The gang needs nothing for now. Its failures are forgotten."""
    GONE = auto()
    """The gang no longer exists. Its state is deleted."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """An instruction to put a gang back into the queue. Create it with the class method that is named for its reason."""

    reason: Reason
    wake_on: WakeUpOn = ANYTHING
    """The changes that make the gang due."""
    retry_by: float | None = None
    """The latest time, on the clock, at which the gang is due, but not before its backoff ends; None for the queue's own limit."""
    seconds: float = 0.0
    """With the reason ``FAILED``, the least backoff. With ``AGAIN`` and ``RESUMED``, the longest time until the gang is attempted again."""
    is_hard: bool = False
    """True if nothing makes the gang due before ``seconds`` are over."""
    need: CapacityNeed | None = None
    """The capacity that the gang needs. The gang is due as soon as that much is free. None if its need can't be counted."""

    @classmethod
    def refused(cls, wake_on: WakeUpOn, *, retry_by: float | None = None, need: CapacityNeed | None = None) -> Self:
        """Return the requeue of a gang for which there was no capacity."""
        return cls(Reason.REFUSED, wake_on, retry_by, need=need)

    @classmethod
    def failed(cls, wake_on: WakeUpOn = ANYTHING, *, retry_by: float | None = None, at_least: float = 0.0) -> Self:
        """Return the requeue of a gang whose attempt failed. Its backoff lasts for ``at_least`` seconds or longer."""
        return cls(Reason.FAILED, wake_on, retry_by, at_least)

    @classmethod
    def searching(cls, wake_on: WakeUpOn, *, retry_by: float | None = None) -> Self:
        """Return the requeue of a gang that waits for a long search."""
        return cls(Reason.SEARCHING, wake_on, retry_by)

    @classmethod
    def waiting(cls, wake_on: WakeUpOn, *, retry_by: float | None = None) -> Self:
        """Return the requeue of a gang that waits for a change, without backoff."""
        return cls(Reason.WAITING, wake_on, retry_by)

    @classmethod
    def again(cls, seconds: float, *, is_hard: bool = False) -> Self:
        """Return the requeue of a gang that is attempted again after ``seconds`` at the latest; not before, if ``is_hard``."""
        return cls(Reason.AGAIN, seconds=seconds, is_hard=is_hard)

    @classmethod
    def resumed(cls, seconds: float) -> Self:
        """Return the requeue of a gang that is attempted again after ``seconds`` at the latest, after work other than placement."""
        return cls(Reason.RESUMED, seconds=seconds)

    @classmethod
    def now(cls) -> Self:
        """Return the requeue of a gang that has changed."""
        return cls(Reason.NOW)

    @classmethod
    def settled(cls) -> Self:
        """Return the requeue of a gang that needs nothing for now."""
        return cls(Reason.SETTLED)

    @classmethod
    def gone(cls) -> Self:
        """Return the requeue of a gang that no longer exists."""
        return cls(Reason.GONE)


@dataclass(frozen=True, slots=True)
class Freed:
    """Some capacity was freed. ``resources`` are the resources of which more may be free; None for all, as after a change of a node.

    ``is_only``: nothing else has changed. Then gangs that wait for any change at all aren't woken.
    """

    resources: Collection[str] | None = None
    is_only: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Capacity was taken. No gang is woken, but messages of waiting gangs may be out of date."""


@dataclass(frozen=True, slots=True)
class Returned:
    """Capacity that was assumed for a gang is free again. Gangs that were refused before end their backoff."""


CapacityChange = Freed | Taken | Returned
