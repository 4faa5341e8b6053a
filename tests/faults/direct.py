"""The scheduler's connection to a sandbox in the same process, without sockets: the same requests, replies and faults, in less time.

Each request takes a little time on its way there and back, drawn from the schedule's own chance, so that requests overtake each other
as they do on a network.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from allaboard.cluster.client import ApiError, ApiServer, RawObject, _api_error, _decoded
from allaboard.sandbox import ApiError as SandboxError
from allaboard.sandbox import Sandbox, errors, requests, watch
from allaboard.sandbox.server import JSON, Server, fail, struck

REQUEST_SECONDS = 15.0
_WAYS = (0.000_5, 0.02)


@dataclass(slots=True)
class _Transport:
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


@dataclass(slots=True)
class _Request:
    """As much of an ``aiohttp.web.Request`` as the sandbox's server looks at."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    transport: _Transport = field(default_factory=_Transport)
    host: str = "sandbox"

    async def read(self) -> bytes:
        return self.payload


@dataclass(frozen=True, slots=True)
class Write:
    """A request of the scheduler that has changed something, or was meant to."""

    method: str
    path: str
    status: int


class DirectServer(ApiServer):
    """One scheduler's way to the sandbox. ``sever`` is what a SIGKILL is to the cluster: nothing more comes, nothing is heard.

    ``stall`` is what a SIGSTOP or a stuck network is to it: nothing comes and nothing is heard until ``go_on``, and then everything that
    was sent does come, also what the scheduler has given up meanwhile.
    """

    def __init__(self, sandbox: Sandbox, chance: random.Random, on_write: Callable[[Write], None] = lambda write: None) -> None:
        self._sandbox = sandbox
        self._server = Server(sandbox.api, sandbox.faults)
        self._chance = chance
        self._on_write = on_write
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_severed = False
        self._flow = asyncio.Event()
        self._flow.set()

    async def close(self) -> None:
        """There is nothing to close."""

    def sever(self) -> None:
        """Lose what hasn't been carried out, and every reply."""
        self._is_severed = True
        for task in self._under_way:
            task.cancel()

    def stall(self) -> None:
        """Keep on their way, from now on, all requests and replies."""
        self._flow.clear()

    def go_on(self) -> None:
        """Let them arrive."""
        self._flow.set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        is_read: bool = True,
    ) -> RawObject:
        payload = b"" if body is None else json.dumps(body).encode()
        request: Any = _Request(method, path, query or {}, content_type, payload)
        response = await self._survived(self._exchange(request))
        if request.transport.is_aborted:
            raise ApiError(0, "Unreachable", "the API server can't be reached: connection reset by peer")
        content = bytes(response.body)
        if response.status >= 400:
            raise _api_error(response, content)
        return _decoded(content, path)

    async def _exchange(self, request: Any) -> Any:
        delivery = asyncio.ensure_future(self._deliver(request))
        delivery.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may be left to ask
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await asyncio.shield(delivery)
                await self._travel()
                return response
        except TimeoutError:
            raise ApiError(0, "Unreachable", "the API server can't be reached: TimeoutError") from None
        finally:
            if self._flow.is_set():
                delivery.cancel()

    async def _deliver(self, request: Any) -> Any:
        await self._travel()
        response = await self._server._answer(request)
        if request.method != "GET":
            self._on_write(Write(request.method, request.path, response.status))
        return response

    async def _survived(self, work: Any) -> Any:
        """The outcome of ``work``, unless the connection is severed: then nobody ever hears of it."""
        if self._is_severed:
            work.close()
            await asyncio.Future()
        task = asyncio.ensure_future(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_severed and task.cancelled() and not (asyncio.current_task() or task).cancelling():
                await asyncio.Future()
            raise
        finally:
            task.cancel()

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        request: Any = _Request("GET", path, query, "application/json", b"")
        await self._survived(self._open_watch(request))
        if request.transport.is_aborted:
            raise ApiError(0, "Unreachable", "the watch broke off: connection reset by peer")
        yield self._lines(request)

    async def _open_watch(self, request: Any) -> None:
        await self._travel()
        place = requests.place_of(request.path)
        assert place is not None
        fault = struck(self._sandbox.faults, place, request, {})
        if fault is None:
            return

        async def accept() -> web.StreamResponse:
            return web.Response()

        try:
            await fail(fault, request, accept)
        except SandboxError as error:
            raise ApiError(error.status, error.reason, error.message) from error

    async def _lines(self, request: Any) -> AsyncIterator[bytes]:
        place = requests.place_of(request.path)
        target = requests.target_of(place, self._sandbox.registry) if place else None
        if target is None:
            raise ApiError(404, "NotFound", str(errors.no_such_subresource()))
        selection, options = requests.selection_of(target, request.query), requests.watch_options_of(request.query)
        events = watch.watch(self._sandbox.store, target.resource, selection, options, JSON)
        async for batch in events:
            await self._survived(self._travel())
            for line in batch.splitlines():
                yield line
        if self._is_severed:
            await asyncio.Future()

    async def _travel(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_WAYS))
        await self._flow.wait()
