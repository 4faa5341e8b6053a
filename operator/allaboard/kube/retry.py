"""Retry requests that may succeed later, after the pause that the API server asks for.

The pause is limited, since a tenant's webhook may ask for any pause.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from allaboard.kube.client import ApiError

Answer = TypeVar("Answer")
Sleep = Callable[[float], Awaitable[None]]
Turn = Callable[[], AbstractAsyncContextManager[None]]

LONGEST_SECONDS = 10.0
"""The longest pause, in seconds, that is made because an answer asks for it."""

_BACKOFF = wait_random_exponential(multiplier=0.1, max=5)


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of the retries of one request, in seconds.

    ``pauses`` limits the sum of all pauses between tries. ``answers`` limits the time that all tries together wait for their answers: once
    that time has passed, no further try is made.
    """

    pauses: float = math.inf
    answers: float = math.inf


_FOR_EVER = Patience()


async def retried(
    call: Callable[[], Awaitable[Answer]],
    attempts: int,
    sleep: Sleep = asyncio.sleep,
    *,
    patience: Patience = _FOR_EVER,
    turn: Turn = nullcontext,
) -> Answer:
    """Return the answer of ``call``, which is tried at most ``attempts`` times while its errors are transient and ``patience`` lasts.

    Each try is made within a ``turn``; waiting for the turn doesn't count against ``patience``. Raises the last ``ApiError``.
    """
    clock, waited = asyncio.get_running_loop().time, 0.0

    async def tried() -> Answer:
        nonlocal waited
        async with turn():
            sent = clock()
            try:
                return await call()
            finally:
                waited += clock() - sent

    def is_over(tries: int, pauses: float) -> bool:
        return tries >= attempts or pauses > patience.pauses or waited >= patience.answers

    try:
        return await tried()  # most requests succeed at once; setting up tenacity takes half as long as a request
    except ApiError as error:
        first = _seconds(error, random.uniform(0, 0.1))  # jitter
        if not error.is_transient or is_over(1, first):
            raise
        await sleep(first)

    def stop(state: RetryCallState) -> bool:
        return is_over(1 + state.attempt_number, first + state.idle_for + state.upcoming_sleep)

    retrying = AsyncRetrying(stop=stop, wait=_pause, retry=retry_if_exception(_is_transient), sleep=sleep, reraise=True)
    return await retrying(tried)


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, ApiError) and error.is_transient


def _pause(state: RetryCallState) -> float:
    return _seconds(state.outcome.exception() if state.outcome else None, _BACKOFF(state))


def _seconds(error: BaseException | None, otherwise: float) -> float:
    """Return the pause that the API server asks for, at most ``LONGEST_SECONDS``; ``otherwise`` if it asks for none."""
    asked = error.retry_after if isinstance(error, ApiError) else None
    return otherwise if asked is None else min(asked, LONGEST_SECONDS)
