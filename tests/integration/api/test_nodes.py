"""Admission and the node controller taint nodes by their conditions."""

from typing import Any

import pytest

from allaboard_sandbox import NodeShape, node_object
from tests.cluster import Cluster

NOT_READY = "node.kubernetes.io/not-ready"


def node(name: str = "n", *, ready: bool, taints: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    return node_object(name, NodeShape(), taints=taints, ready=ready)


def taints(node: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return the keys and effects of a node's taints, without ``NoExecute`` taints, which another controller adds later."""
    assert node is not None
    found = [(taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or ()]
    return [taint for taint in found if taint[1] != "NoExecute"]


async def until_tainted(cluster: Cluster, *keys: str) -> None:
    expected = [(key, "NoSchedule") for key in keys]
    await cluster.wait_for(lambda home: sorted(taints(home.get("nodes", "n"))) == sorted(expected))


def set_condition(cluster: Cluster, type: str, status: str) -> None:
    found = cluster.get("nodes", "n")
    assert found is not None
    conditions = [{**each, **({"status": status} if each["type"] == type else {})} for each in found["status"]["conditions"]]
    cluster.patch("nodes", "n", {"status": {"conditions": conditions}}, "", "status")


@pytest.mark.parametrize("ready", [True, False])
async def test_a_new_node_is_tainted_as_not_ready(ready: bool, cluster: Cluster) -> None:
    own = {"key": "k", "value": "v", "effect": "NoSchedule"}
    assert taints(cluster.create(node(ready=ready, taints=(own,)))) == [("k", "NoSchedule"), (NOT_READY, "NoSchedule")]


async def test_the_not_ready_taint_is_removed_when_the_node_is_ready(cluster: Cluster) -> None:
    cluster.create(node(ready=True))
    await until_tainted(cluster)


async def test_the_taint_of_a_node_follows_its_ready_condition(cluster: Cluster) -> None:
    cluster.create(node(ready=False))
    await until_tainted(cluster, NOT_READY)
    set_condition(cluster, "Ready", "True")
    await until_tainted(cluster)
    set_condition(cluster, "Ready", "Unknown")
    await until_tainted(cluster, "node.kubernetes.io/unreachable")
    set_condition(cluster, "Ready", "False")
    await until_tainted(cluster, NOT_READY)


async def test_a_node_under_memory_pressure_is_tainted(cluster: Cluster) -> None:
    cluster.add_node("n")
    set_condition(cluster, "MemoryPressure", "True")
    await until_tainted(cluster, "node.kubernetes.io/memory-pressure")


async def test_a_cordoned_node_is_tainted(cluster: Cluster) -> None:
    cluster.add_node("n", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    cluster.patch("nodes", "n", {"spec": {"unschedulable": True}}, "")
    await until_tainted(cluster, "k", "node.kubernetes.io/unschedulable")
    cluster.patch("nodes", "n", {"spec": {"unschedulable": None}}, "")
    await until_tainted(cluster, "k")


@pytest.mark.parametrize("ready", [True, False])
async def test_a_node_is_added_with_the_taints_that_the_node_controller_sets(ready: bool, cluster: Cluster) -> None:
    assert taints(cluster.add_node("n", ready=ready)) == ([] if ready else [(NOT_READY, "NoSchedule")])
