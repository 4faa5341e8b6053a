"""Storage objects whose volumes are given to claims once their pods have nodes."""

from typing import Any

from allaboard_sandbox.store import Body

NO_PROVISIONER = "kubernetes.io/no-provisioner"


def waiting_class(name: str, provisioner: str = NO_PROVISIONER) -> Body:
    """Return a StorageClass whose claims wait for the nodes of their pods (WaitForFirstConsumer)."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def local_volume(name: str, storage_class: str, node_name: str, *, size: str = "1Gi") -> Body:
    """Return a PersistentVolume that is a disk of one node."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    spec: dict[str, Any] = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
