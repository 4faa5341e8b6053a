"""What is free on every node and device, and which class fits where; kept up to date row by row.

A strategy reads it and may take seats on trial. The replay takes the seats that a strategy returns, and what doesn't fit is refused
here, so that no strategy can look good by over-committing a node.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.simulation.workload import WHOLE_GPU_MILLI, SimNode, TaskClass


@dataclass(frozen=True, slots=True)
class Seat:
    """A place for one pod: the row of the node, and which of its devices it uses."""

    node: int
    devices: tuple[int, ...] = ()


class BadAssignmentError(ValueError):
    """A strategy has chosen a seat that isn't there or isn't free."""


class ClusterState:
    """``free_cpu``, ``free_memory``: int64[nodes]. ``devices``: int64[nodes, devices], free milli-GPU of each; 0 where there is none.

    ``fits``: bool[classes, nodes]. ``room``: int64[nodes], free cpu and GPU together, each as a share of the largest node: less is
    fuller. ``seated``: int64[classes], pods that have a seat. ``changes`` lists the rows that have changed, in order, so that whoever
    keeps figures by node knows which to renew. All are to be read only.
    """

    def __init__(self, nodes: Sequence[SimNode], classes: Sequence[TaskClass]) -> None:
        self.nodes = tuple(nodes)
        self.classes = tuple(classes)
        self.free_cpu: Integers = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.free_memory: Integers = np.array([node.memory_bytes for node in nodes], dtype=np.int64)
        most = max((node.gpus for node in nodes), default=0)
        gpus = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.devices: Integers = np.where(np.arange(most) < gpus[:, None], WHOLE_GPU_MILLI, 0).astype(np.int64)
        self.models = tuple(sorted({node.model for node in nodes}))
        self.model: Integers = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.seated: Integers = np.zeros(len(classes), dtype=np.int64)
        self.changes: list[int] = []
        self._journal: list[tuple[int, Seat]] | None = None
        self._cpu = np.array([task.cpu_milli for task in classes], dtype=np.int64)
        self._memory = np.array([task.memory_bytes for task in classes], dtype=np.int64)
        self._gpus = np.array([task.gpus for task in classes], dtype=np.int64)
        self._gpu_milli = np.array([task.gpu_milli for task in classes], dtype=np.int64)
        self.permitted = permitted(classes, self.models)
        self._largest_cpu = int(self.free_cpu.max(initial=1))
        self._largest_gpu = most * WHOLE_GPU_MILLI
        self.fits: Mask = np.zeros((len(classes), len(nodes)), dtype=np.bool_)
        self.room: Integers = np.zeros(len(nodes), dtype=np.int64)
        for row in range(len(nodes)):
            self._renew(row)
        self.gpu_milli = int(self.devices.sum())
        self.free_gpu_milli = self.gpu_milli
        self.cpu_milli = int(self.free_cpu.sum())
        self.free_cpu_milli = self.cpu_milli

    def take(self, position: int, seat: Seat) -> None:
        """Seat one pod of a class. Raises ``BadAssignmentError`` when it doesn't fit there."""
        self._check(position, seat)
        self._add(position, seat, -1)
        if self._journal is not None:
            self._journal.append((position, seat))

    def give_back(self, position: int, seat: Seat) -> None:
        """Undo one ``take``."""
        self._add(position, seat, 1)
        if self._journal is not None:
            self._journal.remove((position, seat))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is taken inside is given back at the end."""
        journal = self._journal = []
        try:
            yield
        finally:
            self._journal = None
            for position, seat in reversed(journal):
                self.give_back(position, seat)

    def whole_devices(self, node: int, number: int) -> tuple[int, ...]:
        """The first ``number`` devices that nobody uses."""
        return tuple(np.flatnonzero(self.devices[node] == WHOLE_GPU_MILLI)[:number].tolist())

    def _check(self, position: int, seat: Seat) -> None:
        task = self.classes[position]
        if not 0 <= seat.node < len(self.nodes):
            raise BadAssignmentError(f"there is no node {seat.node}")
        name = self.nodes[seat.node].name
        if not self.fits[position, seat.node]:
            raise BadAssignmentError(f"{task} doesn't fit on node {name}")
        if len(set(seat.devices)) != task.gpus or not all(0 <= device < self.devices.shape[1] for device in seat.devices):
            raise BadAssignmentError(f"devices {seat.devices} of node {name} aren't the {task.gpus} that {task} needs")
        if any(self.devices[seat.node, device] < task.gpu_milli for device in seat.devices):
            raise BadAssignmentError(f"devices {seat.devices} of node {name} have too little free for {task}")

    def _add(self, position: int, seat: Seat, sign: int) -> None:
        task = self.classes[position]
        self.seated[position] -= sign
        self.free_cpu[seat.node] += sign * task.cpu_milli
        self.free_memory[seat.node] += sign * task.memory_bytes
        for device in seat.devices:
            self.devices[seat.node, device] += sign * task.gpu_milli
        self.free_gpu_milli += sign * task.gpu_total_milli
        self.free_cpu_milli += sign * task.cpu_milli
        self._renew(seat.node)
        self.changes.append(seat.node)

    def _renew(self, row: int) -> None:
        devices = self.devices[row]
        able = (devices >= self._gpu_milli[:, None]).sum(axis=1) >= self._gpus
        roomy = (self._cpu <= self.free_cpu[row]) & (self._memory <= self.free_memory[row])
        self.fits[:, row] = able & roomy & self.permitted[:, self.model[row]]
        self.room[row] = int(self.free_cpu[row]) * max(1, self._largest_gpu) + int(devices.sum()) * self._largest_cpu


def permitted(classes: Sequence[TaskClass], models: Sequence[str]) -> Mask:
    """bool[classes, models]: which GPU models each class accepts."""
    found = [[not task.models or model in task.models for model in models] for task in classes]
    return np.array(found, dtype=np.bool_).reshape(len(classes), len(models))
