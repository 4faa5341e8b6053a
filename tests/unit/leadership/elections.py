"""Elections for tests: a clock that advances only when all tasks wait, and a server that keeps one Lease and may fail as scripted."""

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
    """A selector that doesn't wait: the time that it would have waited is added to its clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "all tasks wait, and no timer is set"
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
    """Return the virtual time, in seconds."""
    return asyncio.get_running_loop().time()


@dataclass(frozen=True)
class Answer:
    """The script of one request.

    The server carries the request out after ``before`` seconds and answers ``after`` seconds later. With ``refused``, an HTTP status, the
    server answers that and does nothing. With ``lost`` the request is carried out and never answered.
    """

    before: float = 0.0
    after: float = 0.0
    refused: int = 0
    lost: bool = False


class LeaseServer:
    """A server that keeps one Lease. ``script`` is for the next requests, in order; later requests are answered at once."""

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
        scripted = self.script.popleft() if self.script else Answer()
        await asyncio.sleep(FOR_EVER if self.is_hanging else scripted.before)
        if scripted.refused:
            raise ApiError(scripted.refused, "", "refused by the script")
        answer = self._carry_out(method, body)
        await asyncio.sleep(FOR_EVER if scripted.lost else scripted.after)
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


class Connection:
    """The connection of one replica to the server, which may be cut."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self.is_cut = False

    async def request(self, method: str, path: str, *, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        if self.is_cut:
            await asyncio.sleep(FOR_EVER)
        return await self._server.request(method, path, body=body)


class Replica:
    """A replica that competes for the lease, as a task. ``slept`` is how long its machine has slept, in seconds."""

    def __init__(self, server: LeaseServer | Connection, identity: str, times: LeaseTimes | None = None, offset: float = 0.0) -> None:
        self.slept = 0.0
        loop = asyncio.get_running_loop()
        # Each machine's clock counts from its own start, and the machine's sleep advances that clock only.
        self.lease = Lease(
            server, namespace="ns", name="allaboard", identity=identity, times=times, clock=lambda: loop.time() + offset + self.slept
        )
        self.task = asyncio.create_task(self.lease.run())

    async def end(self) -> BaseException | None:
        """Cancel the replica's task; return the exception that had ended the task before, if any."""
        self.task.cancel()
        (outcome,) = await asyncio.gather(self.task, return_exceptions=True)
        return None if isinstance(outcome, asyncio.CancelledError) else outcome
