"""Evictions and disruption budgets, with the replies of a real API server."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from allaboard.sandbox import ApiError, Sandbox
from allaboard.sandbox.api import WriteOptions
from allaboard.sandbox.binding import bind
from allaboard.sandbox.eviction import evict

MakePod = Callable[..., dict[str, Any]]


def budget(name: str = "pdb", **spec: Any) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "web"}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {"selector": selector, **spec}}


def running(sandbox: Sandbox) -> int:
    return sum(1 for pod in sandbox.list("pods") if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"])


@pytest.fixture
async def web(sandbox: Sandbox, pod: MakePod) -> AsyncIterator[Sandbox]:
    """Three running pods labelled app=web."""
    sandbox.add_node("node-1")
    for name in ("a", "b", "c"):
        sandbox.create(pod(name, labels={"app": "web"}))
        bind(sandbox.api, "default", name, {"metadata": {"name": name}, "target": {"name": "node-1"}}, WriteOptions())
    await sandbox.wait_for(lambda cluster: running(cluster) == 3)
    yield sandbox


async def test_an_eviction_deletes_and_says_why(web: Sandbox) -> None:
    evict(web.api, "default", "a", {})
    evicted = web.get("pods", "a")
    assert evicted is not None
    assert "deletionTimestamp" in evicted["metadata"]
    target = next(each for each in evicted["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_budget_without_room_blocks(web: Sandbox) -> None:
    web.create(budget(minAvailable=3))
    with pytest.raises(ApiError) as refused:
        evict(web.api, "default", "a", {})
    assert (refused.value.status, refused.value.reason) == (429, "TooManyRequests")
    assert refused.value.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.value.body()["details"]["causes"] == [
        {"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 3 healthy pods and has 3 currently"}
    ]
    assert refused.value.retry_after is None


async def test_the_budget_is_asked_before_the_preconditions(web: Sandbox) -> None:
    web.create(budget(minAvailable=3))
    with pytest.raises(ApiError) as refused:
        evict(web.api, "default", "a", {"deleteOptions": {"preconditions": {"uid": "1111"}}})
    assert refused.value.status == 429


async def test_a_budget_lets_go_what_it_can_spare(web: Sandbox) -> None:
    web.create(budget(maxUnavailable="34%"))
    evict(web.api, "default", "a", {})
    evict(web.api, "default", "b", {})
    with pytest.raises(ApiError, match="disruption budget"):
        evict(web.api, "default", "c", {})


async def test_two_budgets_for_one_pod_are_an_error(web: Sandbox) -> None:
    web.create(budget("one", minAvailable=0))
    web.create(budget("two", minAvailable=0))
    with pytest.raises(ApiError) as refused:
        evict(web.api, "default", "a", {})
    assert refused.value.status == 500


async def test_a_dry_run_evicts_nothing(web: Sandbox) -> None:
    evict(web.api, "default", "a", {}, dry_run=True)
    assert running(web) == 3


async def test_a_pending_pod_is_evicted_whatever_the_budget(sandbox: Sandbox, pod: MakePod) -> None:
    sandbox.create(budget(minAvailable=1))
    sandbox.create(pod(labels={"app": "web"}))
    evict(sandbox.api, "default", "p", {})
    assert sandbox.get("pods", "p") is None


async def test_a_wrong_uid_is_a_conflict(web: Sandbox) -> None:
    with pytest.raises(ApiError, match=r"the UID in the precondition \(1111\) does not match the UID in record"):
        evict(web.api, "default", "a", {"deleteOptions": {"preconditions": {"uid": "1111"}}})


async def test_the_status_of_a_budget_follows_its_pods(web: Sandbox) -> None:
    web.create(budget(minAvailable=2))
    await web.wait_for(lambda cluster: "status" in cluster.get("pdb", "pdb"))  # type: ignore[operator]
    status = web.get("pdb", "pdb")["status"]  # type: ignore[index]
    assert (status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]) == (3, 2, 1)
    web.delete("pods", "a")
    await web.wait_for(lambda cluster: cluster.get("pdb", "pdb")["status"]["disruptionsAllowed"] == 0)  # type: ignore[index]
