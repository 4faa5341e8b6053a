"""Expected fragmentation: how much of the free GPUs the next task couldn't use, on average.

It is ``F_n(M)`` of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): a mean over task classes m, weighted by their popularity. If
m can't run on node n, or needs no GPU, all free GPUs of n count. Otherwise the free parts of devices count that are smaller than m's part
of a device. Memory isn't counted. Popularities are numbers of tasks, so all sums are whole numbers: exact in float64, and the same on
every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.simulation.state import ClusterState, permitted
from allaboard.simulation.workload import TaskClass

_POPULAR = 0.95
"""Share of all tasks. The target workload is the most popular classes that together reach it, as published."""


@dataclass(frozen=True, slots=True, eq=False)
class TargetMix:
    """The target workload, which fragmentation is measured against, by *kind*: what a class requests of devices.

    ``gpus``, ``gpu_milli``: int64[kinds]. ``admits``: bool[models, kinds], whether a kind accepts a GPU model. ``levels``: int64[levels],
    the cpu requests of classes, ascending. ``able``: float64[levels + 1, kinds], tasks of a kind that request at most the cpu of the level
    before the row; the first row is 0. ``total``: number of tasks, including tasks without GPU.
    """

    gpus: Integers
    gpu_milli: Integers
    admits: Mask
    levels: Integers
    able: Floats
    total: int

    def level(self, cpu: Integers) -> Integers:
        """Return the rows of ``able`` for amounts of free cpu, in milli-cpu."""
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
    """Return the target workload: the most popular classes, by cpu and devices only, as the paper's ``typical pods``."""
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
    """The expected fragmented milli-GPU of a whole state; only nodes that have changed are recomputed."""

    def __init__(self, mix: TargetMix, state: ClusterState) -> None:
        self._mix = mix
        self._state = state
        self._seen = len(state.changes)
        self._by_node = mix.fragmented(state, np.arange(len(state.nodes)))

    def gpu_milli(self) -> float:
        """Return the present sum over all nodes, in milli-GPU."""
        changed = self._state.changes[self._seen :]
        if changed:
            rows = np.unique(np.array(changed, dtype=np.int64))
            self._by_node[rows] = self._mix.fragmented(self._state, rows)
            self._seen = len(self._state.changes)
        return float(self._by_node.sum())
