"""Elect the leading replica: the holder of a ``coordination.k8s.io`` Lease, written as client-go writes it.

Invariant: ``is_held`` is true for at most one replica at a time. So the holder counts the renew deadline from *before* it sent its last
successful renewal, and stops at that deadline. A follower counts a whole lease duration from *after* it saw the last change, on its own
clock. Its write that takes the lease names the version that it saw, so only one of two followers can succeed. Times of day are written into
the Lease for people, and never read.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from allaboard.kube.errors import ApiError, answered_within
from allaboard.kube.paths import LEASES, ApiPath
from allaboard.settings.options import LONGEST_LEASE_SECONDS

logger = logging.getLogger(__name__)

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MOST_TRANSITIONS = 2**31 - 1  # the field is an int32

# The sooner a follower sees the last renewal, the sooner it takes the lease after the expiry.
_READS_PER_RETRY = 8

_TRIES_PER_DEADLINE = 3  # a call that hangs must leave time for another try
_RELEASE_SECONDS = 2.0
_NOT_RUN = "this process was held up"
_WHERE = "--lease-namespace (lease_namespace) says where the lease is; permissions to get, create and update leases there are needed"


class LeaseLostError(Exception):
    """This replica doesn't hold the lease, so it must not send a request that changes anything."""


class Fence(Protocol):
    """Decides whether this replica may send requests that change something."""

    def seconds_left(self) -> float:
        """Return the seconds that a request that changes something may take from now on; 0 if no such request may be sent."""


class Unfenced:
    """The fence of a scheduler that runs alone, without leader election."""

    def seconds_left(self) -> float:
        """Return infinity: every request may be sent."""
        return float("inf")


@asynccontextmanager
async def fenced(fence: Fence) -> AsyncIterator[None]:
    """Run a request that changes something only while the lease is held, and end it before another replica can hold the lease.

    The request must name a version of the object that was read before this call. Raises ``LeaseLostError`` without the lease, and
    ``ApiError`` when the time is up.
    """
    left = fence.seconds_left()
    if left <= 0:
        raise LeaseLostError("this replica doesn't hold the lease")
    async with answered_within(None if left == float("inf") else left, "no answer before the lease may be taken"):
        yield


class Server(Protocol):
    """The part of the API server that a lease needs."""

    async def request(self, method: str, path: ApiPath, *, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Send one request and return its JSON answer. Raises ``ApiError``."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The times of the election, in seconds.

    ``duration`` is the time for which a renewal is valid, and ``retry`` the time between renewals. A holder that couldn't renew for
    ``renew_deadline`` ceases to lead.
    """

    duration: int = 15
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class _Record:
    """The last seen state of the Lease object, which may be malformed. ``version`` is empty if the object doesn't exist."""

    raw: Mapping[str, Any]
    version: str = ""
    holder: str = ""
    duration: float = 0.0
    transitions: int = 0

    @classmethod
    def of(cls, raw: Mapping[str, Any], duration: int) -> "_Record":
        """Return the record of a raw Lease. ``duration``, in seconds, takes the place of a duration that is missing or invalid."""
        spec, metadata = raw.get("spec"), raw.get("metadata")
        spec = spec if isinstance(spec, dict) else {}
        metadata = metadata if isinstance(metadata, dict) else {}
        holder = spec.get("holderIdentity")
        stated, transitions = _whole(spec.get("leaseDurationSeconds")), _whole(spec.get("leaseTransitions"))
        return cls(
            raw={**raw, "spec": spec, "metadata": metadata},
            version=str(metadata.get("resourceVersion") or ""),
            holder=holder if isinstance(holder, str) else "",
            duration=stated if 0 < stated <= LONGEST_LEASE_SECONDS else duration,
            transitions=transitions if 0 <= transitions < _MOST_TRANSITIONS else 0,
        )


def own_namespace() -> str:
    """Return the namespace of the pod that this process runs in; ``default`` outside of a cluster."""
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeError):
        return "default"


def boot_clock() -> float:
    """Return the seconds of a monotonic clock, if possible of one that also runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """One replica's part in the election, which ``run`` carries out. ``identity`` must be unique to this process.

    Any thread may read ``is_held``, ``seconds_left`` and ``transitions``.
    """

    def __init__(
        self,
        server: Server,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = boot_clock,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.key = f"{namespace}/{name}"
        self.acquired = asyncio.Event()
        self._server = server
        self._metadata = {"namespace": namespace, "name": name}
        self._collection, self._path = LEASES.within(namespace), LEASES.named(namespace, name)
        self._identity = identity
        self._times = times or LeaseTimes()
        self._clock = clock
        self._now = now
        self._seen: _Record | None = None
        self._seen_at = 0.0
        self._renewed: float | None = None  # just before the last successful renewal was sent
        self._has_tried = False
        self._last_logged = ""

    @property
    def is_held(self) -> bool:
        """True while this replica leads: no other replica can take the lease before ``seconds_left``."""
        return self._is_valid(self._renewed)

    @property
    def transitions(self) -> int:
        """The number of the present term: the number of times that the lease has changed its holder."""
        seen = self._seen
        return seen.transitions if seen else 0

    def seconds_left(self) -> float:
        """Return the seconds until another replica may take the lease; 0 if this replica doesn't hold it, so that no request is sent."""
        renewed = self._renewed  # read only once, since another thread may write the attribute
        return renewed + self._times.duration - self._clock() if renewed is not None and self._is_valid(renewed) else 0.0

    async def run(self) -> None:
        """Wait for the lease, then renew it until cancelled. Raises ``LeaseLostError`` if it can't be renewed in time."""
        while not self.is_held:
            began = self._clock()
            try:
                async with _limited(self._times.renew_deadline / _TRIES_PER_DEADLINE):
                    await self._follow()
            except ApiError as error:
                where = f"; {_WHERE}" if error.status in (403, 404) else ""
                self._log_once(f"the lease {self.key} can't be read or taken: {error}{where}; trying again", logging.WARNING)
            if not self.is_held:
                await asyncio.sleep(self._until_next_read(began))
        logger.info("this replica, %s, holds the lease %s: term %d", self._identity, self.key, self.transitions)
        self.acquired.set()
        await self._keep()

    async def release(self) -> None:
        """Let another replica take the lease at once. Call this when ``run`` has ended and no request is in flight."""
        self._renewed = None
        if not self._has_tried:
            return
        self._has_tried = False
        with suppress(ApiError):  # a lease that can't be released expires by itself
            async with _limited(_RELEASE_SECONDS):
                # The lease is read again, since the answer to our last request may be lost.
                await self._read()
                if self._seen and self._seen.holder == self._identity:
                    await self._write("", self._seen.transitions, duration=1)
                    logger.info("released the lease %s", self.key)

    async def _follow(self) -> None:
        """Read the lease, and take it if it is free."""
        if not self._is_free():
            await self._read()
        if self._seen is not None and self._is_free():
            seen, self._has_tried = self._seen, True
            try:
                await self._write(self._identity, seen.transitions + bool(seen.raw and seen.holder != self._identity))
            except ApiError as error:
                # The creation of a Lease is answered with 404 if its namespace doesn't exist.
                if error.status not in (404, 409) or (error.status == 404 and not seen.version):
                    raise
                await self._read()  # another replica has taken the lease, or the holder has renewed it
        if self._seen and not self.is_held:
            self._log_once(f"waiting for the lease {self.key}, which {self._seen.holder or 'no replica'} holds", logging.INFO)

    async def _keep(self) -> None:
        """Renew the lease. Raises ``LeaseLostError`` if no renewal has succeeded within the renew deadline, or another replica has it."""
        began, problem = self._clock(), _NOT_RUN
        while self._renewed is not None and self.is_held:
            deadline = self._renewed + self._times.renew_deadline
            await asyncio.sleep(max(0.0, min(began + self._times.retry, deadline) - self._clock()))
            began = self._clock()
            if began >= deadline:
                break
            try:
                async with _limited(min(self._times.renew_deadline / _TRIES_PER_DEADLINE, deadline - began)):
                    await self._renew()
                self._last_logged, problem = "", _NOT_RUN
            except ApiError as error:
                problem = str(error)
                self._log_once(f"the lease {self.key} could not be renewed: {problem}; trying again", logging.WARNING)
        self._renewed = None
        raise LeaseLostError(f"the lease {self.key} could not be renewed for {self._times.renew_deadline:g} s: {problem}")

    async def _renew(self) -> None:
        """Write a newer renew time. Raises ``LeaseLostError`` if another replica has the lease."""
        try:
            await self._write(self._identity, self.transitions)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            # The answer to our own renewal was lost, the Lease was edited or deleted, or another replica leads.
            await self._read()
            if self._seen and self._seen.holder not in ("", self._identity):
                self._renewed = None
                raise LeaseLostError(f"the lease {self.key} is held by {self._seen.holder} now") from error
            await self._write(self._identity, self.transitions)

    async def _read(self) -> None:
        try:
            self._see(await self._server.request("GET", self._path))
        except ApiError as error:
            if error.status != 404:
                raise
            # The Lease was deleted, which its holder may not have noticed. So the known holder and times still count.
            self._seen = replace(self._seen, version="") if self._seen else _Record({})

    async def _write(self, holder: str, transitions: int, duration: int | None = None) -> None:
        """Create the Lease, or update it at its last seen version. If ``holder`` is this replica, it leads then. Raises ``ApiError``."""
        seen = self._seen or _Record({})
        stamp = self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = seen.raw.get("spec", {})
        is_new_term = holder != seen.holder or not isinstance(old.get("acquireTime"), str)
        spec = {
            **old,
            "holderIdentity": holder,
            "leaseDurationSeconds": self._times.duration if duration is None else duration,
            "acquireTime": stamp if is_new_term else old["acquireTime"],
            "renewTime": stamp,
            "leaseTransitions": transitions,
        }
        lease: dict[str, object] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        began = self._clock()
        if seen.version:
            lease["metadata"] = seen.raw["metadata"]
            answer = await self._server.request("PUT", self._path, body=lease)
        else:
            lease["metadata"] = self._metadata
            answer = await self._server.request("POST", self._collection, body=lease)
        self._see(answer)
        if self._seen and holder and self._seen.holder == holder:
            self._renewed = began

    def _see(self, raw: Mapping[str, Any]) -> None:
        record = _Record.of(raw, self._times.duration)
        if self._seen is None or record.version != self._seen.version:
            # Any write counts as a renewal by the holder.
            self._seen_at = self._clock()
        self._seen = record

    def _is_valid(self, renewed: float | None) -> bool:
        """Return whether a lease renewed at ``renewed`` is still valid."""
        return renewed is not None and self._clock() < renewed + self._times.renew_deadline

    def _is_free(self) -> bool:
        """Return whether this replica may take the lease: it has no holder, it has expired, or the answer to our own write was lost."""
        seen = self._seen
        return seen is not None and (seen.holder in ("", self._identity) or self._clock() >= self._seen_at + seen.duration)

    def _until_next_read(self, began: float) -> float:
        """Return the seconds until a follower reads the lease again: at the lease's expiry at the latest."""
        now = self._clock()
        pause = began + self._times.retry / _READS_PER_RETRY - now
        if self._seen is not None and not self._is_free():
            pause = min(pause, self._seen_at + self._seen.duration - now)
        return max(0.01, pause)

    def _log_once(self, message: str, level: int) -> None:
        """Log a message unless it equals the last logged message."""
        if message != self._last_logged:
            self._last_logged = message
            logger.log(level, "%s", message)


def _limited(seconds: float) -> AbstractAsyncContextManager[None]:
    """Return a time limit for a request: an API server that hangs must not stop the election."""
    return answered_within(seconds, f"no answer within {seconds:.1f} s")


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
