"""The backoff after repeated failures: how long a gang waits before its next attempt or bind."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """A backoff that doubles with each failure. ``initial`` is the first backoff and ``longest`` the upper bound, in seconds."""

    initial: float = 1.0
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Return the seconds to wait after ``failures`` failures in a row; 0 for none."""
        return min(self.longest, self.initial * 2 ** min(failures - 1, 30)) if failures else 0.0


BACKOFF = Backoff()
