"""Why a gang waits, is released or is kept, as values. ``report.messages`` makes the sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding.outcomes import Committed, Refused
from allaboard.model.gang import GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.model.reasons import Cause
from allaboard.placement import Plan


@dataclass(frozen=True, slots=True)
class Held:
    """The gang must not be scheduled until an object is fixed."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class MembersMissing:
    """Too few pods exist; ``was_whole`` if they replace members of a run that has been whole."""

    was_whole: bool = False


@dataclass(frozen=True, slots=True)
class LostSoon:
    """Members were lost soon after they were bound, ``losses`` times in a row: the next are bound ``seconds`` after the last.

    That is at ``until``, on the clock.
    """

    losses: int
    seconds: float
    until: float


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """There is no capacity for the gang. Without a ``cause`` it wasn't looked for."""

    plan: Plan
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class NotBound:
    """The API server, or a change of the gang or the cluster, has kept members from being bound."""

    outcome: Committed | Refused


@dataclass(frozen=True, slots=True)
class NotFinished:
    """``missing`` members could not be bound around the others within so many ``seconds``."""

    missing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NotReplaced:
    """``missing`` members were lost and could not be replaced within so many ``seconds``."""

    missing: int
    seconds: int


@dataclass(frozen=True, slots=True)
class CapacityNeeded:
    """The gang wasn't whole within so many ``seconds``, and the gang ``by`` needs the capacity of its ``members`` bound members."""

    by: GangKey
    seconds: int
    members: int


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """The search for a placement has failed; ``error`` is its message."""

    error: str


@dataclass(frozen=True, slots=True)
class NotFenced:
    """The pod ``name`` may still be bound by an earlier leader, since writing its annotation fails with ``error``."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Defect:
    """The scheduler itself has failed on the gang."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bound ``pods`` stay bound, although the gang was to be released for ``because``; ``problem`` is why its Jobs weren't suspended."""

    because: "Reason"
    pods: Sequence[Pod]
    problem: str = ""


Reason = (
    Held
    | MembersMissing
    | LostSoon
    | NoCapacity
    | NotBound
    | NotFinished
    | NotReplaced
    | CapacityNeeded
    | SearchFailed
    | NotFenced
    | Defect
    | Kept
)
