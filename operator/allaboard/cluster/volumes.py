"""Which nodes a pod's volumes allow. A bound volume may be tied to some nodes; an unbound one can't be placed by us yet.

Claims and volumes are few beside pods, so they are kept as small records by their own reflectors.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from allaboard.model.constraints import NodeSelectorTerm, Requirement, node_selector_terms
from allaboard.model.fields import labels, mapping, text, texts
from allaboard.model.limits import ENTRIES
from allaboard.model.pod import Pod

Record = TypeVar("Record")

_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


class UnboundClaimError(Exception):
    """A claim has no volume we could place a pod by; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim: the volume it is bound to, empty when it isn't."""

    volume_name: str
    is_for_one_pod: bool = False


def claim_from(raw: dict[str, Any]) -> Claim:
    """The record of a raw PersistentVolumeClaim. Raises ``MalformedError``."""
    spec, status = mapping(raw, "spec"), mapping(raw, "status")
    is_bound = text(status, "phase", path="status.") == "Bound"
    return Claim(
        volume_name=text(spec, "volumeName", path="spec.") if is_bound else "",
        is_for_one_pod="ReadWriteOncePod" in texts(spec, "accessModes", "spec.", ENTRIES),
    )


def volume_terms_from(raw: dict[str, Any]) -> tuple[tuple[NodeSelectorTerm, ...], ...]:
    """What a raw PersistentVolume asks of nodes: its node affinity, and its zone labels as older provisioners write them."""
    found = []
    required = mapping(mapping(mapping(raw, "spec"), "nodeAffinity", "spec."), "required", "spec.nodeAffinity.")
    if required:
        found.append(node_selector_terms(required, "spec.nodeAffinity.required."))
    for key, value in labels(mapping(raw, "metadata"), "labels", "metadata.").items():
        if key in _ZONE_LABELS:
            # A volume of several zones lists them so (kubernetes volume helpers, LabelMultiZoneDelimiter).
            found.append((NodeSelectorTerm(expressions=(Requirement(key, "In", tuple(value.split("__"))),)),))
    return tuple(found)


class VolumeView:
    """The claims and volumes of the cluster: two stores for reflectors, and what they mean for a pod."""

    def __init__(self) -> None:
        self.claims: _Records[Claim] = _Records()
        self.volumes: _Records[tuple[tuple[NodeSelectorTerm, ...], ...]] = _Records()

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change()`` whenever a claim or volume has changed."""
        self.claims.on_change = self.volumes.on_change = on_change

    def resolve(self, pod: Pod) -> Pod:
        """``pod`` with what its volumes ask of nodes. Raises ``UnboundClaimError``."""
        if not pod.spec.claims:
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
            terms = self.volumes.get(claim.volume_name)
            if terms is None:
                raise UnboundClaimError(f'persistentvolume "{claim.volume_name}" of claim "{name}" not found')
            found.extend(terms)
        # Which claims they were is of no more use: members that differ in that alone are of one kind.
        return replace(pod, spec=replace(pod.spec, claims=(), volumes=tuple(found)))


class _Records(Generic[Record]):
    """A reflector's store that is a dictionary."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self.on_change: Callable[[], None] = lambda: None

    def get(self, key: str) -> Record | None:
        return self._records.get(key)

    def upsert(self, key: str, record: Record) -> None:
        if self._records.get(key) != record:
            self._records[key] = record
            self.on_change()

    def remove(self, key: str) -> None:
        if self._records.pop(key, None) is not None:
            self.on_change()

    def known(self) -> Collection[str]:
        return self._records.keys()
