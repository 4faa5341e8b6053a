"""How a gang goes back to the queue after an attempt, and changes of the cluster's capacity, as values."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from allaboard.records.wake_up import ANYTHING, CapacityNeed, WakeUpOn


class Reason(Enum):
    """The result of an attempt, as far as the queue is concerned."""

    REFUSED = auto()
    """There was no capacity: a failure is counted, and freed capacity wakes the gang."""
    FAILED = auto()
    """The attempt failed for another reason: a failure is counted, and the gang is in backoff."""
    SEARCHING = auto()
    """A longer search follows: the gang is in backoff as after its last failure, and no failure is counted."""
    WAITING = auto()
    """The gang waits for a change, without backoff."""
    AGAIN = auto()
    """The gang is attempted again after a time, and no failure is counted."""
    RESUMED = auto()
    """As ``AGAIN``, after work other than placement: a hard backoff goes on."""
    NOW = auto()
    """The gang has changed: it is due now, or when its backoff ends."""
    SETTLED = auto()
    """The gang has what it wants: its failures are forgotten."""
    GONE = auto()
    """The gang doesn't exist any more: its state is forgotten."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """How a gang goes back to the queue. Make one with the function that is named for its reason."""

    reason: Reason
    wake_on: WakeUpOn = ANYTHING
    """The changes that make the gang due."""
    retry_by: float | None = None
    """When the gang is due at the latest, on the clock, once its backoff is over; None for the queue's own limit."""
    seconds: float = 0.0
    """The least backoff of a failure; or the time until the gang is attempted again."""
    is_hard: bool = False
    """Whether nothing makes the gang due before that time."""
    need: CapacityNeed | None = None
    """The capacity that the gang needs, if it can be counted: then the gang is due as soon as that much is free."""
    is_capacity_assumed: bool = False
    """Whether capacity was assumed for other gangs during the attempt: if it is returned, the refusal is no failure."""

    @classmethod
    def refused(
        cls, wake_on: WakeUpOn, *, is_capacity_assumed: bool, retry_by: float | None = None, need: CapacityNeed | None = None
    ) -> Self:
        """Return the requeue of a gang for which there is no capacity."""
        return cls(Reason.REFUSED, wake_on, retry_by, need=need, is_capacity_assumed=is_capacity_assumed)

    @classmethod
    def failed(cls, wake_on: WakeUpOn = ANYTHING, *, retry_by: float | None = None, at_least: float = 0.0) -> Self:
        """Return the requeue of a gang whose attempt failed; its backoff lasts ``at_least`` so many seconds."""
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
        """Return the requeue of a gang that is attempted again in ``seconds`` at most, and not before if it ``is_hard``."""
        return cls(Reason.AGAIN, seconds=seconds, is_hard=is_hard)

    @classmethod
    def resumed(cls, seconds: float) -> Self:
        """Return the requeue of a gang that is attempted again in ``seconds`` at most, after work other than placement."""
        return cls(Reason.RESUMED, seconds=seconds)

    @classmethod
    def now(cls) -> Self:
        """Return the requeue of a gang that has changed."""
        return cls(Reason.NOW)

    @classmethod
    def settled(cls) -> Self:
        """Return the requeue of a gang that has what it wants."""
        return cls(Reason.SETTLED)

    @classmethod
    def gone(cls) -> Self:
        """Return the requeue of a gang that doesn't exist any more."""
        return cls(Reason.GONE)


@dataclass(frozen=True, slots=True)
class Freed:
    """Some of these ``resources`` are free now; None if any may be, as after a change of a node.

    ``is_only``: nothing else has changed, so gangs that any change may help stay unschedulable.
    """

    resources: Collection[str] | None = None
    is_only: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """Capacity was taken: that helps no gang, but messages of waiting gangs may be out of date."""


@dataclass(frozen=True, slots=True)
class Returned:
    """Capacity that was assumed for a gang is free again: refusals since then are no failures."""


CapacityChange = Freed | Taken | Returned
