"""Creates the storage objects of a case as if controllers had bound them, and removes them again."""

from collections.abc import Callable, Sequence
from typing import Any

from allaboard.cluster.resource_claims import resource_claim_from
from allaboard.cluster.storage_objects import claim_from, storage_capacity_from, storage_class_from, tracks_capacity, volume_from
from allaboard.cluster.view import ClusterView
from allaboard_sandbox import ApiError

from ..controlplane.client import MERGE_PATCH, Api
from .cases import Body

_ORDER = ("StorageClass", "CSIDriver", "CSIStorageCapacity", "PersistentVolumeClaim", "PersistentVolume", "ResourceClaim")
_PLURALS = {
    "StorageClass": "storageclasses",
    "CSIDriver": "csidrivers",
    "CSIStorageCapacity": "csistoragecapacities",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "PersistentVolume": "persistentvolumes",
    "ResourceClaim": "resourceclaims",
}


def create(api: Api, storage: Sequence[Body]) -> list[Body]:
    """Create ``storage``, and return the objects. A volume that names a claim is bound to it; other volumes are available."""
    uids: dict[str, str] = {}
    for body in sorted(storage, key=lambda each: _ORDER.index(each["kind"])):
        owner = body.get("spec", {}).get("claimRef")
        if owner is not None:
            owner["uid"] = uids[owner["name"]]
        made = api.request("POST", _collection(body), body)
        if body["kind"] == "PersistentVolumeClaim":
            uids[made["metadata"]["name"]] = made["metadata"]["uid"]
        elif body["kind"] == "ResourceClaim":
            api.request("PUT", f"{_path(body)}/status", {**made, "status": body["status"]})
        elif body["kind"] == "PersistentVolume":
            phase = {"status": {"phase": "Bound" if owner else "Available"}}
            api.request("PATCH", f"{_path(body)}/status", phase, content_type=MERGE_PATCH)
            if owner is not None:
                claim = f"/api/v1/namespaces/default/persistentvolumeclaims/{owner['name']}"
                done = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
                api.request("PATCH", claim, done, content_type=MERGE_PATCH)
                api.request("PATCH", f"{claim}/status", {"status": {"phase": "Bound"}}, content_type=MERGE_PATCH)
    return [api.request("GET", _path(body)) for body in storage]


def remove(api: Api, storage: Sequence[Body]) -> None:
    """Remove the objects."""
    for body in storage:
        try:
            if body["kind"].startswith(("PersistentVolume", "ResourceClaim")):
                api.request("PATCH", _path(body), {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            api.request("DELETE", _path(body), {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise


def show(view: ClusterView, storage: Sequence[Body]) -> None:
    """Add the objects to what this scheduler knows."""
    volumes = view.volumes
    stores: dict[str, tuple[Callable[[Body], Any], Any]] = {
        "StorageClass": (storage_class_from, volumes.classes),
        "CSIDriver": (tracks_capacity, volumes.tracking),
        "CSIStorageCapacity": (storage_capacity_from, volumes.capacities),
        "PersistentVolumeClaim": (claim_from, volumes.claims),
        "PersistentVolume": (volume_from, volumes.volumes),
        "ResourceClaim": (resource_claim_from, view.resource_claims.records),
    }
    for body in storage:
        read, store = stores[body["kind"]]
        metadata = body["metadata"]
        store.upsert(f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"], read(body))


def _collection(body: Body) -> str:
    root = f"/apis/{body['apiVersion']}" if "/" in body["apiVersion"] else f"/api/{body['apiVersion']}"
    namespace = body["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{_PLURALS[body['kind']]}" if namespace else f"{root}/{_PLURALS[body['kind']]}"


def _path(body: Body) -> str:
    return f"{_collection(body)}/{body['metadata']['name']}"
