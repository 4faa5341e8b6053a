"""Collects what the operator shows from the parts that know it. Long lists are collected in slices, while other tasks run in between."""

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from allaboard import __version__
from allaboard.cluster.reservations import Ledger, Reservation
from allaboard.cluster.view import ClusterView
from allaboard.gangs.membership import membership_of
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gang import Gang as GangState
from allaboard.model.gang import GangKey
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.model.times import parse_time
from allaboard.model.topologies import LEVELS, Levels
from allaboard.planning.resolve import resolve
from allaboard.records.history import Transition
from allaboard.records.record import GangRecord, GangRecords
from allaboard.records.report_state import GangStatus
from allaboard.report.expected import expected_start
from allaboard.runtime.slices import Slices
from allaboard.sight.amounts import amounts_of, gpus_of
from allaboard.sight.grouping import Grouping, domains_of
from allaboard.sight.keys import Keys
from allaboard.sight.misses import Misses
from allaboard.sight.occupancy import Occupancy
from allaboard.sight.outlook import nearest_outlook, reserved_outlook
from allaboard.sight.stranded import Stranded
from allaboard.sight.values import (
    Decision,
    Decisions,
    Domains,
    Gang,
    GangRow,
    Gangs,
    MemberRow,
    Members,
    NodeGroup,
    NodeRow,
    Nodes,
    Outlook,
    PlanRow,
    Queue,
    ReservationRow,
    RoleRow,
    Sample,
    Share,
    Snapshot,
    Status,
    Timeline,
)

_SAMPLE_SECONDS = 15.0
_MOST_SAMPLES = 240  # those of an hour
_SORTED_AT_ONCE = 1000  # positions that are sorted before other tasks may run

Allows = Callable[[str], bool]
"""Returns whether the caller may read the gangs of a namespace."""


def anywhere(namespace: str) -> bool:
    """Allow all namespaces."""
    return True


class Replica(NamedTuple):
    """The state of the replica whose state is shown. ``cache_age``: seconds by which its cache may be out of date."""

    leads: bool = True
    is_ready: bool = True
    cache_age: float = 0.0


@dataclass(slots=True)
class Board:
    """The present state of the scheduler. ``now`` returns seconds since the epoch, and ``replica`` the state of the replica."""

    registry: GangRegistry
    records: GangRecords
    ledger: Ledger
    view: ClusterView
    levels: Levels = field(default_factory=lambda: LEVELS)
    now: Callable[[], float] = time.time
    replica: Callable[[], Replica] = Replica
    _keys: Keys = field(init=False)
    _occupancy: Occupancy = field(init=False)
    _stranded: Stranded = field(init=False)
    _grouping: Grouping = field(init=False, default_factory=Grouping)
    _misses: Misses = field(init=False, default_factory=Misses)
    _samples: deque[Sample] = field(init=False, default_factory=lambda: deque(maxlen=_MOST_SAMPLES))
    _rows: dict[str, tuple[object, NodeRow]] = field(init=False, default_factory=dict)
    """The row of each node, with the state of the node that it shows."""

    def __post_init__(self) -> None:
        self._keys, self._occupancy, self._stranded = Keys(self.registry), Occupancy(self.view), Stranded(self.view)

    def status(self) -> Status:
        """Return the state of the replica that shows this board."""
        replica = self.replica()
        return Status(at=self.now(), version=__version__, leads=replica.leads, is_ready=replica.is_ready, cache_age=replica.cache_age)

    async def queue(self, allows: Allows = anywhere) -> Queue:
        """Return the gangs that wait, in the order in which they are attempted."""
        waiting = await self._waiting()
        shown = [key for key in waiting if allows(key.namespace)]
        return Queue(at=self.now(), gangs=await self._rows_of(shown, waiting, allows), hidden=len(waiting) - len(shown))

    async def gangs(self, allows: Allows = anywhere) -> Gangs:
        """Return all gangs, in the order of namespace and name."""
        keys = self._keys.in_order()
        shown = [key for key in keys if allows(key.namespace)]
        return Gangs(at=self.now(), gangs=await self._rows_of(shown, await self._waiting(), allows), hidden=len(keys) - len(shown))

    async def gang(self, namespace: str, name: str, allows: Allows = anywhere) -> Gang | None:
        """Return all that is known of a gang; None if there is no such gang.

        ``name`` is that of a PodGroup, else of a pod, else of an object that owns pods, such as a Job. Gangs of other namespaces that the
        gang waits for are named if the caller may read them.
        """
        positions = await self._waiting()
        gang = await self._named(namespace, name)
        if gang is None:
            return None
        others = {} if gang.members else await self._pods_of_others(namespace)
        return await self._described(gang, positions.get(gang.key), allows, others)

    async def _named(self, namespace: str, name: str) -> GangState | None:
        """Return the gang of a PodGroup, else of a pod, else of the pods that an object of this name owns."""
        for kind in ("PodGroup", "Pod"):
            if (gang := self.registry.gang(GangKey(namespace, name, kind))) is not None:
                return gang
        named = self.view.pod(f"{namespace}/{name}")
        key = self.registry.key_of(named) if named is not None else None
        if key is None:
            async for pod in self._pods(namespace):
                if pod.owner is not None and pod.owner.name == name and (key := self.registry.key_of(pod)) is not None:
                    break
        return self.registry.gang(key) if key is not None else None

    async def _pods(self, namespace: str = "") -> AsyncIterator[Pod]:
        """Yield the pods of a namespace, or of all namespaces; other tasks run in between."""
        slices = Slices()
        for pod in list(self.view.pods()):
            await slices.give_way()
            if not namespace or pod.namespace == namespace:
                yield pod

    async def snapshot(self, allows: Allows = anywhere) -> Snapshot:
        """Return all gangs, nodes and decisions."""
        positions, keys = await self._waiting(), self._keys.in_order()
        slices, gangs, hidden, others = Slices(), list[Gang](), 0, await self._pods_of_others()
        for key in keys:
            await slices.give_way()
            if not allows(key.namespace):
                hidden += 1
            elif (gang := self.registry.gang(key)) is not None:
                gangs.append(await self._described(gang, positions.get(key), allows, others))
        nodes, decisions, known = await self.nodes(allows), await self.decisions(allows), self.view.snapshot().nodes
        labels = {}
        for label in await self._grouping.labels(known):
            await slices.give_way()
            labels[label] = domains_of(known, label)
        return Snapshot.model_construct(  # All is valid already. To check the labels of 5,000 nodes takes 25 ms.
            at=self.now(),
            status=self.status(),
            gangs=gangs,
            hidden=hidden,
            grouped_by=nodes.grouped_by,
            nodes=nodes.nodes,
            decisions=decisions.decisions,
            samples=list(self._samples),
            labels=labels,
        )

    async def _described(self, gang: GangState, position: int | None, allows: Allows, others: Mapping[GangKey, Mapping[str, int]]) -> Gang:
        """Return all that is known of a gang. ``others`` are the pods that name gangs but another scheduler."""
        key = gang.key
        record, reservation = self.records.find(key), self.ledger.find(key)
        row = self._row(gang, position, allows)
        await asyncio.sleep(0)
        outlook, groups = await self._prospects(gang, row, allows) if row.position is not None else (None, [])
        return Gang(
            at=self.now(),
            row=row,
            roles=list(_roles(gang)),
            members=await _members(gang),
            reservation=None if reservation is None else _reservation(reservation),
            plan=_plan(record),
            advice=record.advice.text if record else "",
            outlook=outlook,
            node_groups=groups,
            history=[_decision(key, each) for each in record.history.transitions] if record else [],
            pods_of_others={} if gang.members else others.get(key, {}),
        )

    async def _pods_of_others(self, namespace: str = "") -> Mapping[GangKey, Mapping[str, int]]:
        """Return how many pods name each gang but another scheduler, by that scheduler's name; in one namespace or in all."""
        found: dict[GangKey, Counter[str]] = {}
        async for pod in self._pods(namespace):
            if not self.registry.is_ours(pod) and (key := membership_of(pod).key).kind == "PodGroup":
                found.setdefault(key, Counter())[pod.scheduler_name] += 1
        return found

    @property
    def version(self) -> int:
        """A number that grows whenever gangs, pods or nodes change, or a decision is made."""
        return self._occupancy.changes + self.records.decisions.number

    def namespaces(self) -> Sequence[str]:
        """Return the namespaces in which there are gangs, in order."""
        return self._keys.namespaces()

    async def nodes(self, allows: Allows = anywhere) -> Nodes:
        """Return all nodes, in the order of their names, grouped by the label of racks.

        What gangs of other namespaces use is shown without their names.
        """
        label, slices = self.view.label_of(self.levels.get("rack", ())), Slices()
        snapshot = self.view.snapshot()
        resources, found = snapshot.resources, list[NodeRow]()
        gpus, gpus_free, stranded = self._stranded.of_nodes(snapshot)
        for row, node in enumerate(snapshot.nodes):
            await slices.give_way()
            of_gpus = round(float(gpus[row]), 3), round(float(gpus_free[row]), 3), round(float(stranded[row]), 2)
            state = (node, label, self.view.version_of(node.name), of_gpus)
            known = self._rows.get(node.name)
            if known is None or known[0] != state:
                of_node = dict(node.allocatable)
                free = zip(resources, snapshot.free[row].tolist(), strict=True)
                offered = zip(resources, snapshot.allocatable[row].tolist(), strict=True)
                made = NodeRow(
                    name=node.name,
                    domain=node.labels.get(label, ""),
                    is_ready=node.is_ready,
                    is_cordoned=node.is_unschedulable,
                    allocatable=amounts_of(each for each in offered if each[1]),
                    free=amounts_of(each for each in free if each[0] in of_node),
                    gpus=of_gpus[0],
                    gpus_free=of_gpus[1],
                    gpus_stranded=of_gpus[2],
                    shares=list(self._shares(node.name)),
                )
                known = self._rows[node.name] = (state, made)
            found.append(_without_names(known[1], allows))
        if len(self._rows) > len(snapshot.nodes):
            names = {node.name for node in snapshot.nodes}
            self._rows = {name: row for name, row in self._rows.items() if name in names}
        return Nodes(at=self.now(), grouped_by=label, nodes=found)

    async def domains(self, label: str = "") -> Domains:
        """Return the groups of nodes by a label; without one, by the label of racks."""
        nodes = self.view.snapshot().nodes
        label = label or self.view.label_of(self.levels.get("rack", ()))
        return Domains(at=self.now(), label=label, domains=domains_of(nodes, label), labels=await self._grouping.labels(nodes))

    async def decisions(self, allows: Allows = anywhere) -> Decisions:
        """Return the last decisions about all gangs, the oldest first."""
        last = self.records.decisions.last()
        shown = [_decision(key, each) for key, each in last if allows(key.namespace)]
        return Decisions(at=self.now(), decisions=shown, hidden=len(last) - len(shown))

    def timeline(self) -> Timeline:
        """Return the use of the cluster in the last hour."""
        return Timeline(at=self.now(), samples=list(self._samples))

    async def keep_timeline(self) -> None:
        """Take a sample of the use of the cluster every 15 seconds, until cancelled."""
        while True:
            await self.take_sample()
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def take_sample(self) -> None:
        """Add the present use of the cluster to the timeline."""
        waiting = len(await self._waiting())
        gpus, free, stranded = (float(each.sum()) for each in self._stranded.of_nodes())
        self._samples.append(
            Sample(at=self.now(), gpus=gpus, gpus_used=round(gpus - free, 3), gpus_stranded=round(stranded, 2), waiting=waiting)
        )

    async def _waiting(self) -> dict[GangKey, int]:
        """Return the gangs that wait with their positions, in the order of these.

        A gang whose members were just bound doesn't wait, although the watch may not have shown all binds yet.
        """
        slices, found = Slices(), []
        for key in self._keys.in_order():
            await slices.give_way()
            gang = self.registry.gang(key)
            if gang is not None and gang.alive and not gang.is_whole and self._code(key) is not Code.SCHEDULED:
                found.append(self.ledger.place(key))
        positions = {}
        runs = [sorted(found[start : start + _SORTED_AT_ONCE]) for start in range(0, len(found), _SORTED_AT_ONCE)]
        for position, order in enumerate(heapq.merge(*runs), 1):
            await slices.give_way()
            positions[order.key] = position
        return positions

    async def _rows_of(self, keys: Collection[GangKey], positions: dict[GangKey, int], allows: Allows) -> Sequence[GangRow]:
        slices, found = Slices(), []
        for key in keys:
            await slices.give_way()
            if (gang := self.registry.gang(key)) is not None:
                found.append(self._row(gang, positions.get(key), allows))
        return found

    def _code(self, key: GangKey) -> Code | None:
        state = self.records.find_report_state(key)
        return state.opinion.code if state and state.opinion else None

    def _row(self, gang: GangState, position: int | None, allows: Allows) -> GangRow:
        record, reservation = self.records.find(gang.key), self.ledger.find(gang.key)
        opinion = record.report.opinion if record else None
        wait = record.wait if record else None
        is_waiting = position is not None
        return GangRow(
            namespace=gang.key.namespace,
            name=gang.key.name,
            kind=gang.key.kind,
            state=opinion.code if opinion else "",
            message=opinion.message if opinion else "",
            position=position,
            priority=gang.priority,
            members=Members(
                needed=gang.quorum,
                bound=len(gang.bound),
                running=sum(pod.phase == "Running" for pod in gang.alive),
                present=len(gang.alive),
            ),
            gpus=sum(gpus_of(pod.spec) for pod in gang.alive),
            created=gang.created,
            waiting_since=(wait.started if wait else gang.created) if is_waiting else None,
            expected_start=_expected(opinion, reservation) if is_waiting else None,
            waits_for=self._waits_for(gang, opinion, reservation, allows) if is_waiting else "",
        )

    def _waits_for(self, gang: GangState, opinion: GangStatus | None, reservation: Reservation | None, allows: Allows) -> str:
        """Return the gang that must end before ``gang`` starts, or the one for which capacity is kept from it; empty if there is none."""
        if opinion is not None and opinion.code is Code.RESERVED:
            owner = next((each.owner for each in self.ledger.binding(self.ledger.applicant(gang))), None)
            if owner is not None:
                return str(owner) if allows(owner.namespace) else ""
        if reservation is None:
            return ""
        users = (self._user_of(each.uid, each.node, allows) for each in reversed(reservation.last_awaited))
        return next((user for user in users if user is not None), "")

    def _user_of(self, uid: str, node_name: str, allows: Allows) -> str | None:
        """Return the gang of a pod on a node, as namespace/name; empty if the caller may not read it, None if the pod is gone."""
        pod = next((pod for pod in self._occupancy.on(node_name) if pod.uid == uid), None)
        if pod is None:
            return None
        return self._user(pod) if allows(pod.namespace) else ""

    def _users_on(self, node_name: str) -> set[str]:
        """Return the gangs with pods on a node, as namespace/name."""
        return {self._user(pod) for pod in self._occupancy.on(node_name)}

    async def _prospects(self, gang: GangState, row: GangRow, allows: Allows) -> tuple[Outlook | None, Sequence[NodeGroup]]:
        """Return where a waiting gang would run, and what each group of nodes lacks for its members."""
        gang = resolve(gang, self.view.volumes, self.view, self.levels)
        present = self.view.snapshot(gang.priority)
        seen = self.ledger.left_to(self.ledger.applicant(gang), present)
        await asyncio.sleep(0)  # that takes 20 ms for 100,000 pods
        record, reservation = self.records.find(gang.key), self.ledger.find(gang.key)
        outlook = None
        if reservation is not None:
            users = partial(self._user_of, allows=allows)
            outlook = reserved_outlook(reservation, seen, users, self._users_on, row.expected_start)
        elif record is not None and record.advice.nearest is not None:
            outlook = nearest_outlook(gang, record.advice.nearest)
        return outlook, list(self._misses.of(gang, seen, present)) if gang.candidates else []

    def _shares(self, node_name: str) -> Iterator[Share]:
        amounts: dict[str, Counter[str]] = {}
        gpus: dict[str, float] = {}
        for pod in self._occupancy.on(node_name):
            name = self._user(pod)
            amounts.setdefault(name, Counter()).update(dict(pod.spec.requests))
            gpus[name] = gpus.get(name, 0.0) + gpus_of(pod.spec)
        for name, requests in sorted(amounts.items()):
            yield Share(gang=name, pods=requests["pods"], gpus=gpus[name], requests=amounts_of(requests.items()))

    def _user(self, pod: Pod) -> str:
        key = self.registry.key_of(pod)
        return str(key) if key else pod.namespace


def _expected(opinion: GangStatus | None, reservation: Reservation | None) -> float | None:
    """Return when a gang is expected to start, by its reservation, or else by its last report; None if that isn't known."""
    if reservation is not None:
        return expected_start(reservation) or None
    return parse_time(opinion.expected_start) if opinion and opinion.expected_start else None


def _without_names(row: NodeRow, allows: Allows) -> NodeRow:
    """Return ``row`` without the names of gangs in namespaces that the caller may not read: ``row`` itself, if that is none."""
    hidden = {each.gang for each in row.shares if not allows(each.gang.partition("/")[0])}
    if not hidden:
        return row
    shares = [each.model_copy(update={"gang": ""}) if each.gang in hidden else each for each in row.shares]
    return row.model_copy(update={"shares": shares})


async def _members(gang: GangState) -> Sequence[MemberRow]:
    slices, found = Slices(), list[MemberRow]()
    for pod in gang.members:
        await slices.give_way()
        found.append(MemberRow(pod=pod.name, role=pod.role, node=pod.node_name, phase=pod.phase, gpus=gpus_of(pod.spec)))
    return found


def _roles(gang: GangState) -> Iterator[RoleRow]:
    roles: dict[tuple[str, tuple[tuple[str, int], ...]], list[Pod]] = {}
    for pod in gang.alive:
        roles.setdefault((pod.role, pod.spec.requests), []).append(pod)
    for (role, requests), pods in roles.items():
        bound = sum(1 for pod in pods if pod.node_name)
        yield RoleRow(role=role, pods=[pod.name for pod in pods], bound=bound, requests=amounts_of(requests))


def _reservation(reservation: Reservation) -> ReservationRow:
    return ReservationRow(
        namespace=reservation.owner.namespace,
        name=reservation.owner.name,
        begins=reservation.begins,
        ends=None if reservation.ends == float("inf") else reservation.ends,
        basis=reservation.basis,
        awaits=reservation.awaited,
        evicts=len(reservation.victims),
        nodes={node: amounts_of(amounts.items()) for node, amounts in reservation.amounts.items()},
    )


def _plan(record: GangRecord | None) -> PlanRow | None:
    plan = record.history.plan if record else None
    if plan is None:
        return None
    return PlanRow(
        at=plan.at,
        feasible=plan.feasible,
        placed=plan.placed,
        unplaced=plan.unplaced,
        generations=plan.generations,
        stopped_by=plan.stopped_by,
        found_by=plan.found_by,
    )


def _decision(key: GangKey, each: Transition) -> Decision:
    return Decision(
        namespace=key.namespace,
        name=key.name,
        first_at=each.first_at,
        last_at=each.last_at,
        times=each.times,
        decision=each.decision,
        reason=each.reason,
        message=each.message,
    )
