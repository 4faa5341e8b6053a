"""Tests that reports are written beside the scheduling path, after more urgent work."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from allaboard.binding.bind import Binder
from allaboard.kube.client import ApiServer
from allaboard.model.pod import Pod, pod_from
from allaboard.report import writer as module
from allaboard.report.writer import WaitUntilIdle, Writer


class SlowServer(ApiServer):
    """Answers a bind when ``may_answer`` is set."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def post(self, path: str, body: Any, query: Any = None) -> dict[str, Any]:
        await self.may_answer.wait()
        return {}


def a_pod() -> Pod:
    return pod_from({"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}, "spec": {}, "status": {}})


@asynccontextmanager
async def running(writer: Writer, wait_until_idle: WaitUntilIdle) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run(wait_until_idle))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_reports_wait_until_the_running_binds_are_done() -> None:
    server, writer, written = SlowServer(), Writer(), asyncio.Event()
    binder = Binder(server)

    async def job() -> None:
        written.set()

    async with running(writer, binder.wait_until_idle):
        bind = asyncio.create_task(binder.bind(a_pod(), "node", "stamp"))
        await settle()
        writer.put("event", job)
        await settle()
        assert not written.is_set()
        server.may_answer.set()
        assert (await bind).is_bound
        async with asyncio.timeout(50):
            await writer.drain()
        assert written.is_set()


async def test_endless_binds_delay_reports_for_a_limited_time() -> None:
    now = 1000.0
    server, writer, written = SlowServer(), Writer(), asyncio.Event()
    binder = Binder(server, clock=lambda: now)

    async def job() -> None:
        written.set()

    async with running(writer, binder.wait_until_idle):
        bind = asyncio.create_task(binder.bind(a_pod(), "node", "stamp"))
        await settle()
        now += module._PATIENCE_SECONDS
        writer.put("event", job)
        async with asyncio.timeout(50):
            await written.wait()
        assert not bind.done()
        server.may_answer.set()
        await bind


async def test_newer_report_replaces_an_older_report_of_its_key_whose_write_has_not_begun() -> None:
    writer, done = Writer(), list[int]()
    may_go = asyncio.Event()

    async def wait_until_idle(_: float) -> None:
        await may_go.wait()

    async def job(number: int) -> None:
        done.append(number)

    async with running(writer, wait_until_idle):
        for number in range(3):
            writer.put("status", lambda number=number: job(number))  # type: ignore[misc]
            await settle()
        may_go.set()
        await writer.drain()
    assert done == [2]


async def never_busy(_: float) -> None:
    pass


async def test_namespace_whose_status_writes_are_slow_delays_no_other_namespace() -> None:
    writer, may_answer, written = Writer(), asyncio.Event(), list[str]()

    async def slow() -> None:
        await may_answer.wait()

    async def quick() -> None:
        written.append("quick")

    async with running(writer, never_busy):
        for number in range(100):
            writer.put(f"slow {number}", slow, "hostile")
        await settle()
        writer.put("quick", quick, "other")
        await settle()
        assert written == ["quick"]
        may_answer.set()
        async with asyncio.timeout(50):
            await writer.drain()
    assert not writer.waiting


async def test_reports_of_different_namespaces_are_written_in_turn() -> None:
    writer, written = Writer(), list[str]()

    async def job(tenant: str) -> None:
        written.append(tenant)

    for tenant in ("many", "few"):
        for number in range(50 if tenant == "many" else 5):
            writer.put(f"{tenant} {number}", partial(job, tenant), tenant)
    async with running(writer, never_busy):
        async with asyncio.timeout(50):
            await writer.drain()
    assert len(written) == 55
    assert "few" not in written[12:]


async def test_reports_of_one_namespace_fill_only_the_queue_of_that_namespace() -> None:
    writer = Writer()
    for number in range(module._LIMIT_OF_ONE + 10):
        writer.put(f"many {number}", partial(never_busy, 0), "many")
    writer.put("few", partial(never_busy, 0), "few")
    assert writer.dropped == 10
    assert writer.waiting == module._LIMIT_OF_ONE + 1
    async with running(writer, never_busy), asyncio.timeout(50):
        await writer.drain()
    assert not writer._ordinary.by_tenant


async def test_report_that_is_queued_again_while_it_is_written_is_written_again() -> None:
    writer, runs, may_go = Writer(), list[int](), asyncio.Event()

    async def job(number: int) -> None:
        runs.append(number)
        await may_go.wait()

    async with running(writer, never_busy):
        writer.put("status", partial(job, 1), "a")
        await settle()
        writer.put("status", partial(job, 2), "a")
        await settle()
        assert runs == [1]
        may_go.set()
        async with asyncio.timeout(50):
            await writer.drain()
    assert runs == [1, 2]


async def test_defect_in_one_write_affects_no_other_write() -> None:
    async def defective() -> None:
        raise KeyError("a defect")

    writer, written = Writer(), asyncio.Event()

    async def quick() -> None:
        written.set()

    async def never(_: float) -> None:
        pass

    running = asyncio.create_task(writer.run(never))
    for number in range(20):
        writer.put(f"defective {number}", defective, "a")
    writer.put("quick", quick, "b")
    async with asyncio.timeout(50):
        await writer.drain()
    assert written.is_set()
    assert writer.dropped == 20
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_number_of_waiting_reports_of_all_namespaces_together_is_bounded() -> None:
    async def never() -> None:
        pass

    writer = Writer()
    for number in range(module._LIMIT + 10):
        writer.put(f"{number}", never, f"tenant-{number % 5}")
    assert (writer.waiting, writer.dropped) == (module._LIMIT, 10)


async def test_reports_of_low_priority_are_written_after_all_ordinary_reports() -> None:
    writer, written = Writer(sleep=instantly), list[str]()

    async def job(name: str) -> None:
        await asyncio.sleep(0)
        written.append(name)

    for number in range(30):
        writer.put(f"low {number}", partial(job, "low"), "a", is_low=True)
        writer.put(f"ordinary {number}", partial(job, "ordinary"), "a")
    async with running(writer, never_busy), asyncio.timeout(5):
        await writer.drain()
        assert written.count("ordinary") == 30
        assert written.count("low") < 30
        await writer.drain(with_low=True)
    assert written.count("low") == 30
    assert not writer.waiting


async def instantly(_: float) -> None:
    await asyncio.sleep(0)


async def test_reports_of_low_priority_are_written_at_a_limited_rate() -> None:
    pauses = list[float]()

    async def recorded(seconds: float) -> None:
        pauses.append(seconds)

    writer = Writer(sleep=recorded)
    for number in range(10):
        writer.put(f"low {number}", partial(never_busy, 0), "a", is_low=True)
    async with running(writer, never_busy), asyncio.timeout(5):
        await writer.drain(with_low=True)
        await settle()
    assert pauses == [module._LOW_PAUSE_SECONDS] * 10


@pytest.mark.parametrize("order", [(True, False), (False, True)])
async def test_ordinary_report_replaces_a_report_of_low_priority_with_its_key(order: tuple[bool, bool]) -> None:
    writer, written = Writer(sleep=instantly), list[int]()

    async def job(number: int) -> None:
        written.append(number)

    for number, is_low in enumerate(order):
        writer.put("condition of pod p", partial(job, number), "a", is_low=is_low)
    async with running(writer, never_busy), asyncio.timeout(5):
        await writer.drain()
        assert written == [1]
        await writer.drain(with_low=True)
    assert written == [1]


def test_reports_of_low_priority_have_separate_limits() -> None:
    writer = Writer()
    taken = [writer.put(f"{number}", partial(never_busy, 0), "a", is_low=True) for number in range(module._LOW_LIMIT_OF_ONE + 1)]
    assert taken.count(False) == 1
    assert writer.put("ordinary", partial(never_busy, 0), "a")
    assert writer.dropped == 0
