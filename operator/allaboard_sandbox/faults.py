"""Fault injection: a chosen request fails, loses its reply, is delayed, or is held until a test releases it."""

import asyncio
import fnmatch
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from allaboard_sandbox.errors import ApiError

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

FOR_EVER = 1_000_000_000
"""Value of ``Fault.times`` for a fault that hits every matching request, beginning with the ``nth``."""


class Call(NamedTuple):
    """One request, with the fields that faults match."""

    verb: str
    resource: str
    subresource: str
    name: str
    is_dry_run: bool


class Hold:
    """A gate at which requests wait until ``release`` is called.

    If a client disconnects while its request waits, the request leaves the gate.
    """

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()
        self._empty = asyncio.Event()
        self._waiting = 0

    async def arrived(self) -> None:
        """Wait until a request has reached the gate."""
        await self._arrived.wait()

    async def abandoned(self) -> None:
        """Wait until all requests that reached the gate have left it, because of a disconnect or a release."""
        await self._empty.wait()

    @property
    def has_arrived(self) -> bool:
        """Return whether a request has reached the gate."""
        return self._arrived.is_set()

    def release(self) -> None:
        """Let the waiting requests and all later requests continue."""
        self._released.set()

    async def wait(self) -> None:
        """Hold the calling request at the gate until the release."""
        self._waiting += 1
        self._empty.clear()
        self._arrived.set()
        try:
            await self._released.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._empty.set()


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that hits ``times`` matching HTTP requests, beginning with the ``nth`` matching request after the fault is added.

    ``verb`` is an RBAC verb, ``bind`` or ``evict``. ``resource`` is a resource's plural name, which matches its subresources too, or
    ``plural/subresource``. ``name`` is the object's name. All three are globs: ``[!w]*`` is every verb but ``watch``.

    ``dry_run`` selects the requests that can match: only real requests (False), only dry runs (True), or both (None).

    ``drop`` closes the connection without a reply. With ``after``, the request is carried out first; then its reply is dropped (``drop``)
    or replaced by the error. ``delay`` (seconds) with ``status=0`` only makes a request slow.

    ``hold`` makes a request wait until the hold is released; then the request is carried out. With ``after``, the request is carried out
    at once, and only its reply waits (see ``Faults.pause``).
    """

    verb: str
    resource: str
    name: str | None = None
    nth: int = 1
    times: int = 1
    status: int = 500
    reason: str | None = None
    message: str = "injected by the sandbox"
    retry_after: int | None = None
    delay: float = 0.0
    drop: bool = False
    after: bool = False
    dry_run: bool | None = False
    hold: Hold | None = None

    def matches(self, call: Call) -> bool:
        """Return whether a request matches the fault."""
        if self.dry_run not in (None, call.is_dry_run) or not fnmatch.fnmatchcase(call.verb, self.verb):
            return False
        whole = f"{call.resource}/{call.subresource}"
        if not (fnmatch.fnmatchcase(call.resource, self.resource) or fnmatch.fnmatchcase(whole, self.resource)):
            return False
        return self.name is None or fnmatch.fnmatchcase(call.name, self.name)

    @property
    def fails(self) -> bool:
        """Return whether the request gets an error or no reply instead of its own reply."""
        return bool(self.status or self.drop)

    def error(self) -> ApiError:
        """Return the error that replaces the request's reply."""
        reason = REASONS.get(self.status, "") if self.reason is None else self.reason
        return ApiError(self.status, reason, self.message, retry_after=self.retry_after)


@dataclass(slots=True)
class _Armed:
    fault: Fault
    seen: int = 0

    @property
    def is_spent(self) -> bool:
        return self.seen >= self.fault.nth + self.fault.times - 1


@dataclass(slots=True)
class Faults:
    """Holds the faults that can still hit a request, and finds the fault that hits a given request."""

    on_strike: Callable[[Call, Fault], None] = lambda call, fault: None
    """Called for each request that a fault hits, in the task that serves the request."""
    _armed: list[_Armed] = field(default_factory=list)
    _open_notes: list[list[Call]] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Add a fault, which counts requests from now on."""
        self._armed.append(_Armed(fault))

    def pause(
        self,
        verb: str,
        resource: str = "*",
        *,
        name: str | None = None,
        nth: int = 1,
        times: int = 1,
        after: bool = False,
        dry_run: bool | None = None,
    ) -> Hold:
        """Hold the ``nth`` matching request before it is carried out; with ``after``, hold its reply.

        ``arrived`` of the returned ``Hold`` waits until the request is held.
        """
        hold = Hold()
        self.add(Fault(verb, resource, name, nth, times, status=0, after=after, dry_run=dry_run, hold=hold))
        return hold

    def clear(self) -> None:
        """Remove all faults. Requests that are held stay held."""
        self._armed.clear()

    @property
    def pending(self) -> list[Fault]:
        """The faults that can still hit a request."""
        return [armed.fault for armed in self._armed]

    @contextmanager
    def noting(self) -> Iterator[list[Call]]:
        """Open a context that records the requests that arrive while it is open; its value is their list, in order of arrival."""
        calls: list[Call] = []
        self._open_notes.append(calls)
        try:
            yield calls
        finally:
            self._open_notes = [each for each in self._open_notes if each is not calls]

    def strike(self, verb: str, resource: str, subresource: str, name: str, *, dry_run: bool = False) -> Fault | None:
        """Count a request, and return the fault that hits it, or None."""
        call = Call(verb, resource, subresource, name, dry_run)
        for calls in self._open_notes:
            calls.append(call)
        hit = None
        for armed in self._armed:
            if armed.fault.matches(call):
                armed.seen += 1
                if hit is None and armed.seen >= armed.fault.nth:
                    hit = armed.fault
        self._armed = [armed for armed in self._armed if not armed.is_spent]
        if hit is not None:
            self.on_strike(call, hit)
        return hit
