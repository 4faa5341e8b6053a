"""Tests that the expected start of a waiting gang is the start that a simulation of the same cluster shows."""

import json
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from allaboard.settings.options import load_settings
from allaboard.simulation.workload import Arrival
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.snapshots import read_cluster
from tests.unit.simulation.making import gangs, node, played, task

NOW = 1_900_000_000
NODES = 4
SHOWN_TO = 60.0
"""Seconds: expected starts are shown as the next full minute."""

Raw = dict[str, Any]


def some_arrivals(seed: int) -> list[Arrival]:
    """Return gangs that arrive at once. Each member takes a whole node, and each gang runs as long as its walltime says."""
    of = random.Random(seed)
    runs = of.sample(range(60, 900, 7), 9)
    sizes = [of.randint(1, NODES) for _ in runs]
    return [Arrival(f"g{at}", (0,) * size, size, 0, 0.0, run, run) for at, (size, run) in enumerate(zip(sizes, runs, strict=True))]


def a_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def objects_of(arrivals: list[Arrival], running: set[str]) -> list[Raw]:
    """Return a cluster in which the gangs ``running`` have just started, and the others wait in the order of ``arrivals``."""
    has = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "2", "pods": "110"}
    found: list[Raw] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{number}"},
            "status": {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for number in range(NODES)
    ]
    free = iter(range(NODES))
    for position, arrival in enumerate(arrivals):
        created = a_time(NOW - 100 + position)
        about = {
            "namespace": "team",
            "creationTimestamp": created,
            "annotations": {"allaboard.dev/walltime": f"{arrival.walltime_seconds:g}s"},
        }
        spec = {"minMember": len(arrival.members)}
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {**about, "name": arrival.name},
            "spec": spec,
        }
        found.append(group)
        for index in range(len(arrival.members)):
            name = f"{arrival.name}-{index}"
            asked = {"nvidia.com/gpu": "2"}
            runs = {"nodeName": f"n{next(free)}"} if arrival.name in running else {}
            labels = {"scheduling.x-k8s.io/pod-group": arrival.name}
            containers = [{"name": "main", "image": "x", "resources": {"requests": asked, "limits": asked}}]
            found.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {**about, "name": name, "uid": name, "labels": labels},
                    "spec": {"schedulerName": "allaboard", "containers": containers, **runs},
                    "status": {"phase": "Running", "startTime": a_time(NOW)} if runs else {"phase": "Pending"},
                }
            )
    return found


@pytest.mark.parametrize("seed", range(25))
async def test_the_first_gang_that_waits_is_expected_to_start_when_the_simulation_starts_it(seed: int, tmp_path: Path) -> None:
    arrivals = some_arrivals(seed)
    workload = gangs([node(f"n{number}", 2) for number in range(NODES)], [task(2)], *arrivals)
    simulated = {gang.name: gang for gang in played(workload, "genetic").gangs}
    running = {name for name, gang in simulated.items() if gang.started < 1}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects_of(arrivals, running)}), encoding="utf-8")
    settings = load_settings({})
    board = StoredBoard.of(read_cluster([str(file)], settings.reading), settings)
    first = next(arrival.name for arrival in arrivals if arrival.name not in running)
    shown = await board.gang("team", first)
    assert shown is not None
    assert shown.row.position == 1
    assert shown.row.expected_start is not None
    assert 0 <= shown.row.expected_start - (NOW + simulated[first].started) < SHOWN_TO
