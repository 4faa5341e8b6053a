"""Tests that the expected start of a waiting gang is the start that a simulation of the same cluster shows."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from allaboard.simulation.workload import Arrival
from tests.unit.simulation.making import gangs, node, played, task
from tests.unit.whatif.raw_objects import Raw, board_of, raw_group, raw_node, raw_pod

NOW = 1_900_000_000
NODES = 4
SHOWN_TO = 60.0
"""Seconds: expected starts are shown as the next full minute."""


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
    found = [raw_node(f"n{number}", {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "2"}) for number in range(NODES)]
    free = iter(range(NODES))
    for position, arrival in enumerate(arrivals):
        created = a_time(NOW - 100 + position)
        found.append(raw_group(arrival.name, len(arrival.members), created))
        for index in range(len(arrival.members)):
            runs = {"nodeName": f"n{next(free)}"} if arrival.name in running else {}
            pod = raw_pod(f"{arrival.name}-{index}", {"nvidia.com/gpu": "2"}, arrival.name, created, **runs)
            if runs:
                pod["status"]["startTime"] = a_time(NOW)
            found.append(pod)
        for each in found[-1 - len(arrival.members) :]:
            each["metadata"]["annotations"] = {"allaboard.dev/walltime": f"{arrival.walltime_seconds:g}s"}
    return found


@pytest.mark.parametrize("seed", range(25))
async def test_the_first_gang_that_waits_is_expected_to_start_when_the_simulation_starts_it(seed: int, tmp_path: Path) -> None:
    arrivals = some_arrivals(seed)
    workload = gangs([node(f"n{number}", 2) for number in range(NODES)], [task(2)], *arrivals)
    simulated = {gang.name: gang for gang in played(workload, "genetic").gangs}
    running = {name for name, gang in simulated.items() if gang.started < 1}
    board = board_of(objects_of(arrivals, running), tmp_path)
    first = next(arrival.name for arrival in arrivals if arrival.name not in running)
    shown = await board.gang("team", first)
    assert shown is not None
    assert shown.row.position == 1
    assert shown.row.expected_start is not None
    assert 0 <= shown.row.expected_start - (NOW + simulated[first].started) < SHOWN_TO
