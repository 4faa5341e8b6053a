"""Fences: which process may change anything."""


class Deposed:
    """The fence of a replica that doesn't lead."""

    def seconds_left(self) -> float:
        return 0.0
