"""The fake kubelets admit, run, end and remove pods as real kubelets do."""

from collections.abc import Callable
from typing import Any

import pytest

from allaboard_sandbox import Sandbox
from allaboard_sandbox.api import WriteOptions
from allaboard_sandbox.binding import bind
from allaboard_sandbox.kubelet import requests_of

MakePod = Callable[..., dict[str, Any]]


def to_node(sandbox: Sandbox, name: str, node: str = "node-1") -> None:
    bind(sandbox.api, "default", name, {"metadata": {"name": name}, "target": {"name": node}}, WriteOptions())


def phase(name: str, wanted: str) -> Callable[[Sandbox], bool]:
    def holds(sandbox: Sandbox) -> bool:
        found = sandbox.get("pods", name)
        return found is not None and found["status"]["phase"] == wanted

    return holds


async def test_a_bound_pod_runs(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    sandbox.create(pod())
    to_node(sandbox, "p")
    await sandbox.wait_for(phase("p", "Running"))
    running = sandbox.get("pods", "p")
    assert running is not None
    status = running["status"]
    assert {each["type"] for each in status["conditions"] if each["status"] == "True"} >= {"Ready", "ContainersReady", "Initialized"}
    assert status["podIP"]
    assert status["containerStatuses"][0]["ready"]


def addresses(node: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["address"] for each in node["status"]["addresses"]}


def test_each_node_has_addresses_of_its_own() -> None:
    sandbox = Sandbox(controllers=False)
    nodes = [sandbox.add_node(f"node-{number}") for number in range(600)]
    assert len({addresses(node)["InternalIP"] for node in nodes}) == 600
    assert {addresses(node)["Hostname"] for node in nodes} == {node["metadata"]["name"] for node in nodes}
    assert all(0 < int(part) < 255 for node in nodes for part in addresses(node)["InternalIP"].split(".")[3:])


@pytest.mark.parametrize("in_network_of_host", [True, False])
async def test_a_running_pod_reports_its_own_address_and_that_of_its_node(in_network_of_host: bool, sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    host = addresses(sandbox.add_node("node-2"))["InternalIP"]
    sandbox.create(pod(hostNetwork=in_network_of_host, nodeName="node-2"))
    await sandbox.wait_for(phase("p", "Running"))
    status = sandbox.get("pods", "p")["status"]  # type: ignore[index]
    assert (status["hostIP"], status["hostIPs"], status["podIP"] == host) == (host, [{"ip": host}], in_network_of_host)


@pytest.mark.parametrize("reported", [[], [{"type": "Hostname", "address": "node-1"}], [{}]])
async def test_a_pod_runs_on_a_node_without_an_address(reported: list[dict[str, str]], sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    sandbox.patch("nodes", "node-1", [{"op": "replace", "path": "/status/addresses", "value": reported}], "", "status")
    sandbox.create(pod(nodeName="node-1"))
    await sandbox.wait_for(phase("p", "Running"))
    assert "hostIP" not in sandbox.get("pods", "p")["status"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("node", "requests", "resource", "figures"),
    [
        ({"cpu": "4"}, {"cpu": "3"}, "cpu", "requested: 3000, used: 3000, capacity: 4000"),
        ({"memory": "4Gi"}, {"memory": "3Gi"}, "memory", "requested: 3221225472, used: 3221225472, capacity: 4294967296"),
        ({"gpus": 4}, {"nvidia.com/gpu": "3"}, "nvidia.com/gpu", "requested: 3, used: 3, capacity: 4"),
        ({"pods": 1}, None, "pods", "requested: 1, used: 1, capacity: 1"),
    ],
)
async def test_a_pod_that_does_not_fit_is_rejected_by_the_node(
    node: dict[str, Any], requests: dict[str, str] | None, resource: str, figures: str, sandbox: Sandbox, pod: MakePod
) -> None:
    sandbox.add_node("node-1", **node)
    for name in ("first", "second"):
        sandbox.create(pod(name, requests=requests))
        to_node(sandbox, name)
    await sandbox.wait_for(phase("first", "Running"))
    await sandbox.wait_for(phase("second", "Failed"))
    rejected = sandbox.get("pods", "second")
    assert rejected is not None
    assert rejected["status"]["reason"] == f"OutOf{resource}"
    assert rejected["status"]["message"] == f"Pod was rejected: Node didn't have enough resource: {resource}, {figures}"


async def test_a_request_for_an_extended_resource_that_the_node_lacks_is_ignored(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    sandbox.create(pod("only", requests={"nvidia.com/gpumem": "20480"}))
    to_node(sandbox, "only")
    await sandbox.wait_for(phase("only", "Running"))


async def test_a_finished_pod_frees_its_capacity(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1", cpu="4")
    sandbox.create(pod("first", requests={"cpu": "3"}))
    to_node(sandbox, "first")
    await sandbox.wait_for(phase("first", "Running"))
    sandbox.finish_pod("first")
    sandbox.create(pod("second", requests={"cpu": "3"}))
    to_node(sandbox, "second")
    await sandbox.wait_for(phase("second", "Running"))


async def test_a_pod_ends_after_the_duration_that_its_annotation_states(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    annotations = {"sandbox.allaboard.dev/duration": "0.01s"}
    sandbox.create(pod("once", annotations=annotations, restartPolicy="Never"))
    sandbox.create(pod("always", annotations=annotations))
    to_node(sandbox, "always")
    to_node(sandbox, "once")
    await sandbox.wait_for(phase("once", "Succeeded"))
    assert phase("always", "Running")(sandbox)


async def test_a_deleted_running_pod_is_terminating_before_it_is_gone(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    sandbox.create(pod())
    to_node(sandbox, "p")
    await sandbox.wait_for(phase("p", "Running"))
    sandbox.delete("pods", "p")
    terminating = sandbox.get("pods", "p")
    assert terminating is not None
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 30
    await sandbox.wait_for(lambda cluster: cluster.get("pods", "p") is None)


@pytest.mark.parametrize("grace", [None, 30, 0])
async def test_an_unbound_pod_is_deleted_at_once(grace: int | None, sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.create(pod())
    sandbox.delete("pods", "p", grace=grace)
    assert sandbox.get("pods", "p") is None


async def test_a_node_starts_no_pods_until_it_is_ready(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1", ready=False)
    sandbox.add_node("node-2")
    for name, node in (("p", "node-1"), ("q", "node-2")):
        sandbox.create(pod(name))
        to_node(sandbox, name, node)
    await sandbox.wait_for(phase("q", "Running"))
    assert phase("p", "Pending")(sandbox)
    sandbox.patch("nodes", "node-1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status")
    await sandbox.wait_for(phase("p", "Running"))


async def test_a_pod_on_a_missing_node_stays_pending_until_the_node_joins(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.create(pod())
    to_node(sandbox, "p", "later")
    assert phase("p", "Pending")(sandbox)
    sandbox.add_node("later")
    await sandbox.wait_for(phase("p", "Running"))


async def test_pods_of_a_deleted_node_are_deleted(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    sandbox.create(pod())
    to_node(sandbox, "p")
    await sandbox.wait_for(phase("p", "Running"))
    sandbox.delete("nodes", "node-1")
    await sandbox.wait_for(lambda cluster: cluster.get("pods", "p") is None)


async def test_a_finalizer_keeps_a_pod_whose_containers_have_stopped(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    body = pod()
    body["metadata"]["finalizers"] = ["example.com/hold"]
    sandbox.create(body)
    to_node(sandbox, "p")
    await sandbox.wait_for(phase("p", "Running"))
    sandbox.delete("pods", "p")
    await sandbox.wait_for(lambda cluster: cluster.get("pods", "p")["metadata"]["deletionGracePeriodSeconds"] == 0)  # type: ignore[index]
    sandbox.patch("pods", "p", {"metadata": {"finalizers": None}})
    assert sandbox.get("pods", "p") is None


def resources(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [resources(cpu="1"), resources(cpu="500m")]}, {"cpu": 1500}),
        ({"containers": [resources(cpu="1")], "initContainers": [resources(cpu="3", memory="1Ki")]}, {"cpu": 3000, "memory": 1024}),
        (
            {"containers": [resources(cpu="1")], "initContainers": [{**resources(cpu="2"), "restartPolicy": "Always"}, resources(cpu="2")]},
            {"cpu": 4000},
        ),
        ({"containers": [resources(cpu="1")], "overhead": {"cpu": "100m"}}, {"cpu": 1100}),
        ({"containers": [resources(cpu="1")], **resources(cpu="2")}, {"cpu": 2000}),
    ],
)
def test_requests_of_a_pod_are_summed_as_by_a_real_kubelet(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert requests_of({"spec": spec}) == expected


async def test_a_pod_that_ends_before_its_start_stays_ended(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.add_node("node-1")
    for name in ("ended", "later"):
        sandbox.create(pod(name))
        to_node(sandbox, name)
    sandbox.finish_pod("ended", phase="Failed")
    await sandbox.wait_for(phase("later", "Running"))
    assert phase("ended", "Failed")(sandbox)
