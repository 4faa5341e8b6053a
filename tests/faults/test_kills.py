"""Tests that a process that is killed in a commit leaves no gang in part, leaks no capacity and loses no pod."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from allaboard_sandbox import Sandbox
from allaboard_sandbox.faults import FOR_EVER
from tests.stories import bound, pods

from . import kills
from .gangs import GangSpec, manifests
from .kills import MEMBERS, Point, Relay, Toll

# A sample: `make faults` kills at every call.
SAMPLE = [(1, True), (2, True), (5, False), (9, True), (10, False), (18, True)]


@pytest.fixture
async def cluster() -> AsyncIterator[Sandbox]:
    async with Sandbox() as cluster:
        kills.furnish(cluster)
        yield cluster


@pytest.fixture
def kubeconfig(cluster: Sandbox, tmp_path: Path) -> Path:
    cluster.write_kubeconfig(tmp_path / "kubeconfig")
    return tmp_path / "kubeconfig"


async def test_gang_whose_scheduler_is_killed_at_an_api_call_is_whole_after_the_restart(
    cluster: Sandbox, kubeconfig: Path, tmp_path: Path
) -> None:
    toll = Toll()
    async with Relay(cluster, kubeconfig, tmp_path) as relay:
        for number, (call, is_after) in enumerate(SAMPLE):
            kind = "bare" if number % 2 else "controlled"
            await kills.kill_at(Point(call, is_after, kind), cluster, relay, toll, f"gang-{number}")
    assert toll.is_clean, toll.complaints()


async def test_gang_that_a_killed_scheduler_left_partially_bound_is_released_if_it_no_longer_fits(kubeconfig: Path, tmp_path: Path) -> None:
    spec = GangSpec("gang", size=MEMBERS, minimum=MEMBERS)
    async with Sandbox(startup_delay=3600) as cluster:
        kills.furnish(cluster)
        cluster.write_kubeconfig(kubeconfig)
        async with Relay(cluster, kubeconfig, tmp_path) as relay:
            rest = cluster.faults.pause("bind", "pods", nth=4, times=FOR_EVER, dry_run=False)
            for manifest in manifests(spec):
                cluster.create(manifest)
            await rest.arrived()
            await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3)
            await relay.kill()
            await rest.abandoned()
            cluster.faults.clear()
            for number in (1, 2):
                cluster.patch("nodes", f"node-{number}", {"spec": {"unschedulable": True}})
            await relay.succeed()
            await cluster.wait_for(lambda s: not bound(s, "gang") and len(pods(s, "gang")) == MEMBERS, timeout=30)
            for number in (1, 2):
                cluster.patch("nodes", f"node-{number}", {"spec": {"unschedulable": False}})
            await cluster.wait_for(lambda s: len(bound(s, "gang")) == MEMBERS, timeout=30)
