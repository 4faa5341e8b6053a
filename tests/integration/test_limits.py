"""Input beyond a limit is held or ignored, reported and counted, and other gangs are not affected."""

from pathlib import Path

import pytest

from allaboard.kube import client
from allaboard.kube.client import ApiError, ApiServer
from tests.cluster import Cluster

from .conftest import StartApp, gang_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def warnings(cluster: Cluster, reason: str) -> list[str]:
    return [event.get("message") or event.get("note") or "" for event in cluster.list("events") if event.get("reason") == reason]


async def test_gang_of_a_pod_with_too_many_labels_is_held_and_reported(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="4")
    app = await start_app()
    pod = gang_pod("a", "large", 2)
    pod["metadata"]["labels"] |= {f"l{number}": "" for number in range(70)}
    cluster.create(pod)
    cluster.create(gang_pod("b", "large", 2))
    cluster.create(gang_pod("c", "small", 1))
    await cluster.wait_for(lambda s: bool(warnings(s, "InvalidPod")))
    await cluster.wait_for(lambda s: bool((s.get("pods", "c") or {})["spec"].get("nodeName")))
    assert "metadata.labels: 72 labels are more than the 64 that are supported" in warnings(cluster, "InvalidPod")[0]
    assert not any((cluster.get("pods", name) or {})["spec"].get("nodeName") for name in "ab")
    assert app.metrics.registry.get_sample_value("allaboard_over_limit_total", {"what": "labels"}) == 1


async def test_gang_with_too_many_kinds_of_members_is_held_and_reported(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1", cpu="400")
    app = await start_app()
    for number in range(257):
        cluster.create(gang_pod(f"p{number}", "motley", 257, requests={"cpu": f"{number + 1}m"}))
    await cluster.wait_for(lambda s: bool(warnings(s, "OverLimit")))
    assert "257 kinds of members are more than the 256 that are supported" in warnings(cluster, "OverLimit")[0]
    counted = app.metrics.registry.get_sample_value("allaboard_over_limit_total", {"what": "kinds"})
    assert counted is not None
    assert counted >= 1


async def test_anti_affinity_terms_of_another_schedulers_pod_beyond_the_limit_are_ignored_and_counted_in_a_metric(
    cluster: Cluster, start_app: StartApp
) -> None:
    cluster.add_node("node-1", cpu="4")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": "absent", "operator": "Exists"}]}}
    last = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    foreign = gang_pod("db", "x", 1)
    foreign["metadata"]["labels"] = {}
    foreign["spec"] |= {
        "schedulerName": "other",
        "nodeName": "node-1",
        "affinity": {"podAntiAffinity": {REQUIRED: [*[term] * 16, last]}},
    }
    cluster.create(foreign)
    app = await start_app()
    cluster.create(gang_pod("a", "team", 1))
    await cluster.wait_for(lambda s: bool((s.get("pods", "a") or {})["spec"].get("nodeName")))
    assert app.metrics.registry.get_sample_value("allaboard_over_limit_total", {"what": "anti_affinity_terms"}) == 1


async def test_reply_to_a_write_is_parsed_only_if_the_reply_is_an_error(
    cluster: Cluster, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create(gang_pod("a", "team", 1))
    monkeypatch.setattr(client, "decoded", lambda *_: pytest.fail("a pod may be large"))
    async with ApiServer.connect() as server:
        for value in ("1", "2"):
            await server.write("/api/v1/namespaces/default/pods/a/status", {"metadata": {"annotations": {"note": value}}})
        with pytest.raises(ApiError, match='"b" not found'):
            await server.write("/api/v1/namespaces/default/pods/b/status", {})
    assert (cluster.get("pods", "a") or {})["metadata"]["annotations"]["note"] == "2"
