"""A search process that dies costs its own search only, whatever it was doing."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from allaboard.placement import SearchSettings
from allaboard.scheduling.workers import Searcher, SearchError


@pytest.fixture
def searcher() -> Iterator[Searcher]:
    with Searcher(SearchSettings(), timeout_seconds=20) as own:
        yield own


def pid_and_end(signal_number: int) -> int:
    os.kill(os.getpid(), signal_number)
    return os.getpid()


def fail() -> None:
    raise RuntimeError("of the search itself")


async def test_a_process_that_dies_without_work_is_replaced(searcher: Searcher) -> None:
    pid = await searcher._elsewhere(os.getpid)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SearchError):
        await searcher._elsewhere(os.getpid)
    assert await searcher._elsewhere(os.getpid) != pid


async def test_a_process_that_dies_at_work_costs_that_search_only(searcher: Searcher) -> None:
    with pytest.raises(SearchError, match="died"):
        await searcher._elsewhere(pid_and_end, signal.SIGKILL)
    await searcher._elsewhere(os.getpid)


async def test_all_that_wait_when_the_processes_die_are_told(searcher: Searcher) -> None:
    pid = await searcher._elsewhere(os.getpid)
    os.kill(pid, signal.SIGKILL)
    ends = await asyncio.gather(*(searcher._elsewhere(os.getpid) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(end, SearchError) for end in ends)
    await searcher._elsewhere(os.getpid)


async def test_an_error_of_the_search_is_no_death_of_its_process(searcher: Searcher) -> None:
    pid = await searcher._elsewhere(os.getpid)
    with pytest.raises(RuntimeError, match="of the search itself"):
        await searcher._elsewhere(fail)
    assert await searcher._elsewhere(os.getpid) == pid


async def test_an_interrupt_of_the_terminal_is_not_for_the_processes(searcher: Searcher) -> None:
    assert await searcher._elsewhere(pid_and_end, signal.SIGINT)
