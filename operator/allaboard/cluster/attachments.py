"""The CSI volumes that nodes have attached for their pods, and the number of volumes that each node can still attach.

Pods name claims, and a claim's volume may become known later than the pod. The claims are therefore kept by node. After a change of a
node's pods, of one of their claims, or of a claim's volume, the next query computes the node's volumes again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from allaboard.cluster.volumes import VolumeView
from allaboard.model.arrays import Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.volumes import Attaches, Volume

UNLIMITED = 2**31
"""The number of volumes of a driver that a node without a limit for the driver can attach."""

_Use = str | Volume
"""A pod's use of a volume: a claim by ``namespace/name``, or a volume that the pod names itself."""


class AttachedVolumes:
    """The volumes that nodes have attached for their pods. ``volumes`` has the volumes of claims and the limits of nodes."""

    def __init__(self, volumes: VolumeView) -> None:
        self._volumes = volumes
        self._uses: dict[str, Counter[_Use]] = {}  # by node
        self._users: dict[str, set[str]] = {}  # nodes by claim
        self._attached: dict[str, frozenset[Volume]] = {}  # by node
        self._nodes: dict[Volume, set[str]] = {}
        self._stale: set[str] = set()  # nodes whose volumes must be computed again
        self._changed: set[str] = set()  # nodes whose number of volumes has changed since ``free`` was computed
        self._order: tuple[Node, ...] | None = None
        self._positions: dict[str, int] = {}
        self._free: Mapping[str, Integers] = {}
        volumes.on_claim, volumes.on_limits, volumes.on_classes = self._on_claim, self._on_limits, self._on_classes

    def add(self, node_name: str, namespace: str, spec: SchedulingSpec) -> None:
        """Count the volumes of a pod that is bound to a node or assumed on it."""
        if not (spec.claims or spec.disks):
            return
        for use in _uses(namespace, spec):
            uses = self._uses.setdefault(node_name, Counter())
            uses[use] += 1
            if uses[use] == 1:
                self._stale.add(node_name)
                if isinstance(use, str):
                    self._users.setdefault(use, set()).add(node_name)

    def subtract(self, node_name: str, namespace: str, spec: SchedulingSpec) -> None:
        """Stop counting the volumes of a pod that has left a node."""
        if not (spec.claims or spec.disks):
            return
        for use in _uses(namespace, spec):
            uses = self._uses[node_name]
            uses[use] -= 1
            if uses[use]:
                continue
            del uses[use]
            self._stale.add(node_name)
            if isinstance(use, str):
                self._users[use].discard(node_name)
                if not self._users[use]:
                    del self._users[use]
            if not uses:
                del self._uses[node_name]

    def is_used(self, claim: str) -> bool:
        """Return whether a pod that has a node uses a claim, which is given by ``namespace/name``."""
        return claim in self._users

    def asked_by(self, pod: Pod, users: Callable[[Volume], int] = lambda volume: 2) -> tuple[Attaches, ...]:
        """Return for each driver that has a limit what a pod attaches: the number of the pod's own volumes, and each shared volume.

        A volume is the pod's own if no node has attached it and no other member of the gang uses it. ``users`` returns the number of
        members that use a volume.
        """
        own: Counter[str] = Counter()
        shared: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for volume in sorted(self._volumes.attached_by(pod)):
            nodes = self._nodes_with(volume)
            if users(volume) == 1 and not nodes:
                own[volume.driver] += 1
            else:
                shared.setdefault(volume.driver, []).append((volume.handle, tuple(sorted(nodes))))
        return tuple(Attaches(driver, own[driver], tuple(shared.get(driver, ()))) for driver in sorted(own.keys() | shared.keys()))

    def missing_on(self, pod: Pod, node_name: str) -> list[Volume]:
        """Return the volumes of drivers with a limit that a node would have to attach for a pod."""
        return [volume for volume in self._volumes.attached_by(pod) if node_name not in self._nodes_with(volume)]

    def free(self, nodes: tuple[Node, ...]) -> Mapping[str, Integers]:
        """Return for each driver that has a limit how many volumes each node can still attach; negative for a node beyond its limit.

        The values are int64[nodes], by the driver's name.
        """
        if not self._volumes.limited:
            return {}
        self._refresh()
        if nodes is not self._order:
            self._order, self._positions = nodes, {node.name: position for position, node in enumerate(nodes)}
            self._free = {driver: np.full(len(nodes), UNLIMITED, dtype=np.int64) for driver in sorted(self._volumes.limited)}
            self._changed.update(self._positions)
        elif self._changed:
            self._free = {driver: amounts.copy() for driver, amounts in self._free.items()}
        if self._changed:
            for name in self._changed & self._positions.keys():
                for driver, free in self.free_on(name).items():
                    self._free[driver][self._positions[name]] = free
            for amounts in self._free.values():
                amounts.setflags(write=False)
            self._changed = set()
        return self._free

    def free_on(self, node_name: str) -> dict[str, int]:
        """Return for each driver that has a limit how many volumes a node can still attach."""
        self._refresh()
        attached = Counter(volume.driver for volume in self._attached.get(node_name, ()))
        return {driver: limit - attached[driver] for driver, limit in self._volumes.limits_of(node_name).items()}

    def _nodes_with(self, volume: Volume) -> Collection[str]:
        self._refresh()
        return self._nodes.get(volume, ())

    def _refresh(self) -> None:
        for name in self._stale:
            before = self._attached.pop(name, frozenset())
            now = frozenset(volume for use in self._uses.get(name, ()) if (volume := self._volumes.volume_of(use)) is not None)
            for volume in before - now:
                self._nodes[volume].discard(name)
                if not self._nodes[volume]:
                    del self._nodes[volume]
            for volume in now - before:
                self._nodes.setdefault(volume, set()).add(name)
            if now:
                self._attached[name] = now
            if now != before:
                self._changed.add(name)
        self._stale = set()

    def _on_claim(self, claim: str) -> None:
        self._stale |= self._users.get(claim, set())

    def _on_limits(self) -> None:
        self._order = None

    def _on_classes(self) -> None:
        self._stale |= self._uses.keys()


def _uses(namespace: str, spec: SchedulingSpec) -> Iterable[_Use]:
    return (*(f"{namespace}/{claim}" for claim in spec.claims), *spec.disks)
