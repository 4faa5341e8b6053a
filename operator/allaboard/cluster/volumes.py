"""Claims, volumes, storage classes and the volume limits of nodes; and the nodes that a pod's volumes allow.

A bound volume may be available on some nodes only. The storage class of a claim may wait for the pod's node (WaitForFirstConsumer). Then a
volume that is free, or that can be provisioned, is chosen together with the node. Any other claim without a volume is refused. Reflectors
keep all these objects here as small records.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from allaboard.cluster.records import ClaimError, Records
from allaboard.cluster.storage_objects import Claim, Shape, StorageCapacity, StorageClass, StoredVolume, Terms
from allaboard.model.constraints import NAME_FIELD, FreeVolume, NodeSelectorTerm, Requirement, UnboundClaim
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.model.volumes import Volume

_MOST_CHOICES = 256  # tenants choose what claims ask for, and each choice may name many volumes


class UnboundClaimError(ClaimError):
    """A pod can't be placed because of a volume claim; the message names the claim and the reason."""


class Need(NamedTuple):
    """A claim of a pod that gets its volume once the pod has a node, by ``namespace/name``.

    ``unbound`` are the volumes to choose from; None if its volume can only be provisioned. Then ``rules`` say where, each with the reason
    for a refusal.
    """

    claim: str
    unbound: UnboundClaim | None
    rules: tuple[tuple[Kind, Terms], ...]


class VolumeView:
    """The claims, volumes and storage classes of the cluster and the volume limits of nodes, each as the store of a reflector."""

    def __init__(self) -> None:
        self.claims: Records[Claim] = Records(self._claim_changed)
        self.volumes: Records[StoredVolume] = Records(self._volume_changed)
        self.classes: Records[StorageClass] = Records(self._class_changed)
        self.tracking: Records[bool] = Records(self._storage_changed)
        """By CSI driver, whether the driver publishes how much storage is left."""
        self.capacities: Records[StorageCapacity] = Records(self._storage_changed)
        self.limits: Records[Mapping[str, int]] = Records(self._limits_changed)
        """By node, the volume limits of its CSINode by driver."""
        self._bound: dict[str, set[str]] = {}  # claims by volume
        self._drivers: Counter[str] = Counter()
        self._free: dict[str, set[str]] = {}  # by storage class, the volumes that belong to no claim
        self._owned: dict[str, set[str]] = {}  # by claim, the volumes that belong to it
        self._choices: dict[tuple[Shape, str, str], tuple[UnboundClaim | None, tuple[tuple[Kind, Terms], ...]]] = {}
        self._on_change: Callable[[], None] = lambda: None
        self._followers: list[Callable[[], None]] = []
        self.changed: Callable[[], None] = lambda: None
        """Called after each change, before the listener."""
        self.on_claim: Callable[[str], None] = lambda claim: None
        """Called with a claim's ``namespace/name`` when its volume may have changed."""
        self.on_limits: Callable[[], None] = lambda: None
        """Called when a node can attach more or fewer volumes."""
        self.on_classes: Callable[[], None] = lambda: None
        """Called when a storage class has changed, which decides the drivers of claims that aren't bound."""

    @contextmanager
    def following(self, on_change: Callable[[], None]) -> Iterator[None]:
        """Call ``on_change()`` also whenever a claim or a volume changes within the block."""
        self._followers.append(on_change)
        try:
            yield
        finally:
            self._followers.remove(on_change)

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change()`` whenever a claim, a volume, a storage class or a node's volume limit has changed."""
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
        if claim is None:
            return None
        if not claim.volume_name:
            # A provisioned volume counts as attached from the time at which its pod has a node (csi.go, getCSIDriverInfoFromSC).
            of_class = self.classes.get(claim.shape.storage_class)
            driver = of_class.provisioner if of_class is not None and of_class.waits else ""
            return Volume(driver, use) if driver else None
        stored = self.volumes.get(claim.volume_name)
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
        self._notify()

    def _volume_changed(self, name: str, old: StoredVolume | None, new: StoredVolume | None) -> None:
        for volume, change in ((old, _discard), (new, _add)):
            if volume is not None and volume.is_free:
                change(self._free, volume.shape.storage_class, name)
            if volume is not None and volume.owner is not None:
                change(self._owned, volume.owner[0], name)
        self._choices.clear()
        for claim in self._bound.get(name, ()):
            self.on_claim(claim)
        self._notify()

    def _notify(self) -> None:
        self.changed()
        self._on_change()
        for follower in list(self._followers):
            follower()

    def _storage_changed(self, name: str, old: object, new: object) -> None:
        self._choices.clear()
        self.changed()
        self._on_change()

    def _class_changed(self, name: str, old: StorageClass | None, new: StorageClass | None) -> None:
        self.on_classes()
        self._storage_changed(name, old, new)

    def _limits_changed(self, node_name: str, old: Mapping[str, int] | None, new: Mapping[str, int] | None) -> None:
        self._drivers.update((new or {}).keys())
        self._drivers.subtract((old or {}).keys())
        self._drivers = +self._drivers
        self.on_limits()
        self.changed()
        self._on_change()

    def resolve(self, pod: Pod, is_used: Callable[[str], bool] = lambda claim: False) -> Pod:
        """Return ``pod`` with the rules of its volumes in place of its claims. Raises ``UnboundClaimError``.

        ``is_used`` returns whether a pod that has a node uses a claim, which is given by ``namespace/name``.
        """
        if not (pod.spec.claims or pod.spec.disks):
            return pod
        found: list[Terms] = []
        unbound: list[UnboundClaim] = []
        claims = self._claims_of(pod)
        # A node that another claim's volume is being made for is refused before anything else is looked at.
        rules = [_selected(claim.selected_node) for _, _, claim in claims if claim.selected_node and not claim.volume_name]
        for key, name, claim in claims:
            if claim.is_for_one_pod and is_used(key):
                rules.append((Kind.CLAIM_IN_USE, ()))
            if not claim.volume_name:
                need = self._need(key, claim)
                rules += need.rules
                unbound += (need.unbound,) if need.unbound is not None else ()
                continue
            stored = self.volumes.get(claim.volume_name)
            if stored is None:
                raise UnboundClaimError(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume_name}"')
            found.extend(stored.terms)
            rules.extend((Kind.VOLUME_ZONE, terms) for terms in stored.zones)
        rules = list(dict.fromkeys(rules))
        # The names of claims are dropped, so that members that differ only in these names have equal specs.
        spec = replace(pod.spec, claims=(), disks=(), volumes=tuple(found), storage=tuple(rules), unbound=tuple(sorted(unbound)))
        return replace(pod, spec=spec)

    def needs(self, pod: Pod) -> Iterator[Need]:
        """Yield the claims of a pod that get their volumes once the pod has a node. Raises ``UnboundClaimError``."""
        for key, _, claim in self._claims_of(pod):
            if not claim.volume_name:
                yield self._need(key, claim)

    def _claims_of(self, pod: Pod) -> list[tuple[str, str, Claim]]:
        """Return the key, the name and the record of each claim of a pod, in the order in which kube-scheduler gives volumes to them.

        Claims for which a volume was asked for already go first, then the smallest. Raises ``UnboundClaimError``.
        """
        keys = ((f"{pod.namespace}/{name}", name) for name in pod.spec.claims)
        found = [(key, name, self._claim(key, name)) for key, name in keys]
        return sorted(found, key=lambda each: (not each[2].selected_node, each[2].shape.size))

    def _claim(self, key: str, name: str) -> Claim:
        claim = self.claims.get(key)
        if claim is None:
            raise UnboundClaimError(f'persistentvolumeclaim "{name}" not found')
        if claim.volume_name:
            return claim
        of_class = self.classes.get(claim.shape.storage_class)
        if claim.is_named or not claim.shape.storage_class or (of_class is not None and not of_class.waits):
            raise UnboundClaimError(f'pod has unbound immediate PersistentVolumeClaims: "{name}" has no volume yet')
        if of_class is None:
            raise UnboundClaimError(f'storageclass "{claim.shape.storage_class}" of claim "{name}" not found')
        return claim

    def _need(self, key: str, claim: Claim) -> Need:
        """Return what an unbound claim needs, whose class waits for the pod's node (binder.go, ``FindPodVolumes``)."""
        # A volume may belong to a claim before the claim knows the volume.
        own = min((name for name in self._owned.get(key, ()) if _belongs(self.volumes.get(name), claim)), default="")
        choice = (claim.shape, claim.selected_node, own)
        if choice not in self._choices:
            if len(self._choices) >= _MOST_CHOICES:
                self._choices.clear()
            self._choices[choice] = self._chosen_from(*choice)
        return Need(key, *self._choices[choice])

    def _chosen_from(self, shape: Shape, selected_node: str, own: str) -> tuple[UnboundClaim | None, tuple[tuple[Kind, Terms], ...]]:
        """Return the volumes that a claim of a shape may get, None if its volume can only be provisioned, and the rules in this case.

        ``own``: the volume that belongs to the claim already; empty without one.
        """
        of_class = self.classes.get(shape.storage_class) or StorageClass()
        rules: list[tuple[Kind, Terms]] = []
        stored: Iterator[tuple[str, StoredVolume | None]] = iter(())
        if selected_node:
            rules.append(_selected(selected_node))
        else:
            stored = ((name, self.volumes.get(name)) for name in ((own,) if own else self._free.get(shape.storage_class, ())))
        free = [FreeVolume(each.shape.size, name, each.terms) for name, each in stored if each is not None and (own or each.has(shape))]
        if of_class.provisioner and of_class.allowed:
            rules.append((Kind.NO_VOLUME, of_class.allowed))
        if of_class.provisioner and self.tracking.get(of_class.provisioner):
            enough = [each for each in self._of_class(shape.storage_class) if each.largest >= shape.size and each.nodes is not None]
            if all(each.nodes for each in enough):
                rules.append((Kind.NO_STORAGE, tuple(NodeSelectorTerm(each.nodes or ()) for each in enough)))
        if of_class.provisioner and not free:
            return None, tuple(rules)
        provisioned = tuple(terms for _, terms in rules) if of_class.provisioner else ((),)
        return UnboundClaim(tuple(sorted(free)), provisioned), ()

    def _of_class(self, storage_class: str) -> Iterator[StorageCapacity]:
        for name in self.capacities.known():
            each = self.capacities.get(name)
            if each is not None and each.storage_class == storage_class:
                yield each


def _belongs(volume: StoredVolume | None, claim: Claim) -> bool:
    """Return whether a volume that names ``claim`` as its owner may become its volume (pv_helpers.go, ``FindMatchingVolume``)."""
    if volume is None or volume.owner is None or volume.is_leaving or volume.owner[1] not in ("", claim.uid):
        return False
    own, wanted = volume.shape, claim.shape
    return (own.mode, own.attributes_class) == (wanted.mode, wanted.attributes_class) and own.size >= wanted.size


def _add(index: dict[str, set[str]], key: str, name: str) -> None:
    index.setdefault(key, set()).add(name)


def _selected(node_name: str) -> tuple[Kind, Terms]:
    """Return the rule that a volume is being made for a node, and can be used there only."""
    return Kind.NO_VOLUME, (NodeSelectorTerm(fields=(Requirement(NAME_FIELD, "In", (node_name,)),)),)


def _discard(index: dict[str, set[str]], key: str, name: str) -> None:
    index[key].discard(name)
    if not index[key]:
        del index[key]
