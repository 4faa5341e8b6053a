"""The live state of the cluster: every node, every pod, and the pods that are assumed on a node.

Usage is kept in arrays, and each event changes one row. A snapshot for a search therefore costs one copy of the arrays, whatever the number
of pods. A pod is *charged* once: to the node it is bound to or, before the watch has reported the bind, to the node it is assumed on.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np

from allaboard.cluster.anti_affinity import BoundTerms, Labels
from allaboard.cluster.attachments import AttachedVolumes
from allaboard.cluster.gpu_devices import SharedDevices
from allaboard.cluster.namespaces import Namespaces
from allaboard.cluster.nominations import Nominations
from allaboard.cluster.pod_labels import PodLabels
from allaboard.cluster.preferences import Preferences
from allaboard.cluster.resource_claims import ResourceClaims
from allaboard.cluster.running import RunningPods
from allaboard.cluster.usage import Charge, Usage
from allaboard.cluster.volumes import VolumeView
from allaboard.cluster.workload import WorkloadCounter
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_inventory import POLICY, GpuInventory, GpuPolicy, LabelReader, gpus_of
from allaboard.model.gpu_request import as_bound
from allaboard.model.gpu_sharing import BY_COUNT, Taken
from allaboard.model.gpus import NO_CARDS, Cards
from allaboard.model.headroom import Headroom, with_headroom
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.model.walltime import LEAVING, UNKNOWN

PodListener = Callable[[Pod | None, Pod | None], None]
NodeListener = Callable[[Node | None, Node | None], None]
CardListener = Callable[[GpuInventory | None, GpuInventory | None], None]


class ClusterView:
    """The live state of the cluster; nodes offer their allocatable less ``headroom``. Not thread-safe: only the event loop may use it."""

    def __init__(self, headroom: Mapping[str, Headroom] | None = None, policy: GpuPolicy = POLICY) -> None:
        self._headroom = headroom or {}
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._assumed: dict[str, str] = {}  # node by pod UID
        self._assumed_devices: dict[str, tuple[Taken, ...]] = {}  # by UID, for assumed pods that get certain devices
        self._before_node: dict[str, set[str]] = {}  # by node, the pods charged by GPU labels that came before their node
        self._reserved: dict[str, SchedulingSpec] = {}  # by node
        self._usage = Usage()
        self.running = RunningPods()
        self.estimate: Callable[[Pod], float] = lambda pod: 0.0
        """Returns for how many seconds a pod without a walltime is expected to run; 0 if that isn't known."""
        self._devices = SharedDevices()
        self._workload = WorkloadCounter()
        self.namespaces = Namespaces()
        self.namespaces.changed = self._namespace_changed
        self.anti_affinity = BoundTerms(self.namespaces)
        self.preferences = Preferences(self.namespaces)
        self.labels = PodLabels(self.namespaces)
        self.volumes = VolumeView()
        self.attached = AttachedVolumes(self.volumes)
        self.resource_claims = ResourceClaims()
        self._nominations = Nominations()
        self._versions: Counter[str] = Counter()  # by node
        self._generation = 0
        self.volumes.changed = self.resource_claims.changed = self._changed
        self.cards: Cards = NO_CARDS
        self._policy = policy
        self._gpus: tuple[object, Cards, GpuPolicy, GpuInventory | None] = ((), NO_CARDS, policy, None)
        self._label_reader = LabelReader()
        self._labelled: Counter[str] = Counter()  # by key of a label, the number of nodes that have it
        self._ordered: tuple[Node, ...] | None = None
        self._order = np.zeros(0, dtype=np.intp)
        self._pod_listeners: list[PodListener] = []
        self._node_listeners: list[NodeListener] = []
        self._card_listeners: list[CardListener] = []

    def listen(self, on_pod: PodListener | None = None, on_node: NodeListener | None = None, on_cards: CardListener | None = None) -> None:
        """Call ``on_pod(old, new)`` and ``on_node(old, new)`` after each change; ``None`` stands for absence.

        ``on_cards(old, new)`` is called when metrics or the policy change the GPU inventory but no node changes. A pod may end or go before
        the watch has reported its bind, as when a watch breaks. Such a pod is passed as ``old``, with the node that it was assumed on.
        """
        if on_pod:
            self._pod_listeners.append(on_pod)
        if on_node:
            self._node_listeners.append(on_node)
        if on_cards:
            self._card_listeners.append(on_cards)

    @property
    def node_names(self) -> Collection[str]:
        """The names of all nodes."""
        return self._nodes.keys()

    @property
    def pod_keys(self) -> Collection[str]:
        """The keys of all pods."""
        return self._pods.keys()

    def node(self, name: str) -> Node | None:
        """Return a node by name; ``None`` if there is none."""
        return self._nodes.get(name)

    def pod(self, key: str) -> Pod | None:
        """Return a pod by ``namespace/name``; ``None`` if there is none."""
        return self._pods.get(key)

    def pods(self) -> Iterator[Pod]:
        """Iterate over all pods, of all schedulers."""
        return iter(self._pods.values())

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers of nodes, pods and assumed pods, by name."""
        return {"nodes": len(self._nodes), "pods": len(self._pods), "assumed_pods": len(self._assumed)}

    def observe_cards(self, cards: Cards) -> None:
        """Replace the GPU metrics of all exporters by ``cards``."""
        self._set_gpu_facts(cards, self._policy)

    def apply(self, policy: GpuPolicy) -> None:
        """Use this GPU policy from now on."""
        self._set_gpu_facts(self.cards, policy)

    def _set_gpu_facts(self, cards: Cards, policy: GpuPolicy) -> None:
        nodes = self._nodes_in_order()
        old = self._gpus_of(nodes)
        self.cards, self._policy = cards, policy
        self._changed()
        new = self._gpus_of(nodes)
        for listener in self._card_listeners if new is not old else ():
            listener(old, new)

    def label_of(self, keys: Sequence[str]) -> str:
        """Return the first of ``keys`` that is a label of any node; empty if no node has such a label."""
        return next((key for key in keys if key in self._labelled), "")

    def upsert_node(self, node: Node) -> None:
        """Apply the newest state of a node; an equal state (a heartbeat) changes nothing."""
        old = self._nodes.get(node.name)
        if old == node:
            return
        self._nodes[node.name] = node
        self._versions[node.name] += 1
        self._relabel(old, node)
        if self._usage.offer(node.name, with_headroom(node.allocatable, self._headroom)):
            charges = filter(None, map(self._charge_of, self._pods.values()))
            self._usage.recount(chain((charge[:2] for charge in charges), self._reserved.items()))
        self._devices.offer(node.name, node.shared)
        self._ordered = None
        for pod in self._bound_before(node):
            self._discharge(pod, self._charge_of(self._pods[pod.key]))
            self._pods[pod.key] = pod
            self._charge(pod, self._charge_of(pod))
        for listener in self._node_listeners:
            listener(old, node)

    def remove_node(self, name: str) -> None:
        """Remove a node; the usage of its pods stays counted, since the node may come back."""
        old = self._nodes.pop(name, None)
        if old is None:
            return
        self._versions[name] += 1
        self._relabel(old, None)
        self._usage.offer(name, ())
        self._devices.offer(name, None)
        self._usage.release(name)
        self._ordered = None
        for listener in self._node_listeners:
            listener(old, None)

    def upsert_pod(self, pod: Pod) -> None:
        """Apply the newest state of a pod. A known name with a new UID is a new pod, and the old pod is gone.

        A bind settles the GPU devices of its pod; annotations written afterwards don't change them.
        """
        old = self._pods.get(pod.key)
        pod = self._as_bound(old, pod)
        if pod.node_name and old is not None and old.uid == pod.uid:
            settled = old.devices if old.node_name == pod.node_name else self._assumed_devices_on(pod)
            pod = replace(pod, devices=settled) if settled and settled != pod.devices else pod
        before = None if old is None else self._charge_of(old)
        reported_old = self._end_assumption(old) if old is not None and (old.uid != pod.uid or pod.is_terminal) else old
        if pod.node_name:
            self._assumed_devices.pop(pod.uid, None)
            self._assumed.pop(pod.uid, None)
        self._pods[pod.key] = pod
        now = self._charge_of(pod)
        if old is not None and old.uid != pod.uid:
            self._runs_no_more(old.uid)
        self._note_running(pod, now)
        if before is None or now is None or not before.is_like(now):  # mostly a pod is bound where it was assumed
            self._discharge(pod, before)
            self._charge(pod, now)
        if self._nominations.replace(pod.key, pod):
            self._changed()
        self._workload.replace(old, pod)
        for listener in self._pod_listeners:
            listener(reported_old, pod)

    def remove_pod(self, key: str) -> None:
        """Remove a pod and its usage."""
        old = self._pods.pop(key, None)
        if old is None:
            return
        self._discharge(old, self._charge_of(old))
        self._runs_no_more(old.uid)
        if old.node_name in self._before_node:
            self._before_node[old.node_name].discard(key)
            if not self._before_node[old.node_name]:
                del self._before_node[old.node_name]
        reported_old = self._end_assumption(old)
        if self._nominations.replace(key, None):
            self._changed()
        self._workload.replace(old, None)
        for listener in self._pod_listeners:
            listener(reported_old, None)

    def _changed(self) -> None:
        self._generation += 1

    def _namespace_changed(self) -> None:
        self.anti_affinity.forget_results()
        self.preferences.terms.forget_results()
        self.labels.version += 1
        self._changed()

    def version_of(self, node_name: str) -> tuple[int, int]:
        """Return a version of a node. It changes whenever an assignment to the node may have become invalid."""
        return self._generation, self._versions[node_name]

    def _assumed_devices_on(self, pod: Pod) -> tuple[Taken, ...]:
        """Return the devices that were assumed for a pod, if they belong to the node that the pod is bound to."""
        return self._assumed_devices.get(pod.uid, ()) if self._assumed.get(pod.uid) == pod.node_name else ()

    def _as_bound(self, old: Pod | None, pod: Pod) -> Pod:
        """Return ``pod`` as it is charged: by the GPU labels that it had when first seen bound, and at most its node's allocatable."""
        if not pod.node_name:
            return pod
        before = old.spec if old is not None and old.uid == pod.uid and old.node_name else None
        node = self._nodes.get(pod.node_name)
        spec = as_bound(pod.spec, before, None if node is None else node.allocatable)
        if node is None and spec.gpus is not None:
            self._before_node.setdefault(pod.node_name, set()).add(pod.key)
        return pod if spec is pod.spec else replace(pod, spec=spec)

    def _bound_before(self, node: Node) -> Iterator[Pod]:
        """Yield the pods on ``node`` that were known before it and are charged by GPU labels, each as it is charged now."""
        for key in self._before_node.pop(node.name, ()):
            pod = self._pods.get(key)
            if pod is not None and pod.node_name == node.name:
                yield replace(pod, spec=as_bound(pod.spec, None, node.allocatable))

    def _end_assumption(self, pod: Pod) -> Pod:
        """Stop assuming ``pod``, which is gone or has ended; return the pod, with its assumed node if it was assumed."""
        node_name = self._assumed.pop(pod.uid, "")
        self._assumed_devices.pop(pod.uid, None)
        return replace(pod, node_name=node_name) if node_name else pod

    def assume(self, pod: Pod, node_name: str, devices: Sequence[str] = (), unit: str = "") -> None:
        """Assume ``pod`` on ``node_name``, until the watch reports the bind or the end of the pod, or ``forget`` is called.

        ``devices`` are UUIDs of the node's shared GPUs that the pod is to have; empty if the pod may have any. Pods of one ``unit`` are
        expected to end together.
        """
        current = self._pods.get(pod.key)
        if current is None or current.uid != pod.uid or current.node_name:
            return
        self._discharge(current, self._charge_of(current))
        self._note_assumed(current, node_name, devices, unit or pod.uid)
        self._charge(current, self._charge_of(current))

    def _note_assumed(self, pod: Pod, node_name: str, devices: Sequence[str], unit: str) -> None:
        self._assumed[pod.uid] = node_name
        self._assumed_devices.pop(pod.uid, None)
        if devices:
            self._assumed_devices[pod.uid] = tuple(map(Taken, devices))
        self.labels.put(pod, node_name)
        self.running.put(pod.uid, node_name, pod.spec, unit=unit, started=0.0, walltime=pod.walltime, estimate=self.estimate(pod))

    def _note_running(self, pod: Pod, charge: Charge | None) -> None:
        """Record that a pod runs on the node that it is charged to; or that it doesn't run, if it isn't charged."""
        if charge is None:
            self._runs_no_more(pod.uid)
        else:
            self.labels.put(pod, charge.node_name)
            # A pod that is being deleted ends by itself, whichever pods were bound with it.
            if pod.is_terminating:
                self.running.put(pod.uid, charge.node_name, pod.spec, unit=pod.uid, started=pod.leaves_at, walltime=LEAVING)
                return
            unit, estimate = pod.transaction or pod.uid, self.estimate(pod) if pod.walltime == UNKNOWN else 0.0
            self.running.put(pod.uid, charge.node_name, pod.spec, unit=unit, started=pod.started, walltime=pod.walltime, estimate=estimate)

    def _runs_no_more(self, uid: str) -> None:
        self.running.remove(uid)
        self.labels.remove(uid)

    def assume_all(self, assignments: Iterable[tuple[Pod, str]], devices: Mapping[str, Sequence[str]] | None = None) -> None:
        """Assume each pod on its node. Equal pods on a node are charged together, since gangs have thousands of them.

        ``devices`` are UUIDs by the pod's UID, for pods that are to have certain devices.
        """
        devices = devices or {}
        alike: Counter[tuple[str, int]] = Counter()
        specs: dict[int, SchedulingSpec] = {}
        found = {pod.uid: (pod, node_name) for pod, node_name in assignments}
        unit = next(iter(found), "")
        for pod, node_name in found.values():
            current = self._pods.get(pod.key)
            if current is None or current.uid != pod.uid or current.node_name:
                continue
            if pod.uid in self._assumed:
                self.assume(pod, node_name, devices.get(pod.uid, ()), unit)
                continue
            self._note_assumed(current, node_name, devices.get(pod.uid, ()), unit)
            self._enter(current.namespace, current.spec, node_name, self._assumed_devices.get(pod.uid, ()))
            specs[id(current.spec)] = current.spec
            alike[node_name, id(current.spec)] += 1
        for (node_name, spec), pods in alike.items():
            self._usage.add(node_name, specs[spec], pods)
            self._versions[node_name] += 1

    def forget(self, pod: Pod) -> None:
        """Stop assuming ``pod``, so that its capacity is free again."""
        current = self._pods.get(pod.key)
        if pod.uid not in self._assumed:
            return
        if current is not None and current.uid == pod.uid:
            self._discharge(current, self._charge_of(current))
            del self._assumed[pod.uid]
            self._assumed_devices.pop(pod.uid, None)
            self._runs_no_more(pod.uid)

    def forget_all(self, pods: Iterable[Pod]) -> None:
        """Stop assuming each of ``pods``. Equal pods on a node are charged together, as in ``assume_all``."""
        alike: Counter[tuple[str, int]] = Counter()
        specs: dict[int, SchedulingSpec] = {}
        for pod in pods:
            current = self._pods.get(pod.key)
            if current is None or current.uid != pod.uid:
                self.forget(pod)
            elif (node_name := self._assumed.pop(pod.uid, None)) is not None:
                self._runs_no_more(pod.uid)
                self._leave(current.namespace, current.spec, node_name, self._assumed_devices.pop(pod.uid, ()))
                specs[id(current.spec)] = current.spec
                alike[node_name, id(current.spec)] += 1
        for (node_name, spec), number in alike.items():
            self._usage.subtract(node_name, specs[spec], number)
            self._versions[node_name] += 1
            if node_name not in self._nodes:
                self._usage.release(node_name)

    def as_assumed(self, pod: Pod) -> Pod | None:
        """Return ``pod`` with the node and devices that it is assumed on; ``None`` if it isn't assumed."""
        node_name = self._assumed.get(pod.uid)
        return replace(pod, node_name=node_name, devices=self._assumed_devices.get(pod.uid, ())) if node_name else None

    def is_assumed(self, pod: Pod) -> bool:
        """Return whether ``pod`` is assumed on a node; false once the watch has reported its bind."""
        return pod.uid in self._assumed

    def reserve(self, claims: Mapping[str, SchedulingSpec]) -> None:
        """Reserve capacity for pods whose future node isn't known: ``claims``, by node name. Earlier reservations are replaced."""
        self._changed()
        for node_name, spec in self._reserved.items():
            self._usage.subtract(node_name, spec)
            if node_name not in self._nodes:
                self._usage.release(node_name)
        self._reserved = {node_name: spec for node_name, spec in claims.items() if node_name in self._nodes}
        self._devices.reserve(node_name for node_name, spec in self._reserved.items() if any(name in BY_COUNT for name, _ in spec.requests))
        for node_name, spec in self._reserved.items():
            self._usage.add(node_name, spec)

    def is_overbooked(self, node_name: str, devices: Sequence[str]) -> bool:
        """Return whether one of the ``devices`` of a node, given by UUID, is overbooked or gone."""
        return bool(devices) and self._counted_devices().is_overbooked(node_name, devices)

    def relevant(self, labels: Labels) -> Labels:
        """Return the labels among a pod's ``labels`` to which the anti-affinity of bound pods refers."""
        return self.anti_affinity.relevant(labels) if self.anti_affinity else ()

    def snapshot(self, priority: int | None = None) -> Snapshot:
        """Return the present state of the cluster. Its ``nodes`` stay the same tuple as long as no node changes.

        With a ``priority``, the capacity for other schedulers' nominated pods of this or a higher priority counts as used.
        """
        nodes = self._nodes_in_order()
        found = replace(self._usage.snapshot(nodes, self._order), mix=self._workload.mix(), attachable=self.attached.free(nodes))
        found = found.with_gpus(self._gpus_of(nodes))
        found = self._counted_devices().onto(found) if self._devices.are_any else found
        return found if priority is None else self._nominations.onto(found, priority, self.attached.missing_on)

    def snapshot_of(self, node: Node, priority: int) -> Snapshot:
        """Return the snapshot of one node, as for a gang of ``priority``; shared devices are left out."""
        nodes = self._nodes_in_order()
        place = bisect_left(nodes, node.name, key=lambda each: each.name)
        attachable = {driver: np.array([free], dtype=np.int64) for driver, free in self.attached.free_on(node.name).items()}
        found = replace(self._usage.snapshot((node,), self._order[place : place + 1]), attachable=attachable)
        gpus = self._gpus_of(nodes)
        found = found.with_gpus(None if gpus is None else gpus.on(slice(place, place + 1)))
        return self._nominations.onto(found, priority, self.attached.missing_on)

    @contextmanager
    def without(self, pod: Pod) -> Iterator[None]:
        """Stop charging ``pod`` within the block, which must not await anything."""
        current = self._pods.get(pod.key)
        charge = self._charge_of(current) if current is not None and current.uid == pod.uid else None
        state = self.version_of(charge.node_name) if charge else (0, 0)
        self._discharge(pod, charge)
        try:
            yield
        finally:
            self._charge(pod, charge)
            if charge:
                self._generation, self._versions[charge.node_name] = state

    def _relabel(self, old: Node | None, new: Node | None) -> None:
        before, now = ({} if node is None else node.labels for node in (old, new))
        if before.keys() != now.keys():
            self._labelled.update(now.keys())
            self._labelled.subtract(before.keys())
            for key in before.keys() - now.keys():
                if not self._labelled[key]:
                    del self._labelled[key]

    def _nodes_in_order(self) -> tuple[Node, ...]:
        if self._ordered is None:
            self._ordered = tuple(sorted(self._nodes.values(), key=lambda node: node.name))
            self._order = np.array([self._usage.row(node.name) for node in self._ordered], dtype=np.intp)
        return self._ordered

    def _gpus_of(self, nodes: tuple[Node, ...]) -> GpuInventory | None:
        """Return the GPU inventory of ``nodes``, computed once for each state of the nodes, the metrics and the policy."""
        of_nodes, cards, policy, gpus = self._gpus
        if of_nodes is not nodes or cards is not self.cards or policy is not self._policy:
            gpus = gpus_of(nodes, self.cards, self._policy, self._label_reader)
            self._gpus = nodes, self.cards, self._policy, gpus
        return gpus

    def _counted_devices(self) -> SharedDevices:
        """Return the shared devices of all nodes, after charging the pods of nodes whose devices are new or have changed."""
        if self._devices.uncounted:
            self._devices.count(filter(None, map(self._charge_of, self._pods.values())))
        return self._devices

    def _charge(self, pod: Pod, charge: Charge | None) -> None:
        if charge is None:
            return
        node_name, spec, taken = charge
        self._versions[node_name] += 1
        self._usage.add(node_name, spec)
        self._enter(pod.namespace, spec, node_name, taken)

    def _enter(self, namespace: str, spec: SchedulingSpec, node_name: str, taken: Sequence[Taken]) -> None:
        """Add all that a pod brings to its node except amounts: devices, volumes, and its rules about other pods."""
        self.attached.add(node_name, namespace, spec)
        if self._devices.are_any:
            self._devices.add(node_name, spec, taken)
        self.preferences.add(namespace, spec, node_name)
        if spec.anti_affinity:
            self._changed()
            self.anti_affinity.add(namespace, spec.anti_affinity, node_name)

    def _leave(self, namespace: str, spec: SchedulingSpec, node_name: str, taken: Sequence[Taken]) -> None:
        """Remove what ``_enter`` has added."""
        self.attached.subtract(node_name, namespace, spec)
        if self._devices.are_any:
            self._devices.subtract(node_name, spec, taken)
        self.preferences.remove(namespace, spec, node_name)
        if spec.anti_affinity:
            self._changed()
            self.anti_affinity.remove(namespace, spec.anti_affinity, node_name)

    def _discharge(self, pod: Pod, charge: Charge | None) -> None:
        if charge is None:
            return
        node_name, spec, taken = charge
        self._versions[node_name] += 1
        self._usage.subtract(node_name, spec)
        self._leave(pod.namespace, spec, node_name, taken)
        if node_name not in self._nodes:
            self._usage.release(node_name)

    def _charge_of(self, pod: Pod) -> Charge | None:
        node_name = pod.node_name if pod.is_bound else self._assumed.get(pod.uid)
        return Charge(node_name, pod.spec, pod.devices if pod.is_bound else self._assumed_devices.get(pod.uid, ())) if node_name else None
