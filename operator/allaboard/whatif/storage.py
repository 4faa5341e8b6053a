"""Collects the claims, volumes and storage classes that decide where pods may go, from the cluster and from manifests."""

from collections.abc import Callable, Mapping
from typing import Any

from allaboard.cluster.resource_claims import resource_claim_from
from allaboard.cluster.storage_objects import claim_from, storage_capacity_from, storage_class_from, tracks_capacity, volume_from
from allaboard.cluster.view import ClusterView
from allaboard.model.raw_fields import mapping, text
from allaboard.model.requests import RawObject
from allaboard.model.volumes import attach_limits_from

_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLAIM = ("", "PersistentVolumeClaim")
_CLASS = ("storage.k8s.io", "StorageClass")
_NAMESPACED = ("PersistentVolumeClaim", "CSIStorageCapacity", "ResourceClaim")

KINDS: Mapping[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
    _CLAIM: claim_from,
    ("", "PersistentVolume"): volume_from,
    _CLASS: storage_class_from,
    ("storage.k8s.io", "CSIDriver"): tracks_capacity,
    ("storage.k8s.io", "CSIStorageCapacity"): storage_capacity_from,
    ("storage.k8s.io", "CSINode"): attach_limits_from,
    ("resource.k8s.io", "ResourceClaim"): resource_claim_from,
}
"""The kinds of objects that are collected, by group and kind, each with the function that reads it."""


class Storage:
    """The storage objects of a cluster and of manifests. With ``is_known`` a claim that isn't among them doesn't exist."""

    def __init__(self, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._objects: list[tuple[tuple[str, str], dict[str, Any]]] = []
        self._default = ""  # the storage class of claims that state none

    def learn(self, group: str, kind: str, raw: RawObject) -> None:
        """Add an object of one of the ``KINDS``. It replaces an object of this name that was added before. Raises ``MalformedError``."""
        body = dict(raw)
        KINDS[group, kind](body)
        self._objects.append(((group, kind), body))
        metadata = mapping(raw, "metadata")
        if (group, kind) == _CLASS and mapping(metadata, "annotations", "metadata.").get(_DEFAULT) == "true":
            self._default = text(metadata, "name", path="metadata.")

    def learn_template(self, claim: RawObject) -> None:
        """Add a claim that a StatefulSet makes, unless it exists. Raises ``MalformedError``."""
        KINDS[_CLAIM](dict(claim))
        self._objects.insert(0, (_CLAIM, dict(claim)))

    def add_to(self, view: ClusterView) -> None:
        """Add all objects to ``view``."""
        volumes = view.volumes
        stores: dict[str, Any] = {
            "PersistentVolumeClaim": volumes.claims,
            "PersistentVolume": volumes.volumes,
            "StorageClass": volumes.classes,
            "CSIDriver": volumes.tracking,
            "CSIStorageCapacity": volumes.capacities,
            "CSINode": volumes.limits,
            "ResourceClaim": view.resource_claims.records,
        }
        for kind, body in self._objects:
            metadata = body["metadata"]
            name, namespace = metadata["name"], metadata.get("namespace") or "default"
            key = f"{namespace}/{name}" if kind[1] in _NAMESPACED else name
            stores[kind[1]].upsert(key, KINDS[kind](self._with_class(body) if kind == _CLAIM else body))

    def _with_class(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return a claim with the default class, if it states none (admission plugin DefaultStorageClass)."""
        spec = mapping(claim, "spec")
        if not self._default or spec.get("storageClassName") is not None or spec.get("volumeName"):
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}
