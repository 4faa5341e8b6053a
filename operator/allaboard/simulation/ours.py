"""Lets the scheduler decide in replays: by the planning round of ``allaboard run``, on records of the simulated cluster.

The records of nodes and pod specs are created once. Used capacity is an array, of which only the rows of changed nodes are written again.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from allaboard.cluster.reservations import Applicant, Reservation, kept_from
from allaboard.cluster.running import Basis, RunningPods
from allaboard.cluster.workload import WorkloadCounter
from allaboard.model.arrays import Floats
from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.gpu_inventory import gpus_of
from allaboard.model.gpus import NO_CARDS
from allaboard.model.node import Node
from allaboard.model.pod import Owner, Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Budget, NodeFilters, build_problem
from allaboard.placement.problem.objectives import WEIGHTS
from allaboard.placement.problem.prices import gap_worth, prices_of
from allaboard.placement.rules.devices import best_device, whole_devices
from allaboard.placement.strategies.trial import StrategyError, checked_plan
from allaboard.planning.answers import Answer, Failed, Outdated, Placed, Refused
from allaboard.planning.gang_problem import Packings
from allaboard.planning.prepared import PreparedGang, prepared
from allaboard.planning.standstill import Standstill
from allaboard.queueing.fair_share import FairShare
from allaboard.queueing.order import order_of
from allaboard.records.sort_key import Order
from allaboard.runtime.inline import finished
from allaboard.simulation.baselines import fullest_devices
from allaboard.simulation.player import Assignments, Evictions, Player, Setup
from allaboard.simulation.state import Assignment, ClusterState
from allaboard.simulation.workload import Arrival, SimNode, TaskClass

GPU = "nvidia.com/gpu"
PRODUCT = "nvidia.com/gpu.product"
RESOURCES = ("cpu", "memory", GPU, "pods")
_PODS = 10_000
"""The number of pods that a node allows; traces state no limit."""
_NAMESPACE = "default"
_NO_TIMEOUT = 2**31 - 1
_OWNER = Owner("batch/v1", "Run", "simulated", "simulated")
_FIRST_SECOND = 1e-6
"""The start of a gang that starts at 0: a start of 0 isn't known yet."""


class Genetic(Player):
    """Decides as the scheduler does by default: by its planning round, with the settings and the objective of ``setup``."""

    def __init__(self, setup: Setup) -> None:
        self._expected_starts: dict[str, float] = {}
        self._setup = setup
        self._mirror: _Mirror | None = None
        self._pending: _Pending | None = None

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
        """Return the assignments of each gang in ``pending``; None for a gang that isn't placed.

        Raises ``SearchError`` if a search fails.
        """
        if self._mirror is None or self._pending is None or self._mirror.state is not state:
            self._mirror = _Mirror(state)
            self._pending = _Pending(self._mirror, self._setup, self._expected_starts)
        with state.trial():
            return finished(self._pending.decide(pending))

    def evictions(self) -> Evictions:
        """Return the pods to evict for gangs that the last ``place`` didn't place."""
        return self._pending.evictions if self._pending else ()

    def expected_start(self, name: str) -> float | None:
        """Return the start, in seconds, that was expected when the gang of this name was refused first; None if none was expected."""
        return self._expected_starts.get(name)

    def reserved_gpus(self) -> int:
        """Return how many GPUs are free, but reserved for waiting gangs, after the last ``place``."""
        return self._pending.reserved_gpus if self._pending else 0


class ByStrategy(Player):
    """Decides about one gang after another, by a strategy of the scheduler other than ``genetic``, or by a plug-in.

    If the strategy fails, the replay fails: no other strategy decides instead, so the figures are those of this strategy alone. No time
    limit ends a strategy that doesn't answer.
    """

    def __init__(self, name: str, setup: Setup) -> None:
        self._name, self._setup = name, setup
        # Each run draws random numbers by its own seed.
        self._arguments = {**setup.arguments, "seed": setup.seed} if name == "random" else setup.arguments
        self._filters = NodeFilters()
        self._mirror: _Mirror | None = None

    def place(self, state: ClusterState, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
        """Return the assignments of each gang in ``pending``; None for a gang that isn't placed.

        Raises ``StrategyError`` if the strategy fails.
        """
        if self._mirror is None or self._mirror.state is not state:
            self._mirror = _Mirror(state)
        with state.trial():
            return [self._gang(self._mirror, arrival) for arrival in pending]

    def _gang(self, mirror: "_Mirror", arrival: Arrival) -> Assignments | None:
        mirror.count_workload([arrival])
        snapshot, objective = mirror.snapshot(), self._setup.objective
        problem = build_problem(mirror.pods(arrival), arrival.minimum, snapshot, objective=objective, filters=self._filters)
        try:
            plan = checked_plan(self._name, self._arguments, problem, Budget())
        except StrategyError as error:
            raise StrategyError(f"strategy {self._name}: {error}") from error
        worth = gap_worth(prices_of(snapshot.mix), WEIGHTS[objective])
        return mirror.assign(arrival, dict(plan.assignments), worth) if plan else None


class _Pending(Standstill):
    """Plans the gangs of a replay that are pending at one moment, and takes the capacity of the gangs that are placed."""

    def __init__(self, mirror: "_Mirror", setup: Setup, expected_starts: dict[str, float]) -> None:
        super().__init__(mirror, mirror.running, setup.search, Packings(), seed=setup.seed, policy=setup.policy)
        self._mirror = mirror
        if setup.policy.fair_share.enabled:
            mirror.follow(self._shares)
        self._setup = setup
        self._expected_starts = expected_starts
        self._arrivals: dict[GangKey, Arrival] = {}
        self._gangs: dict[GangKey, Gang] = {}
        self._positions: dict[GangKey, int] = {}  # the order in which the gangs arrived
        self._arrived = 0
        self._assignments: dict[GangKey, list[Assignment | None]] = {}
        self._worth: Floats | None = None
        self.evictions: list[tuple[int, Collection[int]]] = []
        self.reserved_gpus = 0

    async def decide(self, pending: Sequence[Arrival]) -> Sequence[Assignments | None]:
        """Return the assignments of each gang in ``pending``; None for a gang that isn't placed.

        The capacity of the assignments is taken from the cluster state.
        """
        self._mirror.count_workload(pending)
        self.evictions = []
        if self._follows:
            self._mirror.observe_started()
        self._worth = gap_worth(prices_of(self._mirror.mix), WEIGHTS[self._setup.objective])
        self._arrivals = dict(zip(_keys_of(pending), pending, strict=True))
        self._gangs |= {key: self._gang(key, arrival) for key, arrival in self._arrivals.items()}
        for key in self._arrivals:
            if key not in self._positions:
                self._arrived += 1
                self._positions[key] = self._arrived
        self._assignments = {}
        await self.run(self._arrivals)
        self.reserved_gpus = self._idle_gpus()
        self._mirror.forget_planned()
        found = [tuple(self._assignments[key]) if key in self._assignments else None for key in self._arrivals]
        reserved = {each.owner for each in self._planner.ledger.reservations}
        self._gangs = {key: gang for key, gang in self._gangs.items() if key in reserved}
        self._positions = {key: position for key, position in self._positions.items() if key not in self._assignments}
        return found

    def _idle_gpus(self) -> int:
        """Return how many GPUs are free, but reserved: no gang that runs for ever could start on them."""
        ledger, snapshot = self._planner.ledger, self._mirror.snapshot()
        column = snapshot.column_of(GPU)
        if not ledger.reservations or column is None:
            return 0
        last = Applicant(None, None, min(each.priority for each in ledger.reservations), inf)
        kept = kept_from(last, ledger.reservations, snapshot, ledger.departures(snapshot))
        return 0 if kept is None else int(np.minimum(kept[0][:, column], np.maximum(snapshot.free[:, column], 0)).clip(0).sum())

    @property
    def _follows(self) -> bool:
        """True if the planning round needs to know which gangs run."""
        policy = self._setup.policy
        return bool(policy.reservations.most) or policy.preemption.is_on or policy.fair_share.enabled

    def running(self) -> Iterable[Gang]:
        """Return the gangs that run in the simulated cluster. Each is named by its number."""
        return self._mirror.running_gangs()

    def gang(self, key: GangKey) -> Gang | None:
        """Return the pending gang of this key, or a gang that was refused earlier and has a reservation."""
        return self._gangs.get(key)

    def prepared(self, key: GangKey) -> PreparedGang | None:
        """Return the gang's current state for a search; None if the gang needs no plan."""
        gang = self._gangs[key]
        if not gang.can_act:
            return None
        # A search for a gang that surely doesn't fit would only find the reason, which a simulation doesn't report.
        is_useless = self._reservations.is_surely_refused(gang) and not self._reservations.may_get_one(gang)
        is_useless &= not self._setup.policy.preemption.is_on
        return None if is_useless else prepared(gang)

    def place(self, key: GangKey) -> Order:
        """Return the gang's position in the queue: by priority, then by its tenant's share if the fair order is on, then by arrival."""
        share, _ = self._shares.place(key.namespace, None)
        return order_of(self._gangs[key], share=share, since=float(self._positions[key]))

    def now(self) -> float:
        """Return the present moment, in seconds."""
        return self._mirror.state.now

    def waited(self, key: GangKey) -> float:
        """Return for how many seconds a gang has waited since its arrival."""
        return self._mirror.state.now - self._gangs[key].created

    def answered(self, answer: Answer, *, is_again: bool) -> None:
        """Take the capacity of a placed gang, or count the failed attempt of a refused gang. Raises the error of a search that failed."""
        key = answer.gang.key
        if isinstance(answer, Refused) and answer.preemption is not None:
            self._preemptions.begin(answer.preemption)
            for victim in answer.preemption.victims:
                self.evictions.append((int(victim.gang.key.name), {int(pod.uid.partition("/")[2]) for pod in victim.pods}))
        match answer:
            case Placed(assignments=assignments):
                nodes = {each.pod.uid: each.node_name for each in assignments}
                found, known = self._mirror.assign(self._arrivals[key], nodes, self._worth, key.name), self._assignments.get(key)
                if self._follows:
                    self._mirror.plan(self._arrivals[key], found, key.name)
                self._assignments[key] = [new or old for new, old in zip(found, known, strict=True)] if known else list(found)
                gang = self._gangs[key]
                members = tuple(replace(pod, node_name=nodes.get(pod.uid, pod.node_name)) for pod in gang.members)
                self._gangs[key] = replace(gang, members=members)
                self._records.forget(key)
            case Failed(error=error):
                raise error
            case Refused(preemption=None, reservation=Reservation(basis=Basis.STATED | Basis.GUESSED, begins=begins)) if not is_again:
                self._expected_starts.setdefault(key.name, begins)
                self._records.of(key).queue.attempts += 1
            case Refused() | Outdated() if not is_again:
                self._records.of(key).queue.attempts += 1

    def _gang(self, key: GangKey, arrival: Arrival) -> Gang:
        return Gang(
            key=key,
            min_member=arrival.minimum,
            members=self._mirror.pods(arrival, key.name),
            priority=arrival.priority,
            created=arrival.at_seconds,
            objective=self._setup.objective,
            timeout_seconds=_NO_TIMEOUT,
            walltime=arrival.walltime_seconds,
        )


def _keys_of(pending: Sequence[Arrival]) -> Iterator[GangKey]:
    """Yield a distinct key for each gang; tasks of a trace may share a name."""
    seen: Counter[tuple[str, str]] = Counter()
    for arrival in pending:
        seen[arrival.namespace, arrival.name] += 1
        number = seen[arrival.namespace, arrival.name]
        name = arrival.name if number == 1 else f"{arrival.name}~{number}"
        yield GangKey(arrival.namespace, name, "PodGroup" if len(arrival.members) > 1 else "Pod")


class _Mirror:
    """Keeps for a simulated cluster what the scheduler knows of a real one: nodes, pod specs, used capacity and workload."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        # Sorted by name, as in the scheduler, which takes the first of equal nodes.
        self._order = np.array(sorted(range(len(state.nodes)), key=lambda row: state.nodes[row].name), dtype=np.int64)
        self._positions = np.argsort(self._order)
        self._nodes = tuple(_node(state.nodes[row]) for row in self._order.tolist())
        self._gpus = gpus_of(self._nodes, NO_CARDS)
        self._rows = {node.name: row for row, node in enumerate(state.nodes)}
        self._specs = tuple(_spec(task) for task in state.classes)
        amounts = [[dict(node.allocatable).get(resource, 0) for resource in RESOURCES] for node in self._nodes]
        self._allocatable = np.array(amounts, dtype=np.int64).reshape(len(self._nodes), len(RESOURCES))
        self._allocatable.setflags(write=False)
        self._used = np.zeros_like(self._allocatable)
        self._seen = 0
        self._is_shared = any(task.is_shared for task in state.classes)
        self._workload = WorkloadCounter()
        self._counted = np.zeros(len(state.classes), dtype=np.int64)
        self.running = RunningPods()
        self._shares: FairShare | None = None
        self._started: dict[int, Mapping[int, tuple[int, Assignment]]] = {}  # the pods of each started gang that are in ``running``
        self._planned: list[str] = []  # UIDs in ``running`` of pods that are placed at this moment
        self.mix = self._workload.mix()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of nodes, under the key ``nodes``."""
        return {"nodes": len(self._nodes)}

    def count_workload(self, pending: Sequence[Arrival]) -> None:
        """Count the cluster's workload as the scheduler does: pods that are bound or ``pending``, but no pods that arrive later."""
        members = [member for arrival in pending for member in arrival.members]
        counts = self.state.assigned + np.bincount(np.array(members, dtype=np.int64), minlength=len(self._counted))
        for position in np.flatnonzero(counts != self._counted).tolist():
            change = int(counts[position] - self._counted[position])
            pod = self._pod("", 0, position)
            for _ in range(abs(change)):
                self._workload.replace(None if change > 0 else pod, pod if change > 0 else None)
        self._counted = counts
        self.mix = self._workload.mix()

    def observe_started(self) -> None:
        """Bring ``running`` up to date with the gangs that run in the simulated cluster."""
        started = self.state.started
        for number in list(self._started):
            if number not in started or started[number].taken is not self._started[number]:
                for pod in self._started.pop(number):
                    self._end(f"{number}/{pod}")
        for number in started.keys() - self._started.keys():
            gang = started[number]
            self._started[number] = gang.taken
            for pod, (member, assignment) in gang.taken.items():
                self._run(f"{number}/{pod}", member, assignment, number, gang.at_seconds, gang.walltime_seconds, gang.namespace)

    def running_gangs(self) -> Iterator[Gang]:
        """Yield the gangs that run, each named by its number, and each pod by its number in its gang."""
        for number, gang in self.state.started.items():
            pods = tuple(
                replace(
                    self._pod(str(number), index, member),
                    node_name=self.state.nodes[assignment.node].name,
                    phase="Running",
                    priority=gang.priority,
                    owner=_OWNER,
                    started=gang.at_seconds or _FIRST_SECOND,
                )
                for index, (member, assignment) in gang.taken.items()
            )
            key = GangKey(_NAMESPACE, str(number))
            yield Gang(key, gang.minimum, pods, gang.priority, gang.at_seconds, Objective.BINPACK, _NO_TIMEOUT)

    def plan(self, arrival: Arrival, assignments: Assignments, name: str) -> None:
        """Add a gang to ``running`` that is placed at this moment, for the decisions about other gangs."""
        for index, (member, assignment) in enumerate(zip(arrival.members, assignments, strict=True)):
            if assignment is not None:
                walltime = arrival.walltime_seconds if arrival.run_seconds is not None else inf
                self._run(f"{name}/{index}", member, assignment, name, self.state.now, walltime, arrival.namespace)
                self._planned.append(f"{name}/{index}")

    def forget_planned(self) -> None:
        """Remove the gangs that are placed at this moment from ``running``; the replay starts them."""
        for uid in self._planned:
            self._end(uid)
        self._planned.clear()

    def follow(self, shares: FairShare) -> None:
        """Count the nodes, and from now on the pods that run, in ``shares``."""
        self._shares = shares
        for node in self._nodes:
            shares.observe_node(None, node)

    def _run(
        self, uid: str, member: int, assignment: Assignment, unit: Hashable, at_seconds: float, walltime: float, namespace: str
    ) -> None:
        node, spec, started = self.state.nodes[assignment.node].name, self._specs[member], at_seconds or _FIRST_SECOND
        self.running.put(uid, node, spec, unit=unit, started=started, walltime=walltime)
        if self._shares is not None:
            self._shares.put(uid, namespace, spec.requests, started)

    def _end(self, uid: str) -> None:
        self.running.remove(uid)
        if self._shares is not None:
            self._shares.remove(uid)

    def snapshot(self, priority: int | None = None) -> Snapshot:
        """Return a snapshot of the cluster at present. A device counts as used if a pod uses a part of it."""
        changed = self.state.changes[self._seen :]
        self._seen = len(self.state.changes)
        if changed:
            rows = np.unique(np.array(changed, dtype=np.int64))
            positions = self._positions[rows]
            free = np.stack(
                [
                    self.state.free_cpu[rows],
                    self.state.free_memory[rows],
                    whole_devices(self.state.devices[rows]),
                    self._allocatable[positions, RESOURCES.index("pods")],
                ],
                axis=1,
            )
            self._used[positions] = self._allocatable[positions] - free
        used = self._used.copy()
        used.setflags(write=False)
        devices = self.state.devices[self._order] if self._is_shared else None
        return Snapshot(self._nodes, RESOURCES, self._allocatable, used, devices=devices, mix=self.mix).with_gpus(self._gpus)

    def pods(self, arrival: Arrival, name: str = "") -> tuple[Pod, ...]:
        """Return the members of a gang as pending pods."""
        return tuple(self._pod(name or arrival.name, index, member, arrival) for index, member in enumerate(arrival.members))

    def _pod(self, gang: str, index: int, position: int, arrival: Arrival | None = None) -> Pod:
        return Pod(
            namespace=_NAMESPACE,
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

    def assign(self, arrival: Arrival, nodes: Mapping[str, str], worth: Floats | None, gang: str = "") -> Assignments:
        """Take the capacity of one gang's members and return their assignments.

        ``nodes`` has the node of each pod, by the pod's UID. Members that need whole devices are assigned first, then members with shares
        of a device, the largest share first. ``worth``, the worth of a gap by its size, decides which device a share gets.
        """
        assignments: list[Assignment | None] = [None] * len(arrival.members)
        demands = [self.state.classes[member] for member in arrival.members]
        for index in sorted(range(len(demands)), key=lambda index: -demands[index].gpu_milli):
            name = nodes.get(f"{gang or arrival.name}/{index}")
            if name is None:
                continue
            member, row = arrival.members[index], self._rows[name]
            devices = fullest_devices(self.state, member, row)
            if demands[index].is_shared:
                devices = (int(best_device(self.state.devices[row : row + 1], demands[index].gpu_milli, worth)[0]),)
            assignment = Assignment(row, devices)
            self.state.take(member, assignment)
            assignments[index] = assignment
        return tuple(assignments)


def _node(node: SimNode) -> Node:
    amounts = {"cpu": node.cpu_milli, "memory": node.memory_bytes, GPU: node.gpus, "pods": _PODS}
    labels = {"kubernetes.io/hostname": node.name} | ({PRODUCT: node.model} if node.model else {})
    return Node(name=node.name, uid=node.name, allocatable=as_requests(amounts), labels=labels)


def _spec(task: TaskClass) -> SchedulingSpec:
    amounts = {"cpu": task.cpu_milli, "memory": task.memory_bytes, GPU: 0 if task.is_shared else task.gpus, "pods": 1}
    affinity = (NodeSelectorTerm((Requirement(PRODUCT, "In", task.models),)),) if task.models else None
    return SchedulingSpec(requests=as_requests(amounts), affinity=affinity, gpu_share=task.gpu_milli if task.is_shared else 0)
