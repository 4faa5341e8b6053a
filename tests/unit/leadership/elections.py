"""A stage for elections: time that passes only when all tasks wait, and a server that keeps one Lease and has bad days."""

import asyncio
import selectors
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from allaboard.kube.client import ApiError
from allaboard.leadership.lease import Lease, LeaseTimes

Outcome = TypeVar("Outcome")
FOR_EVER = 1e6


class _Leap(selectors.SelectSelector):
    """Waits in no time: what would have been waited is added to the clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits for somebody else"
        self.now += max(0.0, timeout)
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leap = _Leap()
        super().__init__(self._leap)

    def time(self) -> float:
        return self._leap.now


def virtually(play: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run ``play`` on a clock that jumps to the next timer."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(play)


def now() -> float:
    """The virtual time."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Answer:
    """How one request fares: seconds until it is carried out and from then until its answer, or the error instead of one of them."""

    before: float = 0.0
    after: float = 0.0
    refused: int = 0
    lost: bool = False


class LeaseServer:
    """Keeps one Lease. ``script`` tells how the next requests fare; all others are answered at once."""

    def __init__(self, lease: Mapping[str, Any] | None = None, script: Iterable[Answer] = ()) -> None:
        self.lease: dict[str, Any] | None = None
        self.script = deque(script)
        self.requests: list[tuple[float, str]] = []
        self.is_hanging = False
        self._version = 100
        if lease is not None:
            self.store(lease)

    def store(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        """Apply a write by any client."""
        self._version += 1
        metadata = lease.get("metadata")
        self.lease = {**lease, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "resourceVersion": str(self._version)}}
        return self.lease

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    async def request(self, method: str, path: str, *, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        self.requests.append((now(), method))
        fate = self.script.popleft() if self.script else Answer()
        await asyncio.sleep(FOR_EVER if self.is_hanging else fate.before)
        if fate.refused:
            raise ApiError(fate.refused, "", "a bad day")
        answer = self._carry_out(method, body)
        await asyncio.sleep(FOR_EVER if fate.lost else fate.after)
        return answer

    def _carry_out(self, method: str, body: Any) -> dict[str, Any]:
        if method == "POST":
            if self.lease is not None:
                raise ApiError(409, "AlreadyExists", "already exists")
            return self.store(body)
        if self.lease is None:
            raise ApiError(404, "NotFound", "not found")
        if method == "GET":
            return self.lease
        if body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.store(body)


class Line:
    """One replica's way to the server, which may be cut."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.is_cut = False

    async def request(self, method: str, path: str, *, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        if self.is_cut:
            await asyncio.sleep(FOR_EVER)
        return await self._server.request(method, path, body=body)


class Replica:
    """A contender, and what has become of it."""

    def __init__(self, server: LeaseServer | Line, identity: str, times: LeaseTimes | None = None, offset: float = 0.0) -> None:
        self.slept = 0.0
        loop = asyncio.get_running_loop()
        # Every machine counts from its own start; a sleep of the machine passes on this clock alone.
        self.lease = Lease(
            server, namespace="ns", name="allaboard", identity=identity, times=times, clock=lambda: loop.time() + offset + self.slept
        )
        self.task = asyncio.create_task(self.lease.run())

    async def end(self) -> BaseException | None:
        """Cancel it, and return what it had ended by before."""
        self.task.cancel()
        (outcome,) = await asyncio.gather(self.task, return_exceptions=True)
        return None if isinstance(outcome, asyncio.CancelledError) else outcome
