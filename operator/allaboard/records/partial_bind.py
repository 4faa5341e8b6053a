"""A gang that is, or was, partially bound: its state, with its deadlines.

A transaction that binds some members and not all leaves a partial bind. The gang is finished forward while there is hope. Its bound members
are released when there is none, and it is kept open when they may not be released. ``transition`` says which state follows from which
event.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Union

from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod

FORWARD_SECONDS = 5.0
"""How long the missing members may take to be bound around the bound ones."""

RELEASING_SECONDS = 10.0
"""How long a release may take before other gangs' members are released instead."""


@dataclass(frozen=True, slots=True)
class Finishing:
    """The missing members are bound around the bound ones, before any other gang, until ``deadline``, which is extended once at most."""

    deadline: float
    is_renewed: bool = False


@dataclass(frozen=True, slots=True)
class KeptOpen:
    """Bound members stay, although others are missing: they may not be released. The missing ones are placed when there is capacity."""


@dataclass(frozen=True, slots=True)
class Left:
    """All bound members were released. A member that turns out to be bound all the same is released again."""

    is_renewed: bool = False


@dataclass(frozen=True, slots=True)
class Releasing:
    """A release is in progress, and should end by ``until``. ``before`` is the state at its beginning."""

    before: "Rest"
    until: float


Rest = Union[Finishing, KeptOpen, Left, None]  # noqa: UP007  # a forward reference
State = Finishing | KeptOpen | Left | Releasing | None
"""None: the gang isn't partially bound, or was whole once and is healed like other gangs."""


class Event(Enum):
    """An event that changes the state of a partial bind."""

    LEFT_IN_PART = auto()
    """A transaction has left the gang partially bound, or may have."""
    INHERITED = auto()
    """An earlier leader has left the gang partially bound, and the gang is attempted for the first time."""
    ANSWERED = auto()
    """Unanswered binds are resolved."""
    SEEN_CLOSED = auto()
    """The watch shows the gang whole, or with no bound member."""
    CLOSED = auto()
    """The gang is whole or gone, or rests."""
    RELEASE_BEGAN = auto()
    RELEASE_FAILED = auto()
    """The release ended without a result."""
    RELEASE_UNFINISHED = auto()
    """Some members could not be released, and may be released later."""
    ALL_RELEASED = auto()
    SOME_KEPT = auto()
    """Some bound members may not be released."""


def transition(state: State, event: Event, now: float) -> State:
    """Return the state that follows from ``state`` when ``event`` happens at ``now``, on the clock."""
    rest = _rest_of(state)
    is_renewed = isinstance(rest, Finishing | Left) and rest.is_renewed
    match event:
        case Event.LEFT_IN_PART:
            return Finishing(now + FORWARD_SECONDS) if rest is None else state
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
            return Releasing(rest, now + RELEASING_SECONDS)
        case Event.RELEASE_FAILED:
            return rest
        case Event.RELEASE_UNFINISHED:
            return Finishing(now, is_renewed)
        case Event.ALL_RELEASED:
            return Left(is_renewed)
        case Event.SOME_KEPT:
            return KeptOpen()


def _rest_of(state: State) -> Rest:
    """Return the state, or the one at the beginning of the release that is in progress."""
    return state.before if isinstance(state, Releasing) else state


@dataclass(frozen=True, slots=True)
class Leaving:
    """Members that were released and may be terminating; their capacity is expected to be free by ``until``."""

    members: Sequence[Pod] = ()
    until: float = -math.inf


@dataclass(slots=True)
class PartialBind:
    """The state of one gang's partial bind, its deadlines on the clock, and the gang that it was released for."""

    state: State = None
    expires: float | None = None
    """When the gang will have been partially bound for its time-out; None while the gang isn't partially bound."""
    was_tried: bool = False
    """Whether an attempt has failed since the gang expired."""
    restarts_at: float = -math.inf
    """The earliest time of the next release for the gang's own sake."""
    released_for: GangKey | None = None
    """The gang for which the members were last released."""
    leaving: Leaving = Leaving()
    no_victim_until: float = -math.inf
    """Don't try to release this gang for another one before this time: the last try failed, or the gang was busy."""

    def move(self, event: Event, now: float) -> None:
        """Change the state as ``transition`` says."""
        self.state = transition(self.state, event, now)

    def close(self, now: float) -> None:
        """Record that the gang is whole, absent or gone. Only members that are leaving are remembered."""
        self.move(Event.CLOSED, now)
        self.expires, self.was_tried, self.restarts_at = None, False, -math.inf

    @property
    def _rest(self) -> Rest:
        return _rest_of(self.state)

    @property
    def is_finishing(self) -> bool:
        """Whether the missing members are being bound around the bound ones, before any other gang."""
        return isinstance(self._rest, Finishing | Left)

    @property
    def is_kept_open(self) -> bool:
        """Whether no bound member may be released."""
        return isinstance(self._rest, KeptOpen)

    @property
    def deadline(self) -> float | None:
        """When the missing members must be bound at the latest; None unless they are being bound."""
        return self._rest.deadline if isinstance(self._rest, Finishing) else None

    def is_overdue(self, now: float) -> bool:
        """Return whether the deadline for finishing the gang has passed."""
        return isinstance(self._rest, Left) or (self.deadline is not None and now >= self.deadline)

    def has_timed_out(self, now: float) -> bool:
        """Return whether the gang has been partially bound for as long as its ``scheduleTimeoutSeconds``."""
        return self.expires is not None and self.expires <= now

    def is_releasing(self, now: float) -> bool:
        """Return whether a release is in progress that isn't overdue."""
        return isinstance(self.state, Releasing) and self.state.until > now

    def is_going(self, now: float) -> bool:
        """Return whether the gang is being released, or was released a moment ago."""
        return self.is_releasing(now) or self.leaving.until > now

    def times(self) -> Sequence[float | None]:
        """Return when the gang must be attempted for its own sake; None for a time that isn't set."""
        return self.deadline, self.restarts_at, self.expires

    def times_for_others(self) -> Sequence[float | None]:
        """Return when a gang that waits for this one's capacity must be attempted: a release is possible then, or is late."""
        releasing = self.state.until if isinstance(self.state, Releasing) else None
        expires = self.expires if self.is_kept_open or self.deadline is not None or isinstance(self._rest, Left) else None
        return self.no_victim_until, releasing, self.leaving.until, expires
