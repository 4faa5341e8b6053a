"""A pod is restricted to the nodes that its volumes allow, and refused if a volume is missing or unbound."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.cluster.volumes import UnboundClaimError, VolumeView, claim_from, volume_from
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.pod import Pod

POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec((("pods", 1),), claims=("data",)))


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


def test_volume_without_node_affinity_excludes_no_node() -> None:
    assert a_view(a_claim(), a_volume()).resolve(POD).spec.volumes == ()


def test_zone_labels_of_a_volume_restrict_its_pod_to_these_zones() -> None:
    resolved = a_view(a_claim(), a_volume(labels={"topology.kubernetes.io/zone": "a__b"})).resolve(POD)
    assert resolved.spec.volumes[0][0].expressions[0].values == ("a", "b")


@pytest.mark.parametrize(
    ("claim", "volume", "words"),
    [
        (None, None, 'persistentvolumeclaim "data" not found'),
        (a_claim(phase="Pending"), a_volume(), "unbound"),
        (a_claim(volume=""), a_volume(), "unbound"),
        (a_claim(mode="ReadWriteOncePod"), a_volume(), "ReadWriteOncePod"),
        (a_claim(), None, 'persistentvolume "pv"'),
    ],
)
def test_pod_that_cannot_be_placed_because_of_a_claim_is_refused_with_the_reason(
    claim: dict[str, Any] | None, volume: dict[str, Any] | None, words: str
) -> None:
    with pytest.raises(UnboundClaimError, match=words):
        a_view(claim, volume).resolve(POD)


def test_listener_for_volumes_is_called_once_for_each_change() -> None:
    calls: list[str] = []
    view = VolumeView()
    view.listen(lambda: calls.append("change"))
    view.claims.upsert("ns/data", claim_from(a_claim()))
    view.claims.upsert("ns/data", claim_from(a_claim()))
    view.claims.remove("ns/data")
    assert calls == ["change", "change"]
