"""What a search may take: an effort that is reckoned from sizes, so that the answer is the same everywhere, and an end at any rate.

The end is for what was reckoned wrong, and for machines that are slow or busy: there the best found so far is the answer.
"""

import math
from collections.abc import Callable

Clock = Callable[[], float]


def no_clock() -> float:
    """Time that doesn't pass: which clock there is depends on where a search runs."""
    return 0.0


class Budget:
    """``effort`` is in microseconds of a processor, ``seconds`` on the clock; 0 is for no limit. Others' solvers go by the ``wall``."""

    def __init__(self, effort: float = 0.0, seconds: float = 0.0, clock: Clock = no_clock, wall: Clock = no_clock) -> None:
        self._left = effort or math.inf
        self._clock, self._wall = clock, wall
        self._began = clock(), wall()
        self._ends = self._began[0] + seconds if seconds else math.inf

    @property
    def left(self) -> float:
        """Microseconds of effort; infinite without a limit."""
        return self._left

    @property
    def seconds(self) -> float:
        """How long until the end, infinite without one."""
        return self._ends - self._clock()

    @property
    def wall_seconds(self) -> float:
        """How long until the end by the wall's clock, if that goes on as it did: a process's own is slower on a busy machine."""
        spent, passed = self._clock() - self._began[0], self._wall() - self._began[1]
        return self.seconds * (max(1.0, passed / spent) if spent > 0.0 else 1.0)

    @property
    def is_over(self) -> bool:
        """Whether the end has come."""
        return self._ends < math.inf and self._clock() >= self._ends

    def spend(self, microseconds: float) -> None:
        """So much effort was made."""
        self._left = max(0.0, self._left - microseconds)

    def pays(self, microseconds: float) -> bool:
        """Whether there is so much effort left, and time; then it is spent."""
        if microseconds > self._left or self.is_over:
            return False
        self.spend(microseconds)
        return True
