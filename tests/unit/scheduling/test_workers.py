"""A search process that dies costs its own search only, whatever it was doing."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from allaboard.scheduling.workers import SearchError, Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    own = Workers(1, timeout_seconds=20)
    yield own
    own.end()


def pid_and_end(signal_number: int) -> int:
    os.kill(os.getpid(), signal_number)
    return os.getpid()


def fail() -> None:
    raise RuntimeError("of the search itself")


async def test_a_process_that_dies_without_work_is_replaced(workers: Workers) -> None:
    pid = await workers.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SearchError):
        await workers.run(os.getpid)
    assert await workers.run(os.getpid) != pid


async def test_a_process_that_dies_at_work_costs_that_search_only(workers: Workers) -> None:
    with pytest.raises(SearchError, match="died"):
        await workers.run(pid_and_end, signal.SIGKILL)
    await workers.run(os.getpid)


async def test_all_that_wait_when_the_processes_die_are_told(workers: Workers) -> None:
    pid = await workers.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    ends = await asyncio.gather(*(workers.run(os.getpid) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(end, SearchError) for end in ends)
    await workers.run(os.getpid)


async def test_an_error_of_the_search_is_no_death_of_its_process(workers: Workers) -> None:
    pid = await workers.run(os.getpid)
    with pytest.raises(RuntimeError, match="of the search itself"):
        await workers.run(fail)
    assert await workers.run(os.getpid) == pid


async def test_an_interrupt_of_the_terminal_is_not_for_the_processes(workers: Workers) -> None:
    assert await workers.run(pid_and_end, signal.SIGINT)
