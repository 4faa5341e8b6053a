"""The free capacity of every node and device, and which task class fits on which node; updated for one node at a time.

A strategy reads this state, and may take capacity on trial. The replay takes the capacity of the assignments that a strategy returns. An
assignment that doesn't fit is refused, so that no strategy can gain by over-committing a node.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.simulation.workload import WHOLE_GPU_MILLI, SimNode, TaskClass


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of one pod: the row of its node, and the devices that the pod uses on that node."""

    node: int
    devices: tuple[int, ...] = ()


class BadAssignmentError(ValueError):
    """A strategy has assigned a pod to a node or device that doesn't exist or has too little free."""


@dataclass(frozen=True, slots=True)
class Started:
    """A gang that runs.

    ``walltime_seconds`` is the longest time that it will run, as its owner states it: 0 if the owner states none, infinite if the gang
    never ends. ``taken``: (position of the task class, assignment) of each pod that runs, by the pod's number. ``minimum``: the pods that
    the gang needs to go on.
    """

    at_seconds: float
    walltime_seconds: float
    taken: Mapping[int, tuple[int, Assignment]]
    priority: int = 0
    minimum: int = 1
    namespace: str = "default"


class ClusterState:
    """The free capacity of a simulated cluster. Its arrays must not be written from outside.

    ``free_cpu``, ``free_memory``: int64[nodes]. ``devices``: int64[nodes, devices], free milli-GPU of each device; 0 if the node has no
    such device. ``fits``: bool[classes, nodes], whether a pod of a task class fits. ``free_capacity``: int64[nodes], free cpu and GPU
    together, each as a share of the largest node; the fullest node has the least. ``assigned``: int64[classes], number of assigned pods.
    ``now`` is the present moment, in seconds. ``started`` are the gangs that run, by a number. ``changes``: the row of the node of each
    change, in order, so that figures kept for each node are recomputed for these nodes only.
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
        self.assigned: Integers = np.zeros(len(classes), dtype=np.int64)
        self.changes: list[int] = []
        self.now = 0.0
        self.started: dict[int, Started] = {}
        self._journal: list[tuple[int, Assignment]] | None = None
        self._cpu = np.array([task.cpu_milli for task in classes], dtype=np.int64)
        self._memory = np.array([task.memory_bytes for task in classes], dtype=np.int64)
        self._gpus = np.array([task.gpus for task in classes], dtype=np.int64)
        self._gpu_milli = np.array([task.gpu_milli for task in classes], dtype=np.int64)
        self.permitted = permitted(classes, self.models)
        self._largest_cpu = int(self.free_cpu.max(initial=1))
        self._largest_gpu = most * WHOLE_GPU_MILLI
        self.fits: Mask = np.zeros((len(classes), len(nodes)), dtype=np.bool_)
        self.free_capacity: Integers = np.zeros(len(nodes), dtype=np.int64)
        for row in range(len(nodes)):
            self._recompute(row)
        self.gpu_milli = int(self.devices.sum())
        self.free_gpu_milli = self.gpu_milli
        self.cpu_milli = int(self.free_cpu.sum())
        self.free_cpu_milli = self.cpu_milli

    def take(self, position: int, assignment: Assignment) -> None:
        """Assign one pod of the task class at ``position``. Raises ``BadAssignmentError`` if the pod doesn't fit."""
        self._check(position, assignment)
        self._add(position, assignment, -1)
        if self._journal is not None:
            self._journal.append((position, assignment))

    def release(self, position: int, assignment: Assignment) -> None:
        """Release the pod of one earlier ``take``."""
        self._add(position, assignment, 1)
        if self._journal is not None:
            self._journal.remove((position, assignment))

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Open a context; when the context ends, every ``take`` inside it is undone."""
        journal = self._journal = []
        try:
            yield
        finally:
            self._journal = None
            for position, assignment in reversed(journal):
                self.release(position, assignment)

    def whole_devices(self, node: int, number: int) -> tuple[int, ...]:
        """Return the first ``number`` devices of a node that no pod uses."""
        return tuple(np.flatnonzero(self.devices[node] == WHOLE_GPU_MILLI)[:number].tolist())

    def _check(self, position: int, assignment: Assignment) -> None:
        task = self.classes[position]
        if not 0 <= assignment.node < len(self.nodes):
            raise BadAssignmentError(f"there is no node {assignment.node}")
        name = self.nodes[assignment.node].name
        if not self.fits[position, assignment.node]:
            raise BadAssignmentError(f"{task} doesn't fit on node {name}")
        if len(set(assignment.devices)) != task.gpus or not all(0 <= device < self.devices.shape[1] for device in assignment.devices):
            raise BadAssignmentError(f"devices {assignment.devices} of node {name} aren't the {task.gpus} that {task} needs")
        if any(self.devices[assignment.node, device] < task.gpu_milli for device in assignment.devices):
            raise BadAssignmentError(f"devices {assignment.devices} of node {name} have too little free for {task}")

    def _add(self, position: int, assignment: Assignment, sign: int) -> None:
        task = self.classes[position]
        self.assigned[position] -= sign
        self.free_cpu[assignment.node] += sign * task.cpu_milli
        self.free_memory[assignment.node] += sign * task.memory_bytes
        for device in assignment.devices:
            self.devices[assignment.node, device] += sign * task.gpu_milli
        self.free_gpu_milli += sign * task.gpu_total_milli
        self.free_cpu_milli += sign * task.cpu_milli
        self._recompute(assignment.node)
        self.changes.append(assignment.node)

    def _recompute(self, row: int) -> None:
        devices = self.devices[row]
        able = (devices >= self._gpu_milli[:, None]).sum(axis=1) >= self._gpus
        has_capacity = (self._cpu <= self.free_cpu[row]) & (self._memory <= self.free_memory[row])
        self.fits[:, row] = able & has_capacity & self.permitted[:, self.model[row]]
        self.free_capacity[row] = int(self.free_cpu[row]) * max(1, self._largest_gpu) + int(devices.sum()) * self._largest_cpu


def permitted(classes: Sequence[TaskClass], models: Sequence[str]) -> Mask:
    """Return whether each task class accepts each GPU model: bool[classes, models]."""
    found = [[not task.models or model in task.models for model in models] for task in classes]
    return np.array(found, dtype=np.bool_).reshape(len(classes), len(models))
