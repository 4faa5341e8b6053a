"""Tests that a leader that is stopped in a commit, and goes on when another leads, mixes no plans."""

from pathlib import Path

import pytest

from allaboard.leadership.lease import LeaseTimes
from allaboard_sandbox import Sandbox
from allaboard_sandbox.store import Change

from . import kills, leaders
from .gangs import GangSpec
from .leaders import Replicas, Terms
from .world import World

# A sample: `make faults` stops the leader before every request.
SAMPLE = (1, 2, 6)


async def test_requests_of_a_paused_leader_are_rejected_once_another_replica_leads(tmp_path: Path) -> None:
    terms = Terms()
    async with Sandbox() as cluster:
        kills.furnish(cluster)
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        async with Replicas(cluster, tmp_path / "kubeconfig", tmp_path) as replicas:
            for call in SAMPLE:
                assert await leaders.stop_at(call, cluster, replicas, terms, f"gang-{call}")
    assert terms.is_clean, terms.complaints()


@pytest.mark.parametrize("seed", range(3))
def test_follower_binds_within_a_second_of_the_end_of_a_dead_leaders_lease_under_load(seed: int) -> None:
    renewed, bound = [0.0], []
    with World(seed, replicas=2) as world:

        def on_change(change: Change) -> None:
            pod, before = change.record.body, change.previous.body if change.previous else None
            if change.table.startswith("leases"):
                renewed.append(world.loop.time())
            elif change.table == "pods" and before is not None and leaders.is_bind(before, pod):
                bound.append(world.loop.time())

        world.sandbox.store.subscribe(on_change)
        world.advance(5)
        world.crash_at("bind", "pods", 3, after=True, down_seconds=60)
        for number in range(8):
            world.add(GangSpec(f"gang-{number}", size=2, minimum=2))
        world.advance(14)
        before, expiry = len(bound), renewed[-1] + LeaseTimes().duration
        assert before < 16
        world.advance(5)
        assert expiry <= bound[before] <= expiry + 1
