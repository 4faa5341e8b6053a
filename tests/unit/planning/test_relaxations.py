"""Tests that advice names a rule about nodes without which a refused gang fits, and no rule that doesn't help."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from allaboard.model.constraints import Toleration
from allaboard.model.node import Node, Taint
from allaboard.planning.prepared import prepared
from tests.unit.placement.clusters import node
from tests.unit.scheduling.schedulers import World

CPU = {"cpu": 2000}
PRESSURE = Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")
DEDICATED = Taint("dedicated", "ml", "NoSchedule")


async def advice(nodes: Sequence[Node], size: int = 2, **spec: object) -> str:
    """Return the advice for a gang whose pods request two cores each, on ``nodes`` and a node without capacity."""
    async with World(cpus=1) as world:
        for each in nodes:
            world.view.upsert_node(each)
        key = world.add("g", size, cpus=2)
        gang = world.gang(key)
        members = tuple(replace(pod, spec=replace(pod.spec, **spec)) for pod in gang.members)  # type: ignore[arg-type]
        return (await world.planner.advice(prepared(replace(gang, members=members)), [])).text


@pytest.mark.parametrize(
    ("there", "spec", "expected"),
    [
        ({"taints": (DEDICATED,)}, {}, "Would fit if its pods tolerated the taint dedicated=ml."),
        ({"taints": (Taint("gpu", "", "NoSchedule"),)}, {}, "Would fit if its pods tolerated the taint gpu."),
        ({}, {"node_selector": (("pool", "a"),)}, "Would fit without its node selector or affinity (pool=a)."),
        ({}, {"affinity": ()}, "Would fit without its node selector or affinity."),
        ({"is_unschedulable": True}, {}, "Would fit if all nodes were ready and none was cordoned."),
        ({"is_ready": False}, {}, "Would fit if all nodes were ready and none was cordoned."),
        ({"taints": (PRESSURE,)}, {}, "Would fit if all nodes were ready and none was cordoned."),
        ({"taints": (DEDICATED,)}, {"tolerations": (Toleration("dedicated", "Exists"),), "node_selector": (("pool", "a"),)}, "(pool=a)."),
    ],
)
async def test_a_rule_without_which_the_gang_fits_is_named(there: dict[str, object], spec: dict[str, object], expected: str) -> None:
    text = await advice([node(name, CPU, **there) for name in ("a", "b")], **spec)
    assert text.endswith(expected)


async def test_a_rule_that_alone_does_not_help_is_not_named() -> None:
    nodes = [node("a", CPU, taints=(DEDICATED,)), node("b", CPU, taints=(Taint("other", "x", "NoSchedule"),))]
    assert "tolerated" not in await advice(nodes)
    assert (
        await advice(nodes, size=1) == "Would fit if its pods tolerated the taint dedicated=ml, or if its pods tolerated the taint other=x."
    )


async def test_advice_for_a_gang_that_lacks_only_capacity_names_no_rule() -> None:
    assert await advice([node("a", CPU)], size=2) == "Would fit with 1 more node like a."
