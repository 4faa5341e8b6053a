"""Requests that may succeed later are tried again, after the pause that the API server asks for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from allaboard.kube.client import ApiError
from allaboard.kube.retry import LONGEST_SECONDS, Patience, retried
from tests.unit.leadership.elections import virtually

BUSY = ApiError(503, "ServiceUnavailable", "busy")
ASKS = ApiError(429, "TooManyRequests", "slow down", retry_after=7.0)
SOON = ApiError(429, "TooManyRequests", "slow down", retry_after=0.4)
FORBIDDEN = ApiError(403, "Forbidden", "no")


class Server:
    def __init__(self, *answers: ApiError | str) -> None:
        self.answers = list(answers)
        self.pauses: list[float] = []

    async def call(self) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


@pytest.mark.parametrize(
    ("answers", "attempts", "left"),
    [
        (("yes",), 4, 0),
        ((BUSY, BUSY, BUSY, "yes"), 4, 0),
        ((BUSY, BUSY, BUSY, BUSY, "yes"), 4, 1),
        ((BUSY, "yes"), 1, 1),
        ((FORBIDDEN, "yes"), 4, 1),
        ((BUSY, FORBIDDEN, "yes"), 4, 1),
    ],
)
async def test_request_is_retried_after_transient_errors_until_its_attempts_are_used_up(
    answers: tuple[ApiError | str, ...], attempts: int, left: int
) -> None:
    server = Server(*answers)
    if left:
        with pytest.raises(ApiError):
            await retried(server.call, attempts, server.sleep)
    else:
        assert await retried(server.call, attempts, server.sleep) == "yes"
    assert len(server.answers) == left


async def test_pause_is_as_the_server_asks_or_short_and_random() -> None:
    server = Server(ASKS, BUSY, ASKS, "yes")
    await retried(server.call, 4, server.sleep)
    first, second, third = server.pauses
    assert (first, third) == (7.0, 7.0)
    assert 0 <= second <= 5


async def test_pause_that_the_server_asks_for_is_bounded() -> None:
    server = Server(ApiError(429, "TooManyRequests", "come back tomorrow", retry_after=86_400.0), "yes")
    assert await retried(server.call, 4, server.sleep) == "yes"
    assert server.pauses == [LONGEST_SECONDS]


@pytest.mark.parametrize(("answers", "pauses"), [((ASKS, "yes"), []), ((SOON, SOON, SOON, "yes"), [0.4, 0.4])])
async def test_last_error_is_raised_at_once_when_the_next_pause_would_exceed_the_patience(
    answers: tuple[ApiError | str, ...], pauses: list[float]
) -> None:
    server = Server(*answers)
    with pytest.raises(ApiError):
        await retried(server.call, 4, server.sleep, patience=Patience(pauses=1.0))
    assert server.pauses == pauses


@asynccontextmanager
async def a_slow_turn() -> AsyncIterator[None]:
    await asyncio.sleep(60)
    yield


@pytest.mark.parametrize(("answer_seconds", "tries"), [(1.0, 4), (2.0, 3), (5.0, 1), (15.0, 1)])
def test_long_waits_for_answers_end_the_retries_and_long_waits_for_a_request_turn_do_not(answer_seconds: float, tries: int) -> None:
    async def play() -> None:
        server = Server(BUSY, BUSY, BUSY, BUSY)

        async def call() -> str:
            await asyncio.sleep(answer_seconds)
            return await server.call()

        with pytest.raises(ApiError):
            await retried(call, 4, server.sleep, patience=Patience(answers=5.0), turn=a_slow_turn)
        assert len(server.pauses) == tries - 1

    virtually(play())
