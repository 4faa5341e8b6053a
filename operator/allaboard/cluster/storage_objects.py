"""Small records of the objects that decide which nodes a pod's volumes allow: claims, volumes, storage classes and storage capacities.

Fields and defaults are read as by kube-scheduler's plugins volumebinding, volumezone and volumerestrictions (1.37).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from allaboard.model.constraints import NodeSelectorTerm, Requirement, node_selector_terms
from allaboard.model.limits import ENTRIES, LABELS, TERMS, VALUES
from allaboard.model.podterms import LabelExpression, expressions_in
from allaboard.model.quantities import resource_amount
from allaboard.model.raw_fields import items, labels, mapping, text, texts
from allaboard.model.volumes import Volume, volume_of

_BOUND = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation by which a scheduler asks a provisioner for the volume of a claim, near a node."""

_ONE_POD = "ReadWriteOncePod"
_CLASS = "volume.beta.kubernetes.io/storage-class"
_ZONE = "topology.kubernetes.io/zone"
_REGION = "topology.kubernetes.io/region"
_STABLE = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}
"""The labels of volumes that name zones, each with the label that nodes have instead of it."""
_NO_PROVISIONER = "kubernetes.io/no-provisioner"

Terms = tuple[NodeSelectorTerm, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a claim that a volume must have: the storage class, the bytes, the access modes, the volume mode and labels."""

    storage_class: str = ""
    size: int = 0
    modes: tuple[str, ...] = ()
    mode: str = "Filesystem"
    attributes_class: str = ""
    selector: tuple[LabelExpression, ...] | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim. ``volume_name`` is empty if the claim isn't bound; ``is_for_one_pod`` is true for ReadWriteOncePod.

    ``selected_node`` is the node near which its volume is being provisioned. A claim ``is_named`` if it asks for a volume by name, so that
    no scheduler may choose one.
    """

    volume_name: str
    is_for_one_pod: bool = False
    shape: Shape = Shape()
    selected_node: str = ""
    is_named: bool = False
    uid: str = ""
    resource_version: str = field(default="", compare=False)


def claim_from(raw: dict[str, Any]) -> Claim:
    """Return the record of a raw PersistentVolumeClaim; a bound one without its shape, to save memory. Raises ``MalformedError``.

    A controller writes that the binding is complete before it sets the phase (binder.go, ``isPVCFullyBound``).
    """
    metadata, spec, status = mapping(raw, "metadata"), mapping(raw, "spec"), mapping(raw, "status")
    named = text(spec, "volumeName", path="spec.")
    if named and (_BOUND in mapping(metadata, "annotations", "metadata.") or text(status, "phase", path="status.") == "Bound"):
        return Claim(named, _ONE_POD in texts(spec, "accessModes", "spec.", ENTRIES))
    selector = None if spec.get("selector") is None else expressions_in(mapping(spec, "selector", "spec."), "spec.selector.")
    shape = replace(_shape_of(metadata, spec, mapping(spec, "resources", "spec."), "requests", "spec.resources."), selector=selector)
    return Claim(
        volume_name="",
        is_for_one_pod=_ONE_POD in shape.modes,
        shape=shape,
        selected_node=text(mapping(metadata, "annotations", "metadata."), SELECTED_NODE, path="metadata.annotations."),
        is_named=bool(named),
        uid=text(metadata, "uid", path="metadata."),
        resource_version=text(metadata, "resourceVersion", path="metadata."),
    )


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """A PersistentVolume. ``attached`` is its CSI volume; ``None`` if no CSI driver attaches it.

    ``terms`` restrict its nodes: a node must match at least one term of each entry. So do ``zones``, from its labels. ``owner`` is the
    claim that the volume belongs to, as (namespace/name, UID); None if it belongs to none. A volume that ``is_free`` may be given to a
    claim whose ``shape`` it has; only such a volume has ``labels``.
    """

    terms: tuple[Terms, ...] = ()
    attached: Volume | None = None
    zones: tuple[Terms, ...] = ()
    shape: Shape = Shape()
    labels: tuple[tuple[str, str], ...] = ()
    owner: tuple[str, str] | None = None
    is_free: bool = False
    is_leaving: bool = False
    resource_version: str = field(default="", compare=False)

    def has(self, wanted: Shape) -> bool:
        """Return whether the volume has what a claim asks for (pv_helpers.go, ``FindMatchingVolume``)."""
        own = self.shape
        alike = (own.storage_class, own.mode, own.attributes_class) == (wanted.storage_class, wanted.mode, wanted.attributes_class)
        return (
            alike
            and own.size >= wanted.size
            and set(wanted.modes) <= set(own.modes)
            and (wanted.selector is None or all(each.matches(dict(self.labels)) for each in wanted.selector))
        )


def volume_from(raw: dict[str, Any]) -> StoredVolume:
    """Return the record of a raw PersistentVolume. Raises ``MalformedError``."""
    metadata, spec = mapping(raw, "metadata"), mapping(raw, "spec")
    required = mapping(mapping(spec, "nodeAffinity", "spec."), "required", "spec.nodeAffinity.")
    of_volume = labels(metadata, "labels", "metadata.", LABELS)
    owner = mapping(spec, "claimRef", "spec.")
    key = f"{text(owner, 'namespace', path='spec.claimRef.')}/{text(owner, 'name', path='spec.claimRef.')}"
    is_leaving = metadata.get("deletionTimestamp") is not None
    is_free = not owner and not is_leaving and text(mapping(raw, "status"), "phase", path="status.") == "Available"
    return StoredVolume(
        terms=(node_selector_terms(required, "spec.nodeAffinity.required."),) if required else (),
        zones=tuple(_zone_terms(key, value) for key, value in sorted(of_volume.items()) if key in _STABLE),
        attached=volume_of(spec),
        shape=_shape_of(metadata, spec, spec, "capacity", "spec."),
        labels=tuple(sorted(of_volume.items())) if is_free else (),
        owner=(key, text(owner, "uid", path="spec.claimRef.")) if owner else None,
        is_free=is_free,
        is_leaving=is_leaving,
        resource_version=text(metadata, "resourceVersion", path="metadata."),
    )


def _shape_of(metadata: Mapping[str, object], spec: Mapping[str, object], sized: Mapping[str, object], key: str, path: str) -> Shape:
    """Return the shape of a claim or a volume. Its size is under ``key`` of ``sized``, which is at ``path``."""
    annotations = mapping(metadata, "annotations", "metadata.")
    return Shape(
        # The annotation of earlier versions goes first.
        storage_class=text(annotations, _CLASS, path="metadata.annotations.") or text(spec, "storageClassName", path="spec."),
        size=resource_amount("storage", mapping(sized, key, path).get("storage") or 0, f"{path}{key}[storage]"),
        modes=tuple(sorted(texts(spec, "accessModes", "spec.", ENTRIES))),
        mode=text(spec, "volumeMode", "Filesystem", "spec."),
        attributes_class=text(spec, "volumeAttributesClassName", path="spec."),
    )


def _zone_terms(key: str, value: str) -> Terms:
    """Return the terms of which a node must match one because a volume is labelled with a zone or region (volume_zone.go).

    A node without any label of zones or regions takes each volume. A volume of several zones lists them with ``__`` in between.
    """
    values = tuple(value.split("__"))
    terms = [NodeSelectorTerm((Requirement(key, "In", values),))]
    if _STABLE[key] != key:
        terms.append(NodeSelectorTerm((Requirement(key, "DoesNotExist"), Requirement(_STABLE[key], "In", values))))
    return (*terms, NodeSelectorTerm(tuple(Requirement(label, "DoesNotExist") for label in sorted(_STABLE))))


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass. ``waits`` is true if its claims get their volumes once their pods have nodes (WaitForFirstConsumer).

    ``provisioner`` is empty if no volumes are provisioned. A node must match one of the terms ``allowed``, if there are any.
    """

    waits: bool = False
    provisioner: str = ""
    allowed: Terms = ()


def storage_class_from(raw: dict[str, Any]) -> StorageClass:
    """Return the record of a raw StorageClass. Raises ``MalformedError``."""
    provisioner = text(raw, "provisioner")
    return StorageClass(
        waits=text(raw, "volumeBindingMode") == "WaitForFirstConsumer",
        provisioner="" if provisioner == _NO_PROVISIONER else provisioner,
        allowed=tuple(NodeSelectorTerm(tuple(_topology(term, path))) for path, term in items(raw, "allowedTopologies", limit=TERMS)),
    )


def _topology(term: Mapping[str, object], path: str) -> Iterator[Requirement]:
    for where, each in items(term, "matchLabelExpressions", path, ENTRIES):
        yield Requirement(text(each, "key", path=where), "In", texts(each, "values", where, VALUES))


def tracks_capacity(raw: dict[str, Any]) -> bool:
    """Return whether a raw CSIDriver publishes the capacity that is left, as CSIStorageCapacity objects. Raises ``MalformedError``."""
    return mapping(raw, "spec").get("storageCapacity") is True


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """A CSIStorageCapacity: the largest volume of a class, in bytes, that can be provisioned for the nodes that match ``nodes``.

    ``nodes`` is None if no node has access. An empty ``nodes`` matches every node.
    """

    storage_class: str
    largest: int
    nodes: tuple[Requirement, ...] | None


def storage_capacity_from(raw: dict[str, Any]) -> StorageCapacity:
    """Return the record of a raw CSIStorageCapacity. Raises ``MalformedError``."""
    field = "maximumVolumeSize" if raw.get("maximumVolumeSize") is not None else "capacity"
    topology = raw.get("nodeTopology")
    expressions = () if topology is None else expressions_in(mapping(raw, "nodeTopology"), "nodeTopology.")
    return StorageCapacity(
        storage_class=text(raw, "storageClassName"),
        largest=-1 if raw.get(field) is None else resource_amount("storage", raw[field], field),
        nodes=None if topology is None else tuple(Requirement(each.key, each.operator, each.values) for each in expressions),
    )
