"""The sandbox over HTTP: lists, watches, conflicts and failures, as a real API server answers them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from allaboard.sandbox import Fault, Sandbox

Body = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
async def cluster() -> AsyncIterator[Sandbox]:
    async with Sandbox(startup_delay=0) as sandbox:
        yield sandbox


@pytest.fixture
async def http(cluster: Sandbox) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cluster.url, timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


def pod(name: str, labels: Body | None = None, **spec: Any) -> Body:
    containers = [{"name": "main", "image": "busybox:1"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": containers, **spec},
    }


def definition() -> Body:
    """Return the CRD of a kind without any declared field."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gangs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gangs", "kind": "Gang"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }


async def answer(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with http.request(method, path, **options) as response:
        return response.status, await response.json(content_type=None)


async def bind(http: aiohttp.ClientSession, name: str, node: str, **params: str) -> tuple[int, Any]:
    body = {"metadata": {"name": name}, "target": {"name": node}}
    return await answer(http, "POST", f"{PODS}/{name}/binding", json=body, params=params)


class Watch:
    """An open watch, read event by event."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Body:
        line = await self.response.content.readline()
        if not line:
            raise EOFError
        event: Body = json.loads(line)
        return event

    async def named(self) -> tuple[str, str]:
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")


OpenWatch = Callable[..., Awaitable[Watch]]


@pytest.fixture
async def watch() -> AsyncIterator[OpenWatch]:
    """Open watches that are closed with the test."""
    opened: list[aiohttp.ClientResponse] = []

    async def open_watch(http: aiohttp.ClientSession, path: str, **params: str) -> Watch:
        response = await http.get(path, params={"watch": "1", **params})
        opened.append(response)
        assert response.status == 200
        return Watch(response)

    yield open_watch
    for response in opened:
        response.close()


# Lists


async def test_a_list_is_sorted_and_its_items_of_built_in_kinds_bear_no_kind(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    for name in ("b", "a"):
        cluster.create(pod(name))
    status, body = await answer(http, "GET", "/api/v1/pods")
    assert status == 200
    assert (body["kind"], body["apiVersion"], body["metadata"]) == ("PodList", "v1", {"resourceVersion": str(cluster.store.revision)})
    assert [item["metadata"]["name"] for item in body["items"]] == ["a", "b"]
    assert not {"kind", "apiVersion"} & body["items"][0].keys()


async def test_pages_show_the_state_of_the_first_page(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    for number in range(5):
        cluster.create(pod(f"p{number}"))
    _, first = await answer(http, "GET", PODS, params={"limit": "2"})
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.delete("pods", "p3")
    cluster.create(pod("p25"))
    _, second = await answer(http, "GET", PODS, params={"limit": "2", "continue": first["metadata"]["continue"]})
    _, third = await answer(http, "GET", PODS, params={"limit": "2", "continue": second["metadata"]["continue"]})
    names = [item["metadata"]["name"] for page in (first, second, third) for item in page["items"]]
    assert names == ["p0", "p1", "p2", "p3", "p4"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert "continue" not in third["metadata"]


async def test_a_page_of_the_forgotten_past_is_expired_and_offers_the_rest(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    for number in range(3):
        cluster.create(pod(f"p{number}"))
    _, first = await answer(http, "GET", PODS, params={"limit": "1"})
    cluster.delete("pods", "p1")
    cluster.compact()
    status, body = await answer(http, "GET", PODS, params={"limit": "1", "continue": first["metadata"]["continue"]})
    assert (status, body["reason"]) == (410, "Expired")
    assert body["message"].startswith("The provided continue parameter is too old")
    _, rest = await answer(http, "GET", PODS, params={"limit": "5", "continue": body["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["p2"]


async def test_lists_are_filtered_by_labels_and_fields(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", {"app": "x"}))
    cluster.create(pod("b", {"app": "x"}, nodeName="elsewhere"))
    cluster.create(pod("c", {"app": "y"}))
    _, body = await answer(http, "GET", PODS, params={"labelSelector": "app in (x)", "fieldSelector": "spec.nodeName="})
    assert [item["metadata"]["name"] for item in body["items"]] == ["a"]


@pytest.mark.parametrize(
    ("params", "status", "reason", "message"),
    [
        ({"continue": "nonsense"}, 400, "BadRequest", "invalid continue token: continue key is not valid"),
        ({"fieldSelector": "spec.priority=1"}, 400, "BadRequest", "field label not supported: spec.priority"),
        ({"resourceVersionMatch": "Exact"}, 422, "Invalid", "resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422, "Invalid", '"exact" is forbidden for resourceVersion "0"'),
        ({"resourceVersion": "999999999", "resourceVersionMatch": "NotOlderThan"}, 504, "Timeout", "Too large resource version: 999999999"),
        ({"watch": "1", "sendInitialEvents": "true"}, 422, "Invalid", "requires setting resourceVersionMatch to NotOlderThan"),
        ({"watch": "1", "resourceVersion": "abc"}, 500, None, 'resourceVersion: Invalid value: "abc": strconv.ParseUint'),
    ],
)
async def test_wrong_options_are_refused(
    params: dict[str, str], status: int, reason: str | None, message: str, http: aiohttp.ClientSession
) -> None:
    code, body = await answer(http, "GET", PODS, params=params)
    assert (code, body.get("reason")) == (status, reason)
    assert message in body["message"]
    assert body["status"] == "Failure"
    assert body["code"] == status


async def test_an_unknown_path_is_not_even_json(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis/example.com/v1/things") as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


# Watches


async def test_a_watch_goes_on_from_a_list(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    cluster.create(pod("a"))
    _, listed = await answer(http, "GET", PODS)
    cluster.create(pod("b"))
    events = await watch(http, PODS, resourceVersion=listed["metadata"]["resourceVersion"])
    assert await events.named() == ("ADDED", "b")
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    assert await events.named() == ("MODIFIED", "a")
    cluster.delete("pods", "a")
    assert await events.named() == ("MODIFIED", "a")
    assert await events.named() == ("DELETED", "a")


async def test_a_watch_without_a_version_starts_with_what_there_is(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    cluster.create(pod("a"))
    events = await watch(http, PODS)
    assert await events.named() == ("ADDED", "a")


async def test_binding_looks_like_a_deletion_to_a_watch_of_unbound_pods(
    cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch
) -> None:
    cluster.create(pod("a"))
    events = await watch(http, PODS, fieldSelector="spec.nodeName=")
    await events.next()
    await bind(http, "a", "node-1")
    event = await events.next()
    assert event["type"] == "DELETED"
    assert "nodeName" not in event["object"]["spec"]
    assert event["object"]["metadata"]["resourceVersion"] == str(cluster.store.revision)


async def test_an_object_that_enters_a_selection_is_added(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    cluster.create(pod("a"))
    events = await watch(http, PODS, labelSelector="app=x")
    cluster.patch("pods", "a", {"metadata": {"labels": {"app": "x"}}})
    assert await events.named() == ("ADDED", "a")
    cluster.patch("pods", "a", {"metadata": {"labels": {"app": "y"}}})
    assert await events.named() == ("DELETED", "a")


async def test_a_watch_from_the_forgotten_past_says_so_in_an_event(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    old = cluster.create(pod("a"))["metadata"]["resourceVersion"]
    cluster.create(pod("b"))
    cluster.compact()
    events = await watch(http, PODS, resourceVersion=old)
    event = await events.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"] == f"too old resource version: {old} ({cluster.store.revision})"
    with pytest.raises(EOFError):
        await events.next()


async def test_a_watch_list_ends_its_initial_events_with_a_bookmark(
    cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch
) -> None:
    cluster.create(pod("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await watch(http, PODS, **options)
    assert await events.named() == ("ADDED", "a")
    event = await events.next()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert event["object"]["metadata"]["resourceVersion"] == str(cluster.store.revision)
    cluster.create(pod("b"))
    assert await events.named() == ("ADDED", "b")


async def test_a_watch_ends_after_its_time_with_a_bookmark(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    revision = str(cluster.store.revision)
    events = await watch(http, PODS, resourceVersion=revision, allowWatchBookmarks="true", timeoutSeconds="1")
    assert (await events.next())["type"] == "BOOKMARK"
    with pytest.raises(EOFError):
        await events.next()


async def test_watches_can_be_dropped(cluster: Sandbox, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    pods, nodes = await watch(http, PODS), await watch(http, "/api/v1/nodes")
    cluster.drop_watches("pods")
    with pytest.raises(EOFError):
        await pods.next()
    cluster.add_node("node-1")
    assert await nodes.named() == ("ADDED", "node-1")


async def test_a_watch_that_lags_behind_the_history_is_expired(http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    async with Sandbox(history=10, startup_delay=0) as small:
        old = small.create(pod("first"))["metadata"]["resourceVersion"]
        for number in range(50):
            small.create(pod(f"p{number}"))
        async with aiohttp.ClientSession(small.url) as session:
            events = await watch(session, PODS, resourceVersion=old)
            assert (await events.next())["type"] == "ERROR"


# Writes


async def test_a_stale_write_is_a_conflict(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    created = cluster.create(pod("a"))
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    status, body = await answer(http, "PUT", f"{PODS}/a", json=created)
    assert (status, body["reason"]) == (409, "Conflict")
    assert body["message"].startswith('Operation cannot be fulfilled on pods "a": the object has been modified')


async def test_a_lease_must_be_updated_with_its_version(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    status, created = await answer(http, "POST", path, json=lease)
    assert status == 201
    status, body = await answer(http, "PUT", f"{path}/l", json=lease)
    assert status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in body["message"]
    created["spec"]["holderIdentity"] = "b"
    status, updated = await answer(http, "PUT", f"{path}/l", json=created)
    assert (status, updated["spec"]["holderIdentity"]) == (200, "b")


async def test_a_dry_run_persists_nothing(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    before = cluster.store.revision
    status, body = await answer(http, "POST", PODS, json=pod("a"), params={"dryRun": "All"})
    assert (status, body["metadata"]["name"]) == (201, "a")
    cluster.create(pod("b"))
    await answer(http, "PATCH", f"{PODS}/b", json={"metadata": {"labels": {"x": "y"}}}, headers=MERGE, params={"dryRun": "All"})
    await answer(http, "DELETE", f"{PODS}/b", params={"dryRun": "All"})
    assert (await bind(http, "b", "node-1", dryRun="All"))[0] == 201
    assert cluster.store.revision == before + 1


async def test_preconditions_of_a_deletion_are_checked(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    created = cluster.create(pod("a"))
    uid, version = created["metadata"]["uid"], created["metadata"]["resourceVersion"]
    status, body = await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": "1111"}})
    assert status == 409
    assert f"the UID in the precondition (1111) does not match the UID in record ({uid})" in body["message"]
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    status, body = await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": uid, "resourceVersion": version}})
    assert status == 409
    assert "the ResourceVersion in the precondition" in body["message"]
    assert (await answer(http, "DELETE", f"{PODS}/a", json={"preconditions": {"uid": uid}}))[0] == 200


async def test_a_collection_can_be_deleted_by_label(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", {"app": "x"}))
    cluster.create(pod("b", {"app": "y"}))
    status, body = await answer(http, "DELETE", PODS, params={"labelSelector": "app=x"})
    assert (status, len(body["items"])) == (200, 1)
    assert [each["metadata"]["name"] for each in cluster.list("pods")] == ["b"]


async def test_a_finalizer_holds_an_object_until_it_is_taken_off(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    held = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["example.com/hold"]}}
    cluster.create(held)
    path = "/api/v1/namespaces/default/configmaps/c"
    status, body = await answer(http, "DELETE", path)
    assert status == 200
    assert body["metadata"]["deletionTimestamp"]
    await answer(http, "PATCH", path, json={"metadata": {"finalizers": None}}, headers=MERGE)
    assert (await answer(http, "GET", path))[0] == 404


async def test_patch_formats_other_than_a_custom_resource_takes_are_refused(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "t"}, "spec": {}})
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    status, body = await answer(http, "PATCH", "/apis/kubeflow.org/v1/namespaces/default/tfjobs/t", json={}, headers=strategic)
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


async def test_server_side_apply_creates_and_then_merges(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = "/api/v1/namespaces/default/configmaps/c"
    text = "apiVersion: v1\nkind: ConfigMap\ndata: {a: '1'}\n"
    status, body = await answer(http, "PATCH", path, data=text, headers=headers)
    assert (status, body["reason"]) == (422, "Invalid")
    assert (await answer(http, "PATCH", path, data=text, headers=headers, params={"fieldManager": "m"}))[0] == 201
    status, body = await answer(http, "PATCH", path, data=text.replace("{a:", "{b:"), headers=headers, params={"fieldManager": "m"})
    assert (status, body["data"]) == (200, {"a": "1", "b": "1"})


async def test_server_side_apply_of_an_undeclared_field_fails_without_a_reason(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(definition())
    gang = {"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}, "bogus": 1}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = "/apis/example.com/v1/namespaces/default/gangs/g"
    status, body = await answer(http, "PATCH", path, json=gang, headers=headers, params={"fieldManager": "m"})
    assert (status, body.get("reason")) == (500, None)
    expected = "failed to create typed patch object (/g; example.com/v1, Kind=Gang): .bogus: field not declared in schema"
    assert body["message"] == expected


async def test_unknown_fields_of_a_custom_resource_are_warned_of_or_refused(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(definition())
    path, gang = "/apis/example.com/v1/namespaces/default/gangs", {"metadata": {"name": "g"}, "bogus": 1}
    async with http.post(path, json=gang, params={"fieldValidation": "Strict"}) as response:
        assert response.status == 400
        expected = 'Gang in version "v1" cannot be handled as a Gang: strict decoding error: unknown field "bogus"'
        assert (await response.json())["message"] == expected
    async with http.post(path, json=gang) as response:
        assert response.status == 201
        assert response.headers["Warning"] == '299 - "unknown field \\"bogus\\""'
        assert "bogus" not in await response.json()


async def test_both_event_apis_show_the_same_events(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
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
    status, patched = await answer(http, "PATCH", f"{path}/e", json={"series": {"count": 2}}, headers=MERGE)
    assert (status, patched["series"], patched["note"]) == (200, {"count": 2}, "0/1 nodes are available")


async def test_access_reviews_allow_everything(http: aiohttp.ClientSession) -> None:
    status, body = await answer(http, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json={"spec": {}})
    assert (status, body["status"]) == (201, {"allowed": True})


# Subresources over HTTP


async def test_a_bind_answers_a_status(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    assert await bind(http, "a", "node-1") == (201, success)
    status, body = await bind(http, "a", "node-1")
    assert (status, body["details"]) == (409, {"name": "a", "kind": "pods/binding"})


async def test_a_pod_can_be_bound_in_the_legacy_way(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    body = {"metadata": {"name": "a"}, "target": {"name": "node-1"}}
    assert (await answer(http, "POST", "/api/v1/namespaces/default/bindings", json=body))[0] == 201


async def test_an_unknown_field_of_a_binding_is_refused_when_strict(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    body = {"metadata": {"name": "a"}, "target": {"name": "n"}, "foo": 1}
    status, reply = await answer(http, "POST", f"{PODS}/a/binding", json=body, params={"fieldValidation": "Strict"})
    assert status == 400
    assert reply["message"] == 'Binding in version "v1" cannot be handled as a Binding: strict decoding error: unknown field "foo"'


async def test_an_eviction_answers_a_status(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    status, reply = await answer(http, "POST", f"{PODS}/a/eviction", json=body)
    assert (status, reply["status"]) == (201, "Success")
    assert (await answer(http, "POST", f"{PODS}/a/eviction", json=body))[0] == 404


async def test_replicas_are_read_and_written_as_a_scale(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    path = "/apis/apps/v1/namespaces/default/deployments/d/scale"
    _, scale = await answer(http, "GET", path)
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "a=b")
    status, scaled = await answer(http, "PATCH", path, json={"spec": {"replicas": 3}}, headers=MERGE)
    assert (status, scaled["spec"]) == (200, {"replicas": 3})
    await cluster.wait_for(lambda sandbox: len(sandbox.list("pods")) == 3)


# Failures on demand


async def test_the_chosen_bind_fails_and_the_others_succeed(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    for name in ("a", "b", "c"):
        cluster.create(pod(name))
    cluster.faults.add(Fault("bind", "pods", nth=2, status=429, retry_after=1))
    assert (await bind(http, "a", "n"))[0] == 201
    async with http.post(f"{PODS}/b/binding", json={"metadata": {"name": "b"}, "target": {"name": "n"}}) as response:
        body = await response.json()
        assert (response.status, response.headers["Retry-After"]) == (429, "1")
        assert (body["reason"], body["details"]["retryAfterSeconds"]) == ("TooManyRequests", 1)
    assert (await bind(http, "c", "n"))[0] == 201
    assert "nodeName" not in cluster.get("pods", "b")["spec"]  # type: ignore[index]


async def test_a_dropped_connection_leaves_the_write_undone(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    cluster.faults.add(Fault("bind", "pods", drop=True))
    with pytest.raises(aiohttp.ClientError):
        await bind(http, "a", "n")
    assert "nodeName" not in cluster.get("pods", "a")["spec"]  # type: ignore[index]


async def test_a_lost_reply_leaves_the_write_done(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    cluster.faults.add(Fault("bind", "pods", drop=True, after=True))
    with pytest.raises(aiohttp.ClientError):
        await bind(http, "a", "n")
    assert cluster.get("pods", "a")["spec"]["nodeName"] == "n"  # type: ignore[index]


async def test_a_refused_watch_is_refused(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.faults.add(Fault("watch", "pods", status=500))
    status, body = await answer(http, "GET", PODS, params={"watch": "1"})
    assert (status, body["reason"]) == (500, "InternalError")


async def test_a_delay_alone_only_slows_a_request_down(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    cluster.faults.add(Fault("get", "pods", status=0, delay=0.01))
    assert (await answer(http, "GET", f"{PODS}/a"))[0] == 200


# The whole


async def test_a_sandbox_stops_with_watches_open(http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    sandbox = Sandbox()
    await sandbox.start()
    async with aiohttp.ClientSession(sandbox.url) as session:
        events = await watch(session, PODS)
        async with asyncio.timeout(5):
            await sandbox.stop()
        with pytest.raises((EOFError, aiohttp.ClientError)):
            await events.next()


async def test_waiting_in_vain_tells_what_for(cluster: Sandbox) -> None:
    with pytest.raises(TimeoutError, match="the pod never ran"):
        await cluster.wait_for(lambda _: False, timeout=0.01, message="the pod never ran")


async def test_loaded_objects_are_listed_and_take_room_on_their_nodes(cluster: Sandbox, http: aiohttp.ClientSession) -> None:
    cluster.add_node("node-1", cpu="2")
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    full = pod("loaded", nodeName="node-1", containers=[container])
    full["metadata"] |= {"namespace": "default", "uid": "1"}
    cluster.load([{**full, "status": {"phase": "Running"}}])
    cluster.create(pod("late", containers=[container]))
    await bind(http, "late", "node-1")
    await cluster.wait_for(lambda sandbox: sandbox.get("pods", "late")["status"]["phase"] == "Failed")  # type: ignore[index]
