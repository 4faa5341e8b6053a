"""No decision is made on stale state."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from allaboard.scheduling.freshness import until_fresh
from tests.unit.leadership.elections import now, virtually

LONG = 60.0


class Watched:
    """The state of a cluster whose API server answers again at a set virtual time. Counts how often freshness is checked."""

    def __init__(self, speaks_at: float = LONG) -> None:
        self.speaks_at = speaks_at
        self.looks = 0

    def is_fresh(self) -> bool:
        self.looks += 1
        return now() >= self.speaks_at


async def seconds_until(is_fresh: Callable[[], bool]) -> float:
    await until_fresh(is_fresh)
    return now()


def test_with_fresh_state_scheduling_goes_on_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StopIteration):
        until_fresh(lambda: True).send(None)
    assert not caplog.records


def test_with_stale_state_scheduling_waits_until_the_server_answers_and_hardly_longer() -> None:
    assert LONG <= virtually(seconds_until(Watched().is_fresh)) < LONG + 1


def test_a_silent_server_is_polled_a_few_times_per_second() -> None:
    watched = Watched()
    virtually(seconds_until(watched.is_fresh))
    assert LONG < watched.looks <= 10 * LONG


def test_other_tasks_run_while_scheduling_waits_for_fresh_state() -> None:
    """The watches are among these tasks: without them the state would stay stale."""
    is_heard = asyncio.Event()

    async def play() -> float:
        asyncio.get_running_loop().call_later(LONG, is_heard.set)
        return await seconds_until(is_heard.is_set)

    assert LONG <= virtually(play()) < LONG + 1


def test_a_silence_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    virtually(seconds_until(Watched().is_fresh))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert ["silent" in record.getMessage() for record in caplog.records] == [True, False]


async def test_a_scheduler_that_is_stopped_does_not_wait_for_the_server(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    waiting = asyncio.create_task(until_fresh(lambda: False))
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [record.levelname for record in caplog.records] == ["WARNING"]
