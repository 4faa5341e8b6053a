"""Evictions delete pods unless a disruption budget blocks them."""

from typing import Any

import aiohttp
import pytest

from tests.cluster import Cluster

from .conftest import PODS, answer, bind, pod

Reply = tuple[int, Any]
BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


def budget(name: str = "pdb", **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {"selector": selector, **spec}}


async def evict(http: aiohttp.ClientSession, name: str, options: dict[str, Any] | None = None, **params: str) -> Reply:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}} | ({"deleteOptions": options} if options else {})
    return await answer(http, "POST", f"{PODS}/{name}/eviction", json=body, params=params)


async def guard(cluster: Cluster, body: dict[str, Any], healthy: int = 3) -> None:
    """Create a disruption budget, and wait until the disruption controller counts ``healthy`` of its pods as healthy."""
    name = body["metadata"]["name"]
    cluster.create(body)
    await cluster.wait_for(lambda home: status_of(home, name).get("currentHealthy") == healthy)


def status_of(cluster: Cluster, name: str = "pdb") -> dict[str, Any]:
    return (cluster.get("poddisruptionbudgets", name) or {}).get("status") or {}


def running(cluster: Cluster) -> int:
    pods = cluster.list("pods", "default")
    return sum(1 for each in pods if each["status"]["phase"] == "Running" and "deletionTimestamp" not in each["metadata"])


@pytest.fixture
async def web(cluster: Cluster, http: aiohttp.ClientSession) -> Cluster:
    """Return a cluster with three running pods labelled app=web."""
    cluster.add_node("node-1")
    for name in ("a", "b", "c"):
        cluster.create(pod(name, {"app": "web"}))
        await bind(http, name, "node-1")
    await cluster.wait_for(lambda home: running(home) == 3)
    return cluster


async def test_an_eviction_deletes_a_pod_and_sets_its_disruption_condition(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    held = pod("a", nodeName="nowhere")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(held)
    status, reply = await evict(http, "a")
    assert (status, reply) == (201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
    evicted = cluster.get("pods", "a")
    assert evicted is not None
    assert "deletionTimestamp" in evicted["metadata"]
    target = next(each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_missing_pod_cannot_be_evicted(http: aiohttp.ClientSession) -> None:
    status, reply = await evict(http, "nope")
    assert (status, reply["reason"], reply["message"]) == (404, "NotFound", 'pods "nope" not found')


@pytest.mark.parametrize("options", [None, {"preconditions": {"uid": "1111"}}], ids=["plain", "checked-before-the-preconditions"])
async def test_a_disruption_budget_that_allows_no_disruption_blocks_an_eviction(
    options: dict[str, Any] | None, web: Cluster, http: aiohttp.ClientSession
) -> None:
    await guard(web, budget(minAvailable=3))
    async with http.post(
        f"{PODS}/a/eviction",
        json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options or {}},
    ) as response:
        body = await response.json()
        assert (response.status, body["reason"], body["message"]) == (429, "TooManyRequests", BLOCKED)
        assert "Retry-After" not in response.headers
    assert body["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 3 healthy pods and has 3 currently"}
    ]


async def test_a_disruption_budget_allows_evictions_down_to_its_minimum(web: Cluster, http: aiohttp.ClientSession) -> None:
    await guard(web, budget(minAvailable=2))
    assert (await evict(http, "a"))[0] == 201
    status, reply = await evict(http, "b")
    assert (status, reply["reason"], reply["message"]) == (429, "TooManyRequests", BLOCKED)


@pytest.mark.parametrize("spec", [{"maxUnavailable": 1}, {"maxUnavailable": "50%"}, {"minAvailable": "10%"}])
async def test_a_disruption_budget_that_depends_on_replica_counts_blocks_evictions_of_bare_pods(
    spec: dict[str, Any], web: Cluster, http: aiohttp.ClientSession
) -> None:
    await guard(web, budget(**spec))
    assert (status_of(web)["expectedPods"], status_of(web)["disruptionsAllowed"]) == (0, 0)
    assert (await evict(http, "a"))[0] == 429


async def test_a_percentage_in_a_disruption_budget_is_of_the_replicas_of_the_deployment(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.add_node("node-1")
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
    await cluster.wait_for(lambda home: len(home.list("pods", "default")) == 3)
    members = [each["metadata"]["name"] for each in cluster.list("pods", "default")]
    for member in members:
        await bind(http, member, "node-1")
    await guard(cluster, budget(maxUnavailable="34%"))
    status = status_of(cluster)
    # Percentages are rounded up: two pods may be unavailable.
    assert (status["expectedPods"], status["desiredHealthy"], status["disruptionsAllowed"]) == (3, 1, 2)
    assert [(await evict(http, member))[0] for member in members] == [201, 201, 429]


async def test_eviction_of_a_pod_with_two_disruption_budgets_is_an_error(web: Cluster, http: aiohttp.ClientSession) -> None:
    for name in ("one", "two"):
        await guard(web, budget(name, minAvailable=0))
    status, reply = await evict(http, "a")
    expected = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert (status, reply["message"]) == (500, expected)


async def test_a_dry_run_evicts_nothing(web: Cluster, http: aiohttp.ClientSession) -> None:
    assert (await evict(http, "a", dryRun="All"))[0] == 201
    assert running(web) == 3


async def test_a_pending_pod_is_evicted_whatever_its_disruption_budget_says(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", {"app": "web"}))
    await guard(cluster, budget(minAvailable=1), healthy=0)
    assert (await evict(http, "a"))[0] == 201
    assert cluster.get("pods", "a") is None


async def test_an_eviction_that_states_another_uid_than_the_pods_is_a_conflict(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    uid = cluster.create(pod("a"))["metadata"]["uid"]
    status, reply = await evict(http, "a", {"preconditions": {"uid": "1111"}})
    assert (status, reply["reason"]) == (409, "Conflict")
    assert f"the UID in the precondition (1111) does not match the UID in record ({uid})" in reply["message"]


async def test_the_status_of_a_disruption_budget_follows_its_pods(web: Cluster) -> None:
    await guard(web, budget(minAvailable=2))
    status = status_of(web)
    assert (status["currentHealthy"], status["desiredHealthy"], status["expectedPods"], status["disruptionsAllowed"]) == (3, 2, 3, 1)
    web.delete("pods", "a")
    await web.wait_for(lambda home: status_of(home)["disruptionsAllowed"] == 0)
