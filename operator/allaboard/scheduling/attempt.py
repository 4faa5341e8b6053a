"""An attempt at one gang: what the attempt started from, and how long it held capacity."""

from dataclasses import dataclass

from allaboard.model.gang import Gang

_BRIEF_SECONDS = 1.0


@dataclass(slots=True)
class Attempt:
    """One attempt at one gang: what the attempt started from, and how long it held capacity."""

    gang: Gang
    started: float
    """When the attempt started, on the clock."""
    changes: int
    """The changes of capacity that the queue had counted when the attempt started."""
    searched_seconds: float = 0.0
    """The search time that the gang's namespace had used when the attempt started."""
    held_seconds: float = 0.0
    """How long capacity was assumed for the gang."""

    @property
    def was_brief(self) -> bool:
        """Whether capacity was assumed for a second at most: no gang has missed it, and what was known of the cluster still holds."""
        return self.held_seconds <= _BRIEF_SECONDS
