"""A proxy before a real API server that makes chosen requests fail, with the faults of the sandbox.

The proxy speaks plain HTTP. A client without credentials acts as the administrator, a client with a token as the token's user.
"""

import json
import ssl
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from yarl import URL

from allaboard_sandbox import ApiError
from allaboard_sandbox.faults import Faults
from allaboard_sandbox.requests import Place, decode, place_of
from allaboard_sandbox.server import fail, refused, struck
from tests.faults.judge.wire import Observer, observed

from .access import Access

_DROPPED_HEADERS = {"transfer-encoding", "content-length", "content-encoding", "connection", "host"}


class FaultProxy:
    """Forwards requests to an API server, except those that one of the ``faults`` strikes."""

    def __init__(self, access: Access) -> None:
        self.faults = Faults()
        self.observer: Observer | None = None
        self.process = "operator"
        self._target, self._access = access.url, access
        self._watches: dict[int, tuple[web.Request, str]] = {}
        self._expired: dict[str, int] = {}
        self._administrator: aiohttp.ClientSession | None = None
        self._other: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        self._administrator = _session(self._access.tls())
        self._other = _session(self._access.tls(as_administrator=False))
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.5, keepalive_timeout=600)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.drop_watches()
        if self._runner:
            await self._runner.cleanup()
        for session in filter(None, (self._administrator, self._other)):
            await session.close()

    def drop_watches(self, plural: str | None = None) -> None:
        """Break the open watches of one resource, or of all."""
        for request, watched in list(self._watches.values()):
            if plural in (None, watched) and request.transport is not None:
                request.transport.abort()

    def expire(self, plural: str, revision: int) -> None:
        """Answer watches from ``revision`` or before like a server that has compacted its history up to ``revision``."""
        self._expired[plural] = revision

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; the observer sees the requests that have credentials."""
        serve = partial(self._serve, request)
        if self.observer is None or "Authorization" not in request.headers:
            return await serve()
        return await observed(self.observer, self.process, request, time.monotonic, serve)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        place, payload = place_of(request.path), await request.read()
        if place is None:
            return await self._forward(request, payload)
        body = decode(request.content_type, payload) if "json" in request.content_type else {}
        fault = struck(self.faults, place, request, body)
        if fault is None and place.verb(request.method, request.query) == "watch":
            return await self._watch(place, request, payload)
        if fault is None:
            return await self._forward(request, payload)
        try:
            return await fail(fault, request, partial(self._forward, request, payload))
        except ApiError as error:
            return refused(error)

    async def _watch(self, place: Place, request: web.Request, payload: bytes) -> web.StreamResponse:
        revision = request.query.get("resourceVersion", "")
        expired = self._expired.get(place.plural, -1)
        if revision.isdigit() and 0 < int(revision) <= expired:
            return web.Response(text=_too_old(int(revision), expired), content_type="application/json")
        self._watches[id(request)] = request, place.plural
        try:
            return await self._forward(request, payload)
        finally:
            del self._watches[id(request)]

    async def _forward(self, request: web.Request, payload: bytes) -> web.StreamResponse:
        """Forward a request to the API server, and its answer to the client as it arrives."""
        session = self._other if "Authorization" in request.headers else self._administrator
        assert session is not None
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _DROPPED_HEADERS}
        if self._access.token:
            headers.setdefault("Authorization", f"Bearer {self._access.token}")
        url = URL(f"{self._target}{request.raw_path}", encoded=True)
        async with session.request(request.method, url, data=payload or None, headers=headers, allow_redirects=False) as answer:
            if "watch" not in request.query:
                return web.Response(status=answer.status, headers=_kept(answer.headers), body=await answer.read())
            response = web.StreamResponse(status=answer.status, headers=_kept(answer.headers))
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            except (ConnectionError, aiohttp.ClientError):
                # The client or the API server has closed its connection, which ends the watch.
                pass
            return response


def _session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, ssl=tls if tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)


def _kept(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the headers of an answer that the proxy passes on to the client.

    Headers about the connection to the API server are left out. ``Content-Encoding`` stays, since the body is passed on as it came.
    """
    return [(name, value) for name, value in headers.items() if name.lower() not in _DROPPED_HEADERS - {"content-encoding"}]


def _too_old(asked: int, oldest: int) -> str:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"too old resource version: {asked} ({oldest})",
        "reason": "Expired",
        "code": 410,
    }
    return json.dumps({"type": "ERROR", "object": status}) + "\n"
