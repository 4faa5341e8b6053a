"""The last decisions about each gang and about all gangs. Their number is bounded, and they are kept in memory only."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from allaboard.model.gang import GangKey

MOST_TRANSITIONS = 20
"""The most decisions that are kept about one gang."""

MOST_DECISIONS = 500
"""The most decisions that are kept about all gangs together."""

_MOST_TEXT = 256  # most characters of a message; longer messages are cut


@dataclass(frozen=True, slots=True)
class Transition:
    """A decision about a gang, which was made ``times`` times in a row.

    It was made first at ``first_at`` and last at ``last_at``, in seconds since the epoch. ``decision`` and ``reason`` are CamelCase words;
    ``reason`` is empty if the decision has none. ``message`` is the reason as a sentence, cut to 256 characters.
    """

    first_at: float
    last_at: float
    decision: str
    reason: str = ""
    message: str = ""
    times: int = 1

    @classmethod
    def of(cls, at: float, decision: str, reason: str = "", message: str = "") -> Self:
        """Return a decision that was made once, ``at`` seconds since the epoch."""
        return cls(at, at, decision, reason, message if len(message) <= _MOST_TEXT else f"{message[: _MOST_TEXT - 1]}…")

    def follows(self, other: "Transition") -> bool:
        """Return whether this decision repeats ``other``: decision, reason and message are equal."""
        return (self.decision, self.reason, self.message) == (other.decision, other.reason, other.message)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A summary of a gang's last plan.

    ``at`` is when the plan was made, in seconds since the epoch; the other fields are as in ``placement.Plan`` and its ``SearchReport``.
    """

    at: float
    feasible: bool | None
    placed: int
    unplaced: int
    score: float
    generations: int
    stopped_by: str
    found_by: str


@dataclass(slots=True)
class History:
    """The last decisions about one gang, the oldest first, and the summary of its last plan."""

    transitions: deque[Transition] = field(default_factory=lambda: deque(maxlen=MOST_TRANSITIONS))
    plan: PlanSummary | None = None

    def add(self, transition: Transition) -> None:
        """Record a decision. If it repeats the last decision, only the count and time of that entry change."""
        if self.transitions and transition.follows(last := self.transitions[-1]):
            self.transitions[-1] = replace(last, last_at=transition.last_at, times=last.times + 1)
        else:
            self.transitions.append(transition)


class Decisions:
    """The last decisions about all gangs, the oldest first."""

    def __init__(self) -> None:
        self._last: deque[tuple[GangKey, Transition]] = deque(maxlen=MOST_DECISIONS)
        self.number = 0  # the number of decisions until now

    def add(self, key: GangKey, transition: Transition) -> None:
        """Record a decision about a gang."""
        self._last.append((key, transition))
        self.number += 1

    def last(self) -> Sequence[tuple[GangKey, Transition]]:
        """Return the last decisions, each with its gang."""
        return tuple(self._last)
