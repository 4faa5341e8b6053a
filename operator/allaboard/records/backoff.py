"""The backoff of gangs that fail, or lose members, again and again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """A backoff that doubles with each failure: the ``initial`` one, and the ``longest``, in seconds."""

    initial: float = 1.0
    longest: float = 60.0

    def after(self, failures: int) -> float:
        """Return the backoff after so many failures in a row, in seconds; 0 after none."""
        return min(self.longest, self.initial * 2 ** min(failures - 1, 30)) if failures else 0.0


BACKOFF = Backoff()
