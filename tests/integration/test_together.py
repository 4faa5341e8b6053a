"""Contending pods and gangs are placed together, and a gang that is left out gets a reservation."""

from collections.abc import Sequence
from typing import Any

import pytest

from allaboard.app import App
from allaboard.model.gang import Gang, GangKey
from allaboard.placement import Plan
from allaboard.planning.planner import Planner
from allaboard.queueing.requeue import Freed
from tests.cluster import Cluster
from tests.unit.placement.solvers.test_search import DEMO_CPU, DEMO_MEMORY

from .conftest import StartApp, gang_pod


def single_pod(name: str, requests: dict[str, str]) -> dict[str, Any]:
    """Return a pod that belongs to no gang."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "allaboard", "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}]},
    }


def bound(cluster: Cluster, prefix: str = "") -> set[str]:
    pods = [pod for pod in cluster.list("pods") if pod["spec"].get("nodeName") and pod["metadata"]["name"].startswith(prefix)]
    return {pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")}


def refused(cluster: Cluster) -> dict[str, str]:
    """Return the reasons why pods can't be scheduled, by the pod's name."""
    conditions = {
        pod["metadata"]["name"]: condition
        for pod in cluster.list("pods")
        for condition in (pod.get("status") or {}).get("conditions") or []
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }
    return {name: condition.get("message", "") for name, condition in conditions.items()}


async def test_sixteen_of_the_twenty_single_demo_pods_are_bound_and_four_are_refused(cluster: Cluster, start_app: StartApp) -> None:
    for index in (1, 2, 3):
        cluster.add_node(f"node{index}", cpu="8", memory="16Gi")
    for number, (cpu, memory) in enumerate(zip(DEMO_CPU, DEMO_MEMORY, strict=True), start=1):
        cluster.create(single_pod(f"pod{number}", {"cpu": str(cpu), "memory": f"{memory}Mi"}))
    await start_app()

    await cluster.wait_for(lambda s: len(bound(s)) == 16 and len(refused(s)) == 4, message="sixteen bound and four refused")

    reasons = refused(cluster)
    assert "pod1" in reasons
    assert not bound(cluster) & reasons.keys()
    assert all("Insufficient cpu" in message for message in reasons.values())


async def test_gang_that_was_left_out_has_a_reservation_and_is_placed_next(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node", cpu="8")
    for name in ("old-a", "old-b"):
        cluster.create(gang_pod(name, "old", 2, requests={"cpu": "1"}))
    cluster.create(gang_pod("young-a", "young", 1, requests={"cpu": "8"}))
    app: App = await start_app()
    # The younger gang alone uses the whole node.
    await cluster.wait_for(lambda s: bound(s) == {"young-a"} and "old-a" in refused(s))
    assert [each.owner.name for each in app.ledger.reservations] == ["old"]

    cluster.create(gang_pod("younger-a", "younger", 1, requests={"cpu": "8"}))
    await cluster.wait_for(lambda s: "younger-a" in refused(s))
    cluster.finish_pod("young-a")

    await cluster.wait_for(lambda s: bound(s) >= {"old-a", "old-b"})
    assert "younger-a" not in bound(cluster)


async def test_events_of_a_running_gang_of_higher_priority_do_not_delay_other_gangs(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_node("node", cpu="8")
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    cluster.create(gang_pod("high-a", "high", 1, requests={"cpu": "1"}, priorityClassName="high"))
    app = await start_app()
    await cluster.wait_for(lambda s: bound(s) == {"high-a"})
    plan_together = Planner.plan_together

    async def plan_while_events_arrive(planner: Planner, gangs: Sequence[Gang]) -> dict[GangKey, Plan]:
        plans = await plan_together(planner, gangs)
        app.queue.mark(GangKey("default", "high"))
        return plans

    monkeypatch.setattr(Planner, "plan_together", plan_while_events_arrive)
    for name in ("one", "two"):
        cluster.create(gang_pod(f"{name}-a", name, 1, requests={"cpu": "4"}))
    await cluster.wait_for(lambda s: len(bound(s)) == 2 and len(refused(s)) == 1, message="one gang is bound, the other is refused")


async def test_gang_of_higher_priority_that_does_not_fit_does_not_delay_others_when_capacity_is_freed(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("high", 1000), ("middle", 10)):
        cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
    cluster.add_node("node", cpu="8")
    cluster.create(gang_pod("high-a", "high", 1, requests={"cpu": "16"}, priorityClassName="high"))
    app = await start_app(backoff_initial_seconds=5.0, backoff_max_seconds=5.0)
    await cluster.wait_for(lambda s: "high-a" in refused(s))
    plan_together = Planner.plan_together

    async def plan_while_capacity_is_freed(planner: Planner, gangs: Sequence[Gang]) -> dict[GangKey, Plan]:
        plans = await plan_together(planner, gangs)
        if plans:
            app.queue.observe(Freed({"cpu"}))
        return plans

    monkeypatch.setattr(Planner, "plan_together", plan_while_capacity_is_freed)
    cluster.create(gang_pod("low-a", "low", 1, requests={"cpu": "1"}))
    for name, cpu in (("one", "4"), ("two", "6")):
        cluster.create(gang_pod(f"{name}-a", name, 1, requests={"cpu": cpu}, priorityClassName="middle"))
    await cluster.wait_for(lambda s: len(bound(s) & {"one-a", "two-a"}) == 1)


async def test_many_active_pods_are_placed_together_even_if_all_fit(
    cluster: Cluster, start_app: StartApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*arguments: object) -> Plan:
        raise AssertionError("one by one")

    monkeypatch.setattr(Planner, "plan", never)
    for name in ("node-1", "node-2"):
        cluster.add_node(name, cpu="16")
    for number in range(12):
        cluster.create(single_pod(f"pod{number}", {"cpu": "1"}))
    await start_app()
    await cluster.wait_for(lambda s: len(bound(s)) == 12)
    assert len({pod["spec"]["nodeName"] for pod in cluster.list("pods")}) == 1  # packed
