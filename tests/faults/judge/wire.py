"""Requests as the judge sees them, taken from the wire: in this process, behind an HTTP server, or at a proxy before a real one."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from allaboard_sandbox import requests
from allaboard_sandbox.faults import Call, Fault, Faults

from .books import Books
from .entries import Request, current


class Observer(Protocol):
    """Who watches the wire."""

    def arrived(self, request: Request) -> None: ...
    def answered(self, request: Request) -> None: ...


class Message(Protocol):
    """As much of an HTTP request as is looked at."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> Mapping[str, str]: ...


def seen_by_judge(who: str, message: Message, body: Mapping[str, Any], now: float) -> Request | None:
    """A request as the judge sees it; None for what is no request about a resource."""
    place = requests.place_of(message.path)
    if place is None:
        return None
    return Request(
        who=who,
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
    """Have the judge know of each request that a fault hits."""

    def on_strike(call: Call, fault: Fault) -> None:
        if (seen := current.get()) is not None:
            books.strike(seen)

    faults.on_strike = on_strike


async def observed(
    observer: Observer, who: str, request: web.Request, now: Callable[[], float], answer: Callable[[], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """What ``answer`` gives, seen by the judge from its arrival to its end. Watches are let pass."""
    payload = requests.decode(request.content_type, await request.read()) if "json" in request.content_type else {}
    seen = seen_by_judge(who, request, payload if isinstance(payload, dict) else {}, now())
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
