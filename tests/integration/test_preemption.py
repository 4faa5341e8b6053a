"""Preemption on a cluster: a gang of higher priority starts in the place of whole gangs with lower priority, or no pod is evicted."""

from typing import Any

from allaboard.model.gang import GangKey
from tests.cluster import Cluster

from .conftest import StartApp, gang_pod

HIGH = GangKey("default", "high")
MADE_AGAIN = {"allaboard.dev/recreate": "true"}


def on_nodes(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.list("pods") if pod["spec"].get("nodeName")}


def status_of(cluster: Cluster, name: str) -> dict[str, Any]:
    group = cluster.get("PodGroup", name)
    return (group or {}).get("status") or {}


def disruption_of(pod: dict[str, Any]) -> dict[str, Any]:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == "DisruptionTarget"), {})


def furnish(cluster: Cluster, *, nodes: int = 2) -> None:
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    for number in range(nodes):
        cluster.add_node(f"n{number}", cpu="8")


async def test_a_gang_starts_in_the_place_of_one_whole_gang_of_lower_priority(cluster: Cluster, start_app: StartApp) -> None:
    furnish(cluster)
    for name, size in (("wide", 2), ("other", 1)):
        for number in range(size):
            cluster.create(gang_pod(f"{name}-{number}", name, size, requests={"cpu": "5"}, annotations=MADE_AGAIN))
    cluster.add_node("n2", cpu="8")
    app = await start_app()
    await cluster.wait_for(lambda s: on_nodes(s) == {"wide-0", "wide-1", "other-0"}, message="the nodes are busy")
    cluster.create(gang_pod("high-0", "high", 1, requests={"cpu": "6"}, priorityClassName="high"))
    await cluster.wait_for(lambda s: "high-0" in on_nodes(s), message="the gang of higher priority runs")
    assert on_nodes(cluster) == {"wide-0", "wide-1", "high-0"}
    assert app.ledger.find(HIGH) is None
    evictions = [(key.name, each.message) for key, each in app.records.decisions.last() if each.decision == "Evict"]
    assert [name for name, _ in evictions] == ["other"]
    assert "evicted for podgroup default/high" in evictions[0][1]
    await cluster.wait_for(
        lambda s: any(event.get("reason") == "Preempted" for event in s.list("events")), message="the eviction is reported"
    )


async def test_no_pod_is_evicted_if_a_budget_protects_a_pod_that_would_have_to_go(cluster: Cluster, start_app: StartApp) -> None:
    furnish(cluster)
    cluster.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guard", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        }
    )
    for number, name in enumerate(("guarded", "free")):
        pod = gang_pod(name, "low", 2, requests={"cpu": "8"}, annotations=MADE_AGAIN)
        pod["metadata"]["labels"]["app"] = name
        cluster.create(pod)
        assert number < 2
    await start_app()
    await cluster.wait_for(lambda s: on_nodes(s) == {"guarded", "free"}, message="the nodes are busy")
    cluster.create(gang_pod("high-0", "high", 1, requests={"cpu": "6"}, priorityClassName="high"))
    await cluster.wait_for(lambda s: bool(status_of(s, "high").get("reason")), message="the gang waits")
    cluster.create(gang_pod("later", "later", 1, requests={"cpu": "1"}))
    await cluster.wait_for(lambda s: bool(status_of(s, "later").get("reason")), message="a later gang was attempted")
    assert on_nodes(cluster) == {"guarded", "free"}
    assert not any(disruption_of(pod) for pod in cluster.list("pods"))


async def test_pod_of_another_scheduler_is_evicted_only_if_the_setting_allows_that(cluster: Cluster, start_app: StartApp) -> None:
    furnish(cluster, nodes=1)
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    made = cluster.create({**owner, "metadata": {"name": "job", "namespace": "default"}})
    other = gang_pod("other", "", 1, requests={"cpu": "6"}, schedulerName="another", nodeName="n0")
    other["metadata"] = {"name": "other", "namespace": "default"}
    other["metadata"]["ownerReferences"] = [{**owner, "name": "job", "uid": made["metadata"]["uid"], "controller": True}]
    cluster.create(other)
    app = await start_app(preempt_others=True)
    cluster.create(gang_pod("high-0", "high", 1, requests={"cpu": "6"}, priorityClassName="high"))
    await cluster.wait_for(lambda s: on_nodes(s) == {"high-0"}, message="the gang of higher priority runs")
    assert app.ledger.find(HIGH) is None
