"""Tests that a snapshot has what other commands need, no secrets, and with ``--anonymize`` no names."""

import asyncio
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli import snapshot as command
from allaboard.cli.main import cli
from allaboard.sight.values import Decision, Snapshot, Status
from allaboard.whatif.collected import without_unread
from allaboard_sandbox import Sandbox
from tests.unit.cli.plan_command import gpu_node, member
from tests.unit.cli.test_explain import NOW, a_gang

SECRET = "hunter2"


def cluster_objects() -> list[dict[str, Any]]:
    """Return a node with four GPUs and two gangs: one of them fits, and both have secrets where users keep them."""
    node = gpu_node("acme-node")
    node["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    node["metadata"]["labels"] = {"topology.kubernetes.io/rack": "acme-rack", "acme.com/pool": "acme-pool"}
    found = [node]
    for gang, size, gpus in (("acme-small", 2, 1), ("acme-wide", 2, 8)):
        for number in range(size):
            raw = member(f"{gang}-{number}", gang=gang)
            raw["metadata"] |= {
                "namespace": "acme-team",
                "uid": f"uid-{gang}-{number}",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "allaboard.dev/walltime": "2h"},
            }
            raw["spec"]["nodeSelector"] = {"acme.com/pool": "acme-pool"}
            container = raw["spec"]["containers"][0]
            container |= {"env": [{"name": "TOKEN", "value": SECRET}], "args": [SECRET], "image": "acme.io/image"}
            container["resources"] = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
            found.append(raw)
    return found


def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    """Take a snapshot of a sandbox cluster with these objects into a file."""
    monkeypatch.setenv("KUBECONFIG", "")  # the command sets it

    async def run() -> Result:
        async with Sandbox(controllers=False) as cluster:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "acme-team"}})
            for raw in cluster_objects():
                cluster.apply(raw)
            cluster.patch("nodes", "acme-node", {"spec": {"taints": None}})  # no controller removes the taint of a new node
            cluster.write_kubeconfig(tmp_path / "kubeconfig")
            words_of_all = ["snapshot", str(tmp_path / "cluster.json"), "--kubeconfig", str(tmp_path / "kubeconfig"), *words]
            return await asyncio.to_thread(CliRunner().invoke, cli, words_of_all, catch_exceptions=False)

    return asyncio.run(run())


def answer(*words: str) -> str:
    return CliRunner().invoke(cli, list(words), catch_exceptions=False).stdout


def test_a_snapshot_of_a_cluster_without_an_operator_is_read_by_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = taken(tmp_path, monkeypatch)
    assert result.exit_code == 0
    assert "no running operator of Allaboard was found" in result.stderr
    file = tmp_path / "cluster.json"
    assert SECRET not in file.read_text()
    assert "acme-team/acme-wide" in answer("queue", "--cluster", str(file))
    first = answer("explain", "acme-wide", "-n", "acme-team", "--cluster", str(file)).splitlines()[0]
    assert first.startswith("Gang acme-team/acme-wide waits, 0 of 2 members have a node. NeverFits")


def test_an_anonymous_snapshot_has_no_names_and_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(tmp_path, monkeypatch, "--anonymize")
    file = tmp_path / "cluster.json"
    assert not re.findall(r"acme|hunter", file.read_text())
    rows = json.loads(answer("queue", "--cluster", str(file), "-o", "json"))["gangs"]
    assert [(row["namespace"].rpartition("-")[0], row["name"], row["gpus"]) for row in rows] == [
        ("namespace", "gang-1", 2.0),
        ("namespace", "gang-2", 16.0),
    ]
    explained = [
        answer("explain", row["name"], "-n", row["namespace"], "--cluster", str(file)).splitlines()[0].partition("have a node. ")[2]
        for row in rows
    ]
    assert explained[0] == "It fits now: 2 of 2 pods placed."
    assert explained[1].startswith("NeverFits")


def test_a_label_may_have_the_name_of_a_field_that_is_left_out() -> None:
    raw = {"metadata": {"labels": {"env": "prod", "secret": "no"}}, "spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}
    assert without_unread(raw) == {"metadata": {"labels": {"env": "prod", "secret": "no"}}, "spec": {"volumes": [{"name": "v"}]}}


def test_the_state_of_the_operator_is_shown_from_the_file(tmp_path: Path) -> None:
    decision = Decision(namespace="default", name="bert", first_at=NOW, last_at=NOW, times=1, decision="Bind", reason="", message="")
    status = Status(at=NOW, version="1", leads=True, is_ready=True, cache_age=0.0)
    state = Snapshot(
        at=NOW, status=status, gangs=[a_gang()], hidden=2, grouped_by="", nodes=[], decisions=[decision], samples=[], labels={}
    )
    board = {"apiVersion": "allaboard.dev/v1", "kind": "Board", **state.model_dump(by_alias=True, mode="json")}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), board]}))
    assert "needs 8 nvidia.com/gpu where 4 are free" in answer("explain", "bert", "--cluster", str(file))
    assert json.loads(answer("queue", "--cluster", str(file), "-o", "json"))["hidden"] == 2
    assert answer("history", "--cluster", str(file)).splitlines()[1].split()[-5:] == ["default", "bert", "Bind", "<none>", "1"]
    board["gangs"][0]["row"] = {}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), board]}))
    result = CliRunner().invoke(cli, ["queue", "--cluster", str(file)], catch_exceptions=False)
    assert "is of another version" in result.stderr


def queue_of_a_state(folder: Path, field: str, value: object) -> Result:
    """Return the queue, as JSON, of a file whose operator's state has ``value`` as a field of its one gang."""
    status = Status(at=NOW, version="1", leads=True, is_ready=True, cache_age=0.0)
    state = Snapshot(at=NOW, status=status, gangs=[a_gang()], hidden=2, grouped_by="", nodes=[], decisions=[], samples=[], labels={})
    board = {"apiVersion": "allaboard.dev/v1", "kind": "Board", **state.model_dump(by_alias=True, mode="json")}
    board["gangs"][0]["row"][field] = value
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), board]}))
    return CliRunner().invoke(cli, ["queue", "--cluster", str(file), "-o", "json"], catch_exceptions=False)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_state_with_a_number_that_is_none_is_of_another_version(number: float, tmp_path: Path) -> None:
    assert "is of another version" in queue_of_a_state(tmp_path, "waitingSince", number).stderr


def test_half_of_a_surrogate_pair_is_written_as_json(tmp_path: Path) -> None:
    (row,) = json.loads(queue_of_a_state(tmp_path, "state", "\ud800").stdout)["gangs"]
    assert row["state"] == "\ud800"


def test_a_file_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*options: object, **flags: object) -> list[dict[str, Any]]:
        return []

    monkeypatch.setattr(command, "_items", none)
    result = CliRunner().invoke(cli, ["snapshot", str(tmp_path / "no" / "file")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("can't be written: No such file or directory\n")
