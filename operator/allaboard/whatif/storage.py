"""Collects the claims, volumes and storage classes that decide where pods may go, from the cluster and from manifests."""

from typing import Any

from allaboard.cluster.stored_kinds import CLAIM, STORAGE_CLASS, STORED_KINDS, StoredKind
from allaboard.cluster.view import ClusterView
from allaboard.model.raw_fields import mapping, text
from allaboard.model.requests import RawObject

_DEFAULT = "storageclass.kubernetes.io/is-default-class"


class Storage:
    """The storage objects of a cluster and of manifests. With ``is_known`` a claim that isn't among them doesn't exist."""

    def __init__(self, *, is_known: bool = False) -> None:
        self.is_known = is_known
        self._objects: list[tuple[StoredKind, dict[str, Any]]] = []
        self._default = ""  # the storage class of claims that state none

    def learn(self, group: str, kind: str, raw: RawObject) -> None:
        """Add an object of one of the ``STORED_KINDS``. It replaces an object of this name that was added before.

        Raises ``MalformedError``.
        """
        body, stored = dict(raw), STORED_KINDS[group, kind]
        stored.read(body)
        self._objects.append((stored, body))
        metadata = mapping(raw, "metadata")
        if stored is STORAGE_CLASS and mapping(metadata, "annotations", "metadata.").get(_DEFAULT) == "true":
            self._default = text(metadata, "name", path="metadata.")

    def learn_template(self, claim: RawObject) -> None:
        """Add a claim that a StatefulSet makes, unless it exists. Raises ``MalformedError``."""
        CLAIM.read(dict(claim))
        self._objects.insert(0, (CLAIM, dict(claim)))

    def add_to(self, view: ClusterView) -> None:
        """Add all objects to ``view``."""
        for stored, body in self._objects:
            stored.put(self._with_class(body) if stored is CLAIM else body, view, "default")

    def _with_class(self, claim: dict[str, Any]) -> dict[str, Any]:
        """Return a claim with the default class, if it states none (admission plugin DefaultStorageClass)."""
        spec = mapping(claim, "spec")
        if not self._default or spec.get("storageClassName") is not None or spec.get("volumeName"):
            return claim
        return {**claim, "spec": {**spec, "storageClassName": self._default}}
