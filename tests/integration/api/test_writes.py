"""Writes: conflicts, preconditions, patches, dry runs and deletions."""

import json
from typing import Any

import aiohttp
import pytest

from tests.cluster import Cluster

from .conftest import APPLY, GROUPS, MERGE, PODS, answer, bind, config_map, group, named, pod, revision_of

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_creating_an_object_that_exists_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(group(minMember=1))
    status, body = await answer(http, "POST", GROUPS, json=group(minMember=1))
    assert (status, body["reason"]) == (409, "AlreadyExists")
    assert body["message"] == 'podgroups.scheduling.x-k8s.io "g" already exists'
    assert body["details"] == {"name": "g", "group": "scheduling.x-k8s.io", "kind": "podgroups"}


async def test_a_stale_update_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    seen = cluster.create(pod("a"))
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    status, body = await answer(http, "PUT", f"{PODS}/a", json=seen)
    assert (status, body["reason"], body["details"]) == (409, "Conflict", {"name": "a", "kind": "pods"})
    assert body["message"] == f'Operation cannot be fulfilled on pods "a": {MODIFIED}'


@pytest.mark.parametrize(
    ("path", "change", "subject"),
    [
        (f"{PODS}/a", {"metadata": {"labels": {"x": "z"}}}, 'pods "a"'),
        (f"{PODS}/a/status", {"status": {"phase": "Running"}}, 'pods "a"'),
        (f"{GROUPS}/g", {"spec": {"minMember": 2}}, 'podgroups.scheduling.x-k8s.io "g"'),
        (f"{GROUPS}/g/status", {"status": {"phase": "Running"}}, 'podgroups.scheduling.x-k8s.io "g"'),
    ],
)
async def test_a_stale_patch_is_a_conflict(
    path: str, change: dict[str, Any], subject: str, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    seen = {"pods": revision_of(cluster.create(pod("a"))), "podgroups": revision_of(cluster.create(group(minMember=1)))}
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    cluster.patch("podgroups", "g", {"metadata": {"labels": {"x": "y"}}})
    stale = seen["pods" if path.startswith(PODS) else "podgroups"]
    change = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": stale}}
    status, body = await answer(http, "PATCH", path, json=change, headers=MERGE)
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == f"Operation cannot be fulfilled on {subject}: {MODIFIED}"


@pytest.mark.parametrize("path", [f"{PODS}/a", f"{PODS}/a/status", f"{GROUPS}/g"])
async def test_a_patch_that_states_another_uid_than_the_objects_is_invalid(
    path: str, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.create(pod("a"))
    cluster.create(group(minMember=1))
    status, body = await answer(http, "PATCH", path, json={"metadata": {"uid": "1111"}}, headers=MERGE)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"].endswith('metadata.uid: Invalid value: "1111": field is immutable')


@pytest.mark.parametrize("content_type", ["application/merge-patch+json", "application/strategic-merge-patch+json"])
async def test_a_status_patch_of_a_pod_changes_annotations_and_labels_but_not_spec_or_owners(
    content_type: str, cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    seen = cluster.create(pod("a"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "z", "uid": "1"}
    metadata = {"resourceVersion": revision_of(seen), "annotations": {"n": "1"}, "labels": {"l": "1"}, "ownerReferences": [owner]}
    change = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "another"}]}}
    headers = {"Content-Type": content_type}
    status, body = await answer(http, "PATCH", f"{PODS}/a/status", json=change, headers=headers)
    assert status == 200
    assert body["metadata"]["annotations"]["n"] == body["metadata"]["labels"]["l"] == "1"
    assert "ownerReferences" not in body["metadata"]
    assert body["spec"] == seen["spec"]
    assert revision_of(body) != revision_of(seen)
    status, body = await answer(http, "PATCH", f"{PODS}/a/status", json=change, headers=headers)
    assert (status, body["reason"]) == (409, "Conflict")


async def test_a_uid_that_a_status_patch_of_a_custom_object_states_is_ignored(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    uid = cluster.create(group(minMember=1))["metadata"]["uid"]
    change = {"metadata": {"uid": "1111"}, "status": {"phase": "Pending"}}
    status, body = await answer(http, "PATCH", f"{GROUPS}/g/status", json=change, headers=MERGE)
    assert (status, body["metadata"]["uid"], body["status"]) == (200, uid, {"phase": "Pending"})


async def test_an_update_of_a_lease_must_state_the_resource_version(http: aiohttp.ClientSession) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    status, created = await answer(http, "POST", LEASES, json=lease)
    assert status == 201
    try:
        status, body = await answer(http, "PUT", f"{LEASES}/l", json=lease)
        assert (status, body["reason"]) == (422, "Invalid")
        expected = 'leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
        assert body["message"] == expected
        created["spec"]["holderIdentity"] = "b"
        status, updated = await answer(http, "PUT", f"{LEASES}/l", json=created)
        assert (status, updated["spec"]["holderIdentity"]) == (200, "b")
        status, body = await answer(http, "PUT", f"{LEASES}/l", json=created)
        assert (status, body["reason"]) == (409, "Conflict")
        assert body["message"] == f'Operation cannot be fulfilled on leases.coordination.k8s.io "l": {MODIFIED}'
    finally:
        await answer(http, "DELETE", f"{LEASES}/l")


async def test_a_patch_that_changes_nothing_makes_no_new_version(cluster: Cluster) -> None:
    created = cluster.create(pod("p", {"a": "b"}))
    assert revision_of(cluster.patch("pods", "p", {"metadata": {"labels": {"a": "b"}}})) == revision_of(created)


async def test_a_json_patch_can_test_a_value_before_changing_it(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", {"x": "y"}))
    headers = {"Content-Type": "application/json-patch+json"}
    operations = [{"op": "test", "path": "/metadata/labels/x", "value": "z"}, {"op": "remove", "path": "/metadata/labels/x"}]
    status, body = await answer(http, "PATCH", f"{PODS}/a", json=operations, headers=headers)
    expected = (422, "Invalid", "the server rejected our request due to an error in our request", {})
    assert (status, body["reason"], body["message"], body["details"]) == expected
    operations[0]["value"] = "y"
    status, body = await answer(http, "PATCH", f"{PODS}/a", json=operations, headers=headers)
    assert (status, body["metadata"].get("labels")) == (200, None)


async def test_a_dry_run_persists_nothing(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    dry_run = {"dryRun": "All"}
    status, body = await answer(http, "POST", PODS, json=pod("a"), params=dry_run)
    assert (status, body["metadata"]["name"]) == (201, "a")
    before = cluster.create(pod("b"))
    status, body = await answer(http, "PATCH", f"{PODS}/b", json={"metadata": {"labels": {"x": "y"}}}, headers=MERGE, params=dry_run)
    assert (status, body["metadata"]["labels"], revision_of(body)) == (200, {"x": "y"}, revision_of(before))
    assert (await answer(http, "DELETE", f"{PODS}/b", params=dry_run))[0] == 200
    assert (await bind(http, "b", "node-1", dryRun="All"))[0] == 201
    assert cluster.get("pods", "a") is None
    assert revision_of(cluster.get("pods", "b")) == revision_of(before)


async def test_preconditions_of_a_deletion_are_checked(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    created = cluster.create(pod("a"))
    uid, version = created["metadata"]["uid"], revision_of(created)
    status, body = await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": "1111"}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == (
        f'Operation cannot be fulfilled on Pod "a": the UID in the precondition (1111) does not match the UID in record ({uid}). '
        "The object might have been deleted and then recreated"
    )
    current = revision_of(cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}))
    status, body = await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": uid, "resourceVersion": version}})
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"] == (
        f'Operation cannot be fulfilled on Pod "a": the ResourceVersion in the precondition ({version}) does not match '
        f"the ResourceVersion in record ({current}). The object might have been modified"
    )
    status, _ = await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": uid, "resourceVersion": current}})
    assert status == 200
    assert (await answer(http, "DELETE", f"{PODS}/a"))[0] == 404


async def test_a_bound_pod_is_terminating_before_it_is_gone(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", nodeName="nowhere"))
    status, body = await answer(http, "DELETE", f"{PODS}/a")
    assert (status, body["kind"], body["metadata"]["deletionGracePeriodSeconds"]) == (200, "Pod", 30)
    await answer(http, "DELETE", f"{PODS}/a", json={"gracePeriodSeconds": 0})
    assert cluster.get("pods", "a") is None


async def test_objects_with_a_label_can_be_deleted_together(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", {"app": "x"}))
    cluster.create(pod("b", {"app": "y"}))
    status, body = await answer(http, "DELETE", PODS, params={"labelSelector": "app=x"})
    assert (status, named(body["items"])) == (200, ["a"])
    assert named(cluster.list("pods", "default")) == ["b"]


async def test_an_unknown_subresource_is_not_found(http: aiohttp.ClientSession) -> None:
    status, body = await answer(http, "GET", f"{PODS}/a/bogus")
    assert (status, body["reason"], body["message"]) == (404, "NotFound", "the server could not find the requested resource")


async def test_an_update_that_states_another_uid_than_the_objects_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    uid = cluster.create(pod("a"))["metadata"]["uid"]
    other = pod("a")
    other["metadata"]["uid"] = "1111"
    status, body = await answer(http, "PUT", f"{PODS}/a", json=other)
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"].endswith(f"Precondition failed: UID in precondition: 1111, UID in object meta: {uid}")


async def test_a_finalizer_keeps_an_object_until_the_finalizer_is_removed(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(config_map("c", finalizers=["example.com/hold"]))
    status, body = await answer(http, "DELETE", f"{CONFIG_MAPS}/c")
    assert status == 200
    assert body["metadata"]["deletionTimestamp"]
    await answer(http, "PATCH", f"{CONFIG_MAPS}/c", json={"metadata": {"finalizers": None}}, headers=MERGE)
    assert (await answer(http, "GET", f"{CONFIG_MAPS}/c"))[0] == 404


async def test_a_delete_that_removes_an_object_at_once_is_answered_with_a_status(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    uid = cluster.create(config_map("c"))["metadata"]["uid"]
    status, body = await answer(http, "DELETE", f"{CONFIG_MAPS}/c")
    assert (status, body["kind"], body["status"]) == (200, "Status", "Success")
    assert body["details"] == {"name": "c", "kind": "configmaps", "uid": uid}


async def test_server_side_apply_creates_and_then_merges(http: aiohttp.ClientSession) -> None:
    path, text = f"{CONFIG_MAPS}/c", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1'}\n"
    status, body = await answer(http, "PATCH", path, data=text, headers=APPLY)
    assert (status, body["reason"]) == (422, "Invalid")
    assert body["message"] == 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    try:
        assert (await answer(http, "PATCH", path, data=text, headers=APPLY, params={"fieldManager": "m"}))[0] == 201
        other = text.replace("{a:", "{b:")
        status, body = await answer(http, "PATCH", path, data=other, headers=APPLY, params={"fieldManager": "n"})
        assert (status, body["data"]) == (200, {"a": "1", "b": "1"})
    finally:
        await answer(http, "DELETE", path)


async def test_an_event_written_through_the_events_group_is_readable_as_a_core_event(http: aiohttp.ClientSession) -> None:
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "0/1 nodes are available",
        "reason": "FailedScheduling",
        "type": "Warning",
        "action": "Scheduling",
        "reportingController": "allaboard",
        "reportingInstance": "a-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    }
    status, created = await answer(http, "POST", path, json=event)
    assert (status, created["note"]) == (201, "0/1 nodes are available")
    params = {"fieldSelector": "involvedObject.name=p,reason=FailedScheduling"}
    _, listed = await answer(http, "GET", "/api/v1/namespaces/default/events", params=params)
    (core,) = listed["items"]
    assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("0/1 nodes are available", "p", "allaboard")
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}
    status, patched = await answer(http, "PATCH", f"{path}/e", data=json.dumps({"series": series}), headers=MERGE)
    assert (status, patched["series"], patched["note"]) == (200, series, "0/1 nodes are available")


async def test_an_access_review_of_the_administrator_is_allowed(http: aiohttp.ClientSession) -> None:
    review = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods", "subresource": "binding"}}}
    status, body = await answer(http, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json=review)
    assert (status, body["status"]["allowed"]) == (201, True)


async def test_replicas_are_read_and_written_through_the_scale_subresource(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    path = "/apis/apps/v1/namespaces/default/deployments/d/scale"
    _, scale = await answer(http, "GET", path)
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "a=b")
    status, scaled = await answer(http, "PATCH", path, json={"spec": {"replicas": 3}}, headers=MERGE)
    assert (status, scaled["spec"]) == (200, {"replicas": 3})
    await cluster.wait_for(lambda home: len(home.list("pods", "default")) == 3)
