"""Expected fragmentation: how many of a node's free GPUs the cluster's own workload can't use.

The measure is that of Weng et al., Beware of Fragmentation (USENIX ATC 2023). To a class of tasks that can't run on a node, all free GPUs
of the node are lost. To any other class, the free part of a device is lost if it is smaller than what a task asks of one device. The
expected fragmentation of a node is the mean of these losses over the classes, weighted by how often each class occurs. A good placement
adds little to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.snapshot import Snapshot, Workload
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.problem.prices import Prices, gap_worth, prices_of
from allaboard.placement.rules.devices import GPU, WHOLE, assign_devices, parts_on, whole_devices
from allaboard.placement.rules.filters import NodeFilters

_POPULAR = 0.95  # share of the tasks that ask for GPUs, covered by the classes that count
_MOST_CLASSES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Fragmentation:
    """The free GPUs on the nodes of a problem, the classes of tasks that may use them, and what the GPUs are worth to these tasks.

    Classes of tasks that ask for GPUs:

    - ``popularity``: float64[classes], the share of all tasks;
    - ``cpu``, ``gpus``, ``part``: int64[classes], the cpu, the number of devices, and the thousandths of each device that one task asks
      for;
    - ``admits``: bool[classes, nodes], the nodes that the class may use.

    Nodes:

    - ``cpu_free``, ``gpus_free``: int64[nodes], the free cpu and the whole free devices;
    - ``devices``: int64[nodes, devices], the free thousandths of each device; ``None`` if no GPU is shared;
    - ``before``: float64[nodes], the expected fragmentation before the gang is placed;
    - ``worth``: float64[nodes], what the free GPUs are worth by ``prices``, before the gang is placed.

    Roles: ``takes_cpu``, ``takes_gpus``, ``takes_part``: int64[roles], the cpu, the whole devices, and the thousandths of a device that one
    pod takes.
    """

    popularity: Floats
    cpu: Integers
    gpus: Integers
    part: Integers
    admits: Mask
    cpu_free: Integers
    gpus_free: Integers
    devices: Integers | None
    takes_cpu: Integers
    takes_gpus: Integers
    takes_part: Integers
    before: Floats
    prices: Prices | None
    worth: Floats

    def of_roles(self, roles: Integers) -> "Fragmentation":
        """Return the fragmentation for some of the roles, given by position."""
        return replace(self, takes_cpu=self.takes_cpu[roles], takes_gpus=self.takes_gpus[roles], takes_part=self.takes_part[roles])

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """The arrays by which a search distinguishes nodes; nodes are the last axis."""
        devices = () if self.devices is None else (self.devices.T,)
        return self.admits.astype(np.int64), self.cpu_free, self.gpus_free, self.before, self.worth, *devices

    def restricted_to(self, rows: Integers) -> "Fragmentation":
        """Return the fragmentation of some of the nodes, given by position."""
        return replace(
            self,
            admits=self.admits.take(rows, axis=1),
            cpu_free=self.cpu_free[rows],
            gpus_free=self.gpus_free[rows],
            devices=None if self.devices is None else self.devices[rows],
            before=self.before[rows],
            worth=self.worth[rows],
        )

    def costs(self, rows: Integers, patterns: Integers, weights: Weights) -> Floats:
        """Return the cost in GPUs of placing pods on each of the nodes ``rows``.

        A cost is the weighted sum of two terms: the fragmentation that is added, and the worth that is lost beyond the GPUs taken. A
        negative cost is a gain. ``rows``: int64[k]. ``patterns``: int64[k, roles], how many pods of each role are placed on each of these
        nodes. The result is float64[k].
        """
        cpu = self.cpu_free[rows] - patterns @ self.takes_cpu
        whole = patterns @ self.takes_gpus
        taken = whole + patterns @ self.takes_part / WHOLE
        if self.devices is None:
            devices, gpus = None, np.maximum(self.gpus_free[rows] - whole, 0)
        else:
            shared = np.flatnonzero(self.takes_part)
            sizes = np.broadcast_to(self.takes_part[shared], (len(rows), len(shared)))
            devices, _ = assign_devices(self.devices[rows], whole, patterns[:, shared], sizes, gap_worth(self.prices, weights))
            gpus = whole_devices(devices)
        total = np.zeros(len(rows))
        if weights.fragmentation:
            after = self._of_whole_gpus(rows, cpu, gpus) if devices is None else self.of_devices(rows, cpu, devices)
            total += weights.fragmentation * (after - self.before[rows])
        if weights.worth and self.prices:
            total += weights.worth * (self.worth[rows] - self.prices.worth(cpu, gpus, devices) - taken)
        return total

    def of_devices(self, rows: Integers, cpu: Integers, devices: Integers) -> Floats:
        """Return the expected fragmentation of each of the nodes ``rows``.

        ``rows``: int64[k]. ``cpu``: int64[k], the free cpu of these nodes. ``devices``: int64[k, devices], the free thousandths of each of
        their devices. The result is float64[k].
        """
        useful = np.zeros(len(rows))
        for part in np.unique(self.part).tolist():
            serves = devices >= part
            number = serves.sum(axis=1)
            share = np.zeros(len(rows))
            for position in np.flatnonzero(self.part == part).tolist():
                runs = (number >= self.gpus[position]) & (cpu >= self.cpu[position]) & self.admits[position, rows]
                share += self.popularity[position] * runs
            useful += share * (devices * serves).sum(axis=1)
        lost: Floats = (devices.sum(axis=1) - useful) / WHOLE
        return lost

    def _of_whole_gpus(self, rows: Integers, cpu: Integers, gpus: Integers) -> Floats:
        useful = np.zeros(len(rows))
        for number, share in enumerate(self.popularity.tolist()):
            runs = (cpu >= self.cpu[number]) & (gpus >= self.gpus[number]) & self.admits[number, rows]
            useful += share * runs
        return gpus * (1.0 - useful)


def fragmentation_of(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, filters: NodeFilters) -> Fragmentation | None:
    """Return the fragmentation of the nodes ``rows`` for the workload of ``snapshot``.

    ``None`` if no node has GPUs, or no task of the workload asks for GPUs.
    """
    wanting, total = _popular(snapshot.mix)
    column = snapshot.column_of(GPU)
    if not wanting or (column is None and snapshot.devices is None):
        return None
    nodes = snapshot.nodes
    devices = None if snapshot.devices is None else np.maximum(snapshot.devices[rows], 0)
    found = Fragmentation(
        popularity=np.array([count / total for _, count in wanting]),
        cpu=np.array([spec.amount("cpu") for spec, _ in wanting], dtype=np.int64),
        gpus=np.array([max(1, spec.whole_gpus) for spec, _ in wanting], dtype=np.int64),
        part=np.array([_part(spec, snapshot) or WHOLE for spec, _ in wanting], dtype=np.int64),
        admits=np.stack([filters.usable(spec, nodes, snapshot.gpus).admitted[rows] for spec, _ in wanting]),
        cpu_free=_free(snapshot, "cpu", rows),
        gpus_free=_free(snapshot, GPU, rows),
        devices=devices,
        takes_cpu=np.array([spec.amount("cpu") for spec in specs], dtype=np.int64),
        takes_gpus=np.array([spec.whole_gpus for spec in specs], dtype=np.int64),
        takes_part=np.array([_part(spec, snapshot) for spec in specs], dtype=np.int64),
        before=np.zeros(len(rows)),
        prices=prices_of(snapshot.mix),
        worth=np.zeros(len(rows)),
    )
    everywhere = np.arange(len(rows))
    if devices is None:
        before, gpus = found._of_whole_gpus(everywhere, found.cpu_free, found.gpus_free), found.gpus_free
    else:
        before, gpus = found.of_devices(everywhere, found.cpu_free, devices), whole_devices(devices)
    worth = found.prices.worth(found.cpu_free, gpus, devices) if found.prices else before
    return replace(found, before=before, worth=worth)


def _part(spec: SchedulingSpec, snapshot: Snapshot) -> int:
    """Return how many thousandths of one device a pod asks for; 0 if the pod asks for whole GPUs or none.

    If that number depends on the node, the smallest counts, since scores needn't be exact.
    """
    return int(parts_on(spec, snapshot).min(initial=WHOLE)) if spec.gpu_share else 0


def _popular(mix: Workload) -> tuple[Workload, int]:
    """Return the most frequent classes of tasks that ask for GPUs, and how many tasks count in the mean.

    These classes cover 95 % of the tasks that ask for GPUs. The tasks of these classes count, and all tasks that ask for no GPU.
    """
    wanting = [(spec, count) for spec, count in mix if spec.amount(GPU) or spec.gpu_share]
    number = sum(count for _, count in wanting)
    chosen, seen = [], 0
    for spec, count in wanting[:_MOST_CLASSES]:
        if seen >= _POPULAR * number:
            break
        chosen.append((spec, count))
        seen += count
    return tuple(chosen), seen + sum(count for _, count in mix) - number


def _free(snapshot: Snapshot, resource: str, rows: Integers) -> Integers:
    column = snapshot.column_of(resource)
    if column is None:
        return np.zeros(len(rows), dtype=np.int64)
    free: Integers = np.maximum(snapshot.allocatable[rows, column] - snapshot.used[rows, column], 0)
    return free
