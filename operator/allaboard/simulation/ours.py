"""What ``allaboard run`` would do: the real problem and search, on records made from the simulated cluster.

Nodes and specs are made once; what is taken is an array of which only the rows that have changed are written again. What the
scheduler does with gangs that are pending together is ``seat_together`` alone: the rest of this module translates.
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, build_problem, search
from allaboard.simulation.state import ClusterState, Seat
from allaboard.simulation.strategies import Seats, Setup
from allaboard.simulation.workload import WHOLE_GPU_MILLI, Arrival, SimNode, TaskClass, WorkloadError

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
RESOURCES = ("cpu", "memory", GPU, "pods")
_PODS = 10_000
"""Of each node; traces don't limit them."""


@dataclass(frozen=True, slots=True)
class PendingGang:
    """Pods that are placed together. ``seed`` is for the search, and differs from one attempt to the next."""

    pods: tuple[Pod, ...]
    minimum: int
    seed: int


class Genetic:
    """The scheduler's own strategy, with the settings and the objective of ``Setup``."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._filters = NodeFilters()
        self._mirror: _Mirror | None = None
        self._attempts: Counter[str] = Counter()

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Seats | None]:
        """As ``Strategy.place``."""
        if self._mirror is None or self._mirror.state is not state:
            self._mirror = _Mirror(state)
        gangs = [PendingGang(self._mirror.pods(arrival), arrival.minimum, self._seed(arrival)) for arrival in pending]
        found = seat_together(gangs, self._mirror.snapshot(), self._setup, self._filters)
        return self._mirror.seats(pending, found)

    def _seed(self, arrival: Arrival) -> int:
        """As the scheduler has it, of the gang and the attempt; and of the run, since its names are the same in each."""
        attempt = self._attempts[arrival.name]
        self._attempts[arrival.name] += 1
        return zlib.crc32(f"{self._setup.seed}/{arrival.name}/{attempt}".encode())


def seat_together(
    gangs: Sequence[PendingGang], snapshot: Snapshot, setup: Setup, filters: NodeFilters
) -> Sequence[Mapping[str, str] | None]:
    """For each gang the node of each pod by uid, surplus ones left out; ``None`` for a gang that isn't placed. All fit together.

    Raises ``WorkloadError`` for what can't be placed yet.
    """
    found: list[Mapping[str, str] | None] = []
    for gang in gangs:
        problem = build_problem(gang.pods, gang.minimum, snapshot, objective=setup.objective, filters=filters)
        plan = search(problem, setup.search, gang.seed)
        found.append(dict(plan.assignments) if plan.feasible else None)
        if plan.feasible and gang is not gangs[-1]:
            specs = {pod.uid: pod.spec for pod in gang.pods}
            snapshot = _with(snapshot, [(specs[uid], node) for uid, node in plan.assignments])
    return found


def _with(snapshot: Snapshot, assignments: Sequence[tuple[SchedulingSpec, str]]) -> Snapshot:
    """The cluster once these pods sit there too."""
    rows = {node.name: row for row, node in enumerate(snapshot.nodes)}
    used = snapshot.used.copy()
    for spec, node in assignments:
        for resource, amount in spec.requests:
            column = snapshot.column_of(resource)
            if column is not None:
                used[rows[node], column] += amount
    used.setflags(write=False)
    return Snapshot(snapshot.nodes, snapshot.resources, snapshot.allocatable, used, snapshot.host_ports)


class _Mirror:
    """The records of one simulated cluster."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._nodes = tuple(_node(node) for node in state.nodes)
        self._rows = {node.name: row for row, node in enumerate(self._nodes)}
        self._specs = tuple(_spec(task) for task in state.classes)
        amounts = [[dict(node.allocatable).get(resource, 0) for resource in RESOURCES] for node in self._nodes]
        self._allocatable = np.array(amounts, dtype=np.int64).reshape(len(self._nodes), len(RESOURCES))
        self._allocatable.setflags(write=False)
        self._used = np.zeros_like(self._allocatable)
        self._seen = 0

    def snapshot(self) -> Snapshot:
        """The cluster as it is. GPUs count as taken when anybody uses a part of them."""
        changed = self.state.changes[self._seen :]
        self._seen = len(self.state.changes)
        if changed:
            rows = np.unique(np.array(changed, dtype=np.int64))
            free = np.stack(
                [
                    self.state.free_cpu[rows],
                    self.state.free_memory[rows],
                    np.count_nonzero(self.state.devices[rows] == WHOLE_GPU_MILLI, axis=1),
                    self._allocatable[rows, RESOURCES.index("pods")],
                ],
                axis=1,
            )
            self._used[rows] = self._allocatable[rows] - free
        used = self._used.copy()
        used.setflags(write=False)
        return Snapshot(self._nodes, RESOURCES, self._allocatable, used)

    def pods(self, arrival: Arrival) -> tuple[Pod, ...]:
        """The members of a gang as pending pods. Raises ``WorkloadError`` for those that ask for a part of a GPU."""
        if any(self.state.classes[member].is_shared for member in arrival.members):
            raise WorkloadError(
                f"{arrival.name} asks for a part of a GPU, which the strategy genetic can't place yet; "
                "leave such tasks out, or replay them with --strategy fgd, bestfit, firstfit or random"
            )
        return tuple(
            Pod(
                namespace="simulation",
                name=f"{arrival.name}-{index}",
                uid=f"{arrival.name}/{index}",
                resource_version="1",
                created=arrival.at_seconds,
                scheduler_name="allaboard",
                node_name="",
                phase="Pending",
                priority=arrival.priority,
                spec=self._specs[member],
            )
            for index, member in enumerate(arrival.members)
        )

    def seats(self, pending: Sequence[Arrival], found: Sequence[Mapping[str, str] | None]) -> list[Seats | None]:
        """Nodes by pod as seats, with the devices that each pod is given."""
        answer: list[Seats | None] = []
        with self.state.trial():
            for arrival, nodes in zip(pending, found, strict=True):
                answer.append(None if nodes is None else tuple(self._seat(arrival, index, nodes) for index in range(len(arrival.members))))
        return answer

    def _seat(self, arrival: Arrival, index: int, nodes: Mapping[str, str]) -> Seat | None:
        name = nodes.get(f"{arrival.name}/{index}")
        if name is None:
            return None
        member, row = arrival.members[index], self._rows[name]
        seat = Seat(row, self.state.whole_devices(row, self.state.classes[member].gpus))
        self.state.take(member, seat)
        return seat


def _node(node: SimNode) -> Node:
    amounts = {"cpu": node.cpu_milli, "memory": node.memory_bytes, GPU: node.gpus, "pods": _PODS}
    labels = {"kubernetes.io/hostname": node.name} | ({PRODUCT: node.model} if node.model else {})
    return Node(name=node.name, uid=node.name, allocatable=as_requests(amounts), labels=labels)


def _spec(task: TaskClass) -> SchedulingSpec:
    amounts = {"cpu": task.cpu_milli, "memory": task.memory_bytes, GPU: task.gpus, "pods": 1}
    affinity = (NodeSelectorTerm((Requirement(PRODUCT, "In", task.models),)),) if task.models else None
    return SchedulingSpec(requests=as_requests(amounts), affinity=affinity)
