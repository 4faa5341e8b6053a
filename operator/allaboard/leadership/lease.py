"""Elect the leading replica: the holder of a ``coordination.k8s.io`` Lease, written as client-go writes it.

Invariant: ``is_held`` is true for at most one replica at a time. So the holder counts from *before* it sent its last successful renewal,
and stops at the renew deadline. A follower counts a whole lease duration from *after* it saw the last change, on its own clock. It takes
the lease with the version that it saw, so that only one of two followers can. Wall clocks are written for people, never read.
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
_MOST_TRANSITIONS = 2**31 - 1  # an int32 to the API server
_LOOKS_PER_RETRY = 8  # the sooner a follower sees the last renewal, the sooner after expiry it takes the lease
_TRIES_PER_DEADLINE = 3  # a call that hangs must leave time for others
_RELEASE_SECONDS = 2.0
_NOT_RUN = "this process was held up"
_WHERE = "--lease-namespace (lease_namespace) says where it is, and it takes the rights to get, create and update leases there"


class LeaseLostError(Exception):
    """This replica doesn't hold the lease, so it must not change anything."""


class Fence(Protocol):
    """Decides whether this replica may change anything."""

    def seconds_left(self) -> float:
        """Return for how many seconds a request that changes something may take from now on; 0 if none may be sent."""


class Unfenced:
    """The fence of the only scheduler, without leader election."""

    def seconds_left(self) -> float:
        return float("inf")


@asynccontextmanager
async def fenced(fence: Fence) -> AsyncIterator[None]:
    """Run a request that changes something only while the lease is held, and end it before another replica can hold the lease.

    The version that the request names must have been read before. Raises ``LeaseLostError``, and ``ApiError`` when time is up.
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

    ``duration`` is for how long a renewal is valid, ``renew_deadline`` after how long without one the holder gives up, and ``retry`` the
    time between renewals.
    """

    duration: int = 15
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class _Record:
    """The last seen state of the Lease object, which may be malformed. ``version`` is empty if there is no such object."""

    raw: Mapping[str, Any]
    version: str = ""
    holder: str = ""
    duration: float = 0.0
    transitions: int = 0

    @classmethod
    def of(cls, raw: Mapping[str, Any], duration: int) -> "_Record":
        """Return the record of a raw Lease; ``duration`` replaces a duration that is missing or invalid."""
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
    """Return seconds of a monotonic clock that also runs while the machine sleeps, where the system has one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """One replica's part in the election, which ``run`` carries out; ``identity`` must be unique to this process.

    ``is_held``, ``seconds_left`` and ``transitions`` may be read by any thread.
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
        self._renewed: float | None = None  # when the last successful renewal was about to be sent
        self._has_tried = False
        self._told = ""

    @property
    def is_held(self) -> bool:
        """Whether this replica leads: no other replica can take the lease before ``seconds_left``."""
        return self._is_good(self._renewed)

    @property
    def transitions(self) -> int:
        """The number of the present term: how often the lease has changed its holder."""
        seen = self._seen
        return seen.transitions if seen else 0

    def seconds_left(self) -> float:
        """Return the seconds until another replica may take the lease; 0 if it isn't held, so that no request may be sent."""
        renewed = self._renewed  # once: another thread may write it
        return renewed + self._times.duration - self._clock() if renewed is not None and self._is_good(renewed) else 0.0

    async def run(self) -> None:
        """Wait for the lease, then renew it until cancelled. Raises ``LeaseLostError`` if it can't be renewed in time."""
        while not self.is_held:
            began = self._clock()
            try:
                async with _limited(self._times.renew_deadline / _TRIES_PER_DEADLINE):
                    await self._follow()
            except ApiError as error:
                where = f"; {_WHERE}" if error.status in (403, 404) else ""
                self._tell(f"the lease {self.key} can't be read or taken: {error}{where}; trying again", logging.WARNING)
            if not self.is_held:
                await asyncio.sleep(self._until_next_look(began))
        logger.info("this replica, %s, holds the lease %s: term %d", self._identity, self.key, self.transitions)
        self.acquired.set()
        await self._keep()

    async def release(self) -> None:
        """Let another replica take the lease at once. Call this when ``run`` has ended and no request is in flight."""
        self._renewed = None
        if not self._has_tried:
            return
        self._has_tried = False
        with suppress(ApiError):  # then the lease expires by itself
            async with _limited(_RELEASE_SECONDS):
                # Read anew: the answer to our last request may never have come.
                await self._look()
                if self._seen and self._seen.holder == self._identity:
                    await self._write("", self._seen.transitions, duration=1)
                    logger.info("released the lease %s", self.key)

    async def _follow(self) -> None:
        """Read the lease, and take it if it is free."""
        if not self._is_free():
            await self._look()
        if self._seen is not None and self._is_free():
            seen, self._has_tried = self._seen, True
            try:
                await self._write(self._identity, seen.transitions + bool(seen.raw and seen.holder != self._identity))
            except ApiError as error:
                if error.status not in (404, 409) or (error.status == 404 and not seen.version):  # nowhere to make it
                    raise
                await self._look()  # another was quicker, or the holder is alive after all
        if self._seen and not self.is_held:
            self._tell(f"waiting for the lease {self.key}, which {self._seen.holder or 'nobody'} holds", logging.INFO)

    async def _keep(self) -> None:
        """Renew the lease until no renewal has succeeded within the renew deadline, or another replica has the lease."""
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
                self._told, problem = "", _NOT_RUN
            except ApiError as error:
                problem = str(error)
                self._tell(f"the lease {self.key} could not be renewed: {problem}; trying again", logging.WARNING)
        self._renewed = None
        raise LeaseLostError(f"the lease {self.key} could not be renewed for {self._times.renew_deadline:g} s: {problem}")

    async def _renew(self) -> None:
        """Write a newer renew time. Raises ``LeaseLostError`` if another replica has the lease."""
        try:
            await self._write(self._identity, self.transitions)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            # Our own renewal whose answer was lost, an edited or deleted object, or another replica's term.
            await self._look()
            if self._seen and self._seen.holder not in ("", self._identity):
                self._renewed = None
                raise LeaseLostError(f"the lease {self.key} is held by {self._seen.holder} now") from error
            await self._write(self._identity, self.transitions)

    async def _look(self) -> None:
        try:
            self._see(await self._server.request("GET", self._path))
        except ApiError as error:
            if error.status != 404:
                raise
            # The holder may not know yet that the object was deleted.
            self._seen = replace(self._seen, version="") if self._seen else _Record({})

    async def _write(self, holder: str, transitions: int, duration: int | None = None) -> None:
        """Create or update the Lease at its last seen version; this replica leads if it is ``holder``. Raises ``ApiError``."""
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
            # Any write is a sign of life of the holder.
            self._seen_at = self._clock()
        self._seen = record

    def _is_good(self, renewed: float | None) -> bool:
        """Return whether a lease renewed at ``renewed`` is still valid."""
        return renewed is not None and self._clock() < renewed + self._times.renew_deadline

    def _is_free(self) -> bool:
        """Return whether this replica may take the lease: it has no holder, has expired, or is ours and the answer was lost."""
        seen = self._seen
        return seen is not None and (seen.holder in ("", self._identity) or self._clock() >= self._seen_at + seen.duration)

    def _until_next_look(self, began: float) -> float:
        """Return the seconds until a follower reads the lease again: at its expiry if that comes first."""
        now = self._clock()
        pause = began + self._times.retry / _LOOKS_PER_RETRY - now
        if self._seen is not None and not self._is_free():
            pause = min(pause, self._seen_at + self._seen.duration - now)
        return max(0.01, pause)

    def _tell(self, message: str, level: int) -> None:
        """Log a message unless it was the last one logged."""
        if message != self._told:
            self._told = message
            logger.log(level, "%s", message)


def _limited(seconds: float) -> AbstractAsyncContextManager[None]:
    """Return a time limit for a request: an API server that hangs must not stop the election."""
    return answered_within(seconds, f"no answer within {seconds:.1f} s")


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
