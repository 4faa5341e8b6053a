"""Pods of other schedulers that are nominated to a node (``status.nominatedNodeName``), where their scheduler has preempted pods for them.

The capacity that a nominated pod requests counts as used for gangs of the same or a lower priority. kube-scheduler does the same
(``RunFilterPluginsWithNominatedPods``, 1.37).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from heapq import nlargest

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import HostPort
from allaboard.model.gpu_sharing import GPU, charge_unnamed, charges_of
from allaboard.model.limits import NOMINATED
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.model.volumes import Volume

Unattached = Callable[[Pod, str], Iterable[Volume]]
"""Returns the volumes that a node would have to attach for a pod: no other pod of the node uses them."""


class Nominations:
    """The nominated pods. If there are more than ``NOMINATED.most``, only the pods of the highest priorities count."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}  # by namespace/name

    def replace(self, key: str, pod: Pod | None) -> bool:
        """Apply the newest state of a pod, ``None`` if the pod is gone; return whether a snapshot may change because of it."""
        if pod is not None and pod.nominated:
            self._pods[key] = pod
            return True
        return self._pods.pop(key, None) is not None

    def onto(self, snapshot: Snapshot, priority: int, unattached: Unattached) -> Snapshot:
        """Return ``snapshot`` for a gang of ``priority``: nominated pods of this or a higher priority take capacity of their nodes."""
        pods = [pod for pod in self._pods.values() if pod.priority >= priority]
        if not pods:
            return snapshot
        row_of = {node.name: row for row, node in enumerate(snapshot.nodes)}
        nominated = [(pod, row_of[pod.nominated]) for pod in pods if pod.nominated in row_of]
        if len(nominated) > NOMINATED.most:
            nominated = nlargest(NOMINATED.most, nominated, key=lambda each: each[0].priority)
        return _with_pods(snapshot, nominated, unattached) if nominated else snapshot


def _with_pods(snapshot: Snapshot, nominated: Iterable[tuple[Pod, int]], unattached: Unattached) -> Snapshot:
    """Return ``snapshot`` with the capacity for ``nominated`` counted as used. Each of ``nominated`` is a pod and the row of its node."""
    columns = {resource: column for column, resource in enumerate(snapshot.resources)}
    used = snapshot.used.copy()
    devices = None if snapshot.devices is None else snapshot.devices.copy()
    attachable = {driver: amounts.copy() for driver, amounts in snapshot.attachable.items()}
    ports: dict[int, frozenset[HostPort]] = dict(snapshot.host_ports)
    for pod, row in nominated:
        for resource, amount in pod.spec.requests:
            if resource in columns:
                used[row, columns[resource]] += amount
        if pod.spec.host_ports:
            ports[row] = ports.get(row, frozenset()).union(pod.spec.host_ports)
        for volume in unattached(pod, snapshot.nodes[row].name) if attachable else ():
            if volume.driver in attachable:
                attachable[volume.driver][row] -= 1
        if devices is not None:
            _take_devices(pod, row, devices, snapshot)
    for values in (used, *attachable.values(), *(() if devices is None else (devices,))):
        values.setflags(write=False)
    return replace(snapshot, used=used, host_ports=ports, devices=devices, attachable=attachable)


def _take_devices(pod: Pod, row: int, devices: Integers, snapshot: Snapshot) -> None:
    shared = snapshot.nodes[row].shared
    if shared is None:
        whole = np.flatnonzero(devices[row])[: pod.spec.amount(GPU)]
        devices[row, whole] = 0
    elif unnamed := charges_of(shared, pod.spec.share, pod.spec.whole_gpus, ()).unnamed:
        places = slice(len(shared.devices))
        devices[row, places] = charge_unnamed(shared, devices[row, places].tolist(), Counter([unnamed]))
