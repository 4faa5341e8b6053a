"""Tests that ``allaboard explain`` answers in its first line whether a gang runs or why it waits, and shows what is known of the gang."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.main import cli
from allaboard.sight.values import Decision, Gang, GangRow, MemberRow, Members, PlanRow, ReservationRow, RoleRow
from tests.unit.cli.apis import an_api
from tests.unit.cli.plan_command import gpu_node, member

NOW = 1_000_000.0


def a_gang(position: int | None = 2, **more: Any) -> Gang:
    row = GangRow(
        namespace="default",
        name="bert",
        kind="PodGroup",
        state="Insufficient",
        message="needs 8 nvidia.com/gpu where 4 are free",
        position=position,
        priority=5,
        members=Members(needed=2, bound=0 if position else 2, running=0, present=2),
        gpus=8.0,
        created=NOW - 7200,
        waiting_since=NOW - 7200 if position else None,
        expected_start=NOW + 60 if position else None,
        waits_for="",
    )
    return Gang(
        at=NOW,
        row=row,
        roles=[
            RoleRow(role="worker", pods=["w-0", "w-1"], bound=0, requests={"cpu": 0.5, "memory": 2.0**30, "nvidia.com/gpu": 4, "pods": 1})
        ],
        members=[MemberRow(pod=f"w-{number}", role="worker", node="", phase="Pending", gpus=4.0) for number in range(2)],
        reservation=None,
        plan=None,
        advice="",
        history=[
            Decision(
                namespace="default", name="bert", first_at=NOW, last_at=NOW, times=3, decision="Wait", reason="NoCapacity", message="m"
            )
        ],
    ).model_copy(update=more)


def explain(gang: Gang, *words: str) -> Result:
    with an_api({"gangs/default/bert": gang.model_dump_json(by_alias=True)}) as url:
        return CliRunner().invoke(cli, ["explain", "bert", "--api", url, *words], catch_exceptions=False)


def test_the_first_line_says_why_a_gang_waits() -> None:
    lines = explain(a_gang()).stdout.splitlines()
    assert lines[0] == ("Gang default/bert waits, 0 of 2 members have a node. Insufficient: needs 8 nvidia.com/gpu where 4 are free")
    assert lines[1:3] == ["It is number 2 in the queue, with priority 5.", "It has waited for 2h."]
    assert lines[3].startswith("It is expected to start at about ")


def test_roles_members_and_decisions_are_shown() -> None:
    tables = [line.split() for line in explain(a_gang()).stdout.splitlines()[5:] if line]
    assert tables == [
        ["ROLE", "PODS", "BOUND", "CPU", "MEMORY", "NVIDIA.COM/GPU"],
        ["worker", "2", "0", "500m", "1Gi", "4"],
        ["POD", "ROLE", "NODE", "PHASE"],
        ["w-0", "worker", "<none>", "Pending"],
        ["w-1", "worker", "<none>", "Pending"],
        ["TIME", "DECISION", "REASON", "TIMES", "MESSAGE"],
        [tables[6][0], "Wait", "NoCapacity", "3", "m"],
    ]


def test_a_reservation_and_the_last_search_are_explained() -> None:
    kept = ReservationRow(
        namespace="default", name="bert", begins=NOW, ends=None, basis="stated", awaits=3, evicts=0, nodes={"n1": {"cpu": 1.0}, "n2": {}}
    )
    plan = PlanRow(at=NOW, feasible=False, placed=1, unplaced=1, generations=0, stopped_by="infeasible", found_by="greedy")
    text = explain(a_gang(reservation=kept, plan=plan)).stdout
    assert "Capacity of 2 nodes is reserved for it; 3 other jobs have to end before (times: stated)." in text
    assert "The last search placed 1 members and left out 1; it ended by infeasible." in text


def test_a_gang_that_runs_is_said_to_run() -> None:
    assert explain(a_gang(None)).stdout.startswith("Gang default/bert runs: ")


def test_json_has_the_form_of_the_api() -> None:
    assert Gang.model_validate_json(explain(a_gang(), "-o", "json").stdout) == a_gang()


@pytest.mark.parametrize("name", ["g", "m0"])
def test_a_gang_of_a_snapshot_is_found_by_the_name_in_its_labels_only(tmp_path: Path, name: str) -> None:
    members = [member(f"m{number}") for number in range(2)]
    for each in members:
        each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), *members]}))
    result = CliRunner().invoke(cli, ["explain", name, "--cluster", str(file)], catch_exceptions=False)
    if name == "g":
        assert result.stdout.startswith("Gang default/g waits, 0 of 2 members have a node. It was not attempted yet")
    else:
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no gang m0 in namespace default" in result.stderr
