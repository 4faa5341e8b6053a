"""Tests that a search process that dies costs only its own search, and that no short search waits for a long one."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pebble.pool.base_pool import Task
from pebble.pool.process import TaskManager

from allaboard.model.gang import Objective
from allaboard.placement import Plan, Problem, SearchSettings, build_problem, search
from allaboard.placement.problem.draft import Draft
from allaboard.planning import search_processes as workers_module
from allaboard.planning.search_processes import Searcher, SearchError, SearchOverrunError, Workers
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.placement.three_partition import three_partition

pytestmark = pytest.mark.processes


@pytest.fixture
def workers() -> Iterator[Workers]:
    own = Workers(1, timeout_seconds=100)
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


async def test_work_that_arrives_while_the_pool_closes_raises_an_error(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await workers.run(os.getpid)
    register = TaskManager.register

    def register_late(self: TaskManager, task: Task) -> None:
        while workers._pool.active:  # the moment in which the work arrives can't be chosen from outside
            time.sleep(0.01)
        register(self, task)

    monkeypatch.setattr(TaskManager, "register", register_late)
    os.kill(process, signal.SIGKILL)
    with pytest.raises(SearchError, match="died and are replaced"):
        await asyncio.wait_for(workers.run(os.getpid), 30)
    monkeypatch.undo()
    assert await workers.run(os.getpid) != process


async def test_a_process_that_dies_during_a_search_costs_only_that_search(workers: Workers) -> None:
    with pytest.raises(SearchError, match="died"):
        await workers.run(pid_and_end, signal.SIGKILL)
    await workers.run(os.getpid)


async def test_all_searches_that_wait_for_a_process_that_dies_raise_an_error(workers: Workers) -> None:
    pid = await workers.run(os.getpid)
    os.kill(pid, signal.SIGKILL)
    results = await asyncio.gather(*(workers.run(os.getpid) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, SearchError) for result in results)
    await workers.run(os.getpid)


async def test_an_error_of_a_search_does_not_end_its_process(workers: Workers) -> None:
    pid = await workers.run(os.getpid)
    with pytest.raises(RuntimeError, match="of the search itself"):
        await workers.run(fail)
    assert await workers.run(os.getpid) == pid


async def test_a_keyboard_interrupt_does_not_end_a_search_process(workers: Workers) -> None:
    assert await workers.run(pid_and_end, signal.SIGINT)


async def test_sigterm_ends_a_search_process_without_a_handler_in_python(workers: Workers) -> None:
    """Python would write a traceback if SIGTERM came while the process ends."""
    assert await workers.run(signal.getsignal, signal.SIGTERM) == signal.SIG_DFL


def loop_for_ever() -> None:
    while True:
        pass


async def test_a_search_that_takes_too_much_processor_time_is_ended_and_the_next_search_is_answered() -> None:
    own = Workers(1, timeout_seconds=60, cpu_seconds=0.2)
    try:
        with pytest.raises(SearchOverrunError, match="of a processor"):
            await own.run(loop_for_ever)
        pid = await own.run(os.getpid)
        await own.run(time.sleep, 0.3)  # sleeping takes no processor time
        assert await own.run(os.getpid) == pid
    finally:
        own.end()


async def test_a_search_that_overruns_its_time_limit_is_ended_and_counted_and_the_next_search_is_answered() -> None:
    failures: list[str] = []
    own = Workers(1, timeout_seconds=100, on_failure=failures.append)
    try:
        await own.run(os.getpid)
        own._timeout = 0.5
        with pytest.raises(SearchOverrunError, match=r"0\.5 s"):
            await own.run(time.sleep, 60)
        own._timeout = 100
        await own.run(os.getpid)
        assert failures == ["overrun"]
        with pytest.raises(SearchError, match="died"):
            await own.run(os._exit, 1)
        assert failures == ["overrun", "died"]
    finally:
        own.end()


def report_and_sleep(path: Path) -> None:
    path.write_text("begun")  # writing to a pipe waits for a reader
    time.sleep(60)


async def test_the_process_of_a_cancelled_search_is_ended(workers: Workers, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    search_task = asyncio.create_task(workers.run(report_and_sleep, tmp_path / "pipe"))
    assert await asyncio.to_thread((tmp_path / "pipe").read_text) == "begun"
    search_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await search_task
    async with asyncio.timeout(50):  # less than the time limit of the workers
        await workers.run(os.getpid)


def a_hard_problem(nodes: int) -> Problem:
    gang, cluster = three_partition(nodes)
    return build_problem(gang, len(gang), cluster, objective=Objective.BINPACK)


async def test_a_short_search_does_not_wait_for_a_long_one() -> None:
    with Searcher(SearchSettings(generations=10_000, patience=10_000)) as searcher:
        await searcher.warm_up()
        long = asyncio.create_task(searcher.search(a_hard_problem(10), 1))
        advice = asyncio.create_task(searcher.find_remedies(None))  # type: ignore[arg-type]  # the search for advice waits behind the long search
        plan = await searcher.search_briefly(a_hard_problem(10), 1)
        assert plan.feasible is None
        assert not long.done()
        for task in (long, advice):
            task.cancel()
        await asyncio.gather(long, advice, return_exceptions=True)


async def test_a_search_without_search_processes_finds_an_equal_plan_in_this_process() -> None:
    problem = build_problem(
        pods("a", 6, {"cpu": 1000}), 6, snapshot([node(name, {"cpu": 4000}) for name in "ab"]), objective=Objective.SPREAD
    )
    here = Searcher(SearchSettings(), workers=0)
    with Searcher(SearchSettings()) as elsewhere:
        assert await here.search_briefly(problem, 1) == await elsewhere.search_briefly(problem, 1)
    assert await here.search(problem, 1) == search(problem, SearchSettings(), 1)


async def test_a_search_has_a_shorter_time_limit_than_its_process_and_a_short_search_a_limit_of_processor_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine a short search takes longer without being worse."""
    asked: list[SearchSettings] = []

    def answer(problem: Problem, settings: SearchSettings, seed: int) -> Plan:
        asked.append(settings)
        return search(problem, settings, seed)

    monkeypatch.setattr(workers_module, "_search", answer)
    problem = a_hard_problem(3)
    here = Searcher(SearchSettings(), workers=0, timeout_seconds=40.0)
    await here.search_briefly(problem, 1)
    await here.search(problem, 1)
    short, long = asked
    assert (short.clock, long.clock) == (time.process_time, time.monotonic)
    assert short.seconds < workers_module._SHORT_SECONDS
    assert long.seconds == 30.0


async def test_short_searches_are_limited_by_processor_time_and_their_solvers_by_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "place_together", lambda contest, settings: settings)
    monkeypatch.setattr(workers_module, "_search", lambda problem, settings, seed: settings)
    here = Searcher(SearchSettings(), workers=0)
    contest = SimpleNamespace(gangs=(), problem=SimpleNamespace(nodes=()))
    for settings in (await here.place_together(contest), await here.search_briefly(Draft.__new__(Draft), 1)):  # type: ignore[arg-type]
        assert (settings.clock, settings.wall) == (time.process_time, time.monotonic)  # type: ignore[attr-defined]
