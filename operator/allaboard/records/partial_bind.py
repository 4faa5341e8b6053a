"""The states of a partially bound gang, and their deadlines.

A transaction that binds some members and not all leaves the gang partially bound. The scheduler then tries to bind the missing members. If
that fails until a deadline, it releases the bound members. If some bound members may not be released, the gang is kept open. ``transition``
defines which state follows from which event.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Union

from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod

FORWARD_SECONDS = 5.0
"""Seconds within which the missing members must be bound around the bound ones."""

RELEASING_SECONDS = 10.0
"""Seconds that a release may take; after that other gangs may be released instead."""


@dataclass(frozen=True, slots=True)
class Finishing:
    """State: the missing members are to be bound around the bound members by ``deadline``, before any other gang is attempted.

    ``is_renewed``: the deadline was extended, which happens once at most.
    """

    deadline: float
    is_renewed: bool = False


@dataclass(frozen=True, slots=True)
class KeptOpen:
    """State: bound members stay, since they may not be released. The missing members are placed when there is capacity."""


@dataclass(frozen=True, slots=True)
class Left:
    """State: all bound members were released. A member that is found to be bound afterwards is released, too."""

    is_renewed: bool = False


@dataclass(frozen=True, slots=True)
class Releasing:
    """State: a release is in progress, and should end by ``until``. ``before`` is the state before the release."""

    before: "BaseState"
    until: float


BaseState = Union[Finishing, KeptOpen, Left, None]  # noqa: UP007  # a forward reference
State = Finishing | KeptOpen | Left | Releasing | None
"""The state of a partial bind. None: the gang isn't partially bound, or was whole once and is healed like other gangs."""


class Event(Enum):
    """An event that changes the state of a partial bind."""

    LEFT_IN_PART = auto()
    """A transaction has left the gang partially bound, or may have."""
    INHERITED = auto()
    """An earlier leader has left the gang partially bound, and this leader attempts the gang for the first time."""
    ANSWERED = auto()
    """The operator has read, for each unanswered bind of the gang, whether the API server carried the bind out."""
    SEEN_CLOSED = auto()
    """The watch shows the gang whole, or with no bound member."""
    CLOSED = auto()
    """The gang is whole, absent or gone."""
    RELEASE_BEGAN = auto()
    """A release of bound members begins."""
    RELEASE_FAILED = auto()
    """The release ended without a result."""
    RELEASE_UNFINISHED = auto()
    """Some members could not be released, and may be released later."""
    ALL_RELEASED = auto()
    """All bound members were released."""
    SOME_KEPT = auto()
    """Some bound members may not be released."""


def transition(state: State, event: Event, now: float) -> State:
    """Return the state that follows from ``state`` when ``event`` happens at ``now``, on the clock."""
    base = _base_state_of(state)
    is_renewed = isinstance(base, Finishing | Left) and base.is_renewed
    match event:
        case Event.LEFT_IN_PART:
            return Finishing(now + FORWARD_SECONDS) if base is None else state
        case Event.INHERITED:
            return Finishing(now + FORWARD_SECONDS)
        case Event.ANSWERED:
            may_renew = isinstance(state, Finishing | Left) and not is_renewed
            return Finishing(now + FORWARD_SECONDS, is_renewed=True) if may_renew else state
        case Event.SEEN_CLOSED:
            return None if isinstance(state, Finishing | Left) else state
        case Event.CLOSED:
            return None
        case Event.RELEASE_BEGAN:
            return Releasing(base, now + RELEASING_SECONDS)
        case Event.RELEASE_FAILED:
            return base
        case Event.RELEASE_UNFINISHED:
            return Finishing(now, is_renewed)
        case Event.ALL_RELEASED:
            return Left(is_renewed)
        case Event.SOME_KEPT:
            return KeptOpen()


def _base_state_of(state: State) -> BaseState:
    """Return ``state``; while a release is in progress, the state before the release."""
    return state.before if isinstance(state, Releasing) else state


@dataclass(frozen=True, slots=True)
class Leaving:
    """Released members that may still be terminating. Their capacity should be free by ``until``, on the clock."""

    members: Sequence[Pod] = ()
    until: float = -math.inf


@dataclass(slots=True)
class PartialBind:
    """The partial bind of one gang: its state, its deadlines, and the gang that it was released for. Times are on the clock."""

    state: State = None
    expires: float | None = None
    """The end of the gang's time-out, which begins when the gang is first seen partially bound; None while it isn't partially bound."""
    was_tried: bool = False
    """True if an attempt has failed since the end of the time-out."""
    restarts_at: float = -math.inf
    """The earliest time of the next release that is for the gang's own sake, and not for another gang."""
    released_for: GangKey | None = None
    """The gang for which the members were last released."""
    leaving: Leaving = Leaving()
    no_victim_until: float = -math.inf
    """Don't try to release this gang for another one before this time: the last try failed, or the gang was busy."""

    def move(self, event: Event, now: float) -> None:
        """Change the state to the one that follows from ``event``."""
        self.state = transition(self.state, event, now)

    def close(self, now: float) -> None:
        """Record that the gang is whole, absent or gone. State and deadlines are reset; released members stay recorded."""
        self.move(Event.CLOSED, now)
        self.expires, self.was_tried, self.restarts_at = None, False, -math.inf

    @property
    def _base_state(self) -> BaseState:
        return _base_state_of(self.state)

    @property
    def is_finishing(self) -> bool:
        """True if the missing members are to be bound before any other gang is attempted, or if all bound members were just released."""
        return isinstance(self._base_state, Finishing | Left)

    @property
    def is_kept_open(self) -> bool:
        """True if the gang is kept open, since some bound members may not be released."""
        return isinstance(self._base_state, KeptOpen)

    @property
    def deadline(self) -> float | None:
        """The latest time to bind the missing members; None unless the gang is being finished."""
        return self._base_state.deadline if isinstance(self._base_state, Finishing) else None

    def is_overdue(self, now: float) -> bool:
        """Return whether bound members are to be released now: the deadline has passed, or all members were released before."""
        return isinstance(self._base_state, Left) or (self.deadline is not None and now >= self.deadline)

    def has_timed_out(self, now: float) -> bool:
        """Return whether the gang has been partially bound for its time-out (``scheduleTimeoutSeconds``)."""
        return self.expires is not None and self.expires <= now

    def is_releasing(self, now: float) -> bool:
        """Return whether a release is in progress, and hasn't taken too long."""
        return isinstance(self.state, Releasing) and self.state.until > now

    def is_going(self, now: float) -> bool:
        """Return whether the gang is being released, or was released and its capacity isn't expected to be free yet."""
        return self.is_releasing(now) or self.leaving.until > now

    def times(self) -> Sequence[float | None]:
        """Return the times at which the gang must be attempted for its own sake; None for a time that isn't set."""
        return self.deadline, self.restarts_at, self.expires

    def times_for_others(self) -> Sequence[float | None]:
        """Return the times at which a gang that waits for this gang's capacity must be attempted; None for a time that isn't set.

        At these times a release of this gang becomes possible, or a release should have ended.
        """
        releasing = self.state.until if isinstance(self.state, Releasing) else None
        expires = self.expires if self.is_kept_open or self.deadline is not None or isinstance(self._base_state, Left) else None
        return self.no_victim_until, releasing, self.leaving.until, expires
