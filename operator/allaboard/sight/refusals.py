"""Why a request isn't answered."""


class RefusedError(Exception):
    """A request that isn't answered. ``status`` is the HTTP status of the refusal.

    The sender may try again after ``retry_after`` seconds; 0 says nothing about that.
    """

    def __init__(self, status: int, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after
