"""Claims, volumes and the volume limits of nodes, and the nodes that a pod's volumes allow.

A bound volume may be available on some nodes only. Placing an unbound volume isn't supported. Reflectors keep claims, volumes and limits
here as small records.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from allaboard.model.constraints import NodeSelectorTerm, Requirement, node_selector_terms
from allaboard.model.limits import ENTRIES
from allaboard.model.pod import Pod
from allaboard.model.raw_fields import labels, mapping, text, texts
from allaboard.model.volumes import Volume, volume_of

Record = TypeVar("Record")

_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class UnboundClaimError(Exception):
    """A pod can't be placed because of a claim; the message names the claim and the reason."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim. ``volume_name`` is empty if the claim isn't bound; ``is_for_one_pod`` is true for ReadWriteOncePod."""

    volume_name: str
    is_for_one_pod: bool = False


def claim_from(raw: dict[str, Any]) -> Claim:
    """Return the record of a raw PersistentVolumeClaim. Raises ``MalformedError``."""
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    is_bound = text(status, "phase", path="status.") == "Bound"
    return Claim(
        volume_name=text(spec, "volumeName", path="spec.") if is_bound else "",
        is_for_one_pod="ReadWriteOncePod" in texts(spec, "accessModes", "spec.", ENTRIES),
    )


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """A PersistentVolume. ``attached`` is its CSI volume; ``None`` if no CSI driver attaches it.

    ``terms`` restrict its nodes: a node must match at least one term of each entry.
    """

    terms: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    attached: Volume | None = None


def volume_from(raw: dict[str, Any]) -> StoredVolume:
    """Return the record of a raw PersistentVolume. Raises ``MalformedError``.

    Its terms come from its node affinity, and from the zone labels that older provisioners write.
    """
    spec = mapping(raw, "spec")
    found = []
    required = mapping(mapping(spec, "nodeAffinity", "spec."), "required", "spec.nodeAffinity.")
    if required:
        found.append(node_selector_terms(required, "spec.nodeAffinity.required."))
    for key, value in labels(mapping(raw, "metadata"), "labels", "metadata.").items():
        if key in _ZONE_LABELS:
            # A volume of several zones lists them with "__" in between (kubernetes volume helpers, LabelMultiZoneDelimiter).
            found.append((NodeSelectorTerm(expressions=(Requirement(key, "In", tuple(value.split("__"))),)),))
    return StoredVolume(tuple(found), volume_of(spec))


class VolumeView:
    """The claims and volumes of the cluster and the volume limits of nodes, each as the store of a reflector."""

    def __init__(self) -> None:
        self.claims: _Records[Claim] = _Records(self._claim_changed)
        self.volumes: _Records[StoredVolume] = _Records(self._volume_changed)
        self.limits: _Records[Mapping[str, int]] = _Records(self._limits_changed)
        """By node, the volume limits of its CSINode by driver."""
        self._bound: dict[str, set[str]] = {}  # claims by volume
        self._drivers: Counter[str] = Counter()
        self._on_change: Callable[[], None] = lambda: None
        self.changed: Callable[[], None] = lambda: None
        """Called after each change, before the listener."""
        self.on_claim: Callable[[str], None] = lambda claim: None
        """Called with a claim's ``namespace/name`` when its volume may have changed."""
        self.on_limits: Callable[[], None] = lambda: None
        """Called when a node can attach more or fewer volumes."""

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change()`` whenever a claim, a volume or a node's volume limit has changed."""
        self._on_change = on_change

    @property
    def limited(self) -> Collection[str]:
        """The drivers for which at least one node has a volume limit."""
        return self._drivers.keys()

    def limits_of(self, node_name: str) -> Mapping[str, int]:
        """Return a node's volume limits by driver; drivers without a limit are left out."""
        return self.limits.get(node_name) or {}

    def volume_of(self, use: str | Volume) -> Volume | None:
        """Return the CSI volume of a claim, given by ``namespace/name``; ``None`` if it isn't known, or no CSI driver attaches it.

        If ``use`` is a volume, it is returned unchanged.
        """
        if isinstance(use, Volume):
            return use
        claim = self.claims.get(use)
        stored = self.volumes.get(claim.volume_name) if claim is not None and claim.volume_name else None
        return stored.attached if stored is not None else None

    def attached_by(self, pod: Pod) -> frozenset[Volume]:
        """Return the volumes that a pod attaches to its node, of drivers with a limit."""
        if not self._drivers or not (pod.spec.claims or pod.spec.disks):
            return frozenset()
        found = (*(self.volume_of(f"{pod.namespace}/{claim}") for claim in pod.spec.claims), *pod.spec.disks)
        return frozenset(volume for volume in found if volume is not None and volume.driver in self._drivers)

    def _claim_changed(self, key: str, old: Claim | None, new: Claim | None) -> None:
        if old is not None and old.volume_name in self._bound:
            self._bound[old.volume_name].discard(key)
            if not self._bound[old.volume_name]:
                del self._bound[old.volume_name]
        if new is not None and new.volume_name:
            self._bound.setdefault(new.volume_name, set()).add(key)
        self.on_claim(key)
        self.changed()
        self._on_change()

    def _volume_changed(self, name: str, old: StoredVolume | None, new: StoredVolume | None) -> None:
        for claim in self._bound.get(name, ()):
            self.on_claim(claim)
        self.changed()
        self._on_change()

    def _limits_changed(self, node_name: str, old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> None:
        self._drivers.update((new or {}).keys())
        self._drivers.subtract((old or {}).keys())
        self._drivers = +self._drivers
        self.on_limits()
        self.changed()
        self._on_change()

    def resolve(self, pod: Pod) -> Pod:
        """Return ``pod`` with the node affinity of its volumes in place of its claims. Raises ``UnboundClaimError``."""
        if not (pod.spec.claims or pod.spec.disks):
            return pod
        found: list[tuple[NodeSelectorTerm, ...]] = []
        for name in pod.spec.claims:
            claim = self.claims.get(f"{pod.namespace}/{name}")
            if claim is None:
                raise UnboundClaimError(f'persistentvolumeclaim "{name}" not found')
            if not claim.volume_name:
                raise UnboundClaimError(
                    f'pod has unbound PersistentVolumeClaims: "{name}" has no volume yet, and binding one is not supported'
                )
            if claim.is_for_one_pod:
                raise UnboundClaimError(f'persistentvolumeclaim "{name}": access mode ReadWriteOncePod is not supported')
            stored = self.volumes.get(claim.volume_name)
            if stored is None:
                raise UnboundClaimError(f'persistentvolume "{claim.volume_name}" of claim "{name}" not found')
            found.extend(stored.terms)
        # The names of claims are dropped, so that members that differ only in these names have equal specs.
        return replace(pod, spec=replace(pod.spec, claims=(), disks=(), volumes=tuple(found)))


class _Records(Generic[Record]):
    """The store of a reflector, as a dictionary. It calls ``on_change(key, old, new)`` after each change."""

    def __init__(self, on_change: Callable[[str, Record | None, Record | None], None]) -> None:
        self._records: dict[str, Record] = {}
        self._on_change = on_change

    def get(self, key: str) -> Record | None:
        return self._records.get(key)

    def upsert(self, key: str, record: Record) -> None:
        old = self._records.get(key)
        if old != record:
            self._records[key] = record
            self._on_change(key, old, record)

    def remove(self, key: str) -> None:
        old = self._records.pop(key, None)
        if old is not None:
            self._on_change(key, old, None)

    def known(self) -> Collection[str]:
        return self._records.keys()
