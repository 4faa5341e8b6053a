"""The API server answers a Binding and writes the pod's node, annotations and labels."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.cluster import Cluster

from .conftest import PODS, answer, bind, pod

REPLIES = yaml.safe_load(Path(__file__).with_name("binding_replies.yaml").read_text())
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
TAKES_LABELS = pytest.mark.needs_kubernetes("1.35", "earlier, a pod gets no labels of its Binding (PodTopologyLabelsAdmission)")


def bound(cluster: Cluster, name: str = "b") -> dict[str, Any]:
    found = cluster.get("pods", name)
    assert found is not None
    return found


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: reply["case"].replace(" ", "-"))
@pytest.mark.parametrize("dry_run", [False, True], ids=["for-good", "dry-run"])
async def test_the_answer_to_a_bind_equals_the_recorded_answer_of_a_real_api_server(
    reply: dict[str, Any], dry_run: bool, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    metadata = cluster.create(pod("b", **reply.get("pod", {}).get("spec", {})))["metadata"]
    params = {"dryRun": "All"} if dry_run else {}
    status, body = await answer(http, "POST", f"{PODS}/b/binding", json=reply["binding"], params=params)
    if reply["code"] == 201:
        assert (status, body) == (201, SUCCESS)
        assert bound(cluster)["spec"].get("nodeName") == (None if dry_run else reply["binding"]["target"]["name"])
        return
    expected = reply["message"].replace("{uid}", metadata["uid"]).replace("{revision}", metadata["resourceVersion"])
    if dry_run:
        # A dry run goes no deeper than the layer above etcd, which doesn't know the prefix of the keys.
        expected = expected.replace("/registry/pods/", "/pods/")
    assert (status, body["code"], body["status"]) == (reply["code"], reply["code"], "Failure")
    assert (body.get("reason", ""), body["message"], body.get("details")) == (reply["reason"], expected, reply.get("details"))


async def test_a_missing_pod_cannot_be_bound(http: aiohttp.ClientSession) -> None:
    status, body = await bind(http, "nope", "node-1")
    assert (status, body["reason"], body["message"]) == (404, "NotFound", 'pods "nope" not found')
    assert body["details"] == {"name": "nope", "kind": "pods"}


async def test_a_pod_being_deleted_cannot_be_bound(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    held = pod("b")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(held)
    cluster.delete("pods", "b")
    status, body = await bind(http, "b", "node-1")
    assert (status, body["reason"], body["details"]) == (409, "Conflict", {"name": "b", "kind": "pods/binding"})
    expected = 'Operation cannot be fulfilled on pods/binding "b": pod b is being deleted, cannot be assigned to a host'
    assert body["message"] == expected


async def test_a_bind_with_the_uid_of_a_deleted_pod_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    first = cluster.create(pod("b"))["metadata"]["uid"]
    cluster.delete("pods", "b")
    second = cluster.create(pod("b"))["metadata"]["uid"]
    status, body = await bind(http, "b", "node-1", metadata={"uid": first})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"].endswith(f"Precondition failed: UID in precondition: {first}, UID in object meta: {second}")


async def test_a_bind_with_an_outdated_version_of_the_pod_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    seen = cluster.create(pod("b"))["metadata"]
    touched = cluster.patch("pods", "b", {"metadata": {"annotations": {"epoch": "2"}}})["metadata"]
    status, body = await bind(http, "b", "node-1", metadata={"uid": seen["uid"], "resourceVersion": seen["resourceVersion"]})
    assert (status, body["reason"]) == (409, "Conflict")
    revisions = f"ResourceVersion in precondition: {seen['resourceVersion']}, ResourceVersion in object meta: {touched['resourceVersion']}"
    assert body["message"].endswith(revisions)
    current = {"uid": seen["uid"], "resourceVersion": touched["resourceVersion"]}
    assert (await bind(http, "b", "node-1", metadata=current))[0] == 201


async def test_annotations_of_a_binding_are_written_to_the_pod(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("b", annotations={"kept": "1", "stamp": "old"}))
    await bind(http, "b", "nowhere", metadata={"annotations": {"stamp": "new"}})
    after = bound(cluster)
    assert after["spec"]["nodeName"] == "nowhere"
    assert after["metadata"]["annotations"] == {"kept": "1", "stamp": "new"}


@TAKES_LABELS
async def test_labels_of_a_binding_are_written_to_the_pod(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("b"))
    await bind(http, "b", "nowhere", metadata={"labels": {"gang": "g"}})
    assert bound(cluster)["metadata"]["labels"] == {"gang": "g"}


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        pytest.param(
            {"kind": "Node"},
            {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"},
            id="a-node-by-its-kind",
            marks=TAKES_LABELS,
        ),
        pytest.param({}, None, id="a-node-by-default"),
    ],
)
async def test_a_bound_pod_gets_the_nodes_topology_labels_if_the_binding_states_its_target_kind(
    target: dict[str, str], labels: dict[str, str] | None, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.add_node("node-1", labels={"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "x"})

    async def created_and_bound(name: str) -> dict[str, Any]:
        cluster.create(pod(name))
        binding = {"metadata": {"name": name}, "target": {"name": "node-1", **target}}
        await answer(http, "POST", f"{PODS}/{name}/binding", json=binding)
        return bound(cluster, name)

    # Admission learns of a node through a watch, a moment after the node is created.
    tries = [await created_and_bound(f"b{number}") for number in range(10)]
    assert ("PodScheduled", "True") in [(each["type"], each["status"]) for each in tries[0]["status"]["conditions"]]
    assert tries[-1]["metadata"].get("labels") == labels


async def test_a_bind_checks_neither_capacity_nor_taints_of_the_node(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    cluster.add_node("node-1", cpu="1", taints=[taint])
    cluster.patch("nodes", "node-1", {"spec": {"unschedulable": True}})
    greedy = {"name": "main", "image": "busybox:1", "resources": {"requests": {"cpu": "2"}}}
    cluster.create(pod("b", containers=[greedy]))
    assert await bind(http, "b", "node-1") == (201, SUCCESS)


async def test_a_pod_can_be_bound_through_the_legacy_bindings_path(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    body = {"metadata": {"name": "a"}, "target": {"name": "nowhere"}}
    assert await answer(http, "POST", "/api/v1/namespaces/default/bindings", json=body) == (201, SUCCESS)


async def test_an_unknown_field_of_a_binding_is_refused_by_strict_validation(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    body = {"metadata": {"name": "a"}, "target": {"name": "n"}, "foo": 1}
    status, reply = await answer(http, "POST", f"{PODS}/a/binding", json=body, params={"fieldValidation": "Strict"})
    assert (status, reply["reason"]) == (400, "BadRequest")
    assert reply["message"] == 'Binding in version "v1" cannot be handled as a Binding: strict decoding error: unknown field "foo"'
