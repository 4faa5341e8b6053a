"""The volume controller and a provisioner: a volume with an owner is bound to its claim, and a claim near a node gets a volume.

The annotations and phases are those of kubernetes pkg/controller/volume/persistentvolume (1.37). The volumes that the provisioner makes can
be used on the selected node only. The controller doesn't choose among free volumes, which a scheduler does for
claims that wait for a node.
"""

from collections.abc import Iterator
from typing import Any

from allaboard_sandbox.api import Api
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record

VOLUMES, CLAIMS, CLASSES = "persistentvolumes", "persistentvolumeclaims", "storageclasses.storage.k8s.io"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER = "sandbox.allaboard.dev"
"""The provisioner in storage classes for which the sandbox makes volumes."""

_DONE = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


class VolumeController:
    """The controller that binds volumes and claims to each other."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterator[tuple[str, Key]]:
        """Yield the table and the key of a volume or a claim that isn't bound."""
        if change.type == DELETED:
            return
        if change.table in (VOLUMES, CLAIMS) and (change.record.body.get("status") or {}).get("phase") != "Bound":
            yield change.table, change.record.key

    def reconcile(self, key: tuple[str, Key]) -> None:
        """Bind a volume or a claim, if the other one is known."""
        table, of_object = key
        record = self._api.store.table(table).get(of_object)
        if record is None or (record.body.get("status") or {}).get("phase") == "Bound":
            return
        if table == VOLUMES:
            self._bind_volume(record)
        else:
            self._bind_claim(record)

    def _bind_volume(self, volume: Record) -> None:
        owner = (volume.body.get("spec") or {}).get("claimRef")
        if owner is None:
            if not (volume.body.get("status") or {}).get("phase"):
                self._put(VOLUMES, volume, status={"phase": "Available"})
            return
        claim = self._api.store.table(CLAIMS).get((owner.get("namespace", ""), owner.get("name", "")))
        if claim is not None and owner.get("uid") in (None, "", claim.body["metadata"]["uid"]):
            self._bind(volume, claim)

    def _bind_claim(self, claim: Record) -> None:
        metadata, spec = claim.body["metadata"], claim.body.get("spec") or {}
        for volume in self._api.store.table(VOLUMES):
            owner = (volume.body.get("spec") or {}).get("claimRef") or {}
            if (owner.get("namespace"), owner.get("name")) == claim.key and owner.get("uid") in (None, "", metadata["uid"]):
                self._bind(volume, claim)
                return
        of_class = self._api.store.table(CLASSES).get(("", spec.get("storageClassName") or ""))
        node_name = (metadata.get("annotations") or {}).get(SELECTED_NODE)
        if of_class is None or of_class.body.get("provisioner") != PROVISIONER:
            return
        if node_name or of_class.body.get("volumeBindingMode") != "WaitForFirstConsumer":
            self._api.create(self._api.resource(VOLUMES), "", _provisioned(claim.body, node_name))

    def _bind(self, volume: Record, claim: Record) -> None:
        metadata = claim.body["metadata"]
        owner = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.key[0],
            "name": claim.key[1],
            "uid": metadata["uid"],
        }
        self._put(VOLUMES, volume, spec={"claimRef": owner}, status={"phase": "Bound"})
        capacity = (volume.body.get("spec") or {}).get("capacity") or {}
        annotations = {**(metadata.get("annotations") or {}), **_DONE}
        status = {"phase": "Bound", "capacity": capacity}
        self._put(CLAIMS, claim, metadata={"annotations": annotations}, spec={"volumeName": volume.key[1]}, status=status)

    def _put(self, table: str, record: Record, **parts: dict[str, Any]) -> None:
        merged = {part: {**(record.body.get(part) or {}), **fields} for part, fields in parts.items()}
        self._api.store.put(table, record.key, {**record.body, **merged})


def _provisioned(claim: Body, node_name: str | None) -> Body:
    """Return a volume for a claim, which only pods on the node ``node_name`` can use; None for any node."""
    metadata, spec = claim["metadata"], claim["spec"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node_name]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}} if node_name else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": (spec.get("resources") or {}).get("requests") or {},
            "accessModes": spec.get("accessModes") or [],
            "storageClassName": spec.get("storageClassName"),
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]},
            "csi": {"driver": PROVISIONER, "volumeHandle": metadata["uid"]},
            **affinity,
        },
    }
