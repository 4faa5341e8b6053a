"""The last look before binding sees what changed since the search, and what the search got wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allaboard.model.constraints import HostPort
from allaboard.model.node import Taint
from allaboard.model.rules import Rules
from allaboard.placement import Wrong, verify
from allaboard.report import messages
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

GANG = pods("worker", 2, {"cpu": 2000, "memory": GI, GPU: 1})
BOTH = {"worker-0": "a", "worker-1": "a"}
ROOM = {"cpu": 8000, "memory": 8 * GI, GPU: 2}


def told(*plan: Any) -> tuple[str, ...]:
    """What is wrong with a plan, in words."""
    return tuple(messages.violation(found) for found in verify(*plan))


def test_a_plan_that_still_holds_is_passed() -> None:
    assert verify(BOTH, GANG, snapshot([node("a", ROOM)])) == ()


def test_the_last_unit_may_be_taken() -> None:
    assert verify(BOTH, GANG, snapshot([node("a", {"cpu": 4000, "memory": 2 * GI, GPU: 2, "pods": 2})])) == ()


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({"cpu": 5000}, "a: 2 members ask for 4 cpu, 3 free"),
        ({"memory": 7 * GI}, "a: 2 members ask for 2Gi memory, 1Gi free"),
        ({GPU: 3}, "a: 2 members ask for 2 nvidia.com/gpu, 0 free"),
        ({"pods": 109}, "a: 2 members ask for 2 pods, 1 free"),
    ],
)
def test_seats_taken_meanwhile_are_seen(used: dict[str, int], expected: str) -> None:
    assert told(BOTH, GANG, snapshot([node("a", ROOM)], {"a": used})) == (expected,)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"is_unschedulable": True}, "node(s) were unschedulable"),
        ({"is_ready": False}, "node(s) were not ready"),
        ({"taints": (Taint("a", "b", "NoExecute"),)}, "node(s) had untolerated taint {a: b}"),
    ],
)
def test_a_node_that_no_longer_admits_is_seen_for_every_member(change: dict, expected: str) -> None:
    assert told(BOTH, GANG, snapshot([node("a", ROOM, **change)])) == tuple(f"default/worker-{i} on a: {expected}" for i in (0, 1))


def test_a_node_that_is_gone_is_seen() -> None:
    assert told({"worker-0": "b"}, GANG, snapshot([node("a", ROOM)])) == ("default/worker-0: node b does not exist",)


def test_a_stranger_is_seen() -> None:
    assert told({"other": "a"}, GANG, snapshot([node("a", ROOM)])) == ("pod other is not a member of this gang",)


def test_a_label_or_volume_out_of_reach_is_seen() -> None:
    selective = pods("w", 1, {}, node_selector=(("zone", "b"),))
    bound = pods("w", 1, {}, volumes=((),))

    assert told({"w-0": "a"}, selective, snapshot([node("a", ROOM)])) == (
        "default/w-0 on a: node(s) didn't match Pod's node affinity/selector",
    )
    assert told({"w-0": "a"}, bound, snapshot([node("a", ROOM)])) == (
        "default/w-0 on a: node(s) didn't match PersistentVolume's node affinity",
    )


def test_ports_are_counted_between_members_and_with_what_runs() -> None:
    port = HostPort("10.0.0.1", "TCP", 80)
    gang = pods("w", 2, {}, host_ports=(port,))

    assert told({"w-0": "a", "w-1": "a"}, gang, snapshot([node("a", ROOM)])) == ("default/w-1 on a: host port 10.0.0.1:80/TCP is taken",)
    taken = snapshot([node("a", ROOM)], host_ports={"a": [HostPort("0.0.0.0", "TCP", 80)]})  # noqa: S104
    assert told({"w-0": "a"}, gang, taken) == ("default/w-0 on a: host port 10.0.0.1:80/TCP is taken",)


def test_a_resource_nobody_has_any_more_is_seen() -> None:
    assert told({"worker-0": "a"}, GANG, snapshot([node("a", {"cpu": 8000, "memory": 8 * GI})])) == (
        "a: 1 members ask for 1 nvidia.com/gpu, 0 free",
    )


def test_members_that_would_no_longer_share_a_domain_are_seen() -> None:
    together = Rules(together=[("rack", {"worker-0", "worker-1"})])
    apart = {"worker-0": "a", "worker-1": "b"}
    racks = {"a": {"rack": "x"}, "b": {"rack": "x"}, "c": {"rack": "y"}, "d": {}}
    cluster = snapshot([node(name, ROOM, labels=labels) for name, labels in racks.items()])
    assert verify(apart, GANG, cluster, together) == ()
    assert told({**apart, "worker-1": "c"}, GANG, cluster, together) == ("members would not share one rack: x, y",)
    assert told({**apart, "worker-1": "d"}, GANG, cluster, together) == ("members would not share one rack: none, x",)
    assert told({"worker-0": "d", "worker-1": "d"}, GANG, cluster, together) == ("members would not share one rack: none",)
    assert verify({**apart, "worker-1": "c"}, GANG, cluster, Rules(together=[("rack", {"worker-0"})])) == ()


@pytest.mark.parametrize(
    ("devices", "whole", "parts", "is_good"),
    [
        ((1000, 1000), 0, (500, 500, 500, 500), True),
        ((1000, 1000), 1, (500, 500), True),
        ((1000, 1000), 1, (500, 500, 500), False),
        ((600, 600), 0, (400, 400, 400), False),  # there are 1,200 thousandths, on no device together
        ((700, 500), 0, (500, 400, 300), True),  # though the largest on the fullest device leaves no room for the others
        ((900, 900), 1, (100,), False),  # no device is free altogether
        ((500, 1000), 1, (500,), True),  # whole ones are taken of those that are
        ((1000, 500), 1, (500,), True),
    ],
)
def test_parts_of_gpus_are_counted_device_by_device(devices: tuple[int, ...], whole: int, parts: tuple[int, ...], is_good: bool) -> None:
    gang = pods("whole", whole, {GPU: 1})
    for number, part in enumerate(parts):
        (pod,) = pods(f"part{number}", 1, {"cpu": 1})
        gang.append(replace(pod, spec=replace(pod.spec, gpu_share=part)))
    cluster = replace(snapshot([node("a", {"cpu": 8000, GPU: 2})]), devices=np.array([devices], dtype=np.int64))
    found = verify({pod.uid: "a" for pod in gang}, gang, cluster)
    assert [each.wrong for each in found] == ([] if is_good else [Wrong.DEVICES])
    assert is_good or "don't fit on its devices together" in messages.violation(found[0])
