"""The results of binds and of gangs' transactions, as values."""

from dataclasses import dataclass
from enum import StrEnum

from allaboard.model.gang import GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.placement import Violation


class Result(StrEnum):
    """The result of one bind."""

    BOUND = "bound"
    GONE = "gone"  # deleted, being deleted, replaced by a pod of the same name, or changed since it was planned
    ELSEWHERE = "elsewhere"  # bound by another scheduler or transaction
    GATED = "gated"
    REFUSED = "refused"  # admission or RBAC forbids it
    UNANSWERED = "unanswered"  # transient errors to the last try
    SPOILT = "spoilt"  # the assignment is no longer valid: no request was sent, or none after one that failed
    DEPOSED = "deposed"  # another replica leads, or soon may: no request was sent, or none after one without an answer


@dataclass(frozen=True, slots=True)
class BindReply:
    """The reply to one bind. ``message`` is the API server's text, for people; ``violation`` is why an assignment is no longer valid.

    ``in_doubt`` is the resourceVersion that an unanswered bind has named: the bind may still be carried out, or may have been. Empty if
    no bind is in doubt. ``retry_after`` is the number of seconds that the API server asks to be left alone.
    """

    result: Result
    message: str = ""
    in_doubt: str = ""
    retry_after: float = 0.0
    violation: Violation | None = None

    @property
    def is_bound(self) -> bool:
        """Whether the pod is now bound to the planned node."""
        return self.result is Result.BOUND


@dataclass(frozen=True, slots=True)
class Assignment:
    """One member of a gang and its planned node.

    ``devices`` are the UUIDs of the node's GPUs that the member is to have, empty where the node doesn't share its GPUs. ``domains`` are
    (label, value) of the topology domains that the member shares with other members.
    """

    pod: Pod
    node_name: str
    devices: tuple[str, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A plan failed since members have gone: ``there`` of the planned members are left, and ``missing`` are needed."""

    there: int
    missing: int


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The API server refused the dry run of a member's bind."""

    assignment: Assignment
    reply: BindReply


Because = MembersChanged | Violation | NotAdmitted | Hold | GangKey
"""The reason why nothing was bound. A key means that the gang is gone."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A transaction that bound nothing, and why; ``retry_after`` is the number of seconds that the API server asks to be left alone."""

    because: Because
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that sent binds. ``missing`` members are still needed for the quorum: 0 means that the gang is whole.

    ``dropped`` are members beyond the quorum whose dry run was refused, so that their binds weren't sent.
    """

    bound: tuple[Assignment, ...]
    failed: tuple[tuple[Assignment, BindReply], ...] = ()
    dropped: tuple[tuple[Assignment, BindReply], ...] = ()
    missing: int = 0

    @property
    def is_final(self) -> bool:
        """Whether a member was refused in a way that another try won't change."""
        # A refused member may still be bound by an earlier try without an answer: it doesn't count as refused for good.
        return any(reply.result in (Result.REFUSED, Result.GATED) and not reply.in_doubt for _, reply in self.failed)

    @property
    def in_doubt(self) -> tuple[tuple[Pod, str], ...]:
        """Members that an unanswered bind may still bind, with the resourceVersion that the bind named; they stay assumed."""
        return tuple((assignment.pod, reply.in_doubt) for assignment, reply in self.failed if reply.in_doubt)

    @property
    def retry_after(self) -> float:
        """Seconds that the API server asks to be left alone."""
        return max((reply.retry_after for _, reply in (*self.failed, *self.dropped)), default=0.0)


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of an undo. ``released`` pods are going; ``is_unfinished`` if the API server has refused to release others."""

    released: tuple[Pod, ...] = ()
    is_unfinished: bool = False
