"""Serves what the operator shows, under ``/api/v1``: read-only, as JSON, with the schema at ``/api/v1/openapi.json``.

A page that shows the present state needn't ask again and again: ``/api/v1/events`` has an event for each change.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from aiohttp import web
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema
from pydantic_core import to_json

from allaboard import __version__
from allaboard.runtime.slices import Slices
from allaboard.sight.access import Access, RefusedError, Rights
from allaboard.sight.board import Allows
from allaboard.sight.turns import Turns
from allaboard.sight.values import Decisions, Domains, Gang, Gangs, NodeGroup, Nodes, Problem, Queue, Snapshot, Status, Timeline, Value

_BASE = "/api/v1"
_LONGEST_LABEL = 317  # a prefix of 253 characters, a slash, and a name of 63
_MOST_STREAMS = 64
_BEAT_SECONDS = 15.0  # a proxy on the way may end a connection on which nothing is sent
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_PIECE = 1 << 16  # Characters of an answer that are written at once.
_MOST_AT_ONCE = 4  # Requests that are answered at once. Each holds its answer in memory until the caller has read it.
_MOST_WAITING = 64  # Requests that wait for that.
_STALL_SECONDS = 15.0  # After so long, a caller that reads nothing loses the connection.
_READ_SECONDS = 60.0  # For so long an answer may wait altogether for its reader.
_PAUSE_SECONDS = 1.0  # least time between two events of a stream


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the API. ``answer`` returns what a caller with some rights may read; None if the object doesn't exist.

    The rights in namespaces are looked up only if the answer ``shows_gangs``. ``query`` is the name of an optional parameter.
    """

    path: str
    summary: str
    model: type[Value]
    answer: Callable[[web.Request, Rights], Awaitable[Value | None]]
    shows_gangs: bool = True
    query: str = ""


class Shown(Protocol):
    """A board that the API shows. Each list leaves out, and counts, the gangs of namespaces that the caller may not read."""

    @property
    def version(self) -> int:
        """A number that grows with each change."""

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces in which there are gangs."""

    def status(self) -> Status:
        """Return the state of the replica."""

    async def queue(self, allows: Allows) -> Queue:
        """Return the gangs that wait."""

    async def gangs(self, allows: Allows) -> Gangs:
        """Return all gangs."""

    async def gang(self, namespace: str, name: str, allows: Allows) -> Gang | None:
        """Return a gang; None if there is none."""

    async def nodes(self, allows: Allows) -> Nodes:
        """Return all nodes."""

    async def domains(self, label: str) -> Domains:
        """Return the groups of nodes by a label."""

    async def decisions(self, allows: Allows) -> Decisions:
        """Return the last decisions."""

    def timeline(self) -> Timeline:
        """Return the use of the cluster in the last hour."""

    async def snapshot(self, allows: Allows) -> Snapshot:
        """Return all gangs, nodes and decisions."""


class Api:
    """The read-only API of ``board``."""

    def __init__(
        self,
        board: Shown,
        access: Access,
        *,
        pause: float = _PAUSE_SECONDS,
        beat: float = _BEAT_SECONDS,
        most_streams: int = _MOST_STREAMS,
        stall: float = _STALL_SECONDS,
    ) -> None:
        self._board, self._access = board, access
        self._pause, self._beat, self._most_streams, self._stall = pause, beat, most_streams, stall
        self._streams = 0
        self._turns = Turns(_MOST_AT_ONCE, _MOST_WAITING, f"{_MOST_WAITING} requests wait already")
        self.routes: Sequence[Route] = (
            Route("/status", "The state of the replica that answers", Status, self._status, shows_gangs=False),
            Route("/queue", "The gangs that wait, in the order in which they are attempted", Queue, self._queue),
            Route("/gangs", "All gangs", Gangs, self._gangs),
            Route("/gangs/{namespace}/{name}", "All that is known of one gang", Gang, self._gang),
            Route("/nodes", "All nodes, and which gangs use them", Nodes, self._nodes),
            Route("/domains", "The groups of nodes by a label", Domains, self._domains, shows_gangs=False, query="label"),
            Route("/decisions", "The last decisions about all gangs", Decisions, self._decisions),
            Route("/timeline", "The use of the cluster in the last hour", Timeline, self._timeline, shows_gangs=False),
            Route("/snapshot", "The state of the scheduler in one answer", Snapshot, self._snapshot),
        )

    def application(self) -> web.Application:
        """Return the web application."""
        app = web.Application(middlewares=[answer_refusals])
        for route in self.routes:
            app.router.add_get(f"{_BASE}{route.path}", self._handler(route))
        app.router.add_get(f"{_BASE}/events", self._events)
        app.router.add_get(f"{_BASE}/openapi.json", self._openapi)
        return app

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            # Without a turn: to ask the API server about one caller must not keep others waiting.
            rights = await self._access.rights(request.headers, self._namespaces(route, request))
            async with self._turns.take():
                found = await route.answer(request, rights)
                if found is None:
                    raise RefusedError(404, f"{request.path}: there is no such object")
                answer = web.StreamResponse(headers=_HEADERS)
                answer.content_type = "application/json"
                await answer.prepare(request)
                reader, pieces = _Reader(request, answer, self._stall), _pieces_of(found)
                del found  # Its rows are freed one by one, as they are written.
                try:
                    async for piece in pieces:
                        await reader.write(piece.encode())
                except ConnectionError:
                    pass  # the caller has gone
                return answer

        return handle

    def _namespaces(self, route: Route, request: web.Request) -> Sequence[str]:
        """Return the namespaces whose gangs an answer may show."""
        namespaces = self._board.namespaces() if route.shows_gangs else ()
        named = request.match_info.get("namespace")
        return namespaces if named is None else [each for each in namespaces if each == named]

    async def _status(self, request: web.Request, rights: Rights) -> Status:
        return self._board.status()

    async def _queue(self, request: web.Request, rights: Rights) -> Queue:
        return await self._board.queue(rights.allows)

    async def _gangs(self, request: web.Request, rights: Rights) -> Gangs:
        return await self._board.gangs(rights.allows)

    async def _gang(self, request: web.Request, rights: Rights) -> Gang | None:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if not rights.allows(namespace):
            raise RefusedError(403, f"you may not list podgroups in namespace {namespace}")
        others = set[str]()

        def allows(each: str) -> bool:
            if not rights.allows(each):
                others.add(each)
            return rights.allows(each)

        found = await self._board.gang(namespace, name, allows)
        if others:  # The API server was asked about one namespace. It is asked about others only if the gang waits for gangs of theirs.
            more = await self._access.rights(request.headers, [namespace, *sorted(others)])
            if any(map(more.allows, others)):
                found = await self._board.gang(namespace, name, more.allows)
        return found if found is None or rights.nodes else _without_nodes(found)

    async def _nodes(self, request: web.Request, rights: Rights) -> Nodes:
        if not rights.nodes:
            raise RefusedError(403, "you may not list nodes")
        return await self._board.nodes(rights.allows)

    async def _domains(self, request: web.Request, rights: Rights) -> Domains:
        if not rights.nodes:
            raise RefusedError(403, "you may not list nodes")
        return await self._board.domains(request.query.get("label", "")[:_LONGEST_LABEL])

    async def _decisions(self, request: web.Request, rights: Rights) -> Decisions:
        return await self._board.decisions(rights.allows)

    async def _timeline(self, request: web.Request, rights: Rights) -> Timeline:
        return self._board.timeline()

    async def _snapshot(self, request: web.Request, rights: Rights) -> Snapshot:
        if not rights.nodes:
            raise RefusedError(403, "you may not list nodes")
        return await self._board.snapshot(rights.allows)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the event ``changed`` (server-sent events) at first, and whenever gangs, pods or nodes have changed."""
        await self._access.rights(request.headers, ())
        if self._streams >= self._most_streams:
            raise RefusedError(503, f"{self._most_streams} streams of events are open already; try again later")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._streams += 1
        try:
            await stream.prepare(request)
            reported, sent = -1, 0.0
            while not request.transport or not request.transport.is_closing():
                version, now = self._board.version, time.monotonic()
                if version != reported or now - sent > self._beat:
                    event = b":\n\n" if version == reported else f"event: changed\ndata: {version}\n\n".encode()
                    await _Reader(request, stream, self._stall).write(event)
                    reported, sent = version, now
                await asyncio.sleep(self._pause)
        except ConnectionError:
            pass  # the caller has gone
        finally:
            self._streams -= 1
        return stream

    async def _openapi(self, request: web.Request) -> web.Response:
        return web.json_response(self._document)

    @cached_property
    def _document(self) -> Mapping[str, Any]:
        """The OpenAPI document. It is made once, since callers without a token may ask for it, too."""
        return openapi(self.routes)


class _Reader:
    """Writes one answer. A caller who doesn't read it in time loses the connection, since its data would stay in memory."""

    def __init__(self, request: web.Request, answer: web.StreamResponse, stall: float) -> None:
        self._request, self._answer, self._stall = request, answer, stall
        self._left = _READ_SECONDS

    async def write(self, piece: bytes) -> None:
        """Write a piece of the answer. Raises ``ConnectionError`` if the caller has gone or loses the connection."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(self._stall, self._left)):
                await self._answer.write(piece)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the caller doesn't read the answer") from None
        self._left -= time.monotonic() - began


def openapi(routes: Sequence[Route]) -> dict[str, Any]:
    """Return the OpenAPI document of ``routes``."""
    models = [(model, "serialization") for model in (*(route.model for route in routes), Problem)]
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Allaboard", "version": __version__, "description": "What the scheduler knows. Nothing can be changed."},
        "paths": {f"{_BASE}{route.path}": {"get": _operation(route)} for route in routes},
        "components": {"schemas": schemas["$defs"], "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return {
        "summary": route.summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *({"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in [route.query] if name),
        ],
        "responses": {
            "200": _content(route.model.__name__, route.summary),
            **{status: _content("Problem", words) for status, words in _REFUSALS.items() if status != "404" or names},
        },
    }


_REFUSALS = {
    "401": "No valid bearer token",
    "403": "The caller may not read this",
    "404": "There is no such object",
    "503": "Too many requests wait, or the API server can't be asked about the caller",
}


def _content(model: str, words: str) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}}


async def _pieces_of(value: Value) -> AsyncIterator[str]:
    """Yield a value as JSON, in pieces. Of a long list, a few rows are written at a time, while other tasks run in between."""
    slices, piece = Slices(), "{"
    fields = [(field.alias or to_camel(name), _texts_of(getattr(value, name))) for name, field in type(value).model_fields.items()]
    del value
    for place, (name, texts) in enumerate(fields):
        piece += f'{"," if place else ""}"{name}":'
        for text in texts:
            piece += text
            if len(piece) > _PIECE:
                yield piece
                piece = ""
            await slices.give_way()
    yield f"{piece}}}"


def _texts_of(found: object) -> Iterator[str]:
    """Yield the JSON of a field in parts. Each row is forgotten once it is yielded: to free 8,000 gangs at once takes 130 ms."""
    if isinstance(found, list) and found and isinstance(found[0], Value):
        rows, opening = deque[Value](found), "["
        del found
        while rows:
            yield f"{opening}{rows.popleft().json_text}"
            opening = ","
        yield "]"
    elif isinstance(found, Mapping) and found:
        opening = "{"
        for key, each in found.items():
            yield f"{opening}{to_json(key).decode()}:{to_json(each).decode()}"
            opening = ","
        yield "}"
    else:
        yield found.json_text if isinstance(found, Value) else to_json(found).decode()


def _without_nodes(gang: Gang) -> Gang:
    """Return ``gang`` for a caller who may not list nodes: groups of nodes have numbers and reasons only, as kube-scheduler's messages."""
    groups: dict[tuple[str, int, tuple[str, ...]], int] = {}
    for each in gang.node_groups:
        group = (each.role, each.takes, tuple(each.reasons))
        groups[group] = groups.get(group, 0) + each.nodes
    shown = [
        NodeGroup(role=role, nodes=nodes, names=[], takes=takes, lacks={}, reasons=reasons)
        for (role, takes, reasons), nodes in groups.items()
    ]
    return gang.model_copy(update={"node_groups": shown})


def _response(text: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, content_type="application/json", headers={**_HEADERS, **(headers or {})})


@web.middleware
async def answer_refusals(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Answer a refused request with the reason as JSON."""
    try:
        return await handler(request)
    except RefusedError as error:
        headers = {"Retry-After": str(error.retry_after)} if error.retry_after else {}
        return _response(Problem(status=error.status, message=str(error)).json_text, error.status, headers)
    except web.HTTPException as error:
        return _response(Problem(status=error.status, message=f"{request.path}: {error.reason}").json_text, error.status)
