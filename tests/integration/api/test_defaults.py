"""The API server fills in the defaults that a scheduler reads, in objects other than pods."""

from typing import Any

import pytest

from tests.cluster import Cluster

from .conftest import pod

Body = dict[str, Any]
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
SELECTOR = {"matchLabels": {"app": "web"}}
ONCE = {"spec": {**pod()["spec"], "restartPolicy": "Never"}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
VOLUME = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}}


def body(api_version: str, kind: str, **fields: Any) -> Body:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, **fields}


CASES = {
    "a-deployment": (
        body("apps/v1", "Deployment", spec={"selector": SELECTOR, "template": TEMPLATE}),
        {"replicas": 1, "template.spec.schedulerName": "default-scheduler", "strategy.type": "RollingUpdate"},
    ),
    "a-job": (
        body("batch/v1", "Job", spec={"template": ONCE}),
        {"parallelism": 1, "completions": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False},
    ),
    "a-job-with-parallelism-only": (
        body("batch/v1", "Job", spec={"parallelism": 2, "template": ONCE}),
        {"parallelism": 2, "completions": None},
    ),
    "a-claim": (body("v1", "PersistentVolumeClaim", spec=CLAIM), {"volumeMode": "Filesystem", "volumeName": None}),
    "a-volume": (
        body("v1", "PersistentVolume", spec=VOLUME),
        {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
    ),
}


def at(spec: Any, path: str) -> Any:
    for step in path.split("."):
        spec = spec.get(step) if spec else None
    return spec


@pytest.mark.parametrize("case", CASES)
async def test_defaults_are_filled_into_the_spec(case: str, cluster: Cluster) -> None:
    given, expected = CASES[case]
    spec = cluster.create(given)["spec"]
    assert {path: at(spec, path) for path in expected} == expected


async def test_a_storage_class_binds_immediately_by_default(cluster: Cluster) -> None:
    created = cluster.create(body("storage.k8s.io/v1", "StorageClass", provisioner="example.com/none"))
    try:
        assert (created["volumeBindingMode"], created["reclaimPolicy"]) == ("Immediate", "Delete")
    finally:
        cluster.delete("storageclasses", "x", "")


async def test_a_priority_class_preempts_by_default(cluster: Cluster) -> None:
    created = cluster.create(body("scheduling.k8s.io/v1", "PriorityClass", value=5))
    assert (created["preemptionPolicy"], created["value"]) == ("PreemptLowerPriority", 5)


async def test_a_namespace_gets_its_name_as_a_label(cluster: Cluster) -> None:
    assert cluster.create(body("v1", "Namespace"))["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}


async def test_the_allocatable_of_a_node_defaults_to_its_capacity(cluster: Cluster) -> None:
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    assert cluster.create(body("v1", "Node", status={"capacity": capacity}))["status"]["allocatable"] == capacity
