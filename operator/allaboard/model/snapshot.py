"""The cluster at one moment, as the arrays that a search works on.

A snapshot never changes: its arrays are read-only views or copies. So a snapshot can be kept, compared and sent to another process.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import itemgetter

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gpu_inventory import WHOLE_GPUS, GpuInventory
from allaboard.model.gpu_sharing import DRIVERS, WHOLE, Shared, charges_of, given_back
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import UNSTATED

Workload = tuple[tuple[SchedulingSpec, int], ...]
"""The tasks of a cluster's pods (``SchedulingSpec.demand``), each with its number of pods; the most frequent first."""

_MOST_TASKS = 128


def workload_of(tasks: Mapping[SchedulingSpec, int]) -> Workload:
    """Return the workload that consists of the most frequent ``tasks`` that request devices, and of the most frequent other tasks."""
    alike: dict[bool, dict[SchedulingSpec, int]] = {True: {}, False: {}}
    for task, pods in tasks.items():
        alike[task.asks_for_devices][task] = pods
    return most_frequent(alike.values())


def most_frequent(groups: Iterable[Mapping[SchedulingSpec, int]]) -> Workload:
    """Return the workload of the most frequent tasks of each of ``groups``."""
    frequent = [task for tasks in groups for task in nlargest(_MOST_TASKS, tasks.items(), key=itemgetter(1))]
    return tuple(sorted(frequent, key=_place))


def _place(task: tuple[SchedulingSpec, int]) -> tuple[object, ...]:
    """Return the sort key of a task: frequent tasks first.

    Equally frequent tasks are sorted by their requirements, so that the order in which tasks were counted doesn't matter.
    """
    asked, pods = task
    share = (asked.share,) if asked.share else ()
    where = asked.node_selector, asked.affinity is None, asked.affinity or (), asked.tolerations
    return -pods, asked.requests, *where, asked.gpu_share, share, asked.gpus.model if asked.gpus else ""


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """The sharing of each node's GPUs by a driver, in three arrays int64[nodes].

    ``driver``: index into ``DRIVERS`` of the driver that hands out parts, -1 without one. ``memory``: MiB of the smallest device.
    ``least``: the least thousandths that any pod takes of a device.
    """

    driver: Integers
    memory: Integers
    least: Integers

    @classmethod
    def of(cls, shared: Sequence[Shared | None]) -> "Sharing":
        """Return the sharing of the nodes' GPUs. ``shared``: the shared GPUs of each node, ``None`` for a node that shares none."""
        names = list(DRIVERS)
        rows = [(-1, 0, WHOLE) if each is None else (names.index(each.driver), each.memory, each.least) for each in shared]
        return cls(*np.array(rows, dtype=np.int64).reshape(len(rows), 3).T)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The nodes, sorted by name, with what they offer and what pods take.

    ``allocatable`` and ``used``: int64[nodes, resources], in the units of ``model.requests``; ``resources`` has the names of the resources.
    ``used`` counts the pods of all schedulers and assumed pods, so it may exceed ``allocatable``. ``unstated``: int64[nodes, 2], what
    scores count of pods beside their requests (``SchedulingSpec.unstated``). ``host_ports``: the taken ports of a node, by the node's row.
    ``attachable``: int64[nodes] for each CSI driver with a limit, the number of volumes that a node can still attach; negative if it has
    more than its limit. ``mix`` is the cluster's workload.

    ``gpus`` describes the GPUs of the nodes; ``None`` if there are none. With ``gpus``, ``allocatable`` leaves out devices of unhealthy
    GPUs. ``devices``: int64[nodes, devices], free thousandths of each GPU, negative if pods take more than there is; ``None`` if no node
    shares GPUs, which are then counted as whole GPUs. ``sharing`` says which drivers share the GPUs.
    """

    nodes: tuple[Node, ...]
    resources: tuple[str, ...]
    allocatable: Integers
    used: Integers
    host_ports: Mapping[int, frozenset[HostPort]] = field(default_factory=dict)
    devices: Integers | None = None
    mix: Workload = ()
    unstated: Integers | None = None
    sharing: Sharing | None = None
    gpus: GpuInventory | None = None
    attachable: Mapping[str, Integers] = field(default_factory=dict)

    @property
    def free(self) -> Integers:
        """The free amounts: int64[nodes, resources]; negative where a node is over-committed."""
        return self.allocatable - self.used

    def with_gpus(self, gpus: GpuInventory | None) -> "Snapshot":
        """Return this snapshot with ``gpus``.

        Devices of unhealthy GPUs are subtracted from ``allocatable``, since the kubelet may still offer them.
        """
        if gpus is None:
            return self
        columns = [column for column, resource in enumerate(self.resources) if resource in WHOLE_GPUS]
        if not columns or bool((gpus.unwell == 0).all()):
            return replace(self, gpus=gpus)
        allocatable = self.allocatable.copy()
        allocatable[:, columns] = np.maximum(0, allocatable[:, columns] - gpus.unwell[:, None])
        allocatable.setflags(write=False)
        return replace(self, gpus=gpus, allocatable=allocatable)

    def without(self, pods: Iterable[Pod]) -> "Snapshot":
        """Return this snapshot without the bound ``pods``.

        The host ports of these pods stay taken and their volumes stay attached, since other pods may use the same.
        """
        used = self.used.copy()
        unstated = None if self.unstated is None else self.unstated.copy()
        rows = {node.name: row for row, node in enumerate(self.nodes)}
        columns = {resource: column for column, resource in enumerate(self.resources)}
        devices = None if self.devices is None else self.devices.copy()
        for pod in pods:
            if devices is not None and pod.node_name in rows:
                row = rows[pod.node_name]
                self._give_back(pod, row, devices)
            for resource, amount in pod.spec.requests if pod.node_name in rows else ():
                if resource in columns:
                    used[rows[pod.node_name], columns[resource]] -= amount
            if unstated is not None and pod.node_name in rows:
                for resource, amount in pod.spec.unstated:
                    unstated[rows[pod.node_name], UNSTATED.index(resource)] -= amount
        used.setflags(write=False)
        return replace(self, used=used, unstated=unstated, devices=devices)

    def with_used(self, amounts: Integers, parts: Integers | None = None) -> "Snapshot":
        """Return this snapshot with ``amounts`` more in use: int64[nodes, resources], negative where less is in use.

        ``parts``: int64[nodes], thousandths of GPUs. Where parts are in use, they are whole devices, those with the most free first. Where
        parts are given back, the fullest devices get them.
        """
        used = self.used + amounts
        used.setflags(write=False)
        devices = self.devices
        if devices is not None and parts is not None and parts.any():
            devices = devices.copy()
            for row in np.flatnonzero(parts).tolist():
                self._change_parts(row, int(parts[row]), devices[row])
            devices.setflags(write=False)
        return replace(self, used=used, devices=devices)

    def _change_parts(self, row: int, parts: int, devices: Integers) -> None:
        """Take ``parts``, thousandths of GPUs, from the free ``devices`` of a node, or give them back if they are negative."""
        shared = self.nodes[row].shared
        column = next((self.column_of(name) for name in WHOLE_GPUS if self.column_of(name) is not None), None)
        number = len(shared.devices) if shared else int(self.allocatable[row, column]) if column is not None else 0
        own = devices[:number]
        if parts > 0:
            freest = np.argsort(-own, kind="stable")[: -(-parts // WHOLE)]
            own[freest] = np.minimum(own[freest], 0)
            return
        for device in np.argsort(own, kind="stable").tolist():
            given = min(-parts, WHOLE - int(own[device]))
            own[device] += given
            parts += given

    def _give_back(self, pod: Pod, row: int, devices: Integers) -> None:
        shared = self.nodes[row].shared
        if shared is None:
            first = int(np.count_nonzero(devices[row] >= WHOLE))
            devices[row, first : first + pod.spec.whole_gpus] = WHOLE
            return
        places = slice(len(shared.devices))
        charges = charges_of(shared, pod.spec.share, pod.spec.whole_gpus, pod.devices)
        devices[row, places] = given_back(shared, devices[row, places].tolist(), charges)

    def row_of(self, node_name: str) -> int | None:
        """Return the row of a node in the arrays; ``None`` if the snapshot doesn't have the node."""
        row = bisect_left(self.nodes, node_name, key=lambda node: node.name)
        return row if row < len(self.nodes) and self.nodes[row].name == node_name else None

    def column_of(self, resource: str) -> int | None:
        """Return the column of a resource in the arrays; ``None`` if no node offers the resource and no pod uses it."""
        return self.resources.index(resource) if resource in self.resources else None
