"""What ``allaboard run`` would do: the real problem and search, on records made from the simulated cluster.

Nodes and specs are made once; what is taken is an array of which only the rows that have changed are written again. What the
scheduler does with gangs that are pending together is ``seat_together`` alone: the rest of this module translates.
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.cluster.workload import WorkloadCounter
from allaboard.model.arrays import Floats
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot, Workload
from allaboard.placement import Budget, NodeFilters, build_problem, search
from allaboard.placement.contest.contest import Waiting, contest_of
from allaboard.placement.contest.joint import place_together
from allaboard.placement.problem.objectives import WEIGHTS
from allaboard.placement.problem.prices import gap_worth, prices_of
from allaboard.placement.rules.devices import best_device, whole_devices
from allaboard.placement.strategies.trial import StrategyError, tried
from allaboard.simulation.baselines import fullest_devices
from allaboard.simulation.player import Seats, Setup
from allaboard.simulation.state import ClusterState, Seat
from allaboard.simulation.workload import Arrival, SimNode, TaskClass

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
RESOURCES = ("cpu", "memory", GPU, "pods")
_PODS = 10_000
"""Of each node; traces don't limit them."""


Placed = tuple[int, Mapping[str, str]]
"""Which gang, and the node of each of its pods by uid, surplus ones left out."""


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
        """As ``Player.place``."""
        if self._mirror is None or self._mirror.state is not state:
            self._mirror = _Mirror(state)
        gangs = [PendingGang(self._mirror.pods(arrival), arrival.minimum, self._seed(arrival)) for arrival in pending]
        snapshot = self._mirror.snapshot(pending)
        found = seat_together(gangs, snapshot, self._setup, self._filters)
        return self._mirror.seats(pending, found, gap_worth(prices_of(snapshot.mix), WEIGHTS[self._setup.objective]))

    def _seed(self, arrival: Arrival) -> int:
        """As the scheduler has it, of the gang and the attempt; and of the run, since its names are the same in each."""
        attempt = self._attempts[arrival.name]
        self._attempts[arrival.name] += 1
        return zlib.crc32(f"{self._setup.seed}/{arrival.name}/{attempt}".encode())


class ByStrategy:
    """One of the scheduler's other strategies, or a plug-in: gangs go one after another.

    Nobody decides in its stead, so a replay tells what it is worth. Nobody ends it when it doesn't answer.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        self._name, self._setup = name, setup
        # Each run is drawn by its own seed.
        self._arguments = {**setup.arguments, "seed": setup.seed} if name == "random" else setup.arguments
        self._filters = NodeFilters()
        self._mirror: _Mirror | None = None

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Seats | None]:
        """As ``Player.place``. Raises ``StrategyError`` when the strategy fails."""
        if self._mirror is None or self._mirror.state is not state:
            self._mirror = _Mirror(state)
        with state.trial():
            return [self._gang(self._mirror, arrival) for arrival in pending]

    def _gang(self, mirror: "_Mirror", arrival: Arrival) -> Seats | None:
        snapshot, objective = mirror.snapshot([arrival]), self._setup.objective
        problem = build_problem(mirror.pods(arrival), arrival.minimum, snapshot, objective=objective, filters=self._filters)
        try:
            plan = tried(self._name, self._arguments, problem, Budget())
        except StrategyError as error:
            raise StrategyError(f"strategy {self._name}: {error}") from error
        worth = gap_worth(prices_of(snapshot.mix), WEIGHTS[objective])
        return mirror.seated(arrival, dict(plan.assignments), worth) if plan else None


def seat_together(gangs: Sequence[PendingGang], snapshot: Snapshot, setup: Setup, filters: NodeFilters) -> Sequence[Placed]:
    """The gangs that are placed, in the order in which they take their seats; those that aren't are left out."""
    if len(gangs) == 1:
        problem = build_problem(gangs[0].pods, gangs[0].minimum, snapshot, objective=setup.objective, filters=filters)
        plan = search(problem, setup.search, gangs[0].seed)
        return [(0, dict(plan.assignments))] if plan.feasible else []
    waiting = [Waiting(gang.pods, gang.minimum, gang.seed, setup.objective) for gang in gangs]
    joint = place_together(contest_of(waiting, snapshot, filters), setup.search)
    return [(position, dict(found.assignments)) for position in joint.taken if (found := joint.plans[position])]


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
        self._is_shared = any(task.is_shared for task in state.classes)
        self._workload = WorkloadCounter()
        self._counted = np.zeros(len(state.classes), dtype=np.int64)

    def snapshot(self, pending: Sequence[Arrival]) -> Snapshot:
        """The cluster as it is. Of devices that are shared, those count as taken that anybody uses a part of."""
        changed = self.state.changes[self._seen :]
        self._seen = len(self.state.changes)
        if changed:
            rows = np.unique(np.array(changed, dtype=np.int64))
            free = np.stack(
                [
                    self.state.free_cpu[rows],
                    self.state.free_memory[rows],
                    whole_devices(self.state.devices[rows]),
                    self._allocatable[rows, RESOURCES.index("pods")],
                ],
                axis=1,
            )
            self._used[rows] = self._allocatable[rows] - free
        used = self._used.copy()
        used.setflags(write=False)
        devices = self.state.devices.copy() if self._is_shared else None
        return Snapshot(self._nodes, RESOURCES, self._allocatable, used, devices=devices, mix=self._mix(pending))

    def _mix(self, pending: Sequence[Arrival]) -> Workload:
        """The cluster's workload as the scheduler counts it: of the pods that there are, bound or waiting. The future is not known."""
        members = [member for arrival in pending for member in arrival.members]
        there = self.state.seated + np.bincount(np.array(members, dtype=np.int64), minlength=len(self._counted))
        for position in np.flatnonzero(there != self._counted).tolist():
            more = int(there[position] - self._counted[position])
            pod = self._pod("", 0, position)
            for _ in range(abs(more)):
                self._workload.replace(None if more > 0 else pod, pod if more > 0 else None)
        self._counted = there
        return self._workload.mix()

    def pods(self, arrival: Arrival) -> tuple[Pod, ...]:
        """The members of a gang as pending pods."""
        return tuple(self._pod(arrival.name, index, member, arrival) for index, member in enumerate(arrival.members))

    def _pod(self, gang: str, index: int, position: int, arrival: Arrival | None = None) -> Pod:
        return Pod(
            namespace="simulation",
            name=f"{gang}-{index}",
            uid=f"{gang}/{index}",
            resource_version="1",
            created=arrival.at_seconds if arrival else 0.0,
            scheduler_name="allaboard",
            node_name="",
            phase="Pending",
            priority=arrival.priority if arrival else 0,
            spec=self._specs[position],
        )

    def seats(self, pending: Sequence[Arrival], found: Sequence[Placed], worth: Floats | None) -> list[Seats | None]:
        """Nodes by pod as seats, with the devices that each pod is given."""
        seats: list[Seats | None] = [None] * len(pending)
        with self.state.trial():
            for position, nodes in found:
                seats[position] = self.seated(pending[position], nodes, worth)
        return seats

    def seated(self, arrival: Arrival, nodes: Mapping[str, str], worth: Floats | None) -> Seats:
        """Take the seats of one gang, as ``placement.rules.devices`` counts: whole devices first, then the large shares."""
        seats: list[Seat | None] = [None] * len(arrival.members)
        demands = [self.state.classes[member] for member in arrival.members]
        for index in sorted(range(len(demands)), key=lambda index: -demands[index].gpu_milli):
            name = nodes.get(f"{arrival.name}/{index}")
            if name is None:
                continue
            member, row = arrival.members[index], self._rows[name]
            devices = fullest_devices(self.state, member, row)
            if demands[index].is_shared:
                devices = (int(best_device(self.state.devices[row : row + 1], demands[index].gpu_milli, worth)[0]),)
            seat = Seat(row, devices)
            self.state.take(member, seat)
            seats[index] = seat
        return tuple(seats)


def _node(node: SimNode) -> Node:
    amounts = {"cpu": node.cpu_milli, "memory": node.memory_bytes, GPU: node.gpus, "pods": _PODS}
    labels = {"kubernetes.io/hostname": node.name} | ({PRODUCT: node.model} if node.model else {})
    return Node(name=node.name, uid=node.name, allocatable=as_requests(amounts), labels=labels)


def _spec(task: TaskClass) -> SchedulingSpec:
    amounts = {"cpu": task.cpu_milli, "memory": task.memory_bytes, GPU: 0 if task.is_shared else task.gpus, "pods": 1}
    affinity = (NodeSelectorTerm((Requirement(PRODUCT, "In", task.models),)),) if task.models else None
    return SchedulingSpec(requests=as_requests(amounts), affinity=affinity, gpu_share=task.gpu_milli if task.is_shared else 0)
