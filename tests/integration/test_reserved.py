"""Reservations on a cluster: gangs start in queue order, and PodGroups show the expected start."""

from typing import Any

import pytest

from allaboard.model.gang import GangKey
from allaboard.model.pod import WALLTIME
from tests.cluster import Cluster

from .conftest import StartApp, gang_pod

HIGH, LOW = GangKey("default", "high"), GangKey("default", "low")


def on_nodes(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.list("pods") if pod["spec"].get("nodeName")}


def status_of(cluster: Cluster, name: str) -> dict[str, Any]:
    group = cluster.get("PodGroup", name)
    return (group or {}).get("status") or {}


def reason_of(pod: dict[str, Any]) -> str:
    """Return the reason of a pod's condition PodScheduled, to which autoscalers react."""
    return next((str(each.get("reason")) for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"), "")


@pytest.mark.parametrize("walltime", ["", "1h"])
async def test_gang_of_higher_priority_starts_next_and_shows_its_expected_start_if_walltimes_are_stated(
    cluster: Cluster, start_app: StartApp, walltime: str
) -> None:
    """Two pods of 6 CPUs need two free nodes; 13 pods of one CPU would take the first node that is free."""
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    busy, stated = [f"busy-{number}" for number in range(4)], {WALLTIME: walltime} if walltime else {}
    for number, name in enumerate(busy):
        cluster.add_node(f"n{number}", cpu="8")
        cluster.create(gang_pod(name, name, 1, requests={"cpu": "5"}, annotations=stated))
    app = await start_app()
    await cluster.wait_for(lambda s: on_nodes(s) == set(busy), message="four nodes are busy")
    for name in ("high-0", "high-1"):
        cluster.create(gang_pod(name, "high", 2, requests={"cpu": "6"}, priorityClassName="high"))
    for number in range(13):
        cluster.create(gang_pod(f"low-{number}", "low", 13, requests={"cpu": "1"}))
    await cluster.wait_for(lambda s: all(status_of(s, name).get("reason") for name in ("high", "low")), message="both wait")
    await cluster.wait_for(
        lambda s: bool(status_of(s, "high").get("expectedStart")) is bool(walltime), message="the expected start is shown"
    )
    assert ("from stated walltimes" in status_of(cluster, "high")["message"]) is bool(walltime)
    cluster.finish_pod("busy-2")
    await cluster.wait_for(lambda s: status_of(s, "low").get("reason") == "Reserved", message="the capacity is reserved")
    assert "the free capacity is reserved for podgroup default/high" in status_of(cluster, "low")["message"]
    assert HIGH in [each.owner for each in app.ledger.reservations]
    await cluster.wait_for(
        lambda s: {reason_of(pod) for pod in s.list("pods") if pod["metadata"]["name"].startswith("low")} == {"Reserved"},
        message="no autoscaler adds nodes for the gang of low priority",
    )
    cluster.finish_pod("busy-0")
    await cluster.wait_for(lambda s: on_nodes(s) >= {"high-0", "high-1"}, message="the gang of higher priority runs")
    assert not any(name.startswith("low") for name in on_nodes(cluster))
    assert app.ledger.find(HIGH) is None
    await cluster.wait_for(lambda s: "expectedStart" not in status_of(s, "high"), message="it no longer waits")


async def test_a_short_gang_starts_on_reserved_capacity_and_a_long_one_waits(cluster: Cluster, start_app: StartApp) -> None:
    for number in range(2):
        cluster.add_node(f"n{number}", cpu="8")
        cluster.create(gang_pod(f"busy-{number}", f"busy-{number}", 1, requests={"cpu": "4"}, annotations={WALLTIME: "1h"}))
    app = await start_app()
    await cluster.wait_for(lambda s: len(on_nodes(s)) == 2)
    for name in ("wide-0", "wide-1"):
        cluster.create(gang_pod(name, "wide", 2, requests={"cpu": "8"}))
    await cluster.wait_for(lambda s: bool(app.ledger.reservations), message="there is a reservation")
    cluster.create(gang_pod("younger-long", "younger-long", 1, requests={"cpu": "1"}, annotations={WALLTIME: "2h"}))
    await cluster.wait_for(lambda s: status_of(s, "younger-long").get("reason") == "Reserved")
    cluster.create(gang_pod("younger-short", "younger-short", 1, requests={"cpu": "4"}, annotations={WALLTIME: "10m"}))
    await cluster.wait_for(lambda s: "younger-short" in on_nodes(s), message="it ends before the reservation begins")
    assert "younger-long" not in on_nodes(cluster)


async def test_a_bind_writes_the_walltime_of_the_pod_group(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("n", cpu="8")
    cluster.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": "default", "annotations": {WALLTIME: "90m"}},
            "spec": {"minMember": 2},
        }
    )
    for name, stated in (("a", {}), ("b", {WALLTIME: "1h"})):
        pod = gang_pod(name, "train", 2, annotations=stated)
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
        cluster.create(pod)
    await start_app()
    await cluster.wait_for(lambda s: on_nodes(s) == {"a", "b"})
    written = {pod["metadata"]["name"]: pod["metadata"]["annotations"][WALLTIME] for pod in cluster.list("pods")}
    assert written == {"a": "3600", "b": "1h"}


async def test_a_malformed_walltime_holds_the_gang(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("n", cpu="8")
    cluster.create(gang_pod("a", "train", 1, annotations={WALLTIME: "soon"}))
    await start_app()
    await cluster.wait_for(lambda s: status_of(s, "train").get("reason") == "Held")
    assert (
        "annotation allaboard.dev/walltime: 'soon' is not a time such as 5400, 90m, 1h30m or 2d" in status_of(cluster, "train")["message"]
    )
