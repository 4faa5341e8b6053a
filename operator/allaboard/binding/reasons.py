"""The reasons why a gang waits, is released or is kept, as values. ``report.messages`` makes sentences of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding.outcomes import Committed, Refused
from allaboard.cluster.reservations import Reservation
from allaboard.model.gang import GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.model.provisioning import Provisioning
from allaboard.model.reasons import Cause, Code
from allaboard.placement import Plan


@dataclass(frozen=True, slots=True)
class Held:
    """The gang must not be scheduled until an object is fixed."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class MembersMissing:
    """Too few pods exist. ``was_whole`` is true if the gang's run has been whole, so that the missing pods are replacements."""

    was_whole: bool = False


@dataclass(frozen=True, slots=True)
class LostSoon:
    """Members were lost soon after they were bound, ``losses`` times in a row. So the next members are bound later.

    They are bound ``seconds`` after the last bind, at the time ``until`` of the clock.
    """

    losses: int
    seconds: float
    until: float


@dataclass(frozen=True, slots=True)
class NoCapacity:
    """There is no capacity for the gang.

    ``cause`` is the resource that is short or the rule between members that prevents a placement; ``None`` if not computed.
    ``reservation`` is the capacity that is reserved for the gang; ``None`` if there is none. ``provisioning`` says how far the nodes are
    that an autoscaler is asked for; ``None`` if none is asked.
    """

    plan: Plan
    cause: Cause | None = None
    reservation: Reservation | None = None
    provisioning: Provisioning | None = None

    @property
    def lacks_nodes(self) -> bool:
        """Return whether an autoscaler may add nodes: the gang waits neither for reserved capacity nor for evicted pods to leave."""
        is_awaited = self.reservation is not None and bool(self.reservation.victims)
        return self.cause is not None and self.cause.code is not Code.RESERVED and not is_awaited


@dataclass(frozen=True, slots=True)
class NotBound:
    """Members weren't bound, because of the API server or of a change of the gang or the cluster."""

    outcome: Committed | Refused


@dataclass(frozen=True, slots=True)
class NotFinished:
    """``missing`` members could not be bound around the bound members within ``seconds``."""

    missing: int
    seconds: float


@dataclass(frozen=True, slots=True)
class NotReplaced:
    """``missing`` members were lost and could not be replaced within ``seconds``."""

    missing: int
    seconds: int


@dataclass(frozen=True, slots=True)
class CapacityNeeded:
    """The gang wasn't whole within ``seconds``, and another gang, ``by``, needs the capacity of the first gang's bound members.

    ``members`` is their number.
    """

    by: GangKey
    seconds: int
    members: int


@dataclass(frozen=True, slots=True)
class Preempted:
    """``pods`` of the gang are evicted for the gang ``by``, which has a higher priority.

    ``is_whole`` is true if these pods were surplus, so that the gang stays whole.
    """

    by: GangKey
    priority: int
    pods: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class SearchFailed:
    """The search for a placement has failed with the message ``error``."""

    error: str


@dataclass(frozen=True, slots=True)
class NotFenced:
    """An earlier leader may still bind the pod ``name``: the write that would fence the pod off fails with ``error``."""

    name: str
    error: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of the scheduler: an unexpected exception while it handled the gang."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The bound ``pods`` stay bound, although the gang was to be released because of ``because``.

    ``problem`` is why the gang's Jobs weren't suspended; empty if that was not tried.
    """

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
    | Preempted
    | SearchFailed
    | NotFenced
    | Defect
    | Kept
)
