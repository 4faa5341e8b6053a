"""One attempt to place and bind a gang."""

from dataclasses import dataclass

from allaboard.model.gang import Gang

_BRIEF_SECONDS = 1.0


@dataclass(slots=True)
class Attempt:
    """One attempt to place and bind a gang: what was known at its start, and for how long it held capacity."""

    gang: Gang
    """The gang's state at the start of the attempt; once there is a plan, the state that the plan was checked against."""
    started: float
    """The start of the attempt, on the clock."""
    changes: int
    """The queue's count of capacity changes when the attempt started; after a release, the count at the end of the release."""
    searched_seconds: float = 0.0
    """The search time that the gang's namespace had used when the attempt started."""
    held_seconds: float = 0.0
    """Seconds for which capacity was assumed for the gang."""

    @property
    def was_brief(self) -> bool:
        """True if capacity was assumed for a second at most: no other gang has lacked it, and the plan still describes the cluster."""
        return self.held_seconds <= _BRIEF_SECONDS
