"""Limits of a search: an effort that is estimated from the problem's size, and an end on the clock.

The effort isn't measured, so the answer is the same on every machine. The end is for wrong estimates, and for machines that are slow or
busy: when the end comes, the best placement so far is the answer.
"""

import math
from collections.abc import Callable

Clock = Callable[[], float]


def no_clock() -> float:
    """Return a time that never passes: the default, since the process that runs a search chooses the clock."""
    return 0.0


class Budget:
    """Counts the effort and the time that a search has left.

    ``effort``: microseconds of a processor. ``seconds``: time until the end by ``clock``. For each of the two, 0 means no limit. ``wall``:
    the wall clock, by which solvers outside of this project are stopped.
    """

    def __init__(self, effort: float = 0.0, seconds: float = 0.0, clock: Clock = no_clock, wall: Clock = no_clock) -> None:
        self._left = effort or math.inf
        self._clock, self._wall = clock, wall
        self._began = clock(), wall()
        self._ends = self._began[0] + seconds if seconds else math.inf

    @property
    def left(self) -> float:
        """Microseconds of effort left; infinite without a limit."""
        return self._left

    @property
    def seconds(self) -> float:
        """Seconds until the end by the search's clock; infinite without an end."""
        return self._ends - self._clock()

    @property
    def wall_seconds(self) -> float:
        """Seconds until the end, converted to the wall clock; infinite without an end.

        A process's own clock is slower on a busy machine, and is expected to remain as slow. Example: the process's clock has advanced by
        one second, and the wall clock by 20. If one second is left by the process's clock, 20 are left by the wall clock.
        """
        spent, passed = self._clock() - self._began[0], self._wall() - self._began[1]
        return self.seconds * (max(1.0, passed / spent) if spent > 0.0 else 1.0)

    @property
    def is_over(self) -> bool:
        """True once the end has come; never without an end."""
        return self._ends < math.inf and self._clock() >= self._ends

    def spend(self, microseconds: float) -> None:
        """Take ``microseconds`` from the effort left, which doesn't fall below 0."""
        self._left = max(0.0, self._left - microseconds)

    def try_spend(self, microseconds: float) -> bool:
        """Spend ``microseconds`` if that much effort is left and the end hasn't come. Return whether they were spent."""
        if microseconds > self._left or self.is_over:
            return False
        self.spend(microseconds)
        return True
