"""Tests of ``allaboard config check``, which shows the settings in force with a file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.main import cli

TWO = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 16
profiles:
- schedulerName: pack
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: nvidia.com/gpu, weight: 5}, {name: cpu, weight: 1}]
        requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
- schedulerName: spread
---
apiVersion: allaboard.dev/v1alpha1
kind: AllaboardConfiguration
schedulerNames: [train]
objective: binpack
headroom: {cpu: 2}
"""


def check(tmp_path: Path, text: str, *options: str) -> Result:
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    return CliRunner().invoke(cli, ["config", "check", str(path), *options])


def answer(tmp_path: Path, text: str) -> dict[str, Any]:
    result = check(tmp_path, text, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_config_check_states_the_scoring_for_each_scheduler_name(tmp_path: Path) -> None:
    found = answer(tmp_path, TWO)
    assert [(each["schedulerName"], each["objective"], each["scoring"], each["era"]) for each in found["schedulers"]] == [
        ("train", "binpack", "packing", ""),
        ("pack", "binpack", "RequestedToCapacityRatio", "v1"),
        ("spread", "spread", "LeastAllocated", "v1"),
    ]
    pack = found["schedulers"][1]
    assert pack["resources"] == {"nvidia.com/gpu": 5, "cpu": 1}
    assert pack["shape"] == [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    others = {"NodeAffinity": 2, "TaintToleration": 3, "ImageLocality": 1, "InterPodAffinity": 2, "PodTopologySpread": 2}
    assert pack["weights"] == {"NodeResourcesFit": 1, **others, "genius": 0}
    assert (found["options"]["headroom"], found["options"]["scheduler_names"]) == ({"cpu": "2"}, ["train", "pack", "spread"])
    assert any(warning.startswith("parallelism: isn't honoured") for warning in found["warnings"])


def test_config_check_prints_tables_by_default(tmp_path: Path) -> None:
    lines = check(tmp_path, TWO).stdout.splitlines()
    rows = [line.split() for line in lines]
    assert rows[0] == ["SCHEDULER", "OBJECTIVE", "SCORING", "ERA", "SHAPE", "RESOURCES"]
    assert ["headroom", "cpu=2"] in rows
    assert not any(row[:1] == ["search.generations"] for row in rows)  # it has its default
    assert ["search.generations", "60"] in [line.split() for line in check(tmp_path, TWO, "--all").stdout.splitlines()]
    assert any(row[:5] == ["pack", "binpack", "RequestedToCapacityRatio", "v1", "0=0,100=10"] for row in rows)
    assert lines.index("WARNINGS") < lines.index(next(line for line in lines if line.startswith("OPTION")))
    assert max(len(line) for line in lines[lines.index("WARNINGS") :]) <= 80


def test_config_check_shows_the_weight_of_the_gpu_score(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "settings" / "genius.yaml").read_text()
    assert answer(tmp_path, text)["schedulers"][-1]["weights"]["genius"] == 300
    assert "genius=300" in check(tmp_path, text).stdout


def test_table_shows_only_gpu_options_that_differ_from_the_defaults(tmp_path: Path) -> None:
    lines = check(tmp_path, "gpu: {weight: 3, models: {X9: {memory: 1024}}}\n").stdout.splitlines()
    rows = [line.split() for line in lines]
    assert [row for row in rows if row[:1] and row[0].startswith("gpu")] == [["gpu.models", "X9={memory=1024.0}"], ["gpu.weight", "3.0"]]
    assert answer(tmp_path, "gpu: {weight: 3}\n")["options"]["gpu.weight"] == 3.0


def test_file_without_problems_has_no_warnings(tmp_path: Path) -> None:
    assert "WARNINGS" not in check(tmp_path, "objective: spread\n").stdout
    assert answer(tmp_path, "objective: spread\n")["warnings"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("objektive: spread", "scheduler.yaml: objektive: no such option; did you mean objective?"),
        (TWO.replace("utilization: 100", "utilization: 0"), "shape[1].utilization: must be more than that of the point before, not 0"),
    ],
)
def test_invalid_configuration_file_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    result = check(tmp_path, text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "ALLABOARD_CONFIG" not in os.environ


def test_placeholder_for_the_kubeconfig_is_refused_unless_a_flag_or_variable_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TWO.replace("parallelism: 16", "clientConnection: {kubeconfig: REPLACE_ME}")
    refused = check(tmp_path, text)
    assert refused.exit_code == 2
    words = "clientConnection.kubeconfig: 'REPLACE_ME' is a placeholder: replace it by a kubeconfig's path, or remove the line"
    assert f"scheduler.yaml: {words}" in " ".join(refused.stderr.split())
    monkeypatch.setenv("ALLABOARD_KUBECONFIG", "/etc/kubernetes/scheduler.conf")
    found = answer(tmp_path, text)
    assert found["options"]["kubeconfig"] == "/etc/kubernetes/scheduler.conf"
    assert f"{words}; kubeconfig is set elsewhere, so this value isn't used" in found["warnings"]
    monkeypatch.delenv("ALLABOARD_KUBECONFIG")
    found = json.loads(check(tmp_path, text, "--kubeconfig", "/etc/kubernetes/other.conf", "-o", "json").stdout)
    assert found["options"]["kubeconfig"] == "/etc/kubernetes/other.conf"


def test_configuration_file_without_settings_causes_a_warning(tmp_path: Path) -> None:
    for text in ("", "# objective: spread\n"):
        [warning] = answer(tmp_path, text)["warnings"]
        assert warning.endswith("scheduler.yaml: states nothing; options that no flag or variable sets have their defaults")
    assert answer(tmp_path, "objective: spread\n")["warnings"] == []
