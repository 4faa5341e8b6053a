"""Tests that a board that is read through the API equals the operator's own board, and that errors say what is wrong."""

from contextlib import AsyncExitStack

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from allaboard.sight.api import Api
from allaboard.sight.remote import RemoteBoard, UnreadableError
from tests.unit.scheduling.schedulers import World
from tests.unit.sight.test_api import Granted
from tests.unit.sight.test_board import a_board


async def opened(stack: AsyncExitStack, app: web.Application) -> RemoteBoard:
    server = await stack.enter_async_context(TestServer(app))
    return await stack.enter_async_context(RemoteBoard.open(str(server.make_url("")), "t"))


async def test_a_board_that_is_read_through_the_api_equals_the_operators() -> None:
    async with World(cpus=3) as world, AsyncExitStack() as stack:
        board = a_board(world)
        remote = await opened(stack, Api(board, Granted()).application())
        world.add("g", 2)
        world.add("waits", 3)
        await world.run_cycle()
        assert await remote.status() == board.status()
        assert await remote.queue() == await board.queue()
        assert await remote.gangs() == await board.gangs()
        assert await remote.nodes() == await board.nodes()
        assert await remote.decisions() == await board.decisions()
        assert await remote.gang("default", "waits") == await board.gang("default", "waits")
        assert await remote.gang("default", "none") is None


async def test_a_refusal_is_an_error_with_its_reason() -> None:
    async with World() as world, AsyncExitStack() as stack:
        remote = await opened(stack, Api(a_board(world), Granted(None)).application())
        with pytest.raises(UnreadableError, match="no token") as refused:
            await remote.queue()
        assert refused.value.status == 401


async def test_another_servers_answer_is_an_error() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_get("/{tail:.*}", answer)
        with pytest.raises(UnreadableError, match="the answer isn't that of Allaboard's API"):
            await (await opened(stack, app)).queue()


def answering(answer: web.StreamResponse) -> web.Application:
    async def handle(request: web.Request) -> web.StreamResponse:
        return answer

    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    return app


async def test_a_redirect_is_an_error_and_the_other_address_is_not_asked() -> None:
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="{}")

    app = web.Application()
    app.router.add_get("/{tail:.*}", handle)
    async with AsyncExitStack() as stack:
        other = str((await stack.enter_async_context(TestServer(app))).make_url("/x"))
        remote = await opened(stack, answering(web.Response(status=302, headers={"Location": other})))
        with pytest.raises(UnreadableError, match=f"redirects to '{other}', which isn't followed"):
            await remote.queue()
    assert not asked


async def test_an_answer_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.sight.remote._MOST_BYTES", 1 << 20)
    async with AsyncExitStack() as stack:
        with pytest.raises(UnreadableError, match="the answer is larger than 1 MiB"):
            await (await opened(stack, answering(web.Response(body=b" " * ((1 << 20) + 1))))).queue()


async def test_an_api_that_is_not_there_is_an_error() -> None:
    async with RemoteBoard.open("http://127.0.0.1:9") as remote:
        with pytest.raises(UnreadableError, match=r"http://127\.0\.0\.1:9/api/v1/queue can't be read"):
            await remote.queue()
