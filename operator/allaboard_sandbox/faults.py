"""Failures on demand: what a cluster does to its clients on a bad day, at a chosen request."""

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
"""As ``times``: every matching request from the ``nth`` on."""


class Call(NamedTuple):
    """One request as faults see it."""

    verb: str
    resource: str
    subresource: str
    name: str
    is_dry_run: bool


class Hold:
    """Where requests wait until somebody lets them go on. A client that goes away meanwhile takes its request with it."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._released = asyncio.Event()
        self._empty = asyncio.Event()
        self._waiting = 0

    async def arrived(self) -> None:
        """Return when a request waits here, or has waited."""
        await self._arrived.wait()

    async def abandoned(self) -> None:
        """Return when the requests that came here have gone, by themselves or because they were released."""
        await self._empty.wait()

    @property
    def has_arrived(self) -> bool:
        """Whether a request has come here."""
        return self._arrived.is_set()

    def release(self) -> None:
        """Let the requests go on, and those that follow."""
        self._released.set()

    async def wait(self) -> None:
        """What a request does here."""
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
    """Fails the ``nth`` matching request over HTTP from now on, and the following ones up to ``times`` in all.

    ``verb`` is a verb of RBAC, or ``bind`` or ``evict``; ``resource`` a plural, which matches its subresources too, or
    ``plural/subresource``; ``name`` the object's. All three are globs (``[!w]*`` is every verb but ``watch``). Dry runs don't count
    unless ``dry_run`` is set, when only they do, or is None, when everything counts.
    With ``drop`` the connection is closed without a reply; with ``after`` the request is carried out first, and then its reply is lost
    (``drop``) or replaced by the failure. A ``delay`` alone (``status=0``) only makes a request slow; a ``hold`` keeps it until it is
    released, before it is carried out or, with ``after``, afterwards: see ``Faults.pause``.
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
        if self.dry_run not in (None, call.is_dry_run) or not fnmatch.fnmatchcase(call.verb, self.verb):
            return False
        whole = f"{call.resource}/{call.subresource}"
        if not (fnmatch.fnmatchcase(call.resource, self.resource) or fnmatch.fnmatchcase(whole, self.resource)):
            return False
        return self.name is None or fnmatch.fnmatchcase(call.name, self.name)

    @property
    def fails(self) -> bool:
        """Whether the request gets another answer than its own, or none."""
        return bool(self.status or self.drop)

    def error(self) -> ApiError:
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
    """The faults waiting for their request."""

    on_strike: Callable[[Call, Fault], None] = lambda call, fault: None
    """Hears of each request that is hit, in the task that serves it."""
    _armed: list[_Armed] = field(default_factory=list)
    _notebooks: list[list[Call]] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
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
        """Hold the ``nth`` matching request, before it is carried out or ``after``: ``arrived()`` says when it is there."""
        hold = Hold()
        self.add(Fault(verb, resource, name, nth, times, status=0, after=after, dry_run=dry_run, hold=hold))
        return hold

    def clear(self) -> None:
        """Disarm all faults. What they hold back stays held."""
        self._armed.clear()

    @property
    def pending(self) -> list[Fault]:
        """The faults that haven't struck for the last time."""
        return [armed.fault for armed in self._armed]

    @contextmanager
    def noting(self) -> Iterator[list[Call]]:
        """Write down the requests that come while the context is open, in their order."""
        calls: list[Call] = []
        self._notebooks.append(calls)
        try:
            yield calls
        finally:
            self._notebooks = [each for each in self._notebooks if each is not calls]

    def strike(self, verb: str, resource: str, subresource: str, name: str, *, dry_run: bool = False) -> Fault | None:
        """Count a request, and return the fault that hits it, if any."""
        call = Call(verb, resource, subresource, name, dry_run)
        for calls in self._notebooks:
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
