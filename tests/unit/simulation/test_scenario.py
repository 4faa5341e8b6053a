"""Test that scenarios are read from YAML, and that mistakes in them are reported with file and field."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.simulation.scenario import ScenarioError, read_scenario
from allaboard.simulation.workload import Arrival, SimNode, TaskClass
from tests.unit.simulation.making import GI, played

EXAMPLE = Path(__file__).parents[3] / "examples" / "simulate" / "training.yaml"


def written(folder: Path, **changed: Any) -> str:
    """Write a valid scenario in which the keys ``changed`` are replaced, and return its path.

    The keys are those of its gang, or ``nodes``, ``workload`` and ``top``.
    """
    gang = {"name": "g", "members": [{"count": 2, "cpu": 1, "gpus": 1}]}
    gang |= {key: value for key, value in changed.items() if key not in ("nodes", "workload", "top")}
    raw = {"nodes": [{"name": "n", "cpu": 8, "memory": "16Gi", "gpus": 2}], "workload": [gang]} | changed.get("top", {})
    raw |= {key: changed[key] for key in ("nodes", "workload") if key in changed}
    (folder / "s.yaml").write_text(yaml.safe_dump(raw))
    return str(folder / "s.yaml")


def test_nodes_and_gangs_are_read(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        nodes=[{"name": "gpu", "count": 2, "cpu": "500m", "memory": "2Gi", "gpus": 4, "model": "T4"}, {"name": "c", "cpu": 1, "memory": 0}],
        arrival="5m",
        run="1.5h",
        minMember=2,
        priority=7,
        members=[{"cpu": 2}, {"count": 2, "memory": "1Gi", "gpus": 0.25, "models": ["T4", "A10"]}],
    )
    found = read_scenario(file)
    assert found.nodes == (SimNode("gpu-0", 500, 2 * GI, 4, "T4"), SimNode("gpu-1", 500, 2 * GI, 4, "T4"), SimNode("c", 1000, 0))
    assert found.classes == (TaskClass(2000, 0), TaskClass(0, GI, 1, 250, ("A10", "T4")))
    assert found.arrivals == (Arrival("g", (0, 1, 1), 2, 7, 300.0, 5400.0),)
    assert found.waits


def test_gang_with_the_key_repeat_arrives_several_times(tmp_path: Path) -> None:
    found = read_scenario(written(tmp_path, arrival=10, repeat=3, every="1m"))
    assert [(arrival.name, arrival.at_seconds) for arrival in found.arrivals] == [("g-0", 10), ("g-1", 70), ("g-2", 130)]
    assert {arrival.run_seconds for arrival in found.arrivals} == {None}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"top": {"job": 1}}, "job: is not a known key; known are nodes, workload"),
        ({"nodes": []}, "nodes: is missing or empty; list at least one"),
        ({"nodes": [{"name": "n", "cpu": 1}]}, "nodes[0].memory: is missing; a node needs it"),
        ({"nodes": [{"name": "n", "cpu": "many", "memory": 1}]}, "nodes[0].cpu: 'many' is not a quantity such as 500m, 2 or 16Gi"),
        ({"nodes": [{"name": "n", "cpu": 1, "memory": 1, "gpus": 65}]}, "nodes[0].gpus: 65 is not a number of GPUs from 0 to 64"),
        ({"nodes": [{"name": "n", "cpu": 1, "memory": 1}] * 2}, "nodes: two have the name 'n'; names must differ"),
        ({"nodes": [{"name": "n", "count": 10**6, "cpu": 1, "memory": 1}]}, "nodes[0].count: 1000000 is not from 1 to 200000"),
        ({"minMembers": 2}, "workload[0].minMembers: is not a known key; known are name, arrival, run,"),
        ({"minMember": 3}, "workload[0].minMember: 3 is not from 1 to 2, the number of members"),
        ({"members": [{"gpus": 1.5}]}, "workload[0].members[0].gpus: 1.5 is not a whole number; only a single GPU can be shared"),
        ({"members": [{"gpus": -1}]}, "workload[0].members[0].gpus: -1 is negative; a quantity must be 0 or more"),
        ({"members": [{"count": 150_000}], "repeat": 2, "every": 1}, "workload[0].repeat: makes more than 200000 pods"),
        ({"arrival": "soon"}, "workload[0].arrival: 'soon' is not a time such as 90, 90s, 5m, 1h30m or 1d"),
        ({"run": True}, "workload[0].run: True is not a time such as 90, 90s, 5m, 1h30m or 1d"),
        ({"repeat": 2}, "workload[0].every: is missing; it is the time between two gangs of repeat"),
        ({"name": ""}, "workload[0].name: is missing"),
        ({"members": [{"cpu": 1, "models": "T4"}]}, "workload[0].members[0].models: 'T4' is not a list"),
    ],
)
def test_mistake_is_reported_with_its_file_and_field(tmp_path: Path, changed: dict[str, Any], problem: str) -> None:
    file = written(tmp_path, **changed)
    with pytest.raises(ScenarioError) as caught:
        read_scenario(file)
    assert str(caught.value).startswith(f"{file}: {problem}")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("nodes: [", "line 1: is not YAML"),
        ("- a", "holds ['a'], not an object"),
        ("", "is empty"),
        ("nodes: []\nworkload: []\nnodes: []", "line 3: says 'nodes' twice"),
        ("nodes: !!int ''", "holds a value that can't be read"),
        ("nodes: !!timestamp x", "holds a value that can't be read"),
        ("nodes:\n- {name: a, cpu: 1, cpu: 2}", "line 2: says 'cpu' twice"),
        ("[" * 3000, "is nested too deeply"),
        ("- " * 60_000, "is nested too deeply"),
    ],
)
def test_file_without_a_valid_scenario_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "s.yaml").write_text(content)
    with pytest.raises(ScenarioError) as caught:
        read_scenario(str(tmp_path / "s.yaml"))
    assert problem in str(caught.value)


def test_key_that_overrides_a_merged_yaml_mapping_is_not_refused_as_a_duplicate(tmp_path: Path) -> None:
    gang = "- {<<: *gang, name: b, members: [{cpu: 2}]}"
    text = "nodes: [{name: n, cpu: 8, memory: 1Gi}]\nworkload:\n- &gang {name: a, members: [{cpu: 1}]}\n"
    (tmp_path / "s.yaml").write_text(text + gang)
    assert [arrival.name for arrival in read_scenario(str(tmp_path / "s.yaml")).arrivals] == ["a", "b"]


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="can't be read: No such file"):
        read_scenario(str(tmp_path / "none.yaml"))


def test_large_gangs_of_the_example_wait_longer_if_pods_are_scattered() -> None:
    workload = read_scenario(str(EXAMPLE))
    packed, scattered = played(workload, "bestfit"), played(workload, "random")
    assert packed.gangs_failed == scattered.gangs_failed == 0
    assert packed.waiting_seconds_mean < scattered.waiting_seconds_mean
