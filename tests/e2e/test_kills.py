"""The operator is killed in the middle of a commit on a real control plane: no gang in part, no seat leaked, no pod lost."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, Home
from tests.faults import kills
from tests.faults.kills import CPUS, Point, Relay, Toll

POINTS = 20


@pytest.fixture
async def cluster(alone: None, home: Home) -> AsyncIterator[Cluster]:
    """A cluster with room for one gang and a few more, on which nobody schedules yet."""
    async with home.open() as opened:
        for number in (1, 2):
            opened.add_node(f"node-{number}", cpu=str(CPUS // 2))
        yield opened


@pytest.mark.timeout(900)
async def test_a_gang_whose_scheduler_is_killed_at_any_of_twenty_points_of_its_commit_is_whole_after_the_restart(
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
