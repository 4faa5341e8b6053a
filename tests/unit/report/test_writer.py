"""Words are written beside the scheduling path, and after what is more urgent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from allaboard.cluster.bind import Binder
from allaboard.cluster.client import ApiServer
from allaboard.model.pod import Pod, pod_from
from allaboard.report import writer as module
from allaboard.report.writer import Lull, Writer


class SlowServer(ApiServer):
    """Answers a bind when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def post(self, path: str, body: Any, query: Any = None) -> dict[str, Any]:
        await self.may_answer.wait()
        return {}


def a_pod() -> Pod:
    return pod_from({"metadata": {"name": "a", "namespace": "default", "uid": "u", "resourceVersion": "1"}, "spec": {}, "status": {}})


@asynccontextmanager
async def running(writer: Writer, lull: Lull) -> AsyncIterator[None]:
    task = asyncio.create_task(writer.run(lull))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_words_wait_until_the_binds_under_way_are_done() -> None:
    server, writer, written = SlowServer(), Writer(), asyncio.Event()
    binder = Binder(server)

    async def job() -> None:
        written.set()

    async with running(writer, binder.lull):
        bind = asyncio.create_task(binder.bind(a_pod(), "node", "stamp"))
        await settle()
        writer.put("event", job)
        await settle()
        assert not written.is_set()
        server.may_answer.set()
        assert (await bind).is_bound
        async with asyncio.timeout(5):
            await writer.drain()
        assert written.is_set()


async def test_binds_without_end_hold_words_back_for_a_while_only() -> None:
    now = 1000.0
    server, writer, written = SlowServer(), Writer(), asyncio.Event()
    binder = Binder(server, clock=lambda: now)

    async def job() -> None:
        written.set()

    async with running(writer, binder.lull):
        bind = asyncio.create_task(binder.bind(a_pod(), "node", "stamp"))
        await settle()
        now += module._PATIENCE_SECONDS
        writer.put("event", job)
        async with asyncio.timeout(5):
            await written.wait()
        assert not bind.done()
        server.may_answer.set()
        await bind


async def test_a_newer_job_replaces_one_of_its_key_that_still_waits() -> None:
    writer, done = Writer(), list[int]()
    may_go = asyncio.Event()

    async def lull(_: float) -> None:
        await may_go.wait()

    async def job(number: int) -> None:
        done.append(number)

    async with running(writer, lull):
        for number in range(3):
            writer.put("status", lambda number=number: job(number))  # type: ignore[misc]
            await settle()
        may_go.set()
        await writer.drain()
    assert done == [2]
