"""A pod is restricted to the nodes that its volumes allow, and refused if a volume is missing or unbound."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.cluster.storage_objects import claim_from, storage_capacity_from, storage_class_from, volume_from
from allaboard.cluster.volumes import UnboundClaimError, VolumeView
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.placement.rules.matching import all_match
from tests.unit.placement.clusters import node

NODES = {"in-a": {"topology.kubernetes.io/zone": "a"}, "in-c": {"topology.kubernetes.io/zone": "c"}, "without-zone": {}}
POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),), claims=("data",)))


def a_node(name: str, labels: dict[str, str]) -> Node:
    return node(name, {}, labels=labels)


def a_claim(volume: str = "pv", phase: str = "Bound", mode: str = "ReadWriteMany") -> dict[str, Any]:
    return {"metadata": {"name": "data"}, "spec": {"volumeName": volume, "accessModes": [mode]}, "status": {"phase": phase}}


def a_volume(zone: str = "", labels: dict[str, str] | None = None) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {"metadata": {"name": "pv", "labels": labels or {}}, "spec": {"nodeAffinity": affinity} if zone else {}}


def a_view(claim: dict[str, Any] | None, volume: dict[str, Any] | None) -> VolumeView:
    view = VolumeView()
    if claim:
        view.claims.upsert("ns/data", claim_from(claim))
    if volume:
        view.volumes.upsert("pv", volume_from(volume))
    return view


def test_pod_without_claims_is_returned_unchanged() -> None:
    pod = replace(POD, spec=SchedulingSpec((("pods", 1),)))
    assert VolumeView().resolve(pod) is pod


def test_pod_gets_the_node_affinity_of_its_volume() -> None:
    resolved = a_view(a_claim(), a_volume("a")).resolve(POD)
    assert resolved.spec.volumes == ((NodeSelectorTerm(expressions=(Requirement("zone", "In", ("a",)),)),),)


def test_claim_counts_as_bound_once_its_binding_is_complete() -> None:
    """The controller writes an annotation before it sets the phase."""
    claim = a_claim(phase="Pending")
    claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    assert a_view(claim, a_volume()).resolve(POD) == a_view(a_claim(), a_volume()).resolve(POD)


def test_volume_without_node_affinity_excludes_no_node() -> None:
    assert a_view(a_claim(), a_volume()).resolve(POD).spec.volumes == ()


def test_zone_labels_of_a_volume_restrict_its_pod_to_these_zones() -> None:
    resolved = a_view(a_claim(), a_volume(labels={"topology.kubernetes.io/zone": "a__b"})).resolve(POD)
    ((kind, terms),) = resolved.spec.storage
    assert kind is Kind.VOLUME_ZONE
    assert [node for node, zones in NODES.items() if all_match((terms,), a_node(node, zones))] == ["in-a", "without-zone"]


@pytest.mark.parametrize(
    ("claim", "volume", "words"),
    [
        (None, None, 'persistentvolumeclaim "data" not found'),
        (a_claim(phase="Pending"), a_volume(), "unbound"),
        (a_claim(volume=""), a_volume(), "unbound"),
        (a_claim(), None, 'persistentvolume "pv"'),
    ],
)
def test_pod_that_cannot_be_placed_because_of_a_claim_is_refused_with_the_reason(
    claim: dict[str, Any] | None, volume: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(UnboundClaimError, match=words):
        a_view(claim, volume).resolve(POD)


def a_waiting_claim(size: str = "1Gi", **metadata: Any) -> dict[str, Any]:
    spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": "data", "uid": "uid-of-data", **metadata}, "spec": spec, "status": {"phase": "Pending"}}


def a_free_volume(size: str, node: str, **spec: Any) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    return {
        "metadata": {"name": f"{node}-{size}"},
        "spec": {
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "nodeAffinity": affinity,
            **spec,
        },
        "status": {"phase": "Available"},
    }


def a_waiting_view(
    claim: dict[str, Any], *volumes: dict[str, Any], provisioner: str = "kubernetes.io/no-provisioner", **of_class: Any
) -> VolumeView:
    view = a_view(claim, None)
    view.classes.upsert("fast", storage_class_from({"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", **of_class}))
    for volume in volumes:
        view.volumes.upsert(volume["metadata"]["name"], volume_from(volume))
    return view


def test_claim_that_waits_for_a_node_may_get_each_free_volume_that_is_large_enough() -> None:
    owned = a_free_volume("8Gi", "n3", claimRef={"namespace": "ns", "name": "other", "uid": "1"})
    view = a_waiting_view(a_waiting_claim("2Gi"), a_free_volume("1Gi", "n1"), a_free_volume("5Gi", "n2"), a_free_volume("2Gi", "n2"), owned)
    (unbound,) = view.resolve(POD).spec.unbound
    assert [volume.name for volume in unbound.volumes] == ["n2-2Gi", "n2-5Gi"]
    assert unbound.provisioned == ((),)


def test_volume_that_belongs_to_a_claim_is_its_only_choice() -> None:
    own = a_free_volume("8Gi", "n3", claimRef={"namespace": "ns", "name": "data", "uid": "uid-of-data"})
    (unbound,) = a_waiting_view(a_waiting_claim(), a_free_volume("1Gi", "n1"), own).resolve(POD).spec.unbound
    assert [volume.name for volume in unbound.volumes] == ["n3-8Gi"]


def test_volume_is_provisioned_only_in_the_topologies_of_its_class_and_where_storage_is_left() -> None:
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}]
    view = a_waiting_view(a_waiting_claim("2Gi"), provisioner="csi", allowedTopologies=allowed)
    view.tracking.upsert("csi", True)
    for zone, left in (("a", "1Gi"), ("b", "3Gi")):
        capacity = {"storageClassName": "fast", "capacity": left, "nodeTopology": {"matchLabels": {"zone": zone}}}
        view.capacities.upsert(zone, storage_capacity_from(capacity))
    resolved = view.resolve(POD).spec
    assert resolved.unbound == ()
    refused = {kind: [zone for zone in "abc" if not all_match((terms,), a_node("n", {"zone": zone}))] for kind, terms in resolved.storage}
    assert refused == {Kind.NO_VOLUME: ["c"], Kind.NO_STORAGE: ["a", "c"]}


def test_claim_with_a_selected_node_gets_its_volume_near_that_node() -> None:
    claim = a_waiting_claim(annotations={"volume.kubernetes.io/selected-node": "n2"})
    ((kind, terms),) = a_waiting_view(claim, provisioner="csi").resolve(POD).spec.storage
    assert kind is Kind.NO_VOLUME
    assert [name for name in ("n1", "n2") if all_match((terms,), a_node(name, {}))] == ["n2"]


def test_nodes_that_claims_have_selected_count_before_the_storage_that_is_left() -> None:
    """Differential case 700285: kube-scheduler looks at no other claim once a node isn't the one that was selected for a claim."""
    first, second = (a_waiting_claim(annotations={"volume.kubernetes.io/selected-node": name}) for name in ("n1", "n2"))
    view = a_waiting_view(first, provisioner="csi")
    view.tracking.upsert("csi", True)
    view.claims.upsert("ns/other", claim_from(second))
    storage = view.resolve(replace(POD, spec=replace(POD.spec, claims=("data", "other")))).spec.storage
    assert [kind for kind, _ in storage] == [Kind.NO_VOLUME, Kind.NO_VOLUME, Kind.NO_STORAGE]


def test_claim_for_one_pod_that_is_in_use_admits_no_node() -> None:
    view = a_view(a_claim(mode="ReadWriteOncePod"), a_volume())
    assert view.resolve(POD).spec.storage == ()
    assert view.resolve(POD, lambda claim: claim == "ns/data").spec.storage == ((Kind.CLAIM_IN_USE, ()),)


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({**a_waiting_claim(), "spec": {"storageClassName": "missing"}}, 'storageclass "missing" of claim "data" not found'),
        ({**a_waiting_claim(), "spec": {"storageClassName": "fast", "volumeName": "mine"}}, "unbound immediate"),
        ({**a_waiting_claim(), "spec": {}}, "unbound immediate"),
    ],
)
def test_claim_for_which_no_scheduler_may_choose_a_volume_is_refused_with_the_reason(claim: dict[str, Any], words: str) -> None:
    with pytest.raises(UnboundClaimError, match=words):
        a_waiting_view(claim).resolve(POD)


def test_listener_for_volumes_is_called_once_for_each_change() -> None:
    calls: list[str] = []
    view = VolumeView()
    view.listen(lambda: calls.append("change"))
    view.claims.upsert("ns/data", claim_from(a_claim()))
    view.claims.upsert("ns/data", claim_from(a_claim()))
    view.claims.remove("ns/data")
    assert calls == ["change", "change"]
