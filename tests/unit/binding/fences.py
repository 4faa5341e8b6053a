"""The fence of a replica that doesn't lead, for tests."""


class Deposed:
    """The fence of a replica that doesn't lead: it may send no request that changes anything."""

    def seconds_left(self) -> float:
        return 0.0
