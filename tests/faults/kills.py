"""Kills the operator at one API call after another, and checks what its successor does. Runs on the sandbox and on a real cluster.

The chosen call and all later ones are held: before the call is carried out, or after it and before its answer. Then the process is killed,
its held requests vanish with it, and the next process begins.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from allaboard.cli import bundled
from allaboard_sandbox.faults import FOR_EVER, Call, Hold
from tests.cluster import Cluster
from tests.stories import bound, gang_pod, pods, running, status_of
from tests.webhooks import BIND_WEBHOOK

from .gangs import GangSpec, manifests
from .operators import Operator

MEMBERS = 8
CPUS = 12
"""Cpu for the gang and for a few pods more: a gang that needs exactly the rest shows whether capacity leaked."""

COUNTED = ("[!w]*", "[!l]*")
"""Every request but watches and leases, which are renewed by the clock and not by decisions."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where a process is killed: at the ``call``-th request of a commit, before or after it is carried out."""

    call: int
    is_after: bool
    kind: str = "controlled"

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} call {self.call} ({self.kind} pods)"


@dataclass(slots=True)
class Toll:
    """The result of a series of kills."""

    points: list[Point] = field(default_factory=list)
    missed: list[Point] = field(default_factory=list)
    in_part: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if every guarantee was kept."""
        return bool(self.points) and not (self.in_part or self.leaked or self.lost)

    def __str__(self) -> str:
        text = (
            f"{len(self.points)} kills: {len(self.in_part)} gangs in part, {len(self.leaked)} leaks of capacity, {len(self.lost)} pods lost"
        )
        return text + (f" ({len(self.missed)} calls never came)" if self.missed else "")

    def complaints(self) -> str:
        """Return all that went wrong, as one text."""
        return "; ".join([*self.in_part, *self.leaked, *self.lost])


class Relay:
    """Operators that follow one another: while one works, the next has started and waits for its connection."""

    def __init__(self, cluster: Cluster, kubeconfig: Path, folder: Path, arguments: tuple[str, ...] = ()) -> None:
        self._cluster, self._kubeconfig, self._folder, self._arguments = cluster, kubeconfig, folder, arguments
        self._numbers = itertools.count()
        self._stack = AsyncExitStack()
        self._next: Operator | None = None

    async def __aenter__(self) -> "Relay":
        self.current = await self._start()
        self._next = await self._start()
        await self.current.let_in()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def kill(self) -> None:
        """Kill the present operator. The next one doesn't begin yet."""
        await self.current.kill()

    async def succeed(self) -> None:
        """Let the next operator begin, and start another."""
        assert self._next is not None
        self.current, self._next = self._next, await self._start()
        await self.current.let_in()

    async def _start(self) -> Operator:
        folder = self._folder / str(next(self._numbers))
        return await self._stack.enter_async_context(Operator(self._cluster.url, self._kubeconfig, folder, arguments=self._arguments))


@asynccontextmanager
async def arrival(cluster: Cluster, kind: str, name: str) -> AsyncIterator[GangSpec]:
    """Create a gang of eight for the context, and remove it at the end."""
    spec = GangSpec(name, "bare" if kind == "bare" else "controlled", MEMBERS, MEMBERS)
    for manifest in manifests(spec):
        cluster.create(manifest)
    try:
        yield spec
    finally:
        await remove(cluster, spec)


def install_crds(cluster: Cluster) -> None:
    """Install the CRDs, so that PodGroups are served, and a webhook that matches binds, so that these are dry-run."""
    for manifest in (*bundled.crds(), BIND_WEBHOOK):
        cluster.apply(manifest)


def furnish(cluster: Cluster) -> None:
    """Install the CRDs, and add nodes with capacity for one gang and a few pods more."""
    install_crds(cluster)
    for number in (1, 2):
        cluster.add_node(f"node-{number}", cpu=str(CPUS // 2))


async def count_calls(cluster: Cluster, kind: str = "controlled") -> list[Call]:
    """Return the requests of one commit without a fault, from the gang's arrival to its last report."""
    with cluster.faults.noting() as calls:
        async with arrival(cluster, kind, f"count-{kind}") as spec:
            await cluster.wait_for(_is_reported(spec), timeout=20, message="the gang runs and its PodGroup says so")
            return [call for call in calls if call.verb != "watch" and call.resource != "leases"]


async def kill_at(point: Point, cluster: Cluster, relay: Relay, toll: Toll, name: str) -> None:
    """Kill the operator at one point, let its successor begin, and record what becomes of the gang."""
    faults = cluster.faults
    hold = faults.pause(*COUNTED, nth=point.call, after=point.is_after)
    rest = faults.pause(*COUNTED, nth=point.call + 1, times=FOR_EVER)
    async with arrival(cluster, point.kind, name) as spec:
        if not await comes_before(hold, cluster.wait_for(_is_reported(spec), timeout=20)):
            toll.missed.append(point)
        await relay.kill()
        for each in (hold, rest):
            if each.has_arrived:
                await each.abandoned()
        faults.clear()
        uids = {pod["metadata"]["uid"] for pod in pods(cluster, name)}
        toll.points.append(point)
        with cluster.faults.noting() as calls:
            await relay.succeed()
            try:
                await cluster.wait_for(lambda s: running(s, name) == MEMBERS, timeout=15)
            except TimeoutError:
                toll.in_part.append(f"{point}: {len(bound(cluster, name))} of {MEMBERS} members are bound")
            await _check_leaks(cluster, point, toll, f"fill-{name}")
        deleted = [call.name for call in calls if call.verb in ("delete", "evict")]
        kept = {pod["metadata"]["uid"] for pod in pods(cluster, name)}
        if deleted or not uids <= kept or len(kept) != MEMBERS:
            toll.lost.append(f"{point}: {len(uids - kept)} pods are gone, {len(kept)} are there, {len(deleted)} were deleted")


async def _check_leaks(cluster: Cluster, point: Point, toll: Toll, name: str) -> None:
    """Record leaked capacity if a gang that needs all of the rest isn't bound."""
    left = CPUS - len(bound(cluster))
    if left < 1:
        return
    spec = GangSpec(name, "bare", left, left)
    for number in range(left):
        cluster.create(gang_pod(f"{name}-{number}", name, left))
    try:
        await cluster.wait_for(lambda s: len(bound(s, name)) == left, timeout=10)
    except TimeoutError:
        toll.leaked.append(f"{point}: {left} cpu are free, and a gang of as many isn't bound")
    await remove(cluster, spec)


async def comes_before(hold: Hold, other: object) -> bool:
    """Return whether the request that ``hold`` stops arrived before ``other``, an awaitable, finished."""
    arrived, done = asyncio.ensure_future(hold.arrived()), asyncio.ensure_future(other)  # type: ignore[call-overload]  # a coroutine
    await asyncio.wait([arrived, done], return_when=asyncio.FIRST_COMPLETED)
    for task in (arrived, done):
        task.cancel()
    await asyncio.gather(arrived, done, return_exceptions=True)
    return hold.has_arrived


def _is_reported(spec: GangSpec) -> Callable[[Cluster], bool]:
    """Return a predicate: whether the gang runs and all reports on it are written."""

    def is_reported(cluster: Cluster) -> bool:
        if status_of(cluster, spec.name).get("running") != spec.size:
            return False
        scheduled = [event for event in cluster.list("events") if event.get("reason") == "Scheduled"]
        about = [
            event
            for event in scheduled
            if str((event.get("regarding") or event.get("involvedObject") or {}).get("name", "")).startswith(spec.name)
        ]
        return len(about) >= spec.size

    return is_reported


async def remove(cluster: Cluster, spec: GangSpec) -> None:
    """Remove a gang, with its controllers and pods."""
    if not spec.is_bare:
        cluster.delete("replicasets", spec.name, spec.namespace)
    for pod in cluster.list("pods", spec.namespace):
        if pod["metadata"]["name"].startswith(f"{spec.name}-") and spec.is_bare:
            cluster.delete("pods", pod["metadata"]["name"], spec.namespace, grace=0)
    await cluster.wait_for(
        lambda s: not any(pod["metadata"]["name"].startswith(f"{spec.name}-") for pod in s.list("pods", spec.namespace)),
        timeout=20,
        message=f"the pods of {spec.name} are gone",
    )
