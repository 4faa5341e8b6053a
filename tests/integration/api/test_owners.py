"""What goes with its owner, and what with its namespace."""

from typing import Any

import aiohttp
import pytest

from allaboard_sandbox import ApiError
from tests.cluster import Cluster

from .conftest import answer, config_map, pod

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"


def deployment(replicas: int = 2) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def owned_by(*owners: dict[str, Any]) -> dict[str, Any]:
    body = pod()
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]} for owner in owners
    ]
    return body


def uids(cluster: Cluster) -> set[str]:
    return {each["metadata"]["uid"] for each in cluster.list("pods", "default")}


@pytest.fixture
async def web(cluster: Cluster) -> Cluster:
    cluster.create(deployment())
    await cluster.wait_for(lambda home: len(uids(home)) == 2)
    return cluster


async def test_a_deployment_has_its_pods_through_a_replica_set(web: Cluster) -> None:
    (replica_set,) = web.list("replicasets", "default")
    member = web.list("pods", "default")[0]
    owner = member["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ReplicaSet", replica_set["metadata"]["uid"], True)
    assert member["metadata"]["name"].startswith(f"{replica_set['metadata']['name']}-")
    assert member["metadata"]["labels"]["pod-template-hash"] == replica_set["metadata"]["labels"]["pod-template-hash"]


async def test_a_lost_pod_is_replaced_by_one_of_another_name(web: Cluster) -> None:
    before = {each["metadata"]["name"] for each in web.list("pods", "default")}
    lost = min(before)
    web.delete("pods", lost)
    await web.wait_for(lambda home: len({each["metadata"]["name"] for each in home.list("pods", "default")} - {lost}) == 2)


async def test_what_an_owner_has_goes_with_it(web: Cluster, http: aiohttp.ClientSession) -> None:
    status, _ = await answer(http, "DELETE", DEPLOYMENT, json={"propagationPolicy": "Background"})
    assert status == 200
    assert web.get("deployments", "web") is None
    await web.wait_for(lambda home: not home.list("replicasets", "default") and not home.list("pods", "default"))


async def test_orphans_stay(web: Cluster, http: aiohttp.ClientSession) -> None:
    before = uids(web)
    await answer(http, "DELETE", DEPLOYMENT, json={"propagationPolicy": "Orphan"})
    await web.wait_for(lambda home: home.get("deployments", "web") is None)
    (replica_set,) = web.list("replicasets", "default")
    assert not replica_set["metadata"].get("ownerReferences")
    assert uids(web) == before


async def test_an_object_of_a_dead_owner_is_collected(cluster: Cluster) -> None:
    cluster.create(owned_by({"metadata": {"name": "gone", "uid": "1111"}}))
    await cluster.wait_for(lambda home: home.get("pods", "p") is None)


async def test_an_object_with_another_living_owner_stays(cluster: Cluster) -> None:
    one, two = (cluster.create(config_map(name)) for name in ("one", "two"))
    uid = cluster.create(owned_by(one, two))["metadata"]["uid"]
    cluster.delete("configmaps", "one")

    def has_one_owner(home: Cluster) -> bool:
        found = home.get("pods", "p")
        assert found is not None
        return [owner["name"] for owner in found["metadata"]["ownerReferences"]] == ["two"]

    try:
        await cluster.wait_for(has_one_owner)
        assert uids(cluster) == {uid}
    finally:
        cluster.delete("configmaps", "two")


async def test_a_deleted_namespace_goes_with_everything_in_it(cluster: Cluster) -> None:
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    held = config_map("held", namespace="team", finalizers=["example.com/hold"])
    cluster.create(held)
    cluster.delete("namespaces", "team", "")
    with pytest.raises(ApiError, match="because it is being terminated") as refused:
        cluster.create(config_map("late", namespace="team"))
    assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
    cluster.patch("configmaps", "held", {"metadata": {"finalizers": None}}, "team")
    await cluster.wait_for(lambda home: home.get("namespaces", "team", "") is None)
    assert cluster.list("configmaps", "team") == []
