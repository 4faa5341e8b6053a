"""Stops the leader before one request of a commit after the other, lets the follower take over, and lets the leader go on.

The stopped leader's requests arrive when the follower has decided: too late, if fencing works.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from allaboard.leadership.lease import LeaseTimes
from allaboard_sandbox import Sandbox
from allaboard_sandbox.faults import FOR_EVER
from allaboard_sandbox.store import Change
from tests.stories import bound, running

from .gangs import STAMP, Body, GangSpec, manifests
from .kills import COUNTED, MEMBERS, remove
from .operators import Operator

NAMESPACE = "default"
ARGUMENTS = ("--leader-elect", f"--lease-namespace={NAMESPACE}")
SHORT, SHIPPED = LeaseTimes(2, 1.2, 0.3), LeaseTimes()
_KNOWS = "synced:"


@dataclass(slots=True)
class Terms:
    """The result of stopping one leader after another."""

    points: int = 0
    mixed: list[str] = field(default_factory=list)
    in_part: list[str] = field(default_factory=list)
    over_committed: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if every guarantee was kept."""
        return bool(self.points) and not (self.mixed or self.in_part or self.over_committed)

    def __str__(self) -> str:
        text = f"{self.points} stops: {len(self.mixed)} attempts mixed, {len(self.over_committed)} nodes over-committed"
        return f"{text}, {len(self.in_part)} gangs in part"

    def complaints(self) -> str:
        """Return all that went wrong, as one text."""
        return "; ".join([*self.mixed, *self.in_part, *self.over_committed])


class Replicas:
    """A leader and a follower; after a take-over another process is started."""

    def __init__(self, cluster: Sandbox, kubeconfig: Path, folder: Path, times: LeaseTimes = SHORT) -> None:
        self._cluster, self._kubeconfig, self._folder = cluster, kubeconfig, folder
        self.times = times
        self._numbers = itertools.count()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Replicas":
        self.leader, self.follower = await self._start(), await self._start()
        await self.leader.let_in()
        await self.follower.open()
        await self.follower.says_within(_KNOWS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def replace(self) -> None:
        """Make the follower the leader: end the old leader, and start another follower."""
        await self.leader.kill()
        self.leader, self.follower = self.follower, await self._start()
        await self.follower.open()
        await self.follower.says_within(_KNOWS)

    async def _start(self) -> Operator:
        folder = self._folder / f"replica-{next(self._numbers)}"
        times = {
            "ALLABOARD_LEASE_DURATION_SECONDS": str(self.times.duration),
            "ALLABOARD_LEASE_RENEW_DEADLINE_SECONDS": str(self.times.renew_deadline),
            "ALLABOARD_LEASE_RETRY_SECONDS": str(self.times.retry),
        }
        operator = Operator(self._cluster.url, self._kubeconfig, folder, arguments=ARGUMENTS, environment=times)
        return await self._stack.enter_async_context(operator)


async def stop_at(call: int, cluster: Sandbox, replicas: Replicas, terms: Terms, name: str) -> bool:
    """Stop the leader when its ``call``-th request is in flight; returns whether there was such a request."""
    spec = GangSpec(name, size=MEMBERS, minimum=MEMBERS)
    rest = cluster.faults.pause(*COUNTED, nth=call, times=FOR_EVER)
    stamps: list[str] = []
    async with _following(cluster, name, stamps):
        for manifest in manifests(spec):
            cluster.create(manifest)
        try:
            async with asyncio.timeout(10):
                await rest.arrived()
        except TimeoutError:
            cluster.faults.clear()
            await remove(cluster, spec)
            return False
        replicas.leader.stop()
        cluster.faults.clear()
        terms.points += 1
        try:
            await replicas.follower.decides()
            await cluster.wait_for(lambda s: running(s, name) == MEMBERS, timeout=15)
        except TimeoutError:
            terms.in_part.append(f"call {call}: {len(bound(cluster, name))} of {MEMBERS} members are bound after the follower took over")
        # The requests that the old leader had sent arrive now, and those that it still sends.
        replicas.leader.go_on()
        rest.release()
        await rest.abandoned()
        await replicas.leader.settled()
    by_stamp = [stamp for stamp, _ in itertools.groupby(stamps)]
    if len(by_stamp) != len(set(by_stamp)):
        terms.mixed.append(f"call {call}: binds of two plans were mixed: {stamps}")
    if len(bound(cluster, name)) != MEMBERS:
        terms.in_part.append(f"call {call}: {len(bound(cluster, name))} of {MEMBERS} members are bound at the end")
    if failed := [pod for pod in cluster.list("pods") if pod["status"].get("phase") == "Failed"]:
        terms.over_committed.append(f"call {call}: {len(failed)} pods were rejected by their kubelets")
    await remove(cluster, spec)
    await replicas.replace()
    return True


def is_bind(before: Body, after: Body) -> bool:
    """Return whether a pod was bound between two states."""
    return bool(after["spec"].get("nodeName")) and not before["spec"].get("nodeName")


@asynccontextmanager
async def _following(cluster: Sandbox, name: str, stamps: list[str]) -> AsyncIterator[None]:
    """Record the stamps of a gang's binds, in the order in which they are carried out."""

    def on_change(change: Change) -> None:
        pod, before = change.record.body, change.previous.body if change.previous else None
        if change.table == "pods" and before is not None and is_bind(before, pod) and pod["metadata"]["name"].startswith(name):
            stamps.append(pod["metadata"]["annotations"].get(STAMP, ""))

    cluster.store.subscribe(on_change)
    try:
        yield
    finally:
        cluster.store._subscribers.remove(on_change)


async def take_over(cluster: Sandbox, replicas: Replicas, name: str) -> float:
    """Kill the leader while gangs wait and arrive; returns the seconds from the end of its lease to the follower's first bind."""
    loop = asyncio.get_running_loop()
    first: asyncio.Future[float] = loop.create_future()
    renewed = loop.time()
    is_dead = False

    def on_change(change: Change) -> None:
        nonlocal renewed
        body, before = change.record.body, change.previous.body if change.previous else None
        if change.table.startswith("leases") and body["metadata"]["name"] == "allaboard" and not is_dead:
            renewed = loop.time()
        elif change.table == "pods" and before is not None and is_bind(before, body) and is_dead and not first.done():
            first.set_result(loop.time())

    specs = [GangSpec(f"{name}-{number}", size=2, minimum=2) for number in range(5)]
    cluster.store.subscribe(on_change)
    hold = cluster.faults.pause("bind", "pods", nth=3, times=FOR_EVER, dry_run=False)
    try:
        for spec in specs:
            for manifest in manifests(spec):
                cluster.create(manifest)
        async with asyncio.timeout(20 + replicas.times.duration):
            await hold.arrived()
            await replicas.leader.kill()
            await hold.abandoned()
            is_dead = True
            cluster.faults.clear()
            bound_at = await first
        await cluster.wait_for(lambda s: running(s, name) == 2 * len(specs), timeout=20, message="all gangs are whole")
    finally:
        cluster.store._subscribers.remove(on_change)
    for spec in specs:
        await remove(cluster, spec)
    await replicas.replace()
    return bound_at - renewed - replicas.times.duration
