"""Expected fragmentation: how much of the free GPUs the next task couldn't use, on average.

It is ``F_n(M)`` of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): for node n, a mean over task classes m, weighted by their
popularity. If m can't run on n, or needs no GPU, all free GPUs of n count as fragmented. Otherwise a device's free part counts if it is
smaller than what m needs of one device. Memory isn't counted. Popularities are numbers of tasks, so all sums are whole numbers: exact in
float64, and the same on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.simulation.state import ClusterState, permitted
from allaboard.simulation.workload import TaskClass

_POPULAR = 0.95
"""The target workload consists of the most popular task classes that together have this share of all tasks (Weng et al.)."""


@dataclass(frozen=True, slots=True, eq=False)
class TargetMix:
    """The target workload: the popular tasks, for which fragmentation is computed. A *kind* is what a task class requests of GPUs.

    ``gpus``: int64[kinds], number of devices. ``gpu_milli``: int64[kinds], milli-GPU of each of these devices. ``admits``: bool[models,
    kinds], whether a kind accepts a GPU model. ``levels``: int64[levels], the cpu requests of classes, ascending. ``able``: float64[levels
    + 1, kinds]; row i is the number of tasks of each kind that request at most ``levels[i - 1]`` cpu, and row 0 is 0. ``total``: number of
    tasks, including tasks without GPU.
    """

    gpus: Integers
    gpu_milli: Integers
    admits: Mask
    levels: Integers
    able: Floats
    total: int

    def level(self, cpu: Integers) -> Integers:
        """Return for each amount of free cpu (milli-cpu) the index of the row of ``able`` that has the tasks for which the cpu suffices."""
        return np.searchsorted(self.levels, cpu, side="right")

    def fragmented(self, state: ClusterState, rows: Integers) -> Floats:
        """Return the expected fragmented milli-GPU of the nodes ``rows``: float64[rows]."""
        devices = state.devices[rows]
        free = devices.sum(axis=1)
        able = devices[:, :, None] >= self.gpu_milli
        parts = np.where(able, 0, devices[:, :, None]).sum(axis=1)
        runs = (able.sum(axis=1) >= self.gpus) & self.admits[state.model[rows]]
        usable: Floats = (self.able[self.level(state.free_cpu[rows])] * runs * (free[:, None] - parts)).sum(axis=1)
        fragmented: Floats = free - usable / max(1, self.total)
        return fragmented


def target_mix(classes: Sequence[TaskClass], popularity: Sequence[int], models: Sequence[str]) -> TargetMix:
    """Return the target workload, which consists of the most popular task classes (Weng et al.: ``typical pods``).

    Classes that differ only in memory count as one class.
    """
    counts: dict[TaskClass, int] = {}
    for task, number in zip(classes, popularity, strict=True):
        bare = TaskClass(task.cpu_milli, 0, task.gpus, task.gpu_milli, task.models)
        counts[bare] = counts.get(bare, 0) + number
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    typical: list[tuple[TaskClass, int]] = []
    covered = 0
    for task, number in ranked:
        if covered >= _POPULAR * sum(popularity):
            break
        typical.append((task, number))
        covered += number
    kinds = sorted({(task.gpus, task.gpu_milli, task.models) for task, _ in typical if task.gpus})
    levels = sorted({task.cpu_milli for task, _ in typical if task.gpus})
    able = np.zeros((len(levels) + 1, len(kinds)))
    for task, number in typical:
        if task.gpus:
            able[levels.index(task.cpu_milli) + 1 :, kinds.index((task.gpus, task.gpu_milli, task.models))] += number
    return TargetMix(
        gpus=np.array([gpus for gpus, _, _ in kinds], dtype=np.int64),
        gpu_milli=np.array([gpu_milli for _, gpu_milli, _ in kinds], dtype=np.int64),
        admits=permitted([TaskClass(0, 0, *kind) for kind in kinds], models).T,
        levels=np.array(levels, dtype=np.int64),
        able=able,
        total=covered,
    )


class Fragmentation:
    """Keeps the expected fragmented milli-GPU of each node, and recomputes the value only for nodes that have changed."""

    def __init__(self, mix: TargetMix, state: ClusterState) -> None:
        self._mix = mix
        self._state = state
        self._seen = len(state.changes)
        self._by_node = mix.fragmented(state, np.arange(len(state.nodes)))

    def gpu_milli(self) -> float:
        """Return the expected fragmented milli-GPU of all nodes together."""
        changed = self._state.changes[self._seen :]
        if changed:
            rows = np.unique(np.array(changed, dtype=np.int64))
            self._by_node[rows] = self._mix.fragmented(self._state, rows)
            self._seen = len(self._state.changes)
        return float(self._by_node.sum())
