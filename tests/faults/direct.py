"""Connects the scheduler to a sandbox in the same process, without sockets: the same requests, replies and faults, in less time.

Each request takes a short random time each way, so that requests overtake each other as on a network. The judge receives each request and
each line of a watch.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from allaboard.kube.client import ApiError, ApiServer, RawObject, _checked, api_error, decoded
from allaboard.kube.paths import ApiPath
from allaboard_sandbox import ApiError as SandboxError
from allaboard_sandbox import Sandbox, errors, requests, watch
from allaboard_sandbox.server import JSON, Server, fail, struck

from .judge import Judge, Request, current
from .judge.wire import seen_by_judge

REQUEST_SECONDS = 15.0
_DELAY_SECONDS = (0.000_5, 0.02)
_LATE = 0.5
"""Probability that a server finishes a request whose client is gone."""


@dataclass(slots=True)
class _Transport:
    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


@dataclass(slots=True)
class _Message:
    """The parts of an ``aiohttp.web.Request`` that the sandbox's server reads."""

    method: str
    path: str
    query: Mapping[str, str]
    content_type: str
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    transport: _Transport = field(default_factory=_Transport)
    host: str = "sandbox"

    @property
    def raw_path(self) -> str:
        return self.path

    async def read(self) -> bytes:
        return self.payload


@dataclass(slots=True)
class Network:
    """The delays of watches, and the size of the pages of lists.

    ``lags``: the delay of watches in seconds, by plural. ``page``: the most objects on one page of a list; 0 if there is no limit.
    """

    lags: dict[str, float] = field(default_factory=dict)
    page: int = 0
    written: dict[str, float] = field(default_factory=dict)
    """When each resourceVersion was written."""

    def pause(self, plural: str, lines: bytes) -> float:
        """Return the seconds until a watch delivers ``lines``."""
        lag = self.lags.get(plural, 0.0)
        if not lag:
            return 0.0
        version = json.loads(lines.splitlines()[-1])["object"]["metadata"].get("resourceVersion", "")
        now = asyncio.get_running_loop().time()
        return max(0.0, self.written.get(version, now - lag) + lag - now)


class DirectServer(ApiServer):
    """One scheduler's connection to the sandbox; ``process`` is its process, and a restarted process counts as another one.

    ``sever`` acts as a SIGKILL: no further request arrives, and no answer. ``stall`` acts as a SIGSTOP or a stuck network: nothing arrives
    until ``go_on``. Then everything that was sent arrives, also what the scheduler has given up meanwhile. ``silence`` lets open watches
    deliver nothing, without an error.
    """

    def __init__(self, sandbox: Sandbox, chance: random.Random, judge: Judge, process: str, network: Network) -> None:
        self.process = process
        self._sandbox = sandbox
        self._server = Server(sandbox.api, sandbox.faults)
        self._chance = chance
        self._judge = judge
        self._network = network
        # In the order in which they began, so that a schedule is the same each time.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._deliveries: dict[asyncio.Task[Any], None] = {}
        self._silenced: dict[str, asyncio.Event] = {}
        self._is_severed = False
        self._flow = asyncio.Event()
        self._flow.set()

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    def sever(self) -> None:
        """Drop every request that hasn't been carried out, and every reply."""
        self._is_severed = True
        for task in (*self._tasks, *self._deliveries):
            task.cancel()

    def stall(self) -> None:
        """Hold all requests and replies from now on."""
        self._flow.clear()

    def go_on(self) -> None:
        """Let held requests and replies arrive."""
        self._flow.set()

    def silence(self, plural: str) -> None:
        """Let the open watches of a kind deliver nothing more."""
        self._silenced.pop(plural, asyncio.Event()).set()

    async def request(
        self,
        method: str,
        path: ApiPath,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        is_read: bool = True,
    ) -> RawObject:
        payload = b"" if body is None else json.dumps(body).encode()
        query = dict(query or {})
        if self._network.page and query.get("limit", "0") != "0":
            query["limit"] = str(min(int(query["limit"]), self._network.page))  # a server may return less than was asked for
        message: Any = _Message(method, unquote(path), query, content_type, payload)
        response = await self._unless_severed(self._exchange(message, body or {}))
        if message.transport.is_aborted:
            raise ApiError(0, "Unreachable", "the API server can't be reached: connection reset by peer")
        content = bytes(response.body)
        if response.status >= 400:
            raise api_error(response, content)
        answer = _checked(decoded(content, path), method, path, body)
        self._report_list(message, answer)
        return answer

    async def _exchange(self, message: Any, body: Mapping[str, object]) -> Any:
        seen = seen_by_judge(self.process, message, body, self._judge.books.clock())
        if seen is not None:
            seen.is_seen_sent = True
        delivery = asyncio.ensure_future(self._deliver(message, seen))
        self._deliveries[delivery] = None
        delivery.add_done_callback(lambda task: self._deliveries.pop(task, None))
        delivery.add_done_callback(lambda task: task.cancelled() or task.exception())  # the caller may be gone
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                response = await asyncio.shield(delivery)
                await self._delay()
                return response
        except TimeoutError:
            raise ApiError(0, "Unreachable", "the API server can't be reached: TimeoutError") from None
        finally:
            if seen is not None and not delivery.done():
                seen.abandoned = self._judge.books.clock()
            # A server may finish a request that its client has given up, once it has arrived.
            is_there = seen is not None and seen.arrived is not None and not self._is_severed
            if self._flow.is_set() and not delivery.done() and not (is_there and self._chance.random() < _LATE):
                delivery.cancel()

    async def _deliver(self, message: Any, seen: Request | None) -> Any:
        await self._delay()
        if seen is None:
            return await self._server._answer(message)
        self._judge.arrived(seen)
        token = current.set(seen)
        try:
            response = await self._server._answer(message)
            seen.status = 0 if message.transport.is_aborted else response.status
            seen.retry_after = float(response.headers.get("Retry-After", 0))
            return response
        finally:
            with suppress(ValueError):  # the context differs when tasks are cancelled at the end of the world
                current.reset(token)
            self._judge.answered(seen)

    def _report_list(self, message: Any, answer: RawObject) -> None:
        """Report to the judge what the scheduler receives of pods and nodes by a list."""
        place = requests.place_of(message.path)
        if place is None or place.name or place.namespace or place.plural not in ("pods", "nodes") or message.method != "GET":
            return
        if "labelSelector" in message.query or message.query.get("limit") == "1":
            return  # such a list has only some of the objects
        self._judge.books.news.note_page(self.process, place.plural, answer, is_first="continue" not in message.query)

    async def _unless_severed(self, work: Any) -> Any:
        """Return the result of ``work``; never return if the connection is severed."""
        if self._is_severed:
            work.close()
            await asyncio.Future()
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_severed and task.cancelled() and not (asyncio.current_task() or task).cancelling():
                await asyncio.Future()
            raise
        finally:
            task.cancel()

    @asynccontextmanager
    async def stream(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        message: Any = _Message("GET", unquote(path), query, "application/json", b"")
        await self._unless_severed(self._open_watch(message))
        if message.transport.is_aborted:
            raise ApiError(0, "Unreachable", "the watch broke off: connection reset by peer")
        yield self._lines(message, silence_seconds)

    @asynccontextmanager
    async def download(self, path: ApiPath, query: Mapping[str, str], silence_seconds: float) -> AsyncIterator[AsyncIterator[bytes]]:
        answer = json.dumps(await self.request("GET", path, query=query)).encode()

        async def chunks() -> AsyncIterator[bytes]:
            yield answer

        yield chunks()

    async def _open_watch(self, message: Any) -> None:
        await self._delay()
        place = requests.place_of(message.path)
        assert place is not None
        seen = seen_by_judge(self.process, message, {}, self._judge.books.clock())
        token = current.set(seen)
        try:
            fault = struck(self._sandbox.faults, place, message, {})
            if fault is None:
                self._judge.books.news.hear(self.process, place.plural)
                return
            if seen is not None:
                self._judge.books.note_request(seen)

            async def accept() -> web.StreamResponse:
                return web.Response()

            try:
                await fail(fault, message, accept)
            except SandboxError as error:
                raise ApiError(error.status, error.reason, error.message) from error
            finally:
                if seen is not None:
                    self._judge.answered(seen)
        finally:
            current.reset(token)

    async def _lines(self, message: Any, silence_seconds: float) -> AsyncIterator[bytes]:
        place = requests.place_of(message.path)
        target = requests.target_of(place, self._sandbox.registry) if place else None
        if target is None:
            raise ApiError(404, "NotFound", str(errors.no_such_subresource()))
        selection, options = requests.selection_of(target, message.query), requests.watch_options_of(message.query)
        events = watch.watch(self._sandbox.store, target.resource, selection, options, JSON)
        plural = target.resource.plural
        silenced = self._silenced.setdefault(plural, asyncio.Event())
        ends_at = asyncio.get_running_loop().time() + options.timeout_seconds
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    batch = await anext(events, b"")
                    if silenced.is_set():
                        await asyncio.Future()
            except TimeoutError:
                raise ApiError(0, "Unreachable", "the watch broke off: timeout on reading data from socket") from None
            if not batch:
                break
            pause = self._network.pause(plural, batch)
            if asyncio.get_running_loop().time() + pause >= ends_at:
                await asyncio.sleep(ends_at - asyncio.get_running_loop().time())
                break  # the next watch continues where this one ended
            await asyncio.sleep(pause)
            await self._unless_severed(self._delay())
            for line in batch.splitlines():
                if plural in ("pods", "nodes"):
                    self._judge.books.news.note_line(self.process, plural, json.loads(line))
                yield line
        if self._is_severed:
            await asyncio.Future()

    async def _delay(self) -> None:
        await asyncio.sleep(self._chance.uniform(*_DELAY_SECONDS))
        await self._flow.wait()
