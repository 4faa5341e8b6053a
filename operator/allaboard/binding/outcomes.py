"""What has become of binds and of a gang's seats, as values: asked for, refused, taken and given back."""

from dataclasses import dataclass
from enum import StrEnum

from allaboard.model.gang import GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.placement import Violation


class Result(StrEnum):
    """What became of one bind."""

    BOUND = "bound"
    GONE = "gone"  # deleted, being deleted, replaced by a pod of the same name, or changed since it was planned
    ELSEWHERE = "elsewhere"  # somebody else has bound it
    GATED = "gated"
    REFUSED = "refused"  # admission or RBAC forbids it
    UNANSWERED = "unanswered"  # transient errors to the last try
    SPOILT = "spoilt"  # the seat is no longer good: no request was sent, or none after one that failed
    DEPOSED = "deposed"  # another replica leads, or soon may: no request was sent, or none after one without an answer


@dataclass(frozen=True, slots=True)
class BindReply:
    """``message`` is the API server's text, for people; of a seat that is no longer good ``violation`` says why.

    ``in_doubt`` is the version of the pod that was named by a bind which may be carried out still, or have been: nobody has said what
    came of it. Empty when nothing can come of it any more. ``retry_after`` is how many seconds the API server wants to be left alone.
    """

    result: Result
    message: str = ""
    in_doubt: str = ""
    retry_after: float = 0.0
    violation: Violation | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the pod now has the planned node."""
        return self.result is Result.BOUND


@dataclass(frozen=True, slots=True)
class Assignment:
    """One member, the node it is to have, and where its GPUs are shared which ``devices`` of it, by UUID.

    ``domains`` are (label, value) of the topology domains that the member shares with others of its gang.
    """

    pod: Pod
    node_name: str
    devices: tuple[str, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """Of the ``missing`` members of a gang only ``there`` of those that were to be seated are left."""

    there: int
    missing: int


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The API server wouldn't bind a member, when that was tried without effect."""

    assignment: Assignment
    reply: BindReply


Because = MembersChanged | Violation | NotAdmitted | Hold | GangKey
"""Why nothing was bound. A key: the gang is gone."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was bound, and why; ``retry_after`` is how many seconds the API server wants to be left alone."""

    because: Because
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """What was bound and what was not. ``missing`` is what the quorum still lacks: 0 means the gang is whole.

    ``dropped`` are members beyond the quorum that the rehearsal refused, so that they weren't tried.
    """

    bound: tuple[Assignment, ...]
    failed: tuple[tuple[Assignment, BindReply], ...] = ()
    dropped: tuple[tuple[Assignment, BindReply], ...] = ()
    missing: int = 0

    @property
    def is_final(self) -> bool:
        """Whether a member was refused in a way that trying again won't change."""
        # Who was refused and may be bound all the same, by a try before that, isn't known to be lost.
        return any(reply.result in (Result.REFUSED, Result.GATED) and not reply.in_doubt for _, reply in self.failed)

    @property
    def in_doubt(self) -> tuple[tuple[Pod, str], ...]:
        """Members that a bind may still give the seats that stay promised to them, and the version that it named."""
        return tuple((assignment.pod, reply.in_doubt) for assignment, reply in self.failed if reply.in_doubt)

    @property
    def retry_after(self) -> float:
        """How many seconds the API server wants to be left alone."""
        return max((reply.retry_after for _, reply in (*self.failed, *self.dropped)), default=0.0)


@dataclass(frozen=True, slots=True)
class Undone:
    """``released`` are gone; ``is_unfinished`` when some should be, and the API server didn't let us."""

    released: tuple[Pod, ...] = ()
    is_unfinished: bool = False
