"""The last check before binding finds changes since the search, and mistakes of the search."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from allaboard.model.constraints import HostPort
from allaboard.model.node import Taint
from allaboard.placement import Wrong, verify
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.report import messages
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

GANG = pods("worker", 2, {"cpu": 2000, "memory": GI, GPU: 1})
BOTH = {"worker-0": "a", "worker-1": "a"}
CAPACITY = {"cpu": 8000, "memory": 8 * GI, GPU: 2}


def messages_of(*plan: Any) -> tuple[str, ...]:
    """Return the messages about what is wrong with a plan."""
    return tuple(messages.violation(found) for found in verify(*plan))


def test_valid_plan_passes_the_check_before_the_bind() -> None:
    assert verify(BOTH, GANG, snapshot([node("a", CAPACITY)])) == ()


def test_plan_may_take_all_that_is_free() -> None:
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
def test_check_before_the_bind_finds_capacity_that_was_taken_since_the_search(used: dict[str, int], expected: str) -> None:
    assert messages_of(BOTH, GANG, snapshot([node("a", CAPACITY)], {"a": used})) == (expected,)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"is_unschedulable": True}, "node(s) were unschedulable"),
        ({"is_ready": False}, "node(s) were not ready"),
        ({"taints": (Taint("a", "b", "NoExecute"),)}, "node(s) had untolerated taint {a: b}"),
    ],
)
def test_node_that_refuses_members_is_reported_for_every_member(change: dict, expected: str) -> None:
    assert messages_of(BOTH, GANG, snapshot([node("a", CAPACITY, **change)])) == tuple(
        f"default/worker-{i} on a: {expected}" for i in (0, 1)
    )


def test_missing_node_in_a_plan_is_reported() -> None:
    assert messages_of({"worker-0": "b"}, GANG, snapshot([node("a", CAPACITY)])) == ("default/worker-0: node b does not exist",)


def test_pod_of_another_gang_in_a_plan_is_reported() -> None:
    assert messages_of({"other": "a"}, GANG, snapshot([node("a", CAPACITY)])) == ("pod other is not a member of this gang",)


def test_unmatched_node_selector_or_volume_affinity_is_reported() -> None:
    selective = pods("w", 1, {}, node_selector=(("zone", "b"),))
    bound = pods("w", 1, {}, volumes=((),))

    assert messages_of({"w-0": "a"}, selective, snapshot([node("a", CAPACITY)])) == (
        "default/w-0 on a: node(s) didn't match Pod's node affinity/selector",
    )
    assert messages_of({"w-0": "a"}, bound, snapshot([node("a", CAPACITY)])) == (
        "default/w-0 on a: node(s) didn't match PersistentVolume's node affinity",
    )


def test_host_ports_conflict_between_members_and_with_running_pods() -> None:
    port = HostPort("10.0.0.1", "TCP", 80)
    gang = pods("w", 2, {}, host_ports=(port,))

    assert messages_of({"w-0": "a", "w-1": "a"}, gang, snapshot([node("a", CAPACITY)])) == (
        "default/w-1 on a: host port 10.0.0.1:80/TCP is taken",
    )
    taken = snapshot([node("a", CAPACITY)], host_ports={"a": [HostPort("0.0.0.0", "TCP", 80)]})  # noqa: S104
    assert messages_of({"w-0": "a"}, gang, taken) == ("default/w-0 on a: host port 10.0.0.1:80/TCP is taken",)


def test_resource_that_no_node_has_is_reported() -> None:
    assert messages_of({"worker-0": "a"}, GANG, snapshot([node("a", {"cpu": 8000, "memory": 8 * GI})])) == (
        "a: 1 members ask for 1 nvidia.com/gpu, 0 free",
    )


def test_members_that_do_not_share_a_domain_are_reported() -> None:
    together = Rules(couplings=[TogetherRule("rack", {"worker-0", "worker-1"})])
    apart = {"worker-0": "a", "worker-1": "b"}
    racks = {"a": {"rack": "x"}, "b": {"rack": "x"}, "c": {"rack": "y"}, "d": {}}
    cluster = snapshot([node(name, CAPACITY, labels=labels) for name, labels in racks.items()])
    assert verify(apart, GANG, cluster, together) == ()
    assert messages_of({**apart, "worker-1": "c"}, GANG, cluster, together) == ("members would not share one rack: x, y",)
    assert messages_of({**apart, "worker-1": "d"}, GANG, cluster, together) == ("members would not share one rack: none, x",)
    assert messages_of({"worker-0": "d", "worker-1": "d"}, GANG, cluster, together) == ("members would not share one rack: none",)
    assert verify({**apart, "worker-1": "c"}, GANG, cluster, Rules(couplings=[TogetherRule("rack", {"worker-0"})])) == ()


@pytest.mark.parametrize(
    ("devices", "whole", "parts", "is_good"),
    [
        ((1000, 1000), 0, (500, 500, 500, 500), True),
        ((1000, 1000), 1, (500, 500), True),
        ((1000, 1000), 1, (500, 500, 500), False),
        ((600, 600), 0, (400, 400, 400), False),  # 1,200 thousandths are free, but no device has 800.
        ((700, 500), 0, (500, 400, 300), True),  # The largest part must not go to the fullest device.
        ((900, 900), 1, (100,), False),  # No device is entirely free.
        ((500, 1000), 1, (500,), True),  # The whole GPU takes the device that is entirely free.
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
