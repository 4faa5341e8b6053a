"""Tests how volumes are identified by their sources, and how many volumes a node can attach."""

from typing import Any

import pytest

from allaboard.model.limits import VOLUMES
from allaboard.model.pod import Reading, pod_from
from allaboard.model.volumes import Attaches, Volume, attach_limits_from, volume_of

FOREIGN = Reading(ours=frozenset({"allaboard"}))


def a_pod(*volumes: dict[str, Any], scheduler: str = "default-scheduler") -> dict[str, Any]:
    spec = {"schedulerName": scheduler, "containers": [{"name": "c"}], "volumes": list(volumes)}
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"csi": {"driver": "disk.example.com", "volumeHandle": "h"}}, Volume("disk.example.com", "h")),
        ({"csi": {"driver": "disk.example.com", "volumeHandle": "h" * 1000}}, Volume("disk.example.com", "h" * 1000)),
        ({"csi": {"driver": "disk.example.com"}}, None),
        ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, Volume("ebs.csi.aws.com", "vol-1")),
        ({"gcePersistentDisk": {"pdName": "d"}}, Volume("pd.csi.storage.gke.io", "d")),
        ({"hostPath": {"path": "/data"}}, None),
        ({"nfs": {"server": "s", "path": "/"}}, None),
    ],
)
def test_a_persistent_volume_is_identified_by_its_csi_driver_and_handle(spec: dict, expected: Volume | None) -> None:
    assert volume_of(spec) == expected


def test_a_storage_driver_that_states_no_number_of_volumes_has_no_limit() -> None:
    drivers = [
        {"name": "a", "allocatable": {"count": 25}},
        {"name": "b"},
        {"name": "c", "allocatable": {}},
        {"name": "d", "allocatable": {"count": 0}},
    ]
    assert attach_limits_from({"spec": {"drivers": drivers}}) == {"a": 25, "d": 0}
    assert attach_limits_from({"spec": {"drivers": None}}) == {}


def test_claims_of_pods_of_any_scheduler_include_those_of_generic_ephemeral_volumes() -> None:
    raw = a_pod(
        {"name": "data", "persistentVolumeClaim": {"claimName": "c0"}},
        {"name": "again", "persistentVolumeClaim": {"claimName": "c0"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "inline", "csi": {"driver": "secrets.example.com"}},  # no scheduler counts inline volumes
        {"name": "old", "awsElasticBlockStore": {"volumeID": "vol-1"}},
    )
    spec = pod_from(raw, reading=FOREIGN).spec
    assert (spec.claims, spec.disks) == (("c0", "p-scratch"), (Volume("ebs.csi.aws.com", "vol-1"),))


def test_a_pod_with_too_many_volumes_is_reported_as_over_the_limit_for_volumes() -> None:
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": f"c{number}"}} for number in range(VOLUMES.most + 1)]
    assert pod_from(a_pod(*volumes), reading=FOREIGN).over == ("volumes",)


def test_a_shared_volume_needs_no_attachment_where_it_is_attached() -> None:
    attaches = Attaches("disk.example.com", own=2, shared=(("h", ("a", "b")), ("i", ("a",))))
    assert attaches.needed_on("a") == (2, frozenset())
    assert attaches.needed_on("b") == (2, {"i"})
    assert attaches.needed_on("c") == (2, {"h", "i"})
