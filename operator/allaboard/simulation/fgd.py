"""FGD, fragmentation gradient descent: picks the node whose expected fragmentation grows least (Weng et al., USENIX ATC 2023).

The score of a node is ``floor(100 · sigmoid((F before − F after) / 1000))``, where F is the node's expected fragmentation in milli-GPU. For
a pod that shares a GPU, the node's best device counts. Many nodes have the same score, so the choice among these nodes matters more than
the score. The fullest of these nodes is picked, which reproduces the published figures; a random choice leaves twice as many GPUs
unallocated.

The scores of all task classes are kept for each node, and recomputed when the node changes. A pod that shares a GPU changes one device
only. So one matrix product gives the scores of a node for all such pods. The product has a row for each amount of cpu, and a column for
each share of a GPU on each device.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.simulation.fragmentation import TargetMix
from allaboard.simulation.player import OneByOne, Setup
from allaboard.simulation.state import Assignment, ClusterState
from allaboard.simulation.workload import WHOLE_GPU_MILLI


class GradientDescent(OneByOne):
    """Picks the node with the highest FGD score. The scores of the nodes of one ``ClusterState`` are kept between calls."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._table: _Table | None = None

    def pick(self, state: ClusterState, position: int, fitting: Integers) -> Assignment:
        """Return an assignment to the node of ``fitting`` with the highest score, or to the fullest of several such nodes."""
        if self._table is None or self._table.state is not state:
            self._table = _Table(self.setup.mix, state)
        self._table.recompute_changed()
        scores = self._table.scores[position, fitting]
        best = fitting[scores == scores.max()]
        node = int(best[state.free_capacity[best].argmin()])
        task = state.classes[position]
        return Assignment(node, (int(self._table.device[position, node]),) if task.is_shared else state.whole_devices(node, task.gpus))


class _Table:
    """Holds the FGD scores of every task class on every node of one ``ClusterState``.

    ``scores``: int64[classes, nodes]. ``device``: int64[classes, nodes], the best device for a class that shares a GPU. The entries of a
    class are meaningless for nodes on which the class doesn't fit.
    """

    def __init__(self, mix: TargetMix, state: ClusterState) -> None:
        self.state = state
        self._mix = mix
        self._cpu = np.array([task.cpu_milli for task in state.classes], dtype=np.int64)
        is_shared = np.array([task.is_shared for task in state.classes], dtype=np.bool_)
        self._shared = np.flatnonzero(is_shared)
        self._whole = np.flatnonzero(~is_shared)
        shares = [task.gpu_milli for task in state.classes if task.is_shared]
        gpus = [task.gpus for task in state.classes if not task.is_shared]
        self._shares, self._share_of = np.unique(np.array(shares, dtype=np.int64), return_inverse=True)
        self._gpus, self._gpus_of = np.unique(np.array(gpus, dtype=np.int64), return_inverse=True)
        self.scores: Integers = np.zeros((len(state.classes), len(state.nodes)), dtype=np.int64)
        self.device: Integers = np.zeros_like(self.scores)
        self._seen = len(state.changes)
        known: dict[tuple[int, int, bytes], int] = {}
        for row in range(len(state.nodes)):
            equal = known.setdefault((int(state.free_cpu[row]), int(state.model[row]), state.devices[row].tobytes()), row)
            if equal == row:
                self._recompute(row)
            else:
                self.scores[:, row], self.device[:, row] = self.scores[:, equal], self.device[:, equal]

    def recompute_changed(self) -> None:
        """Recompute the scores on the nodes that have changed since the last call."""
        changes = self.state.changes
        for row in dict.fromkeys(changes[self._seen :]):
            self._recompute(row)
        self._seen = len(changes)

    def _recompute(self, row: int) -> None:
        mix, state = self._mix, self.state
        order = state.devices[row].argsort(kind="stable")  # the fullest device first, so that argmax picks it among equally good ones
        devices = state.devices[row, order]
        cpu, free, admits = int(state.free_cpu[row]), int(devices.sum()), mix.admits[int(state.model[row])]
        # The node before the assignment: ``able`` and ``parts`` are bool and int64[devices, kinds], with the kinds of ``TargetMix``.
        able = devices[:, None] >= mix.gpu_milli
        parts = np.where(able, 0, devices[:, None])
        number, lost = able.sum(axis=0), parts.sum(axis=0)
        usable = float(mix.able[mix.level(np.array(cpu))] @ np.where((number >= mix.gpus) & admits, free - lost, 0))
        # The node after the assignment: [shares, devices, kinds] if a share of one device is taken, [gpus, kinds] if whole devices are.
        rest = devices - self._shares[:, None]
        still_able = rest[:, :, None] >= mix.gpu_milli
        kept = (free - self._shares)[:, None, None] - (lost - parts + np.where(still_able, 0, rest[:, :, None]))
        shared = np.where((number - able + still_able >= mix.gpus) & admits, kept, 0)
        kept = (free - WHOLE_GPU_MILLI * self._gpus)[:, None] - lost
        whole = np.where((number - self._gpus[:, None] >= mix.gpus) & admits, kept, 0)
        levels = mix.level(cpu - self._cpu)
        if self._shared.size and devices.size:
            by_level = (mix.able @ shared.reshape(rest.size, mix.gpus.size).T.astype(np.float64)).reshape(-1, *rest.shape)
            then = np.where(rest[self._share_of] >= 0, by_level[levels[self._shared], self._share_of], -np.inf)
            best = then.argmax(axis=1)
            self.device[self._shared, row] = order[best]
            gain = then[np.arange(best.size), best] - usable + self._shares[self._share_of] * mix.total
            self.scores[self._shared, row] = self._score(gain)
        by_level = mix.able @ whole.T.astype(np.float64)
        gain = by_level[levels[self._whole], self._gpus_of] - usable + WHOLE_GPU_MILLI * self._gpus[self._gpus_of] * mix.total
        self.scores[self._whole, row] = self._score(gain)

    def _score(self, gain: Floats) -> Integers:
        """Return the scores for ``gain``: expected fragmentation before minus after, in tasks × milli-GPU."""
        # The gain is meaningless where a class doesn't fit, and isn't used there.
        exponent = np.clip(-gain / (max(1, self._mix.total) * WHOLE_GPU_MILLI), -60.0, 60.0)
        return np.floor(100.0 / (1.0 + np.exp(exponent))).astype(np.int64)
