"""Gangs are bound whole or not at all, even when binds fail; bugs of an earlier scheduler don't recur."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allaboard.app import App
from allaboard.cli.stories import manifest
from allaboard.model.pod import STAMP
from allaboard.planning.search_processes import Searcher
from allaboard.settings.options import load_settings
from allaboard_sandbox import Fault
from tests.cluster import Cluster, Home
from tests.stories import status_of

from .conftest import StartApp, gang_pod


def replica_set(
    gang: str = "gang", replicas: int = 3, minimum: int | None = None, requests: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return a ReplicaSet whose pods are one gang; its controller replaces lost members."""
    template = gang_pod("x", gang, minimum or replicas, requests=requests or {"cpu": "1"})
    labels = {**template["metadata"]["labels"], "app": gang}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": gang, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": gang}},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def bound(cluster: Cluster, prefix: str = "") -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in cluster.list("pods")
        if pod["spec"].get("nodeName") and pod["metadata"]["name"].startswith(prefix) and not pod["metadata"].get("deletionTimestamp")
    ]


def message(cluster: Cluster, gang: str = "gang") -> str:
    group = cluster.get("podgroups", gang) or {}
    return str((group.get("status") or {}).get("message", ""))


def pod_condition(cluster: Cluster, name: str) -> dict[str, Any]:
    pod = cluster.get("pods", name) or {}
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


def conditions(cluster: Cluster, gang: str = "gang") -> dict[str, str]:
    status = (cluster.get("podgroups", gang) or {}).get("status") or {}
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}


def warnings(cluster: Cluster, reason: str) -> list[str]:
    return [event.get("message") or "" for event in cluster.list("events") if event.get("reason") == reason]


async def test_members_of_a_bound_gang_have_equal_stamps(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    stamps = {pod["metadata"]["annotations"][STAMP] for pod in cluster.list("pods")}
    assert len(stamps) == 1
    assert stamps.pop().endswith("/3")


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_gang_becomes_whole_despite_a_transient_error_of_one_bind(status: int, cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", nth=2, status=status))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


async def test_partially_bound_gang_of_bare_pods_is_reported_and_its_pods_are_not_deleted(cluster: Cluster, start_app: StartApp) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", name="c", times=10_000, status=403, message="not c"))
    await start_app()
    for name in "abc":
        cluster.create(gang_pod(name))

    def is_partially_bound(cluster: Cluster) -> bool:
        conditions = ((cluster.get("podgroups", "gang") or {}).get("status") or {}).get("conditions") or []
        return any(condition["type"] == "PartiallyBound" and condition["status"] == "True" for condition in conditions)

    await cluster.wait_for(is_partially_bound, message="PartiallyBound")
    assert sorted(bound(cluster)) == ["a", "b"]
    assert cluster.get("pods", "a") is not None


async def test_gang_is_not_reported_as_partially_bound_during_its_first_binds(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    hold = cluster.faults.pause("bind", "pods", nth=3, dry_run=False)
    for name in "ab":
        cluster.create(gang_pod(name))
    await cluster.wait_for(lambda s: "2 of 3" in message(s))
    cluster.create(gang_pod("c"))
    async with asyncio.timeout(50):
        await hold.arrived()
    await cluster.wait_for(lambda s: len(bound(s)) == 2)
    cluster.patch("podgroups", "gang", {"status": {"message": "a foreign message"}}, subresource="status")
    await cluster.wait_for(lambda s: message(s) != "a foreign message", message="the status is rewritten during the binds")
    assert conditions(cluster) == {"PodGroupInitiallyScheduled": "False"}
    hold.release()
    await cluster.wait_for(lambda s: message(s) == "3 members bound" and (s.get("podgroups", "gang") or {})["status"]["scheduled"] == 3)
    assert conditions(cluster) == {"PodGroupInitiallyScheduled": "True"}


async def test_gang_that_loses_a_member_is_reported_as_partially_bound_until_it_is_whole(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    for name in "abc":
        cluster.create(gang_pod(name))
    await cluster.wait_for(lambda s: (s.get("podgroups", "gang") or {}).get("status", {}).get("scheduled") == 3)
    cluster.delete("pods", "c", grace=0)
    await cluster.wait_for(lambda s: conditions(s).get("PartiallyBound") == "True")
    cluster.create(gang_pod("c"))
    await cluster.wait_for(lambda s: conditions(s).get("PartiallyBound") == "False")


@pytest.mark.usefixtures("watched_binds")
async def test_no_member_is_bound_after_a_refused_dry_run(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.faults.add(Fault("bind", "pods", times=10_000, status=403, message="admission says no", dry_run=True))
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: "admission says no" in message(s))
    assert bound(cluster) == []


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_gangs_become_whole_and_no_node_is_overcommitted_despite_random_faults(
    data: st.DataObject, home: Home, searcher: Searcher, tmp_path: Any
) -> None:
    """Random requests fail a few times. Then both gangs become whole, and no node is ever overcommitted."""
    import os

    faults = data.draw(
        st.lists(
            st.builds(
                Fault,
                verb=st.sampled_from(["bind", "patch", "create", "get", "delete"]),
                resource=st.just("pods"),
                nth=st.integers(1, 6),
                times=st.integers(1, 3),
                status=st.sampled_from([403, 409, 429, 500, 503]),
                drop=st.booleans(),
                after=st.booleans(),
            ),
            max_size=4,
        )
    )

    async def scenario() -> None:
        async with home.open() as cluster:
            cluster.add_node("node-1", cpu="4")
            cluster.add_node("node-2", cpu="4")
            kubeconfig = tmp_path / "property"
            home.write_operator_kubeconfig(cluster, kubeconfig)
            os.environ["KUBECONFIG"] = str(kubeconfig)
            app = App(
                load_settings({"metrics_port": 0, "api_port": 0, "backoff_initial_seconds": 0.05, "backoff_max_seconds": 0.2}), searcher
            )
            await app.start()
            try:
                await app.scheduling.wait()
                for fault in faults:
                    cluster.faults.add(fault)
                for gang in ("one", "two"):
                    cluster.create(replica_set(gang, 3, requests={"cpu": "1"}))
                await cluster.wait_for(
                    lambda s: len(bound(s, "one")) == 3 and len(bound(s, "two")) == 3,
                    message=f"both gangs whole after {faults}",
                )
            finally:
                await app.stop()
            for node in ("node-1", "node-2"):
                assert sum(1 for pod in cluster.list("pods") if pod["spec"].get("nodeName") == node) <= 4
            assert not any(pod["status"].get("reason", "").startswith("OutOf") for pod in cluster.list("pods"))

    before = os.environ.get("KUBECONFIG")
    try:
        asyncio.run(scenario())
    finally:
        if before is not None:
            os.environ["KUBECONFIG"] = before


async def test_one_of_two_contending_gangs_is_bound_whole_and_the_other_not_at_all(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1", cpu="5")
    cluster.create(replica_set("one"))
    cluster.create(replica_set("two"))
    await cluster.wait_for(lambda s: "2 of 3 members placeable" in message(s, "one") + message(s, "two"))
    # When the second gang is refused, the binds of the first may still be in flight.
    await cluster.wait_for(lambda s: sorted(len(bound(s, gang)) for gang in ("one", "two")) == [0, 3])


async def test_freed_capacity_goes_to_the_waiting_gang(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1", cpu="3")
    cluster.create(replica_set("one"))
    await cluster.wait_for(lambda s: len(bound(s, "one")) == 3)
    cluster.create(replica_set("two"))
    await cluster.wait_for(lambda s: "0 of 3" in message(s, "two"))
    cluster.delete("replicasets", "one")
    await cluster.wait_for(lambda s: len(bound(s, "two")) == 3)


async def test_message_of_a_waiting_gang_names_remedies(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1", cpu="5")
    cluster.create(replica_set("one"))
    await cluster.wait_for(lambda s: len(bound(s, "one")) == 3)
    cluster.create(replica_set("two"))
    await cluster.wait_for(lambda s: "2 of 3" in message(s, "two") and "if gang one (priority 0) left." in message(s, "two"))
    assert "Would fit with 1 more cpu (1 on node-1)" in message(cluster, "two")
    assert "Would fit" not in pod_condition(cluster, cluster.list("pods")[-1]["metadata"]["name"]).get("message", "")


async def test_new_node_wakes_a_waiting_gang(cluster: Cluster, app: App) -> None:
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: "no nodes available" in message(s))
    cluster.add_node("node-1")
    await cluster.wait_for(lambda s: len(bound(s)) == 3)


async def test_message_of_a_waiting_gang_is_updated_when_nodes_come_and_go(cluster: Cluster, app: App) -> None:
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: "no nodes available" in message(s))
    for number in (1, 2):
        cluster.add_node(f"node-{number}", cpu="1")
        await cluster.wait_for(lambda s, number=number: f"{number} of 3 members placeable" in message(s))  # type: ignore[misc]
    cluster.delete("nodes", "node-2")
    await cluster.wait_for(lambda s: "1 of 3 members placeable" in message(s))


async def test_surplus_members_are_bound_with_their_gang_or_later(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1", cpu="3")
    cluster.create(replica_set(replicas=5, minimum=2))
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    cluster.add_node("node-2", cpu="2")
    await cluster.wait_for(lambda s: len(bound(s)) == 5)


async def test_gang_of_higher_priority_is_bound_first(cluster: Cluster, start_app: StartApp) -> None:
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000})
    low, high = replica_set("low"), replica_set("zhigh")
    high["spec"]["template"]["spec"]["priorityClassName"] = "high"
    cluster.create(low)
    cluster.create(high)
    await start_app()
    await cluster.wait_for(lambda s: "no nodes" in message(s, "low") and "no nodes" in message(s, "zhigh"))
    cluster.add_node("node-1", cpu="3")
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert len(bound(cluster, "zhigh")) == 3


class TestBadInput:
    """Invalid input holds its own gang and is reported there; other gangs are scheduled."""

    @pytest.mark.parametrize("minimum", ["0", "five", "1.5"])
    async def test_malformed_label_is_a_warning_on_the_pod_and_other_gangs_are_scheduled(
        self, minimum: str, cluster: Cluster, app: App
    ) -> None:
        cluster.add_node("node-1")
        bad = gang_pod("bad", "broken", "1")
        bad["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io/min-available"] = minimum
        cluster.create(bad)
        cluster.create(replica_set())
        await cluster.wait_for(lambda s: len(bound(s, "gang")) == 3 and bool(warnings(s, "InvalidLabel")))
        assert "min-available" in warnings(cluster, "InvalidLabel")[0]
        assert bound(cluster, "bad") == []

    async def test_gang_whose_members_state_different_minimums_is_held(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        cluster.create(gang_pod("a", minimum=2))
        cluster.create(gang_pod("b", minimum=3))
        await cluster.wait_for(lambda s: bool(warnings(s, "MinAvailableMismatch")))
        assert bound(cluster) == []

    async def test_gang_with_an_unknown_objective_is_held_with_a_warning(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        cluster.create(gang_pod("a", minimum=1, annotations={"allaboard.dev/objective": "tetris"}))
        await cluster.wait_for(lambda s: bool(warnings(s, "InvalidAnnotation")))
        assert bound(cluster) == []

    async def test_pods_are_held_until_their_pod_group_exists(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        pod = gang_pod("a")
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "later"}
        cluster.create(pod)
        await cluster.wait_for(lambda s: "PodGroup not found" in pod_condition(s, "a").get("message", ""))
        assert bound(cluster) == []
        cluster.create(
            {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "later"}, "spec": {"minMember": 1}}
        )
        await cluster.wait_for(lambda s: bound(s) == ["a"])

    async def test_affinity_selects_pods_by_the_labels_of_their_namespace(self, cluster: Cluster, app: App) -> None:
        for number, zone in enumerate("ab"):
            cluster.add_node(f"node-{number}", labels={"zone": zone})
        database = gang_pod("database", "database", minimum=1, nodeSelector={"zone": "b"})
        database["metadata"]["labels"]["app"] = "database"
        cluster.create(database)
        here, elsewhere = ({"matchLabels": {"kubernetes.io/metadata.name": name}} for name in ("default", "kube-system"))
        for name, namespaces in (("a", here), ("b", elsewhere)):
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "database"}}, "namespaceSelector": namespaces}
            affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
            cluster.create(gang_pod(name, name, minimum=1, affinity=affinity))
        await cluster.wait_for(lambda s: bound(s) == ["a", "database"])
        assert cluster.get("pods", "a")["spec"]["nodeName"] == "node-1"
        await cluster.wait_for(lambda s: "pod affinity rules" in pod_condition(s, "b").get("message", ""))

    async def test_members_are_spread_over_zones_and_wait_for_capacity_in_a_zone(self, cluster: Cluster, app: App) -> None:
        for number, zone in enumerate("aab"):
            cluster.add_node(f"node-{number}", cpu="8" if zone == "a" else "1", labels={"zone": zone})
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "t"}}}
        for name in "abcd":
            pod = gang_pod(name, minimum=4, topologySpreadConstraints=[spread])
            pod["metadata"]["labels"]["app"] = "t"
            cluster.create(pod)
        await cluster.wait_for(lambda s: "topology spread" in status_of(s, "gang").get("message", ""))
        assert bound(cluster) == []
        cluster.add_node("node-3", cpu="1", labels={"zone": "b"})
        await cluster.wait_for(lambda s: len(bound(s)) == 4)
        zones = {node["metadata"]["name"]: node["metadata"]["labels"]["zone"] for node in cluster.list("nodes")}
        assert sorted(zones[pod["spec"]["nodeName"]] for pod in cluster.list("pods")) == ["a", "a", "b", "b"]

    async def test_members_follow_the_member_that_their_affinity_selects_into_one_zone(self, cluster: Cluster, app: App) -> None:
        for number, zone in enumerate("aabb"):
            cluster.add_node(f"node-{number}", cpu="2" if zone == "a" else "4", labels={"zone": zone})
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "ps"}}}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for name in "abcd":
            cluster.create(gang_pod(name, minimum=5, affinity=affinity))
        ps = gang_pod("ps", minimum=5, requests={"cpu": "3"})
        ps["metadata"]["labels"]["app"] = "ps"
        cluster.create(ps)
        await cluster.wait_for(lambda s: len(bound(s)) == 5)
        assert {pod["spec"]["nodeName"] for pod in cluster.list("pods")} == {"node-2", "node-3"}

    async def test_members_prefer_nodes_of_their_own_and_share_nodes_if_there_are_too_few(self, cluster: Cluster, app: App) -> None:
        for number in range(3):
            cluster.add_node(f"node-{number}", cpu="8", labels={"kubernetes.io/hostname": f"node-{number}"})
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "t"}}}
        prefers = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
        for gang, size in (("three", 3), ("four", 4)):
            for number in range(size):
                pod = gang_pod(f"{gang}-{number}", gang, minimum=size, affinity={"podAntiAffinity": prefers})
                pod["metadata"]["labels"]["app"] = "t"
                cluster.create(pod)
            await cluster.wait_for(lambda s, gang=gang, size=size: sum(name.startswith(gang) for name in bound(s)) == size)
        nodes = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in cluster.list("pods")}
        assert len({node for name, node in nodes.items() if name.startswith("three")}) == 3
        assert sorted(list(nodes.values()).count(f"node-{number}") for number in range(3)) == [2, 2, 3]

    async def test_segments_of_members_are_each_within_one_rack(self, cluster: Cluster, app: App) -> None:
        for number, rack in enumerate("aabb"):
            cluster.add_node(f"node-{number}", cpu="3", labels={"rack": rack})
        for number in range(8):
            options = {"allaboard.dev/topology": "segment=4@rack"}
            cluster.create(gang_pod(f"worker-{number}", minimum=8, annotations=options))
        await cluster.wait_for(lambda s: len(bound(s)) == 8)
        racks = {node["metadata"]["name"]: node["metadata"]["labels"]["rack"] for node in cluster.list("nodes")}
        rack_of = {pod["metadata"]["name"]: racks[pod["spec"]["nodeName"]] for pod in cluster.list("pods")}
        for first in (0, 4):
            assert len({rack_of[f"worker-{number}"] for number in range(first, first + 4)}) == 1

    async def test_members_with_anti_affinity_get_nodes_of_their_own_and_avoid_bound_pods_that_it_selects(
        self, cluster: Cluster, app: App
    ) -> None:
        for number in range(3):
            cluster.add_node(f"node-{number}")
        other = gang_pod("other", "other", 1)
        other["metadata"]["labels"]["app"] = "train"
        cluster.create(other)
        await cluster.wait_for(lambda s: bound(s) == ["other"])
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        for name in "abc":
            pod = gang_pod(name, minimum=3, affinity=affinity)
            pod["metadata"]["labels"]["app"] = "train"
            cluster.create(pod)
        await cluster.wait_for(lambda s: "node(s) didn't match pod anti-affinity rules" in pod_condition(s, "c").get("message", ""))
        assert bound(cluster) == ["other"]
        cluster.add_node("node-3")
        await cluster.wait_for(lambda s: len(bound(s)) == 4)
        assert sorted(pod["spec"]["nodeName"] for pod in cluster.list("pods")) == [f"node-{number}" for number in range(4)]

    async def test_pods_with_another_schedulers_gang_annotation_are_held_until_they_have_our_labels(
        self, cluster: Cluster, app: App
    ) -> None:
        cluster.add_node("node-1")
        for name in "ab":
            pod = gang_pod(name, annotations={"scheduling.k8s.io/group-name": "train"})
            pod["metadata"]["labels"] = {}
            cluster.create(pod)
        await cluster.wait_for(lambda s: len(warnings(s, "Unsupported")) == 2)
        asks = "annotation scheduling.k8s.io/group-name asks Volcano for a gang"
        await cluster.wait_for(lambda s: asks in pod_condition(s, "a").get("message", ""))
        assert bound(cluster) == []
        pair = {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}
        for name in "ab":
            cluster.patch("pods", name, {"metadata": {"labels": pair}})
        await cluster.wait_for(lambda s: len(bound(s)) == 2)


async def test_pod_with_an_unbound_volume_claim_waits_and_is_then_placed_where_its_volume_is(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    cluster.add_node("node-2", labels={"disk": "here"})
    claim: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.create(claim)
    cluster.create(gang_pod("a", minimum=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]))
    await cluster.wait_for(lambda s: "unbound immediate PersistentVolumeClaims" in pod_condition(s, "a").get("message", ""))
    expression = {"key": "disk", "operator": "In", "values": ["here"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    spec = {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}, "nodeAffinity": affinity}
    cluster.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec})
    cluster.patch("persistentvolumeclaims", "data", {"spec": {"volumeName": "pv"}})
    cluster.patch("persistentvolumeclaims", "data", {"status": {"phase": "Bound"}}, subresource="status")
    await cluster.wait_for(lambda s: bound(s) == ["a"])
    assert (cluster.get("pods", "a") or {})["spec"]["nodeName"] == "node-2"


async def test_anti_affinity_of_pods_bound_by_other_schedulers_is_respected(cluster: Cluster, app: App) -> None:
    cluster.add_node("node-1")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"noisy": "yes"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster.create(gang_pod("quiet", "quiet", minimum=1, schedulerName="default-scheduler", nodeName="node-1", affinity=affinity))
    loud = gang_pod("loud", "loud", minimum=1)
    loud["metadata"]["labels"]["noisy"] = "yes"
    cluster.create(loud)
    await cluster.wait_for(lambda s: "didn't satisfy existing pods anti-affinity rules" in pod_condition(s, "loud").get("message", ""))
    cluster.delete("pods", "quiet")
    await cluster.wait_for(lambda s: bound(s) == ["loud"])


class TestEarlierBugs:
    """Bugs of an earlier scheduler, found in its published code."""

    async def test_bound_pod_is_not_bound_again_after_another_event(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        cluster.create(gang_pod("a", minimum=1))
        await cluster.wait_for(lambda s: bound(s) == ["a"])
        pod = cluster.get("pods", "a")
        assert pod is not None
        stamp = pod["metadata"]["annotations"][STAMP]
        cluster.faults.add(Fault("bind", "pods", times=10_000, status=418))
        cluster.patch("pods", "a", {"metadata": {"labels": {"touched": "yes"}}})
        cluster.create(gang_pod("b", "other", minimum=9))
        await cluster.wait_for(lambda s: "1 of 9" in message(s, "other"))
        pod = cluster.get("pods", "a")
        assert pod is not None
        assert pod["metadata"]["annotations"][STAMP] == stamp
        assert not warnings(cluster, "FailedScheduling")

    async def test_pending_pod_that_is_deleted_is_not_planned(self, cluster: Cluster, app: App) -> None:
        cluster.create(gang_pod("a", minimum=1))
        await cluster.wait_for(lambda s: bool(pod_condition(s, "a")))
        cluster.delete("pods", "a")
        cluster.add_node("node-1")
        cluster.create(gang_pod("b", "other", minimum=1))
        await cluster.wait_for(lambda s: bound(s) == ["b"])
        assert app.view.pod("default/a") is None

    async def test_pod_that_is_deleted_and_recreated_under_its_name_is_bound_again(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1", cpu="1")
        cluster.create(gang_pod("a", minimum=1))
        await cluster.wait_for(lambda s: bound(s) == ["a"])
        cluster.delete("pods", "a", grace=0)
        cluster.create(gang_pod("a", minimum=1))
        await cluster.wait_for(lambda s: bound(s) == ["a"])

    async def test_pods_with_equal_names_are_bound_each_in_its_own_namespace(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        for namespace in ("team-a", "team-b"):
            cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            cluster.create(gang_pod("same", minimum=1, namespace=namespace))
        await cluster.wait_for(lambda s: bound(s) == ["same", "same"])

    async def test_pods_of_other_schedulers_are_never_touched(self, cluster: Cluster, app: App) -> None:
        cluster.add_node("node-1")
        cluster.create(gang_pod("theirs", minimum=1, schedulerName="default-scheduler"))
        cluster.create(gang_pod("ours", "ours", minimum=1))
        await cluster.wait_for(lambda s: bound(s) == ["ours"])
        assert pod_condition(cluster, "theirs") == {}


async def test_single_pods_created_together_are_bound_except_the_one_that_fits_nowhere(cluster: Cluster, app: App) -> None:
    """The pods are the first eight of an earlier scheduler's demo, without a group; none waits for pod1, which fits nowhere."""
    for number in (1, 2, 3):
        cluster.add_node(f"node-{number}", cpu="8", memory="16Gi")
    for number, cpu in enumerate(("9", "2", "0.5", "1.5", "3", "1", "2.5", "0.7"), start=1):
        pod = gang_pod(f"pod{number}", requests={"cpu": cpu})
        del pod["metadata"]["labels"]
        cluster.create(pod)
    await cluster.wait_for(lambda s: len(bound(s)) == 7)
    await cluster.wait_for(lambda s: "3 Insufficient cpu" in pod_condition(s, "pod1").get("message", ""))


async def test_only_nodes_that_match_the_node_selector_setting_are_used(cluster: Cluster, start_app: StartApp) -> None:
    await start_app(node_selector="pool=train")
    cluster.add_node("theirs", labels={"pool": "web"})
    cluster.create(replica_set())
    await cluster.wait_for(lambda s: "no nodes available" in message(s))
    cluster.add_node("ours", labels={"pool": "train"})
    await cluster.wait_for(lambda s: len(bound(s)) == 3)
    assert {pod["spec"]["nodeName"] for pod in cluster.list("pods")} == {"ours"}


async def test_each_role_with_its_own_minimum_starts_within_one_rack(cluster: Cluster, start_app: StartApp) -> None:
    rack = "topology.kubernetes.io/rack"
    for name, gpus, where in (("a-1", 2, "a"), ("a-2", 1, "a"), ("b-1", 3, "b"), ("b-2", 2, "b")):
        cluster.add_node(name, cpu="8", gpus=gpus, labels={rack: where})
    await start_app()
    for document in manifest("roles-and-racks.yaml"):
        cluster.create(document)
    await cluster.wait_for(lambda s: len(bound(s, "racks-trainer")) == 5 and len(bound(s, "racks-rollout")) >= 2)
    rack_of = {node["metadata"]["name"]: node["metadata"]["labels"][rack] for node in cluster.list("nodes")}
    for role in ("trainer", "rollout"):
        nodes = [pod["spec"].get("nodeName") for pod in cluster.list("pods") if pod["metadata"]["name"].startswith(f"racks-{role}")]
        assert len({rack_of[node] for node in nodes if node}) == 1  # members beyond the minimum may still wait
    # The replacement of a lost trainer is placed in the rack of the other trainers.
    lost = bound(cluster, "racks-trainer")[0]
    cluster.delete("pods", lost, grace=0)
    await cluster.wait_for(lambda s: len(bound(s, "racks-trainer")) == 5 and lost not in bound(s, "racks-trainer"))
    nodes = [pod["spec"]["nodeName"] for pod in cluster.list("pods") if pod["metadata"]["name"].startswith("racks-trainer")]
    assert {rack_of[node] for node in nodes} == {"b"}


async def test_gang_with_a_role_that_fits_in_no_rack_is_refused_with_the_reason(cluster: Cluster, start_app: StartApp) -> None:
    for name, where in (("a-1", "a"), ("b-1", "b")):
        cluster.add_node(name, cpu="8", gpus=2, labels={"topology.kubernetes.io/rack": where})
    await start_app()
    for document in manifest("roles-and-racks.yaml"):
        cluster.create(document)
    words = "node(s) were in no topology domain that fits all members that must share one"
    await cluster.wait_for(lambda s: any(words in str(event.get("message", event.get("note"))) for event in s.list("events")))
    assert bound(cluster) == []
