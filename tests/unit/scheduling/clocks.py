"""A clock that stands until a test sets it."""


class Clock:
    """Tells the time that it has been given last, in seconds: ``now``."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
