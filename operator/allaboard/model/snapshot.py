"""The cluster at one moment, as arrays: what a search works on.

Immutable by contract: the arrays are read-only views or copies, so a snapshot can be kept, compared and sent to another process.
"""

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
"""What pods ask for (``SchedulingSpec.demand``), and how many of them do; the most frequent first."""

_MOST_TASKS = 128


def workload_of(tasks: Mapping[SchedulingSpec, int]) -> Workload:
    """The workload that ``tasks`` are, as far as it matters: the most frequent of those that ask for devices, and of the others."""
    alike: dict[bool, dict[SchedulingSpec, int]] = {True: {}, False: {}}
    for task, pods in tasks.items():
        alike[task.asks_for_devices][task] = pods
    return most_frequent(alike.values())


def most_frequent(groups: Iterable[Mapping[SchedulingSpec, int]]) -> Workload:
    """The workload of the most frequent tasks of each of ``groups``."""
    frequent = [task for tasks in groups for task in nlargest(_MOST_TASKS, tasks.items(), key=itemgetter(1))]
    return tuple(sorted(frequent, key=_place))


def _place(task: tuple[SchedulingSpec, int]) -> tuple[object, ...]:
    """The most frequent come first; the rest is for the order to be the same whoever was counted first."""
    asked, pods = task
    share = (asked.share,) if asked.share else ()
    where = asked.node_selector, asked.affinity is None, asked.affinity or (), asked.tolerations
    return -pods, asked.requests, *where, asked.gpu_share, share, asked.gpus.model if asked.gpus else ""


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """Who shares GPUs on each node, int64[nodes] each: ``driver``, its place in ``DRIVERS``, -1 without one; ``memory``: MiB of the
    smallest device; ``least``: thousandths that any pod takes of one.
    """

    driver: Integers
    memory: Integers
    least: Integers

    @classmethod
    def of(cls, shared: Sequence[Shared | None]) -> "Sharing":
        """That of nodes whose GPUs are ``shared``."""
        names = list(DRIVERS)
        rows = [(-1, 0, WHOLE) if each is None else (names.index(each.driver), each.memory, each.least) for each in shared]
        return cls(*np.array(rows, dtype=np.int64).reshape(len(rows), 3).T)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes by name order, what they offer and what is taken.

    ``allocatable`` and ``used`` are int64[nodes, resources], in the units of ``model.requests``; ``resources`` names the columns.
    ``used`` counts pods of every scheduler and what we have assumed, so it may exceed ``allocatable``. ``host_ports`` gives the
    ports taken on a node, by row of the node. ``devices``: int64[nodes, devices], thousandths that are free of each GPU, where GPUs are
    shared, negative of one of which more is taken than there is; without it they are counted whole. ``sharing`` says who shares them.
    ``unstated``: int64[nodes, 2] is what scores count of pods beside what they ask for (``SchedulingSpec.unstated``). ``mix`` is the
    cluster's workload: what pods ask for, and how many of them. ``gpus`` is what is known of the GPUs of the nodes; ``None`` where there
    are none. Of a node with a card that isn't well ``allocatable`` has so many devices fewer. ``attachable``: int64[nodes] is how many more
    volumes of each CSI driver with a limit a node can attach; negative where it has more than that.
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
        """int64[nodes, resources], negative where a node is over-committed."""
        return self.allocatable - self.used

    def with_gpus(self, gpus: GpuInventory | None) -> "Snapshot":
        """Return this snapshot with the table of GPUs. A node offers only its healthy whole GPUs; the kubelet may not know."""
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
        """The cluster as it would be if bound ``pods`` weren't there. Ports stay taken and volumes attached, for they may be shared."""
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
        """The row of a node, ``None`` when it isn't there."""
        return next((row for row, node in enumerate(self.nodes) if node.name == node_name), None)

    def column_of(self, resource: str) -> int | None:
        """The column of a resource, ``None`` when no node has it and no pod uses it."""
        return self.resources.index(resource) if resource in self.resources else None
