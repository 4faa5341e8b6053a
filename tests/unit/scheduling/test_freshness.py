"""Tests that no decision is made while the cached state of the cluster is stale."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from allaboard.scheduling.freshness import until_fresh
from tests.unit.leadership.elections import now, virtually

LONG = 60.0


class Watched:
    """The state of a cluster whose API server is silent until ``answers_at``, in virtual time; ``checks`` counts the freshness checks."""

    def __init__(self, answers_at: float = LONG) -> None:
        self.answers_at = answers_at
        self.checks = 0

    def is_fresh(self) -> bool:
        self.checks += 1
        return now() >= self.answers_at


async def seconds_until(is_fresh: Callable[[], bool]) -> float:
    await until_fresh(is_fresh)
    return now()


def test_scheduling_goes_on_at_once_if_the_state_is_fresh(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(StopIteration):
        until_fresh(lambda: True).send(None)
    assert not caplog.records


def test_scheduling_waits_while_the_server_is_silent_and_at_most_a_second_longer() -> None:
    assert LONG <= virtually(seconds_until(Watched().is_fresh)) < LONG + 1


def test_a_silent_server_is_polled_a_few_times_per_second() -> None:
    watched = Watched()
    virtually(seconds_until(watched.is_fresh))
    assert LONG < watched.checks <= 10 * LONG


def test_other_tasks_run_while_scheduling_waits_for_fresh_state() -> None:
    """The watches are such tasks: without them the state would stay stale."""
    has_answered = asyncio.Event()

    async def play() -> float:
        asyncio.get_running_loop().call_later(LONG, has_answered.set)
        return await seconds_until(has_answered.is_set)

    assert LONG <= virtually(play()) < LONG + 1


def test_the_beginning_and_the_end_of_a_silence_are_logged(caplog: pytest.LogCaptureFixture) -> None:
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
