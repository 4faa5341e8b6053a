"""Tests that few requests are answered at once, and that few wait."""

import asyncio

import pytest

from allaboard.sight.access import RefusedError
from allaboard.sight.turns import Turns


async def test_few_requests_have_a_turn_few_wait_and_more_are_refused_at_once() -> None:
    turns, most, now = Turns(2, 3, "too many"), 0, 0
    end = asyncio.Event()

    async def request() -> None:
        nonlocal most, now
        async with turns.take():
            now += 1
            most = max(most, now)
            await end.wait()
            now -= 1

    tasks = [asyncio.create_task(request()) for _ in range(9)]
    refused, waiting = await asyncio.wait(tasks, timeout=0.1)
    assert (len(refused), len(waiting)) == (4, 5)
    for task in refused:
        with pytest.raises(RefusedError, match="too many; try again later") as error:
            task.result()
        assert (error.value.status, error.value.retry_after) == (503, 5)
    next(task for task in tasks if task in waiting).cancel()
    end.set()
    await asyncio.wait(tasks)
    assert most == 2
    async with turns.take(), turns.take():  # all turns are free again
        pass
