"""One attempt at one gang."""

from dataclasses import dataclass

from allaboard.model.gang import Gang

_BRIEF_SECONDS = 1.0


@dataclass(slots=True)
class Attempt:
    """One attempt at one gang: what it started from, and for how long it held capacity."""

    gang: Gang
    started: float
    """On the clock."""
    changes: int
    """The changes of capacity that the queue had counted when it started."""
    searched_seconds: float = 0.0
    """Search time that its namespace had used when it started."""
    held_seconds: float = 0.0
    """For how long capacity was assumed for it."""

    @property
    def was_brief(self) -> bool:
        """Whether its capacity was assumed for a second at most: no gang has missed it, and what was known of the cluster still holds."""
        return self.held_seconds <= _BRIEF_SECONDS
