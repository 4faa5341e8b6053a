"""The kinds of objects that decide where volumes and devices of pods are: how each is read, and where the view keeps it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allaboard.cluster.records import Records
from allaboard.cluster.resource_claims import resource_claim_from
from allaboard.cluster.storage_objects import claim_from, storage_capacity_from, storage_class_from, tracks_capacity, volume_from
from allaboard.cluster.view import ClusterView
from allaboard.kube.paths import CLAIMS, CSI_DRIVERS, CSI_NODES, RESOURCE_CLAIMS, STORAGE_CAPACITIES, STORAGE_CLASSES, VOLUMES, Resource
from allaboard.model.volumes import attach_limits_from


@dataclass(frozen=True, slots=True)
class StoredKind:
    """One kind: ``read`` returns the record of a raw object, or raises ``MalformedError``; ``store_of`` returns the records of a view."""

    resource: Resource
    read: Callable[[dict[str, Any]], Any]
    store_of: Callable[[ClusterView], Records[Any]]
    is_namespaced: bool = False

    @property
    def group_kind(self) -> tuple[str, str]:
        """The API group and the kind."""
        return self.resource.api_version.rpartition("/")[0], self.resource.kind

    def put(self, raw: dict[str, Any], view: ClusterView, namespace: str = "") -> None:
        """Read an object, and add it to ``view``. ``namespace`` is that of an object that states none. Raises ``MalformedError``."""
        metadata = raw["metadata"]
        name, own = metadata["name"], metadata.get("namespace") or namespace
        self.store_of(view).upsert(f"{own}/{name}" if self.is_namespaced else name, self.read(raw))


CLAIM = StoredKind(CLAIMS, claim_from, lambda view: view.volumes.claims, is_namespaced=True)
STORAGE_CLASS = StoredKind(STORAGE_CLASSES, storage_class_from, lambda view: view.volumes.classes)
RESOURCE_CLAIM = StoredKind(RESOURCE_CLAIMS, resource_claim_from, lambda view: view.resource_claims, is_namespaced=True)
OF_VOLUMES = (
    StoredKind(VOLUMES, volume_from, lambda view: view.volumes.volumes),
    CLAIM,
    STORAGE_CLASS,
    StoredKind(CSI_DRIVERS, tracks_capacity, lambda view: view.volumes.tracking),
    StoredKind(STORAGE_CAPACITIES, storage_capacity_from, lambda view: view.volumes.capacities, is_namespaced=True),
    StoredKind(CSI_NODES, attach_limits_from, lambda view: view.volumes.limits),
)
"""The kinds that decide where volumes are, which every cluster serves."""

STORED_KINDS = {kind.group_kind: kind for kind in (*OF_VOLUMES, RESOURCE_CLAIM)}
"""All kinds, by API group and kind."""
