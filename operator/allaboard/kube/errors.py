"""The errors of requests to the API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from allaboard.model.errors import shown


@dataclass
class ApiError(Exception):
    """An error that the API server has answered, or a missing or unusable answer (``status`` 0).

    ``retry_after`` is the number of seconds after which the server asks to be called again; ``None`` if it asks for none.
    """

    status: int
    reason: str
    message: str
    retry_after: float | None = None
    details: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})" if self.status else self.message

    @property
    def is_transient(self) -> bool:
        """True if the same request may succeed later, or may even have succeeded: no answer, an expired token, 429, or a server error."""
        return self.status in (0, 401, 429) or self.status >= 500


class InvalidNameError(ApiError):
    """A name that no object can have. No request is sent: the server would answer 400, or the path would name another object."""

    def __init__(self, what: str, name: object) -> None:
        super().__init__(400, "InvalidName", f"{shown(name)} can't be the name of a {what}")


class WrongAnswerError(ApiError):
    """An answer of the API server, or of a proxy in its place, about another object than the requested one."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "WrongAnswer", message)

    @property
    def is_transient(self) -> bool:
        """False: another try doesn't help."""
        return False


class TooLargeError(ApiError):
    """An answer that is larger than the requested object can be, and was not read to its end."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(0, "TooLarge", f"{what}: the answer is larger than {limit >> 20} MiB")

    @property
    def is_transient(self) -> bool:
        """False: another try doesn't help."""
        return False


@asynccontextmanager
async def answered_within(seconds: float | None, problem: str) -> AsyncIterator[None]:
    """Limit a request to ``seconds``; ``None`` for no limit. Raises ``ApiError`` with the message ``problem`` when the time is up."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise ApiError(0, "Timeout", problem) from error
