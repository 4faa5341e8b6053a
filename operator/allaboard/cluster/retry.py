"""Trying again what may succeed later, at the pace the API server asks for, within reason: whoever answers may be a tenant's webhook."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.stop import stop_base

from allaboard.cluster.client import ApiError

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[None]]

LONGEST_SECONDS = 10.0
"""The longest pause that is made because an answer asks for one."""

_BACKOFF = wait_random_exponential(multiplier=0.1, max=5)


async def retried(
    call: Callable[[], Awaitable[Answer]], attempts: int, sleep: Sleep = asyncio.sleep, *, patience: float = float("inf")
) -> Answer:
    """``call``, made ``attempts`` times at most while errors are transient; the last one is raised.

    All pauses together last no longer than ``patience`` seconds: an error that asks for more than is left is raised at once.
    """
    try:
        return await call()  # the rule; what follows costs as much as half a request
    except ApiError as error:
        first = _seconds(error, random.uniform(0, 0.1))  # jitter
        if attempts == 1 or not error.is_transient or first > patience:
            raise
        await sleep(first)
    stop = stop_after_attempt(attempts - 1) | _stop_before_pauses_of(patience - first)
    retrying = AsyncRetrying(stop=stop, wait=_pause, retry=retry_if_exception(_is_transient), sleep=sleep, reraise=True)
    return await retrying(call)


class _stop_before_pauses_of(stop_base):  # noqa: N801  # as tenacity names its own
    """Stops before all pauses together are longer than so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, retry_state: RetryCallState) -> bool:
        return retry_state.idle_for + retry_state.upcoming_sleep > self._seconds


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.is_transient


def _pause(state: RetryCallState) -> float:
    return _seconds(state.outcome.exception() if state.outcome else None, _BACKOFF(state))


def _seconds(error: BaseException | None, otherwise: float) -> float:
    """What the API server asked for, up to a bound, else a jittered exponential pause."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return otherwise if asked is None else min(asked, LONGEST_SECONDS)
