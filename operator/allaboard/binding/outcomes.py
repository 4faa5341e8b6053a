"""The results of single binds and of transactions, as values."""

from dataclasses import dataclass
from enum import StrEnum

from allaboard.model.gang import GangKey, Hold
from allaboard.model.pod import Pod
from allaboard.placement import Violation


class Result(StrEnum):
    """The result of one bind."""

    BOUND = "bound"
    GONE = "gone"  # The pod was deleted, is being deleted, was replaced by a pod of the same name, or has changed since it was planned.
    ELSEWHERE = "elsewhere"  # Another scheduler or another transaction has bound the pod.
    GATED = "gated"  # The pod has scheduling gates.
    REFUSED = "refused"  # Admission or RBAC forbids the bind.
    UNANSWERED = "unanswered"  # No definite answer: the last try ended with a transient error.
    SPOILT = "spoilt"  # The assignment is no longer valid. No request was sent, or none after one that failed.
    DEPOSED = "deposed"  # Another replica leads, or soon may lead. No request was sent, or none after one without an answer.


@dataclass(frozen=True, slots=True)
class BindReply:
    """The reply to one bind. ``message`` is the API server's text, for people; ``violation`` is why an assignment is no longer valid.

    ``in_doubt`` is the resourceVersion that an unanswered bind has named; such a bind may still be carried out, or may have been. It is
    empty if no bind is in doubt. ``retry_after`` is the number of seconds after which the API server asks to be called again; 0 for none.
    """

    result: Result
    message: str = ""
    in_doubt: str = ""
    retry_after: float = 0.0
    violation: Violation | None = None

    @property
    def is_bound(self) -> bool:
        """True if the pod is now bound to the planned node."""
        return self.result is Result.BOUND


@dataclass(frozen=True, slots=True)
class Assignment:
    """One member of a gang and its planned node.

    ``devices`` are the UUIDs of the node's GPUs that the member is to have, empty if the node doesn't share its GPUs. ``domains`` are the
    topology domains that the member shares with other members, each as (label, value).
    """

    pod: Pod
    node_name: str
    devices: tuple[str, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A plan failed because members are gone: ``there`` planned members still exist, and the gang needs ``missing`` members."""

    there: int
    missing: int


@dataclass(frozen=True, slots=True)
class NotAdmitted:
    """The API server refused the dry run of a member's bind."""

    assignment: Assignment
    reply: BindReply


@dataclass(frozen=True, slots=True)
class VolumesNotBound:
    """Not all claims of the members got volumes near the planned nodes. ``problem`` says why."""

    problem: str


Because = MembersChanged | Violation | NotAdmitted | VolumesNotBound | Hold | GangKey
"""The reason why nothing was bound. A ``GangKey`` means that the gang with this key is gone."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A transaction that bound nothing, with the reason.

    ``retry_after`` is the number of seconds after which the API server asks to be called again; 0 for none.
    """

    because: Because
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that sent binds. ``missing`` is the number of members that the quorum still needs: 0 if the gang is whole.

    ``dropped`` are members beyond the quorum whose dry run was refused, so that their binds weren't sent.
    """

    bound: tuple[Assignment, ...]
    failed: tuple[tuple[Assignment, BindReply], ...] = ()
    dropped: tuple[tuple[Assignment, BindReply], ...] = ()
    missing: int = 0

    @property
    def is_final(self) -> bool:
        """True if a member was refused in a way that another try won't change."""
        # An earlier try without an answer may still bind a refused member, so such a member doesn't count.
        return any(reply.result in (Result.REFUSED, Result.GATED) and not reply.in_doubt for _, reply in self.failed)

    @property
    def in_doubt(self) -> tuple[tuple[Pod, str], ...]:
        """The members that an unanswered bind may still bind, each with the resourceVersion that the bind named.

        Such members stay assumed.
        """
        return tuple((assignment.pod, reply.in_doubt) for assignment, reply in self.failed if reply.in_doubt)

    @property
    def retry_after(self) -> float:
        """Seconds after which the API server asks to be called again; 0 for none."""
        return max((reply.retry_after for _, reply in (*self.failed, *self.dropped)), default=0.0)


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of releasing bound pods: the ``released`` pods are being deleted.

    ``is_unfinished`` is true if the release of a pod has failed.
    """

    released: tuple[Pod, ...] = ()
    is_unfinished: bool = False
