"""How much of a node's free GPUs the cluster's own workload can't use: expected fragmentation.

After Weng et al., Beware of Fragmentation (USENIX ATC 2023): a task of a class sees a node's free GPUs as lost when it can't run there,
and otherwise the free parts of single devices that are smaller than what it asks of one. The mean over the classes, each weighed by how
often it occurs, is what a node may be expected to waste; placing a gang well adds little to it.
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

_POPULAR = 0.95
_MOST_CLASSES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Fragmentation:
    """The GPUs on the nodes of a problem, who may come to use them, and what they are worth to those.

    Of the classes of tasks that ask for GPUs: ``popularity``: float64[classes], the share of all tasks; ``cpu``, ``gpus``, ``part``:
    int64[classes], what one asks for, and of how many devices how many thousandths; ``admits``: bool[classes, nodes]. Of the nodes:
    ``cpu_free``, ``gpus_free``: int64[nodes], whole devices, or ``devices``: int64[nodes, devices], thousandths; ``before``:
    float64[nodes], the expected fragmentation as they are, and ``worth``: float64[nodes]. Of the roles: ``takes_cpu``, ``takes_gpus``,
    ``takes_part``: int64[roles], of one pod.
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

    @property
    def node_arrays(self) -> tuple[Integers | Floats, ...]:
        """All that tells nodes apart, nodes last."""
        devices = () if self.devices is None else (self.devices.T,)
        return self.admits.astype(np.int64), self.cpu_free, self.gpus_free, self.before, self.worth, *devices

    def restricted_to(self, rows: Integers) -> "Fragmentation":
        """The same on some of the nodes."""
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
        """What it costs in GPUs when ``patterns``: int64[k, roles] sit on nodes ``rows``: int64[k]; less than nothing is a gain.

        That is, weighed, the fragmentation that is added, and the worth that is lost beyond the GPUs that are taken.
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
            after = self._of_whole(rows, cpu, gpus) if devices is None else self.of_devices(rows, cpu, devices)
            total += weights.fragmentation * (after - self.before[rows])
        if weights.worth and self.prices:
            total += weights.worth * (self.worth[rows] - self.prices.worth(cpu, gpus, devices) - taken)
        return total

    def of_devices(self, rows: Integers, cpu: Integers, devices: Integers) -> Floats:
        """Expected fragmentation of nodes ``rows``: int64[k] with ``cpu``: int64[k] and ``devices``: int64[k, devices] free."""
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

    def _of_whole(self, rows: Integers, cpu: Integers, gpus: Integers) -> Floats:
        useful = np.zeros(len(rows))
        for number, share in enumerate(self.popularity.tolist()):
            runs = (cpu >= self.cpu[number]) & (gpus >= self.gpus[number]) & self.admits[number, rows]
            useful += share * runs
        return gpus * (1.0 - useful)


def fragmentation_of(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, filters: NodeFilters) -> Fragmentation | None:
    """The fragmentation of the nodes ``rows`` as the workload of ``snapshot`` sees it; ``None`` without GPUs or anybody who wants them."""
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
        before, gpus = found._of_whole(everywhere, found.cpu_free, found.gpus_free), found.gpus_free
    else:
        before, gpus = found.of_devices(everywhere, found.cpu_free, devices), whole_devices(devices)
    worth = found.prices.worth(found.cpu_free, gpus, devices) if found.prices else before
    return replace(found, before=before, worth=worth)


def _part(spec: SchedulingSpec, snapshot: Snapshot) -> int:
    """Thousandths of a device, of one on which that is the smallest part: scores needn't be exact where devices differ."""
    return int(parts_on(spec, snapshot).min(initial=WHOLE)) if spec.gpu_share else 0


def _popular(mix: Workload) -> tuple[Workload, int]:
    """The most frequent classes that ask for GPUs, together 95 % of those that do; how many tasks they and those without GPUs are."""
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
