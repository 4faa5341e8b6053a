"""An API of an operator with fixed answers, for tests of the commands that ask it."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def an_api(answers: Mapping[str, str], status: int = 200) -> Iterator[str]:
    """Yield the address of an API that answers each path below ``/api/v1/`` with a text, in a thread of its own."""
    loop, started, address, ended = asyncio.new_event_loop(), threading.Event(), list[int](), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=answers[request.match_info["path"]], status=status, content_type="application/json")

    async def serve() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(runner.addresses[0][1])
        started.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(50)
        yield f"http://127.0.0.1:{address[0]}"
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(50)
        loop.close()
