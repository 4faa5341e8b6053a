"""Creates the storage objects of a case as if controllers had bound them, and removes them again."""

from collections.abc import Sequence

from allaboard.cluster.stored_kinds import STORED_KINDS, StoredKind
from allaboard.cluster.view import ClusterView
from allaboard_sandbox import ApiError

from ..controlplane.client import MERGE_PATCH, Api
from .cases import Body

_ORDER = ("StorageClass", "CSIDriver", "CSIStorageCapacity", "PersistentVolumeClaim", "PersistentVolume", "ResourceClaim")


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
    for body in storage:
        _kind(body).put(body, view)


def _kind(body: Body) -> StoredKind:
    return STORED_KINDS[body["apiVersion"].rpartition("/")[0], body["kind"]]


def _collection(body: Body) -> str:
    root = f"/apis/{body['apiVersion']}" if "/" in body["apiVersion"] else f"/api/{body['apiVersion']}"
    namespace, plural = body["metadata"].get("namespace"), _kind(body).resource.plural
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _path(body: Body) -> str:
    return f"{_collection(body)}/{body['metadata']['name']}"
