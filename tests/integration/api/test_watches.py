"""Watches: where they start, which events they send, and how they end."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.cluster import Cluster

from .conftest import PODS, OpenWatch, Watch, answer, bind, definition, is_served, pod, revision_of


async def test_a_watch_continues_from_a_list(cluster: Cluster, http: aiohttp.ClientSession, watch: OpenWatch) -> None:
    cluster.create(pod("a"))
    _, listed = await answer(http, "GET", PODS)
    cluster.create(pod("b"))
    events = await watch(PODS, resourceVersion=revision_of(listed))
    assert await events.named() == ("ADDED", "b")
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    assert await events.named() == ("MODIFIED", "a")


async def test_a_watch_continues_after_the_version_of_a_given_event(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a"))
    changed = cluster.patch("pods", "a", {"metadata": {"labels": {"x": "1"}}})
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "2"}}})
    events = await watch(PODS, resourceVersion=revision_of(created))
    first = await events.next()
    assert (first["type"], first["object"]["metadata"]["labels"], revision_of(first["object"])) == (
        "MODIFIED",
        {"x": "1"},
        revision_of(changed),
    )
    resumed = await watch(PODS, resourceVersion=revision_of(changed))
    assert (await resumed.next())["object"]["metadata"]["labels"] == {"x": "2"}


async def test_a_deletion_is_sent_with_a_new_version(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a"))
    events = await watch(PODS, resourceVersion=revision_of(created))
    cluster.delete("pods", "a")
    terminating, deleted = await events.next(), await events.next()
    assert (terminating["type"], deleted["type"]) == ("MODIFIED", "DELETED")
    assert "deletionTimestamp" in terminating["object"]["metadata"]
    assert deleted["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert int(revision_of(created)) < int(revision_of(terminating["object"])) < int(revision_of(deleted["object"]))


async def test_a_watch_without_a_version_starts_with_the_existing_objects(cluster: Cluster, watch: OpenWatch) -> None:
    cluster.create(pod("a"))
    events = await watch(PODS)
    assert await events.named() == ("ADDED", "a")
    cluster.create(pod("b"))
    assert await events.named() == ("ADDED", "b")


async def test_binding_looks_like_a_deletion_to_a_watch_of_unbound_pods(
    cluster: Cluster, http: aiohttp.ClientSession, watch: OpenWatch
) -> None:
    cluster.create(pod("a"))
    events = await watch(PODS, fieldSelector="spec.nodeName=")
    assert await events.named() == ("ADDED", "a")
    await bind(http, "a", "nowhere")
    event = await events.next()
    assert event["type"] == "DELETED"
    assert "nodeName" not in event["object"]["spec"]
    assert revision_of(event["object"]) == revision_of(cluster.get("pods", "a"))


async def test_an_object_is_added_or_deleted_when_it_enters_or_leaves_the_selection(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a"))
    events = await watch(PODS, labelSelector="app=x", resourceVersion=revision_of(created))
    cluster.patch("pods", "a", {"metadata": {"labels": {"app": "x"}}})
    assert await events.named() == ("ADDED", "a")
    cluster.patch("pods", "a", {"metadata": {"annotations": {"b": "c"}}})
    assert await events.named() == ("MODIFIED", "a")
    cluster.patch("pods", "a", {"metadata": {"labels": {"app": "y"}}})
    event = await events.next()
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("DELETED", {"app": "x"})
    assert revision_of(event["object"]) == revision_of(cluster.get("pods", "a"))


async def test_one_object_can_be_watched_by_its_name(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a"))
    events = await watch(PODS, fieldSelector="metadata.name=b", resourceVersion=revision_of(created))
    cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})
    cluster.create(pod("b"))
    assert await events.named() == ("ADDED", "b")


async def test_a_write_that_changes_nothing_sends_no_event(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a", {"x": "y"}))
    events = await watch(PODS, resourceVersion=revision_of(created))
    assert revision_of(cluster.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}})) == revision_of(created)
    cluster.create(pod("b"))
    assert await events.named() == ("ADDED", "b")


async def test_a_watch_from_a_forgotten_version_gets_an_error_event(cluster: Cluster, watch: OpenWatch) -> None:
    old = revision_of(cluster.create(pod("a")))
    cluster.create(pod("b"))
    cluster.compact()
    await assert_expired(await watch(PODS, resourceVersion=old), old)


async def test_a_watch_from_a_version_before_a_change_of_the_schema_is_expired(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    """A real API server starts a new watch cache for the kind, which holds no older versions."""
    gangs = "/apis/example.com/v1/namespaces/default/gangs"
    cluster.create(definition())
    await cluster.wait_for(is_served)
    old = revision_of(cluster.create({"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}}))
    cluster.apply(definition(spec={"type": "object"}))

    params = {"watch": "1", "resourceVersion": old, "timeoutSeconds": "1"}
    event: dict[str, Any] = {"type": ""}
    async with asyncio.timeout(50):
        while event["type"] != "ERROR":  # the new schema isn't served yet
            async with http.get(gangs, params=params) as response:
                # While the cache is filled, the answer is 429.
                line = await response.content.readline() if response.status == 200 else b""
                event = json.loads(line) if line else event
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def assert_expired(events: Watch, asked: str) -> None:
    event = await events.next()
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["status"], status["code"], status["reason"]) == ("Status", "Failure", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {asked} (")
    with pytest.raises(EOFError):
        await events.next()


async def test_a_watch_list_ends_its_initial_events_with_a_bookmark(cluster: Cluster, watch: OpenWatch) -> None:
    created = cluster.create(pod("a"))
    options = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events = await watch(PODS, **options)
    assert await events.named() == ("ADDED", "a")
    event = await events.next()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1")
    assert int(revision_of(event["object"])) >= int(revision_of(created))
    cluster.create(pod("b"))
    assert await events.named() == ("ADDED", "b")


async def test_a_watch_ends_after_its_timeout_with_a_bookmark(cluster: Cluster, watch: OpenWatch) -> None:
    revision = revision_of(cluster.create(pod("a")))
    events = await watch(PODS, resourceVersion=revision, allowWatchBookmarks="true", timeoutSeconds="4")
    cluster.create(pod("b"))
    event, bookmark = await events.next(), await events.next()
    assert (event["type"], bookmark["type"]) == ("ADDED", "BOOKMARK")
    assert int(revision_of(bookmark["object"])) >= int(revision_of(event["object"])) > int(revision)
    with pytest.raises(EOFError):
        while (await events.next())["type"] == "BOOKMARK":
            pass


async def test_dropped_watches_end_and_watches_of_other_resources_continue(cluster: Cluster, watch: OpenWatch) -> None:
    pods, nodes = await watch(PODS), await watch("/api/v1/nodes")
    cluster.drop_watches("pods")
    with pytest.raises((EOFError, aiohttp.ClientError)):
        await pods.next()
    cluster.add_node("node-1")
    assert await nodes.named() == ("ADDED", "node-1")


@pytest.mark.parametrize(
    ("params", "status", "reason", "message"),
    [
        (
            {"sendInitialEvents": "true"},
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
            422,
            "Invalid",
            'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: '
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"resourceVersion": "abc"},
            500,
            None,
            'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax',
        ),
        ({"fieldSelector": "spec.priority=1"}, 400, "BadRequest", "field label not supported: spec.priority"),
    ],
)
async def test_invalid_watch_options_are_refused(
    params: dict[str, str], status: int, reason: str | None, message: str, http: aiohttp.ClientSession
) -> None:
    code, body = await answer(http, "GET", PODS, params={"watch": "1", **params})
    assert (code, body.get("reason"), body["message"], body["code"]) == (status, reason, message, status)
