"""Trying again what may succeed later, at the pace the API server asks for."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from allaboard.cluster.client import ApiError

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[None]]

_BACKOFF = wait_random_exponential(multiplier=0.1, max=5)


async def retried(call: Callable[[], Awaitable[Answer]], attempts: int, sleep: Sleep = asyncio.sleep) -> Answer:
    """``call``, made ``attempts`` times at most while errors are transient; the last one is raised."""
    try:
        return await call()  # the rule; what follows costs as much as half a request
    except ApiError as error:
        if attempts == 1 or not error.is_transient:
            raise
        await sleep(_seconds(error, random.uniform(0, 0.1)))  # jitter
    retrying = AsyncRetrying(
        stop=stop_after_attempt(attempts - 1), wait=_pause, retry=retry_if_exception(_is_transient), sleep=sleep, reraise=True
    )
    return await retrying(call)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.is_transient


def _pause(state: RetryCallState) -> float:
    return _seconds(state.outcome.exception() if state.outcome else None, _BACKOFF(state))


def _seconds(error: BaseException | None, otherwise: float) -> float:
    """What the API server asked for, else a jittered exponential pause."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return otherwise if asked is None else asked
