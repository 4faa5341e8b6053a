"""Capacity for other schedulers' nominated pods counts as used for gangs of the same or a lower priority."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.cluster.storage_objects import Claim, StoredVolume
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gpu_sharing import Device, Share, Shared
from allaboard.model.limits import NOMINATED
from allaboard.model.node import Node
from allaboard.model.pod import Pod, Reading, pod_from
from allaboard.model.volumes import Volume

GPU = "nvidia.com/gpu"
PORT = HostPort("0.0.0.0", "TCP", 80)  # noqa: S104
SPEC = SchedulingSpec((("cpu", 1000), (GPU, 2), ("pods", 1)))
READING = Reading(ours=frozenset({"allaboard"}))


def a_node(name: str, shared: Shared | None = None) -> Node:
    return Node(name, name, (("cpu", 8000), (GPU, 4), ("pods", 110)), shared=shared)


def a_view(*nodes: Node) -> ClusterView:
    view = ClusterView()
    for node in nodes or (a_node("n1"), a_node("n2")):
        view.upsert_node(node)
    return view


def nominated(name: str = "p", node: str = "n1", priority: int = 1000, spec: SchedulingSpec = SPEC) -> Pod:
    return Pod("ns", name, f"uid-{name}", "", 0.0, "default-scheduler", "", "Pending", priority, spec, nominated=node)


def free(view: ClusterView, priority: int | None, resource: str = GPU) -> list[int]:
    snapshot = view.snapshot(priority)
    column = snapshot.column_of(resource)
    assert column is not None
    return snapshot.free[:, column].tolist()


def raw(scheduler: str = "default-scheduler", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "priority": 1000, "containers": [{"name": "c"}], **spec}
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": spec,
        "status": {"phase": "Pending", "nominatedNodeName": "n1", **(status or {})},
    }


def test_nominated_pod_takes_capacity_from_gangs_of_the_same_or_a_lower_priority() -> None:
    view = a_view()
    view.upsert_pod(nominated())
    assert [free(view, priority) for priority in (0, 1000, 1001, None)] == [[2, 4], [2, 4], [4, 4], [4, 4]]


def test_only_nominated_pods_of_at_least_the_gangs_priority_count() -> None:
    view = a_view()
    for name, priority in (("low", 10), ("high", 20)):
        view.upsert_pod(nominated(name, priority=priority))
    assert [free(view, priority) for priority in (10, 15, 21)] == [[0, 4], [2, 4], [4, 4]]


@pytest.mark.parametrize("change", [{"phase": "Failed", "nominated": ""}, {"nominated": ""}, {"node_name": "n2", "nominated": ""}, None])
def test_nomination_ends_when_the_pod_is_bound_or_ends_or_is_deleted(change: dict[str, str] | None) -> None:
    view = a_view()
    view.upsert_pod(pod := nominated())
    if change is None:
        view.remove_pod(pod.key)
    else:
        view.upsert_pod(replace(pod, **change))
    assert free(view, 0) == [4, 2 if change and "node_name" in change else 4]


def test_pod_nominated_to_a_missing_node_takes_no_capacity() -> None:
    view = a_view()
    view.upsert_pod(nominated(node="n3"))
    assert free(view, 0) == [4, 4]


def test_nominated_pods_take_ports_volumes_and_devices() -> None:
    devices = tuple(Device(f"GPU-{place}", 16_000, 10, True) for place in range(3))
    view = a_view(a_node("n1", Shared("HAMi", devices)), a_node("n2"))
    view.volumes.limits.upsert("n1", {"disk": 3})
    for number in range(2):
        view.volumes.claims.upsert(f"ns/c{number}", Claim(f"pv{number}"))
        view.volumes.volumes.upsert(f"pv{number}", StoredVolume(attached=Volume("disk", f"h{number}")))
    view.upsert_pod(replace(nominated("there", spec=SchedulingSpec((("pods", 1),), claims=("c0",))), node_name="n1", nominated=""))
    part = SchedulingSpec((("pods", 1),), host_ports=(PORT,), claims=("c0", "c1"), share=Share("HAMi", thousandths=300), gpu_share=300)
    view.upsert_pod(nominated(spec=part))
    view.upsert_pod(nominated("whole", node="n2"))
    found = view.snapshot(0)
    assert found.host_ports == {0: {PORT}}
    assert found.attachable["disk"].tolist()[0] == 1
    assert found.devices is not None
    assert [sorted(row) for row in found.devices.tolist()] == [[0, 700, 1000, 1000], [0, 0, 1000, 1000]]
    assert view.snapshot(1001).host_ports == {}


def test_snapshot_of_one_node_counts_nominated_pods_like_the_whole_snapshot() -> None:
    view = a_view()
    view.upsert_pod(nominated(node="n2"))
    node = view.node("n2")
    assert node is not None
    assert view.snapshot_of(node, 0).free.tolist() == view.snapshot(0).free[1:].tolist()
    assert view.snapshot_of(node, 1001).free.tolist() == view.snapshot(1001).free[1:].tolist()


def test_nominated_pods_of_the_highest_priorities_count_if_there_are_too_many() -> None:
    view = a_view(replace(a_node("n1"), allocatable=(("cpu", 10**9), (GPU, 10**6), ("pods", 10**6))))
    for number in range(NOMINATED.most + 5):
        gpus = 1 + number % 2
        view.upsert_pod(nominated(f"p{number}", priority=gpus, spec=SchedulingSpec(((GPU, gpus), ("pods", 1)))))
    high = (NOMINATED.most + 5) // 2  # all pods of the higher priority count, and pods of the lower priority fill up the limit
    assert free(view, 0) == [10**6 - NOMINATED.most - high]


@pytest.mark.parametrize(
    ("pod", "node", "priority"),
    [
        (raw(), "n1", 1000),
        (raw(priority=None), "n1", 0),
        (raw(priority="high"), "n1", 0),
        (raw(nodeName="n1"), "", 0),
        (raw(status={"phase": "Failed"}), "", 0),
        (raw(status={"nominatedNodeName": None}), "", 0),
        (raw(status={"nominatedNodeName": ["n1"]}), "", 0),
        (raw("allaboard"), "", 1000),  # our own pods are ordered by our queue
        ({**raw(), "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, "", 0),
    ],
)
def test_only_waiting_pods_of_other_schedulers_count_as_nominated(pod: dict[str, Any], node: str, priority: int) -> None:
    found = pod_from(pod, reading=READING)
    assert (found.nominated, found.priority) == (node, priority)


def test_resources_of_a_nominated_pod_count_as_freed_when_its_nomination_ends() -> None:
    pod = nominated()
    bound = replace(pod, node_name="n1", nominated="")
    assert GPU in pod.freed(None)
    assert GPU in pod.freed(replace(pod, nominated=""))
    assert GPU in pod.freed(replace(pod, nominated="n2"))
    assert GPU in pod.freed(replace(bound, node_name="n2"))
    assert pod.freed(pod) == pod.freed(bound) == []
