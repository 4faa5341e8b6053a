"""A clock that a test sets."""


class Clock:
    """A clock that returns ``now``, in seconds, which a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
