"""Members whose claims wait for a node (WaitForFirstConsumer) get their volumes together with their nodes, or nothing is bound."""

from typing import Any

from allaboard.app import App
from allaboard_sandbox import NO_PROVISIONER, local_volume, waiting_class
from tests.cluster import Body, Cluster

from .conftest import StartApp, gang_pod
from .test_all_or_none import bound, message

SELECTED = "volume.kubernetes.io/selected-node"


def storage_class(cluster: Cluster, name: str, provisioner: str = NO_PROVISIONER) -> None:
    cluster.create(waiting_class(name, provisioner))


def claim(cluster: Cluster, name: str, of_class: str, size: str = "1Gi") -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": of_class, "resources": {"requests": {"storage": size}}}
    metadata = {"name": name, "namespace": "default"}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


def volume(cluster: Cluster, name: str, of_class: str, node: str, owner: Body | None = None, size: str = "1Gi") -> None:
    body = local_volume(name, of_class, node, size=size)
    if owner is not None:
        body["spec"]["claimRef"] = owner
    cluster.create(body)


def member(name: str, claim_name: str, minimum: int = 3) -> Body:
    return gang_pod(name, minimum=minimum, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}])


def selected(cluster: Cluster, name: str) -> str:
    found = cluster.get("persistentvolumeclaims", name) or {}
    return str((found["metadata"].get("annotations") or {}).get(SELECTED, ""))


def node_of(cluster: Cluster, name: str) -> str:
    found: Any = cluster.get("pods", name)
    return str(found["spec"].get("nodeName", ""))


async def test_gang_is_bound_where_each_member_gets_a_free_local_volume(cluster: Cluster, app: App) -> None:
    storage_class(cluster, "local")
    for node, disks in (("node-1", 1), ("node-2", 2), ("node-3", 0)):
        cluster.add_node(node)
        for number in range(disks):
            volume(cluster, f"{node}-disk-{number}", "local", node)
    await cluster.wait_for(lambda s: all((each.get("status") or {}).get("phase") == "Available" for each in s.list("persistentvolumes")))
    for name in "abc":
        claim(cluster, f"data-{name}", "local")
        cluster.create(member(name, f"data-{name}"))

    await cluster.wait_for(lambda s: len(bound(s)) == 3, message="the gang is bound")

    assert sorted(node_of(cluster, name) for name in "abc") == ["node-1", "node-2", "node-2"]
    for name in "abc":
        found = cluster.get("persistentvolumeclaims", f"data-{name}") or {}
        assert found["spec"]["volumeName"].startswith(node_of(cluster, name))


async def test_gang_waits_for_volumes_that_are_provisioned_near_the_nodes_of_its_members(cluster: Cluster, app: App) -> None:
    storage_class(cluster, "remote", "disks.example.com")
    for node in ("node-1", "node-2"):
        cluster.add_node(node, cpu="2")
    for name in "ab":
        claim(cluster, f"data-{name}", "remote")
        cluster.create(member(name, f"data-{name}", minimum=2))
    await cluster.wait_for(lambda s: all(selected(s, f"data-{name}") for name in "ab"), message="both volumes are asked for")
    assert bound(cluster) == []

    for name in "ab":
        found = cluster.get("persistentvolumeclaims", f"data-{name}") or {}
        owner = {"namespace": "default", "name": f"data-{name}", "uid": found["metadata"]["uid"]}
        volume(cluster, f"made-{name}", "remote", selected(cluster, f"data-{name}"), owner)

    await cluster.wait_for(lambda s: len(bound(s)) == 2, message="the gang is bound")
    assert {name: node_of(cluster, name) for name in "ab"} == {name: selected(cluster, f"data-{name}") for name in "ab"}


async def test_gang_whose_volumes_are_not_provisioned_in_time_is_rolled_back(cluster: Cluster, start_app: StartApp) -> None:
    storage_class(cluster, "remote", "disks.example.com")
    cluster.add_node("node-1")
    await start_app(volume_binding_timeout_seconds=1)
    claim(cluster, "data-a", "remote")
    cluster.create(member("a", "data-a", minimum=2))
    cluster.create(gang_pod("b", minimum=2))

    await cluster.wait_for(lambda s: "no volume after 1 s for persistentvolumeclaim data-a" in message(s))

    await cluster.wait_for(lambda s: not selected(s, "data-a"), message="the claim may get its volume near another node")
    assert bound(cluster) == []
