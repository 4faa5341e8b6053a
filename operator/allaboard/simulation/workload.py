"""The workload that is replayed: nodes, and gangs that arrive. A task of a trace is a gang of one pod.

Tasks with equal requests form a *class*. Gangs name classes by position, so that a strategy can keep a row of figures for each class.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

WHOLE_GPU_MILLI = 1000
MIB = 1024**2


class WorkloadError(ValueError):
    """The workload can't be replayed as asked; the message says why and what would help."""


@dataclass(frozen=True, slots=True)
class SimNode:
    """A simulated node without pods. ``model`` is the model of its GPUs; empty if it has none."""

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class TaskClass:
    """The requests of one pod: ``gpu_milli`` of each of ``gpus`` devices; 1000 is a whole device. Empty ``models`` accept any model."""

    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Return whether the pod takes only a part of one device."""
        return 0 < self.gpu_milli < WHOLE_GPU_MILLI

    @property
    def gpu_total_milli(self) -> int:
        """Milli-GPU that the pod takes of all devices together."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gang that arrives.

    ``members`` has the position of each member's task class in the workload's classes. At least ``minimum`` members must be placed
    together. The gang finishes ``run_seconds`` after it has started; None means never. ``walltime_seconds`` is the longest time that it
    will run, as its owner states it; 0 if the owner states none. ``namespace`` is the tenant.
    """

    name: str
    members: tuple[int, ...]
    minimum: int
    priority: int = 0
    at_seconds: float = 0.0
    run_seconds: float | None = None
    walltime_seconds: float = 0.0
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes, and the gangs that arrive, in order. With ``waits``, gangs that don't fit wait; without it, they are dropped."""

    nodes: tuple[SimNode, ...]
    classes: tuple[TaskClass, ...]
    arrivals: tuple[Arrival, ...]
    waits: bool

    @property
    def gpus(self) -> int:
        """The number of GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def popularity(self) -> tuple[int, ...]:
        """The number of tasks of each class."""
        counts = [0] * len(self.classes)
        for arrival in self.arrivals:
            for member in arrival.members:
                counts[member] += 1
        return tuple(counts)

    @property
    def missing_models(self) -> dict[tuple[str, ...], int]:
        """The number of tasks whose GPU models no node has, by the models that the tasks accept."""
        present = {node.model for node in self.nodes if node.gpus}
        found: Counter[tuple[str, ...]] = Counter()
        for task, count in zip(self.classes, self.popularity, strict=True):
            if task.models and present.isdisjoint(task.models):
                found[task.models] += count
        return dict(found)

    def gpu_milli_of(self, arrival: Arrival) -> int:
        """Return the milli-GPU that all members of a gang request together."""
        return sum(self.classes[member].gpu_total_milli for member in arrival.members)


def workload_of(nodes: Sequence[SimNode], tasks: Sequence[tuple[str, TaskClass]]) -> Workload:
    """Return a workload of single tasks, which arrive in the order given, stay for ever, and are dropped if they don't fit."""
    position: dict[TaskClass, int] = {}
    arrivals = tuple(Arrival(name, (position.setdefault(task, len(position)),), 1) for name, task in tasks)
    return Workload(tuple(nodes), tuple(position), arrivals, waits=False)


def inflated(workload: Workload, factor: float, seed: int) -> Workload:
    """Return the tasks in random order, with tasks added or removed until they request ``factor`` × all GPUs.

    With ``factor`` 0, each task arrives once. The protocol is the published one (Weng et al., "Beware of Fragmentation", USENIX ATC 2023):
    every task arrives once, then tasks drawn with replacement. If the tasks of the trace alone request more than ``factor`` × all GPUs,
    tasks are removed at random. Raises ``WorkloadError``.
    """
    rng = np.random.default_rng(seed)
    tasks = workload.arrivals
    order = [tasks[index] for index in rng.permutation(len(tasks)).tolist()]
    asked = sum(map(workload.gpu_milli_of, tasks))
    wanted = factor * workload.gpus * WHOLE_GPU_MILLI
    if asked < wanted and not asked:
        raise WorkloadError(
            "no task asks for a GPU, so adding tasks never reaches the inflated load; replay each task once with --inflate 0"
        )
    if wanted and asked > wanted:
        while asked > wanted:  # the order is random, so the last task is a random one
            asked -= workload.gpu_milli_of(order.pop())
        return replace(workload, arrivals=tuple(order))
    copies = 0
    while asked < wanted:
        task = tasks[int(rng.integers(len(tasks)))]
        copies += 1
        order.append(replace(task, name=f"{task.name}~{copies}"))
        asked += workload.gpu_milli_of(task)
    return replace(workload, arrivals=tuple(order))
