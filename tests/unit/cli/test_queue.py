"""Tests that ``allaboard queue`` shows the gangs that wait in a snapshot or at an operator's API, and why."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from allaboard.cli.main import cli
from allaboard.sight.values import Queue
from allaboard_sandbox import Sandbox
from tests.unit.cli.apis import an_api
from tests.unit.cli.plan_command import gpu_node, member

MESSAGE = "podgroup default/big: 0 of 2 members placeable, needs 16 nvidia.com/gpu where 4 are free"


def pod_group(name: str, **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "default", "name": name, "creationTimestamp": "2026-03-01T10:00:00Z"}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"minMember": 2},
        "status": status,
    }


def waiting(name: str, gang: str, created: str) -> dict[str, Any]:
    raw = member(name, gang=gang)
    raw["metadata"] |= {"namespace": "default", "uid": name, "creationTimestamp": created}
    return raw


@pytest.fixture
def show(tmp_path: Path) -> Callable[..., Result]:
    """The command on a snapshot with two gangs that wait."""
    early, late = "2026-03-01T10:00:00Z", "2026-03-01T11:30:00Z"
    items = [
        gpu_node("n"),
        *(waiting(f"small-{number}", "small", late) for number in range(2)),
        *(waiting(f"big-{number}", "big", early) for number in range(2)),
        pod_group("big", reason="Insufficient", message=MESSAGE, expectedStart="2026-03-01T12:00:00Z"),
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, ["queue", "--cluster", str(file), *words], catch_exceptions=False)

    return run


def test_gangs_are_listed_in_the_order_of_attempts_with_their_reasons(show: Callable[..., Result]) -> None:
    first, row, message, other = show().stdout.splitlines()
    assert first.split() == ["#", "GANG", "PRIO", "MEMBERS", "GPUS", "WAITED", "START", "REASON"]
    assert row.split()[:6] == ["1", "default/big", "0", "0/2", "0", "1h30m"]
    assert row.split()[-1] == "Insufficient"
    assert f"podgroup default/big: {message.strip()}" == MESSAGE
    assert other.split() == ["2", "default/small", "0", "0/2", "0", "0s", "<unknown>", "<none>"]


def test_wide_output_has_a_line_for_each_gang(show: Callable[..., Result]) -> None:
    lines = show("-o", "wide").stdout.splitlines()
    assert len(lines) == 3
    assert lines[1].endswith(MESSAGE.removeprefix("podgroup default/big: "))


def test_a_namespace_without_waiting_gangs_says_so(show: Callable[..., Result]) -> None:
    result = show("-n", "other")
    assert (result.stdout, result.stderr) == ("", "no gang waits in namespace other\n")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_other_formats_have_the_form_of_the_api(show: Callable[..., Result], output: str, read: Callable[[str], Any]) -> None:
    found = Queue.model_validate(read(show("-o", output).stdout))
    assert [row.name for row in found.gangs] == ["big", "small"]


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_characters_that_a_terminal_would_obey_are_escaped_in_each_format(output: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    group = pod_group("big", reason="Insufficient", message="podgroup default/big: \x1b[2J \x9b \x7f \u202e")
    items = [gpu_node("n"), *(waiting(f"big-{number}", "big", "2026-03-01T10:00:00Z") for number in range(2)), group]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    result = CliRunner().invoke(cli, ["queue", "--cluster", str(file), "-o", output], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.replace("\n", "").isprintable()
    assert {"table": r"\x1b[2J", "wide": r"\x1b[2J", "json": r"\u001b[2J", "yaml": r"\e[2J"}[output] in result.stdout


def test_an_api_is_asked_and_hidden_gangs_are_counted() -> None:
    with an_api({"queue": Queue(at=0.0, gangs=[], hidden=3).model_dump_json(by_alias=True)}) as url:
        result = CliRunner().invoke(cli, ["queue", "--api", url], catch_exceptions=False)
    assert (result.stdout, result.exit_code) == ("", 0)
    assert "3 gangs of namespaces that you may not read are left out" in result.stderr


def test_a_refusal_of_the_api_is_an_error_in_one_line() -> None:
    with an_api({"queue": '{"status": 401, "message": "a bearer token is needed"}'}, 401) as url:
        result = CliRunner().invoke(cli, ["queue", "--api", url], catch_exceptions=False)
    assert (result.stderr, result.exit_code) == ("Error: a bearer token is needed\n", 2)


def test_without_an_operator_the_objects_of_the_cluster_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "")  # the command sets it

    async def shown() -> Result:
        async with Sandbox(controllers=False) as cluster:
            cluster.apply(gpu_node("node-1"))
            cluster.apply(waiting("worker-0", "big", "2026-03-01T10:00:00Z"))
            cluster.write_kubeconfig(tmp_path / "kubeconfig")
            words = ["queue", "--kubeconfig", str(tmp_path / "kubeconfig")]
            return await asyncio.to_thread(CliRunner().invoke, cli, words, catch_exceptions=False)

    result = asyncio.run(shown())
    assert result.stdout.splitlines()[1].split()[:2] == ["1", "default/big"]
    assert "no running operator of Allaboard was found in the cluster" in result.stderr
