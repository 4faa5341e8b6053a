"""Tests that ``allaboard explain`` answers in its first line whether a gang runs or why it waits, and shows what is known of the gang."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from allaboard.cli.explain import _squares
from allaboard.cli.main import cli
from allaboard.sight.amounts import scheduler_amount
from allaboard.sight.values import (
    AwaitedRow,
    Decision,
    Gang,
    GangRow,
    MemberRow,
    Members,
    NodeGroup,
    Outlook,
    OutlookNode,
    PlanRow,
    ReservationRow,
    RoleRow,
)
from tests.unit.cli.apis import an_api
from tests.unit.cli.plan_command import gpu_node, member

NOW = 1_000_000.0
GPU = "nvidia.com/gpu"
PHASES = ("Running", "Pending", "Failed")


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
        outlook=None,
        node_groups=[],
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
    assert "The last search proved that it doesn't fit now; its best placement has nodes for 1 members and none for 1." in text


def test_nodes_are_shown_with_what_they_lack_and_where_the_gang_would_run() -> None:
    groups = [
        NodeGroup(role="worker", nodes=1, names=["n1"], takes=1, lacks={}, reasons=[]),
        NodeGroup(
            role="worker", nodes=3, names=["n2", "n3"], takes=0, lacks={"nvidia.com/gpu": 2}, reasons=["Insufficient nvidia.com/gpu"]
        ),
    ]
    outlook = Outlook(
        kind="reserved",
        begins=NOW + 60,
        nodes=[
            OutlookNode(node="n1", pods=1, gpus=4, requests={"nvidia.com/gpu": 4}, lacks={}),
            OutlookNode(node="n2", pods=1, gpus=4, requests={"nvidia.com/gpu": 4}, lacks={"nvidia.com/gpu": 2}),
        ],
        unplaced=0,
        waits_for=[AwaitedRow(gang="default/old", ends=NOW + 60, basis="stated", nodes=["n2"])],
    )
    lines = [line.rstrip() for line in explain(a_gang(node_groups=groups, outlook=outlook)).stdout.splitlines()]
    start = lines.index("ROLE     NODES   TAKE     LACK               WHY                           NAMES")
    assert lines[start + 1 : start + 3] == [
        "worker   1       1 each   <none>             <none>                        n1",
        "worker   3       0 each   2 nvidia.com/gpu   Insufficient nvidia.com/gpu   n2, n3, …",
    ]
    assert lines[start + 4 : start + 7] == [
        "WOULD RUN ON   PODS   GPUS   USE    LACKS NOW",
        "n1             1      4      □□□□   <none>",
        "n2             1      4      □□✗✗   2 nvidia.com/gpu",
    ]
    assert lines[start + 8 : start + 10][1].split()[0::2] == ["default/old", "stated"]


def test_advice_has_a_line_of_its_own() -> None:
    gang = a_gang(advice="Would fit with luck.")
    gang = gang.model_copy(update={"row": gang.row.model_copy(update={"message": "no GPUs. Would fit with luck."})})
    lines = explain(gang).stdout.splitlines()
    assert lines[0].endswith("Insufficient: no GPUs.")
    assert "Would fit with luck." in lines


def test_the_gang_for_which_capacity_is_kept_is_named() -> None:
    gang = a_gang()
    row = gang.row.model_copy(update={"state": "Reserved", "expected_start": None, "waits_for": "default/wide"})
    shown = explain(gang.model_copy(update={"row": row})).stdout
    assert "Capacity that would be enough is kept for default/wide, which is ahead of it in the queue." in shown
    assert "allaboard.dev/walltime" in shown


def test_a_gang_that_runs_is_not_said_to_be_ahead_in_the_queue() -> None:
    gang = a_gang()
    row = gang.row.model_copy(update={"state": "Insufficient", "expected_start": None, "waits_for": "default/running"})
    shown = explain(gang.model_copy(update={"row": row})).stdout
    assert "It starts once default/running has ended; no walltime says when that will be." in shown
    assert "ahead of it in the queue" not in shown


def test_the_first_line_says_how_many_members_run_and_where_the_others_are() -> None:
    members = [MemberRow(pod=f"w-{number}", role="", node=f"n{number}", phase=phase, gpus=0) for number, phase in enumerate(PHASES)]
    assert explain(a_gang(None, members=members)).stdout.splitlines()[0] == (
        "Gang default/bert runs: 0 of 2 members run; w-1 is Pending on n1, w-2 is Failed on n2"
    )


def test_the_first_line_says_when_a_gang_was_evicted_and_for_which() -> None:
    evicted = Decision(
        namespace="default", name="bert", first_at=NOW, last_at=NOW, times=1, decision="Evict", reason="Preempted", message="2 pods for b"
    )
    first = explain(a_gang(history=[evicted])).stdout.splitlines()[0]
    assert re.match(r"Gang default/bert was evicted at \S+ \(2 pods for b\) and waits, 0 of 2 members", first)
    bound = evicted.model_copy(update={"decision": "Bind"})
    assert explain(a_gang(history=[evicted, bound])).stdout.startswith("Gang default/bert waits")


def test_a_gang_whose_members_have_all_ended_is_said_to_have_ended() -> None:
    gang = a_gang(None)
    row = gang.row.model_copy(update={"members": Members(needed=2, bound=0, running=0, present=0), "message": ""})
    members = [MemberRow(pod="w-0", role="", node="n0", phase="Succeeded", gpus=0)]
    assert explain(gang.model_copy(update={"row": row, "members": members})).stdout.startswith(
        "Gang default/bert has ended: none of its members is left"
    )


def test_a_gang_without_pods_is_not_said_to_have_ended() -> None:
    gang = a_gang(None, members=[])
    row = gang.row.model_copy(update={"state": "WaitingForMembers", "members": Members(needed=2, bound=0, running=0, present=0)})
    gang = gang.model_copy(update={"row": row})
    assert explain(gang).stdout.startswith("Gang default/bert has no pods, and needs 2: the events of the job")
    others = gang.model_copy(update={"pods_of_others": {"allabord": 2}})
    assert explain(others).stdout.splitlines()[0] == (
        "Gang default/bert isn't scheduled by Allaboard, since its pods name another scheduler (schedulerName: 2 of its pods say allabord)"
    )


@pytest.mark.parametrize(
    ("asked", "lacking", "squares"),
    [(2.0, 1e300, "\u2717\u2717"), (1e300, 0.0, "\u25a1" * 16), (-1e300, 1e300, ""), (5e-324, 1.7e308, "\u2717")],
)
def test_a_node_has_few_squares_whatever_its_amounts_are(asked: float, lacking: float, squares: str) -> None:
    node = OutlookNode(node="n", pods=1, gpus=1.0, requests={GPU: asked}, lacks={GPU: lacking})
    assert _squares(node).plain == squares


@pytest.mark.parametrize(("cores", "expected"), [(0.5, 500), (4.001, 4001), (-0.5, -500), (1.79e308, int(1.79e308) * 1000)])
def test_cores_are_counted_in_thousandths_however_many_they_are(cores: float, expected: int) -> None:
    assert scheduler_amount("cpu", cores) == expected


def test_json_has_the_form_of_the_api() -> None:
    assert Gang.model_validate_json(explain(a_gang(), "-o", "json").stdout) == a_gang()


@pytest.mark.parametrize("name", ["g", "m0", "other"])
def test_a_gang_of_a_snapshot_is_found_by_its_name_and_by_the_names_of_its_pods(tmp_path: Path, name: str) -> None:
    members = [member(f"m{number}") for number in range(2)]
    for each in members:
        each["metadata"] |= {"namespace": "default", "uid": each["metadata"]["name"]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [gpu_node("n"), *members]}))
    result = CliRunner().invoke(cli, ["explain", name, "--cluster", str(file)], catch_exceptions=False)
    if name == "other":
        assert (result.exit_code, result.stdout) == (2, "")
        assert "no gang other in namespace default" in result.stderr
    else:
        assert result.stdout.startswith("Gang default/g waits, 0 of 2 members have a node. It fits now: 2 of 2 pods placed.")
