"""The example of a learned policy, once installed, places gangs for the operator, ``plan`` and ``simulate``."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from allaboard.cli.main import cli
from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings, build_problem
from allaboard.planning import plugin_processes as plugin_processes_module
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.search_processes import Searcher
from tests.plugged import install_project
from tests.unit.placement.clusters import GPU, node, pods, snapshot

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "strategies" / "learned"
SCENARIO = """
nodes:
- {name: a, cpu: 64, memory: 256Gi, gpus: 8}
- {name: b, cpu: 64, memory: 256Gi, gpus: 4}
workload:
- name: train
  run: 1h
  repeat: 3
  every: 1m
  members:
  - {count: 4, cpu: 4, memory: 8Gi, gpus: 1}
"""


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the policy; yield a file of weights with which the policy prefers the node with the most free capacity."""
    install_project(tmp_path, monkeypatch, PACKAGE)
    path = tmp_path / "policy.json"
    path.write_text("[1.0, 0.0, 0.0]")
    yield path
    sys.modules.pop("allaboard_learned", None)


async def test_operator_places_a_gang_by_the_learned_policy(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_processes_module, "_WARM_UP_SECONDS", 100.0)  # a slow import must not fail the test
    monkeypatch.setattr(plugin_processes_module, "ANSWER_SECONDS", 100.0)
    cluster = snapshot([node("a", {"cpu": 8000, GPU: 8}), node("b", {"cpu": 8000, GPU: 4})])
    problem = build_problem(pods("w", 2, {"cpu": 1000, GPU: 1}), 2, cluster, objective=Objective.BINPACK)
    chosen = []
    for arguments in ({}, {"weights": str(weights)}):
        with PluginProcesses({"learned": arguments}) as plugin_processes:
            await plugin_processes.warm_up(["learned"])
            plan = await plugin_processes.place("learned", problem, Searcher(SearchSettings(), workers=0))
            assert plan is not None
            chosen.append({name for _, name in plan.assignments})
    assert chosen == [{"b"}, {"a"}]


def test_simulation_places_gangs_by_the_learned_policy(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLABOARD_STRATEGY_OPTIONS__LEARNED__WEIGHTS", str(weights))
    names = [part for name in ("learned", "firstfit") for part in ("--strategy", name)]
    result = CliRunner().invoke(cli, ["simulate", "-f", "-", *names, "--workers", "1", "-o", "json"], input=SCENARIO)
    assert result.exit_code == 0, result.stderr
    assert [(each["strategy"], each["mean"]["gangsPlaced"]) for each in json.loads(result.stdout)] == [("learned", 3), ("firstfit", 3)]


MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  schedulerName: allaboard
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
"""
NODE = """
apiVersion: v1
kind: Node
metadata: {name: %s}
status: {allocatable: {cpu: %d, memory: 64Gi, pods: 110}, conditions: [{type: Ready, status: "True"}]}
"""


@pytest.mark.parametrize(("options", "node_name"), [([], "a"), (["--strategy", "learned"], "b")])
def test_plan_places_a_gang_by_the_learned_policy(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], node_name: str
) -> None:
    monkeypatch.setenv("ALLABOARD_STRATEGY_OPTIONS__LEARNED__WEIGHTS", str(weights))
    (tmp_path / "cluster.yaml").write_text("---".join(NODE % each for each in (("a", 4), ("b", 16))))
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    files = ["--cluster", str(tmp_path / "cluster.yaml"), "-f", str(tmp_path / "pod.yaml")]
    result = CliRunner().invoke(cli, ["plan", *files, "-o", "json", *options])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["gangs"][0]["assignments"] == [{"pod": "p", "node": node_name}]
    weights.write_text("rubbish")
    result = CliRunner().invoke(cli, ["plan", *files, "-o", "json", *options])
    assert result.exit_code == 0
    assert ("note: default/p: strategy learned: it raised JSONDecodeError" in result.stderr) == bool(options)


def test_documentation_shows_the_files_of_the_example() -> None:
    page = (ROOT / "docs" / "write-a-strategy.md").read_text(encoding="utf-8")
    for file in ("allaboard_learned.py", "pyproject.toml"):
        assert (PACKAGE / file).read_text(encoding="utf-8") in page, file
