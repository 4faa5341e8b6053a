"""What can go wrong with a request to the API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from allaboard.model.errors import shown


@dataclass
class ApiError(Exception):
    """An answer of the API server that isn't a success, or no answer at all (``status`` 0)."""

    status: int
    reason: str
    message: str
    retry_after: float | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})" if self.status else self.message

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later, or may even have succeeded: no answer, an expired token, 429, a server error."""
        return self.status in (0, 401, 429) or self.status >= 500


class InvalidNameError(ApiError):
    """No object can have this name, so nothing is asked about it: the API server would answer 400, if the path led there at all."""

    def __init__(self, what: str, name: object) -> None:
        super().__init__(400, "InvalidName", f"{shown(name)} can't be the name of a {what}")


class WrongAnswerError(ApiError):
    """The API server, or who answered in its place, speaks of something else than it was asked about. Asking again doesn't help."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "WrongAnswer", message)

    @property
    def is_transient(self) -> bool:
        return False


class TooLargeError(ApiError):
    """An answer was larger than what it should hold can be. It was not read to its end."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(0, "TooLarge", f"{what}: the answer is larger than {limit >> 20} MiB")

    @property
    def is_transient(self) -> bool:
        return False


@asynccontextmanager
async def answered_within(seconds: float | None, problem: str) -> AsyncIterator[None]:
    """Around a request that may take so long, for ever when ``None``. Raises ``ApiError``, which says ``problem``, when time is up."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ApiError(0, "Timeout", problem) from error
