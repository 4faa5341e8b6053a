"""What has become of a gang's seats, as values: asked for, refused, taken and given back."""

from dataclasses import dataclass

from allaboard.cluster.bind import BindReply, Result
from allaboard.model.pod import Pod


@dataclass(frozen=True, slots=True)
class Seat:
    """One member and the node it is to have."""

    pod: Pod
    node_name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was bound, and why; ``retry_after`` is how many seconds the API server wants to be left alone."""

    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Committed:
    """What was bound and what was not. ``missing`` is what the quorum still lacks: 0 means the gang is whole.

    ``dropped`` are members beyond the quorum that the rehearsal refused, so that they weren't tried.
    """

    bound: tuple[Seat, ...]
    failed: tuple[tuple[Seat, BindReply], ...] = ()
    dropped: tuple[tuple[Seat, BindReply], ...] = ()
    missing: int = 0

    @property
    def is_final(self) -> bool:
        """Whether a member was refused in a way that trying again won't change."""
        # Who was refused and may be bound all the same, by a try before that, isn't known to be lost.
        return any(reply.result in (Result.REFUSED, Result.GATED) and not reply.in_doubt for _, reply in self.failed)

    @property
    def in_doubt(self) -> tuple[tuple[Pod, str], ...]:
        """Members that a bind may still give the seats that stay promised to them, and the version that it named."""
        return tuple((seat.pod, reply.in_doubt) for seat, reply in self.failed if reply.in_doubt)

    @property
    def retry_after(self) -> float:
        """How many seconds the API server wants to be left alone."""
        return max((reply.retry_after for _, reply in self.failed), default=0.0)

    @property
    def message(self) -> str:
        """Why the members that failed did."""
        return "; ".join(f"pod {seat.pod.name}: {reply.message or reply.result}" for seat, reply in self.failed[:3])


@dataclass(frozen=True, slots=True)
class Undone:
    """``released`` are gone; ``is_unfinished`` when some should be, and the API server didn't let us."""

    released: tuple[Pod, ...] = ()
    is_unfinished: bool = False
