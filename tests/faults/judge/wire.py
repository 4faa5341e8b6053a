"""Turns HTTP requests into the judge's records: in this process, behind an HTTP server, or at a proxy."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from allaboard_sandbox import requests
from allaboard_sandbox.faults import Call, Fault, Faults

from .books import Books
from .entries import Request, current


class Observer(Protocol):
    """Receives each request of a scheduler when it arrives and when it is answered."""

    def arrived(self, request: Request) -> None: ...
    def answered(self, request: Request) -> None: ...


class Message(Protocol):
    """The parts of an HTTP request that the judge reads."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> Mapping[str, str]: ...


def seen_by_judge(process: str, message: Message, body: Mapping[str, Any], now: float) -> Request | None:
    """Return a request as the judge records it; None if it isn't about a resource."""
    place = requests.place_of(message.path)
    if place is None:
        return None
    return Request(
        process=process,
        sent=now,
        verb=place.verb(message.method, message.query),
        plural=place.plural,
        namespace=place.namespace or "",
        name=requests.name_in(place, body),
        subresource=place.subresource,
        is_dry_run=requests.asks_for_dry_run(message.query, body),
        body=body,
    )


def note_strikes(faults: Faults, books: Books) -> None:
    """Have ``faults`` report each request that a fault hits to ``books``."""

    def on_strike(call: Call, fault: Fault) -> None:
        if (seen := current.get()) is not None:
            books.strike(seen)

    faults.on_strike = on_strike


async def observed(
    observer: Observer, process: str, request: web.Request, now: Callable[[], float], answer: Callable[[], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Return what ``answer`` returns, and report the request to ``observer`` on arrival and at the end. Watches aren't reported."""
    payload = requests.decode(request.content_type, await request.read()) if "json" in request.content_type else {}
    seen = seen_by_judge(process, request, payload if isinstance(payload, dict) else {}, now())
    if seen is None or seen.verb == "watch":
        return await answer()
    observer.arrived(seen)
    token = current.set(seen)
    try:
        response = await answer()
        seen.status = response.status if request.transport is not None and not request.transport.is_closing() else 0
        seen.retry_after = float(response.headers.get("Retry-After", 0))
        return response
    finally:
        current.reset(token)
        observer.answered(seen)
