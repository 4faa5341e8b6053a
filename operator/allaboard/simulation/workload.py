"""What is replayed: nodes, and gangs that arrive. A task of a trace is a gang of one.

Tasks that ask for the same are a *class*; gangs name classes by position, so that a strategy can keep a row of figures for each.
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
    """An empty node. ``model`` names its GPUs, empty without any."""

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True)
class TaskClass:
    """What one pod asks for: ``gpu_milli`` on each of ``gpus`` devices, 1000 being a whole one. No ``models`` means any."""

    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def is_shared(self) -> bool:
        """Whether it takes a part of one device."""
        return 0 < self.gpu_milli < WHOLE_GPU_MILLI

    @property
    def gpu_total_milli(self) -> int:
        """What it takes of all devices together."""
        return self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Arrival:
    """A gang that arrives.

    ``members`` are positions in the workload's classes, of which ``minimum`` must be placed together. It gives its seats back
    ``run_seconds`` after it has started; ``None`` means never.
    """

    name: str
    members: tuple[int, ...]
    minimum: int
    priority: int = 0
    at_seconds: float = 0.0
    run_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Nodes, and what arrives on them, in order. Gangs that don't fit wait, or are dropped unless ``waits``."""

    nodes: tuple[SimNode, ...]
    classes: tuple[TaskClass, ...]
    arrivals: tuple[Arrival, ...]
    waits: bool

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @property
    def popularity(self) -> tuple[int, ...]:
        """Tasks of each class."""
        counts = [0] * len(self.classes)
        for arrival in self.arrivals:
            for member in arrival.members:
                counts[member] += 1
        return tuple(counts)

    @property
    def missing_models(self) -> dict[tuple[str, ...], int]:
        """Tasks that no node can take for want of a GPU model: how many, by the models that they accept."""
        there = {node.model for node in self.nodes if node.gpus}
        found: Counter[tuple[str, ...]] = Counter()
        for task, count in zip(self.classes, self.popularity, strict=True):
            if task.models and there.isdisjoint(task.models):
                found[task.models] += count
        return dict(found)

    def gpu_milli_of(self, arrival: Arrival) -> int:
        """What all members of a gang ask for."""
        return sum(self.classes[member].gpu_total_milli for member in arrival.members)


def workload_of(nodes: Sequence[SimNode], tasks: Sequence[tuple[str, TaskClass]]) -> Workload:
    """Single tasks that arrive in the order given, stay for ever, and are dropped when they don't fit."""
    position: dict[TaskClass, int] = {}
    arrivals = tuple(Arrival(name, (position.setdefault(task, len(position)),), 1) for name, task in tasks)
    return Workload(tuple(nodes), tuple(position), arrivals, waits=False)


def inflated(workload: Workload, factor: float, seed: int) -> Workload:
    """The tasks in random order, with more of them sampled, or some left out, until they ask for ``factor`` × all GPUs; 0: as they are.

    The published protocol (Weng et al., "Beware of Fragmentation", USENIX ATC 2023): every task once, then tasks drawn with
    replacement. Of a trace that asks for more already tasks are taken out at random until it doesn't. Raises ``WorkloadError``.
    """
    rng = np.random.default_rng(seed)
    tasks = workload.arrivals
    order = [tasks[index] for index in rng.permutation(len(tasks)).tolist()]
    asked = sum(map(workload.gpu_milli_of, tasks))
    wanted = factor * workload.gpus * WHOLE_GPU_MILLI
    if asked < wanted and not asked:
        raise WorkloadError("no task asks for a GPU, so no number of them reaches the inflated load; replay each once with --inflate 0")
    if wanted and asked > wanted:
        while asked > wanted:  # the order is random, and so are those at its end
            asked -= workload.gpu_milli_of(order.pop())
        return replace(workload, arrivals=tuple(order))
    copies = 0
    while asked < wanted:
        task = tasks[int(rng.integers(len(tasks)))]
        copies += 1
        order.append(replace(task, name=f"{task.name}~{copies}"))
        asked += workload.gpu_milli_of(task)
    return replace(workload, arrivals=tuple(order))
