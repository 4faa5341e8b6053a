"""The operator is killed during commits on a real control plane: each gang becomes whole, and no capacity or pod is lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Home
from tests.faults import kills
from tests.faults.kills import CPUS, Point, Relay, Toll

POINTS = 20


@pytest.fixture
async def cluster(alone: None, home: Home) -> AsyncIterator[Cluster]:
    """Yield a cluster with capacity for one gang and a few more pods, on which no operator runs yet."""
    async with home.open() as opened:
        for number in (1, 2):
            opened.add_node(f"node-{number}", cpu=str(CPUS // 2))
        yield opened


@pytest.mark.timeout(900)
async def test_gang_is_whole_after_its_scheduler_was_killed_at_any_of_twenty_points_of_a_commit(
    cluster: Cluster, home: Home, tmp_path: Path
) -> None:
    home.write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
    toll = Toll()
    async with Relay(cluster, tmp_path / "kubeconfig", tmp_path) as relay:
        calls = len(await kills.count_calls(cluster))
        for number in range(POINTS):
            point = Point(1 + number * calls // POINTS, number % 2 == 1, "bare" if number % 3 == 2 else "controlled")
            await kills.kill_at(point, cluster, relay, toll, f"gang-{number}")
    assert toll.is_clean, toll.complaints()
    assert len(toll.points) >= POINTS
