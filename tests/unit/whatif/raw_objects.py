"""Raw nodes, pods and PodGroups of small clusters, which tests write into files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allaboard.settings.options import load_settings
from allaboard.whatif.board import StoredBoard
from allaboard.whatif.snapshots import read_cluster

Raw = dict[str, Any]
CREATED = "2026-01-01T00:00:00Z"


def raw_node(name: str, has: Mapping[str, str], labels: Mapping[str, str] | None = None, **spec: Any) -> Raw:
    """Return a ready node that offers the amounts ``has`` and 110 pods."""
    amounts = {**has, "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "uid": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def raw_pod(name: str, asked: Mapping[str, str], group: str = "", created: str = CREATED, **spec: Any) -> Raw:
    """Return a pod of the namespace ``team``, which runs if it has a node."""
    limits = {resource: amount for resource, amount in asked.items() if "/" in resource}
    containers = [{"name": "main", "image": "x", "resources": {"requests": dict(asked), "limits": limits}}]
    labels = {"scheduling.x-k8s.io/pod-group": group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": created, "labels": labels},
        "spec": {"schedulerName": "allaboard", "containers": containers, **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def raw_group(name: str, minimum: int, created: str = CREATED) -> Raw:
    """Return a PodGroup of the namespace ``team``."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": name, "creationTimestamp": created},
        "spec": {"minMember": minimum},
    }


def board_of(objects: Sequence[Raw], folder: Path) -> StoredBoard:
    """Return what commands show of a cluster with these objects."""
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}), encoding="utf-8")
    settings = load_settings({})
    return StoredBoard.of(read_cluster([str(file)], settings.reading), settings)
