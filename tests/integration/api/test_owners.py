"""Objects are deleted with their owners and with their namespace."""

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


async def test_pods_of_a_deployment_are_owned_by_its_replica_set(web: Cluster) -> None:
    (replica_set,) = web.list("replicasets", "default")
    member = web.list("pods", "default")[0]
    owner = member["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ReplicaSet", replica_set["metadata"]["uid"], True)
    assert member["metadata"]["name"].startswith(f"{replica_set['metadata']['name']}-")
    assert member["metadata"]["labels"]["pod-template-hash"] == replica_set["metadata"]["labels"]["pod-template-hash"]


async def test_a_lost_pod_of_a_deployment_is_replaced_under_another_name(web: Cluster) -> None:
    before = {each["metadata"]["name"] for each in web.list("pods", "default")}
    lost = min(before)
    web.delete("pods", lost)
    await web.wait_for(lambda home: len({each["metadata"]["name"] for each in home.list("pods", "default")} - {lost}) == 2)


async def test_dependents_are_deleted_with_their_owner(web: Cluster, http: aiohttp.ClientSession) -> None:
    status, _ = await answer(http, "DELETE", DEPLOYMENT, json={"propagationPolicy": "Background"})
    assert status == 200
    assert web.get("deployments", "web") is None
    await web.wait_for(lambda home: not home.list("replicasets", "default") and not home.list("pods", "default"))


async def test_orphaned_dependents_stay(web: Cluster, http: aiohttp.ClientSession) -> None:
    before = uids(web)
    await answer(http, "DELETE", DEPLOYMENT, json={"propagationPolicy": "Orphan"})
    await web.wait_for(lambda home: home.get("deployments", "web") is None)
    (replica_set,) = web.list("replicasets", "default")
    assert not replica_set["metadata"].get("ownerReferences")
    assert uids(web) == before


async def test_an_object_whose_owner_does_not_exist_is_deleted(cluster: Cluster) -> None:
    cluster.create(owned_by({"metadata": {"name": "gone", "uid": "1111"}}))
    await cluster.wait_for(lambda home: home.get("pods", "p") is None)


async def test_an_object_stays_while_one_of_its_owners_exists(cluster: Cluster) -> None:
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


async def test_a_deleted_namespace_is_removed_with_all_its_objects(cluster: Cluster) -> None:
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
