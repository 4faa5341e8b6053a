"""Kills the operator at one API call of a preemption after another, and checks what its successor evicts.

Two gangs of low priority run: the ``victim``, and a ``bystander`` that has one pod more, so that its eviction costs more. A gang of high
priority comes, which fits in the place of either. Whatever happens, it starts, and only the victim's pods are evicted.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from allaboard_sandbox.faults import FOR_EVER
from tests.cluster import Cluster
from tests.stories import bound, pods, running

from .gangs import HIGH, HIGH_PRIORITY, GangSpec, manifests
from .kills import COUNTED, Relay, comes_before, install_crds, remove

MEMBERS = 3
VICTIM, BYSTANDER = GangSpec("victim", size=MEMBERS, minimum=MEMBERS), GangSpec("bystander", size=MEMBERS + 1, minimum=MEMBERS + 1)


@dataclass(slots=True)
class PreemptionToll:
    """The result of a series of kills: the calls at which an operator was killed, the calls that never came, and what went wrong."""

    kills: int = 0
    missed: list[tuple[int, bool]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.kills} kills: {len(self.complaints)} complaints ({len(self.missed)} calls never came)"


def furnish(cluster: Cluster) -> None:
    """Add a node for each of the two gangs of low priority, and these gangs."""
    install_crds(cluster)
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": HIGH}, "value": HIGH_PRIORITY})
    for spec in (VICTIM, BYSTANDER):
        cluster.add_node(f"node-{spec.name}", cpu=str(spec.size))
        for manifest in manifests(spec):
            cluster.create(manifest)


async def settle(cluster: Cluster) -> None:
    """Wait until both gangs of low priority run."""
    await cluster.wait_for(
        lambda s: all(running(s, spec.name) == spec.size for spec in (VICTIM, BYSTANDER)),
        timeout=30,
        message="the gangs of low priority run",
    )


async def kill_at(call: int, *, is_after: bool, cluster: Cluster, relay: Relay, toll: PreemptionToll) -> None:
    """Kill the operator at one request after a gang of high priority has come, let its successor begin, and record what goes wrong."""
    name = f"high-{call}-{'after' if is_after else 'before'}"
    spec = GangSpec(name, size=MEMBERS, minimum=MEMBERS, priority=HIGH_PRIORITY)
    before = uids(cluster, BYSTANDER.name)
    hold = cluster.faults.pause(*COUNTED, nth=call, after=is_after)
    rest = cluster.faults.pause(*COUNTED, nth=call + 1, times=FOR_EVER)
    with cluster.faults.noting() as calls:
        for manifest in manifests(spec):
            cluster.create(manifest)
        if not await comes_before(hold, cluster.wait_for(_runs(name), timeout=20)):
            toll.missed.append((call, is_after))
        await relay.kill()
        for each in (hold, rest):
            if each.has_arrived:
                await each.abandoned()
        cluster.faults.clear()
        toll.kills += 1
        await relay.succeed()
        try:
            await cluster.wait_for(_runs(name), timeout=30)
        except TimeoutError:
            toll.complaints.append(f"{name}: {len(bound(cluster, name))} of {MEMBERS} members are bound")
        evicted = {each.name.rpartition("-")[0] for each in calls if each.verb in ("delete", "evict") and each.resource == "pods"}
    if uids(cluster, BYSTANDER.name) != before:
        toll.complaints.append(f"{name}: pods of the bystander are gone")
    if evicted - {VICTIM.name}:
        toll.complaints.append(f"{name}: pods of {', '.join(sorted(evicted - {VICTIM.name}))} were evicted")
    if len(pods(cluster, VICTIM.name)) != MEMBERS:
        toll.complaints.append(f"{name}: the victim has {len(pods(cluster, VICTIM.name))} pods")
    await remove(cluster, spec)
    await settle(cluster)


def uids(cluster: Cluster, name: str) -> set[str]:
    """Return the UIDs of a gang's pods."""
    return {pod["metadata"]["uid"] for pod in pods(cluster, name)}


def _runs(name: str) -> Callable[[Cluster], bool]:
    return lambda cluster: running(cluster, name) == MEMBERS


async def kill_at_every_call(
    cluster: Cluster, relay: Relay, toll: PreemptionToll, advance: Callable[[int], None] = lambda call: None
) -> None:
    """Kill the operator at each request of a preemption, before and after it is carried out, until there is no such request."""
    call = 1
    while True:
        for is_after in (False, True):
            await kill_at(call, is_after=is_after, cluster=cluster, relay=relay, toll=toll)
        advance(call)
        if {(call, False), (call, True)} <= set(toll.missed):
            return
        call += 1
        await asyncio.sleep(0)
