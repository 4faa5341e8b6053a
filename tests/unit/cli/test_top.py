"""Tests that ``allaboard top`` shows which gangs use the GPUs of each node, and how many jobs of each size could start."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from allaboard.cli.main import cli
from allaboard.cli.top import bar, letters_of, painted, startable
from allaboard.sight.values import NodeRow, Nodes, Share
from tests.unit.cli.plan_command import gpu_node, pod


def a_node(name: str, gpus: float, free: float, *shares: tuple[str, float], is_cordoned: bool = False) -> NodeRow:
    return NodeRow(
        name=name,
        domain="",
        is_ready=True,
        is_cordoned=is_cordoned,
        allocatable={},
        free={},
        gpus=gpus,
        gpus_free=free,
        gpus_stranded=0.0,
        shares=[Share(gang=gang, pods=1, gpus=number, requests={}) for gang, number in shares],
    )


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (a_node("n", 4, 1, ("x/a", 2), ("x/b", 1)), "aab."),
        (a_node("n", 0, 0), ""),
        (a_node("n", 32, 16, ("x/a", 16)), "aaaaaaaa........"),
        (a_node("n", 2, 1.5, ("x/a", 0.5)), ".."),
        (a_node("n", 4, 0, ("x/a", 1e300)), "aaaa"),
        (a_node("n", 1e300, 0, ("x/a", -1e300), ("x/b", 1.7e308)), "b" * 16),
        (a_node("n", -1e300, 0, ("x/a", 1)), ""),
        (a_node("n", 2, 0, ("x/a", 1), ("x/b", 0), ("x/c", 1)), "ab"),
    ],
)
def test_a_bar_has_a_square_for_each_gpu(node: NodeRow, expected: str) -> None:
    assert bar(node, letters_of([node])) == expected


def test_gpus_of_a_cordoned_node_cannot_be_used() -> None:
    nodes = [a_node("a", 8, 5), a_node("b", 4, 4, is_cordoned=True), a_node("c", 4, 3)]
    assert [startable(nodes, size) for size in (1, 2, 4, 8)] == [8, 3, 1, 0]


def test_a_snapshot_is_shown_by_racks(tmp_path: Path) -> None:
    nodes = [gpu_node(name) for name in ("n1", "n2")]
    for node, rack in zip(nodes, ("r1", "r2"), strict=True):
        node["metadata"]["labels"] = {"topology.kubernetes.io/rack": rack}
    running = pod("p", nodeName="n2")
    running["metadata"] |= {"namespace": "team", "uid": "p"}
    running["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": "3"}}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, running | {"status": {"phase": "Running"}}]}))
    lines = CliRunner().invoke(cli, ["top", "--cluster", str(file)], catch_exceptions=False).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["NODE", "RACK", "GPUS", "FREE", "STRANDED", "USE", "GANGS"],
        ["n1", "r1", "4", "4", "0", "....", "<none>"],
        ["n2", "r2", "4", "1", "1", "aaa.", "a", "team/p"],
        [],
        ["RACK", "1", "GPU", "2", "GPUS", "4", "GPUS", "8", "GPUS", "WHOLE", "NODES"],
        ["r1", "4", "2", "1", "0", "1"],
        ["r2", "1", "0", "0", "0", "0"],
        ["all", "5", "2", "1", "0", "1"],
    ]
    result = CliRunner().invoke(cli, ["top", "--cluster", str(file), "-o", "json"], catch_exceptions=False)
    assert [node.gpus_free for node in Nodes.model_validate_json(result.stdout).nodes] == [4.0, 1.0]


def test_nodes_are_grouped_by_a_label_that_is_named(tmp_path: Path) -> None:
    nodes = [gpu_node(name) for name in ("n1", "n2")]
    for node in nodes:
        node["metadata"]["labels"] = {"pool": "train", "own": node["metadata"]["name"]}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    lines = CliRunner().invoke(cli, ["top", "--by", "pool", "--cluster", str(file)], catch_exceptions=False).stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["NODE", "POOL"], ["n1", "train"], ["n2", "train"]]
    result = CliRunner().invoke(cli, ["top", "--by", "no", "--cluster", str(file)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: --by no: no node has this label; labels that group nodes: pool\n"


def test_a_letter_has_one_colour_and_a_free_gpu_has_another() -> None:
    styles = [str(span.style) for span in painted("aab.").spans]
    assert styles[0] == styles[1]
    assert len(set(styles)) == 3
