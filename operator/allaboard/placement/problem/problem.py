"""A gang and a cluster as integers: the only thing a search sees, and what travels to the worker that runs it.

Built on the scheduler's own process, so it is arithmetic on whole arrays; nodes that no role can use are counted for the
explanation and left behind. Arrays have their nodes last, so that every operation of the search runs along contiguous memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.packing import PACKING, Packing
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.requests import Requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.fragmentation import Fragmentation, fragmentation_of
from allaboard.placement.problem.objectives import WEIGHTS, Scoring, Weights, scoring_of
from allaboard.placement.rules.devices import GPU, WHOLE, seated, seats_on_devices, whole_devices
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.ports import free_ports, port_columns, port_demand
from allaboard.placement.rules.room import seats_for

SHARES = f"{GPU} (thousandths)"
"""The column of what is free of all devices together, where GPUs are shared."""

# Nobody can ask for more than this and be placed; it keeps products of demands and counts inside 64 bits.
_LARGEST_DEMAND = 2**62


class Candidate(Protocol):
    """A pod, as far as its seat goes."""

    @property
    def uid(self) -> str:
        """Who it is."""

    @property
    def spec(self) -> SchedulingSpec:
        """What it asks for."""


@dataclass(frozen=True, slots=True)
class Role:
    """Interchangeable pods, in the order given. ``refusals`` are (reason, nodes) of the nodes that aren't in the problem."""

    pods: tuple[str, ...]
    requests: Requests
    refusals: Counted


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """``roles`` that must all sit within one topology domain. ``domains``: int64[nodes], the domain of each node, -1 without one.

    Nodes of one domain have the same value of ``label``.
    """

    label: str
    roles: tuple[int, ...]
    domains: Integers


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What must be placed, and where it could go.

    ``minimum`` pods in all, ``least``: int64[roles] of each role, and of some ``sums`` of roles so many together must be placed, and those
    of each of ``together`` within one domain; ``outside`` has for each role (reason, nodes) of those outside once one is chosen.
    ``columns`` names what is counted: ``resources`` resources first, then the host ports, of which each node has one.
    ``count``: int64[roles], pods of each. ``demand``: int64[roles, columns], of one pod. ``free``: int64[columns, nodes], never
    negative. ``admits``: bool[roles, nodes], the filters that don't depend on what is free. ``seats``: int64[roles, nodes], pods of
    one role that a node could take alone.
    Where a role asks for a part of a GPU, ``devices``: int64[nodes, devices] are the thousandths that are free, and ``shares``:
    int64[roles] what one pod asks of a device. The columns then allow more than the devices do; ``trimmed`` says what they take.
    ``dislike``: float64[roles, nodes], what a pod costs on a node whoever else is there. ``domains``: int64[nodes], from 0.
    """

    minimum: int
    least: Integers
    objective: Objective
    roles: tuple[Role, ...]
    nodes: tuple[str, ...]
    total_nodes: int
    columns: tuple[str, ...]
    resources: int
    count: Integers
    demand: Integers
    free: Integers
    admits: Mask
    seats: Integers
    devices: Integers | None
    shares: Integers
    weights: Weights
    scoring: Scoring
    dislike: Floats | None
    fragmentation: Fragmentation | None
    domains: Integers | None
    sums: tuple[tuple[tuple[int, ...], int], ...] = ()
    together: tuple[Together, ...] = ()
    outside: tuple[Counted, ...] = ()

    @property
    def total(self) -> int:
        """Pods in all."""
        return int(self.count.sum())

    def lacking(self, placed: Integers) -> Integers:
        """Pods that must be placed still when ``placed``: int64[..., roles] are: int64[...]."""
        of_roles = np.maximum(self.least - placed, 0).sum(axis=-1)
        for roles, least in self.sums:
            of_roles = of_roles + np.maximum(least - placed[..., list(roles)].sum(axis=-1), 0)
        lacking: Integers = np.maximum(of_roles, self.minimum - placed.sum(axis=-1))
        return lacking

    def confined(self, domains: Sequence[int]) -> "Problem":
        """The same with the domain chosen in which each of ``together`` sits."""
        admits = self.admits.copy()
        outside: list[Counted] = [()] * len(self.roles)
        for group, domain in zip(self.together, domains, strict=True):
            elsewhere = (group.domains != domain) & (group.domains >= 0)
            for role in group.roles:
                left_out = ((Reason(Kind.TOPOLOGY), elsewhere), (Reason(Kind.UNLABELLED, group.label), group.domains < 0))
                counted = [(reason, int(np.count_nonzero(self.admits[role] & where))) for reason, where in left_out]
                outside[role] = tuple((reason, nodes) for reason, nodes in counted if nodes)
                admits[role] &= group.domains == domain
        return replace(self, admits=admits, seats=np.where(admits, self.seats, 0), outside=tuple(outside), together=())

    def restricted_to(self, rows: Integers) -> "Problem":
        """The same gang on some of the nodes, given by ascending position."""
        return replace(
            self,
            nodes=tuple(self.nodes[row] for row in rows.tolist()),
            free=self.free.take(rows, axis=1),
            admits=self.admits.take(rows, axis=1),
            seats=self.seats.take(rows, axis=1),
            devices=None if self.devices is None else self.devices[rows],
            scoring=self.scoring.restricted_to(rows),
            dislike=None if self.dislike is None else self.dislike.take(rows, axis=1),
            fragmentation=self.fragmentation.restricted_to(rows) if self.fragmentation else None,
            domains=None if self.domains is None else numbered(self.domains[rows]),
            together=tuple(replace(group, domains=group.domains[rows]) for group in self.together),
        )

    def trimmed(self, counts: Integers) -> Integers:
        """``counts``: int64[plans, roles, nodes] without the pods that no single device takes although all together could."""
        shared = np.flatnonzero(self.shares)
        if self.devices is None or not len(shared):
            return counts
        whole = self.columns.index(GPU) if GPU in self.columns else -1
        plans, rows = np.nonzero(counts[:, shared].any(axis=1))
        while len(plans):
            patterns = counts[plans, :, rows]
            takes = patterns @ self.demand[:, whole] if whole >= 0 else np.zeros(len(plans), dtype=np.int64)
            _, fits = seated(self.devices[rows], takes, patterns[:, shared], self.shares[shared])
            plans, rows, patterns = plans[~fits], rows[~fits], patterns[~fits]
            if len(plans):
                # The largest share of those that are there is the one to leave out.
                counts = counts.copy()
                victims = shared[np.where(patterns[:, shared] > 0, self.shares[shared], 0).argmax(axis=1)]
                counts[plans, victims, rows] -= 1
                left = counts[plans][:, shared][np.arange(len(plans)), :, rows].any(axis=1)
                plans, rows = plans[left], rows[left]
        return counts


def build_problem(
    pods: Sequence[Candidate],
    minimum: int,
    snapshot: Snapshot,
    *,
    objective: Objective,
    packing: Packing = PACKING,
    topology: str = "",
    parts: Sequence[tuple[Collection[str], int]] = (),
    together: Sequence[tuple[str, Collection[str]]] = (),
    filters: NodeFilters | None = None,
) -> Problem:
    """The placement of ``pods`` on the nodes of ``snapshot``, at least ``minimum`` of them.

    ``packing`` says how full a node is to be taken for. ``topology`` is the label whose values are the domains of which a placement
    should use few. Of each of ``parts``, pods by uid, so many must be placed; those of each of ``together`` on nodes that have the same
    value of a label. ``filters`` remembers what each spec may use between calls with the same nodes.
    """
    filters = filters or NodeFilters()
    members = roles_of(pods, parts, together)
    specs = tuple(spec for spec, _ in members)
    names = tuple(sorted({resource for spec in specs for resource, amount in spec.requests if amount > 0}))
    free = _free(snapshot, names)
    largest = free.max(axis=1, initial=0).tolist()
    amounts = [[dict(spec.requests).get(name, 0) for name in names] for spec in specs]
    demand = np.array([[min(amount, most + 1) for amount, most in zip(row, largest, strict=True)] for row in amounts], dtype=np.int64)
    demand = demand.reshape(len(specs), len(names))
    shares = np.array([spec.gpu_share for spec in specs], dtype=np.int64)
    is_shared = snapshot.devices is not None and bool(shares.any())
    if is_shared and snapshot.devices is not None:
        names = (*names, SHARES)
        free = np.concatenate([free, snapshot.devices.sum(axis=1)[None]])
        own = np.array([spec.amount(GPU) * WHOLE for spec in specs]) + shares
        demand = np.concatenate([demand, own[:, None]], axis=1)
    ports = port_columns(specs)
    if ports:
        free = np.concatenate([free, free_ports(ports, snapshot)])
        demand = np.concatenate([demand, port_demand(ports, specs)], axis=1)
    usable = [filters.usable(spec, snapshot.nodes) for spec in specs]
    admits = np.array([each.admitted for each in usable], dtype=np.bool_).reshape(len(specs), len(snapshot.nodes))
    seats = np.stack([seats_for(row, free, admits[role]) for role, row in enumerate(demand)]) if specs else admits.astype(np.int64)
    if is_shared and snapshot.devices is not None:
        for role in np.flatnonzero(shares).tolist():
            seats[role] = np.minimum(seats[role], seats_on_devices(snapshot.devices, int(shares[role])))
    is_kept = seats.any(axis=0)
    rows = np.flatnonzero(is_kept)
    weights = WEIGHTS[objective]
    columns = (*names, *(f"port {column.protocol}/{column.port}" for column in ports))
    needs = [(tuple(role for role, (_, uids) in enumerate(members) if uids[0] in part), least) for part, least in parts]
    least, sums = minimums_of(needs, len(specs))
    return Problem(
        minimum=max(0, minimum),
        least=least,
        objective=objective,
        roles=tuple(
            Role(
                pods=tuple(members[role][1]),
                requests=spec.requests,
                refusals=_merged(each.reasons, capacity_refusals(columns, len(names), demand[role], free, each.admitted & ~is_kept)),
            )
            for role, (spec, each) in enumerate(zip(specs, usable, strict=True))
        ),
        nodes=tuple(snapshot.nodes[row].name for row in rows.tolist()),
        total_nodes=len(snapshot.nodes),
        columns=columns,
        resources=len(names),
        count=np.array([len(uids) for _, uids in members], dtype=np.int64),
        demand=demand,
        free=free.take(rows, axis=1),
        admits=admits.take(rows, axis=1),
        seats=seats.take(rows, axis=1),
        devices=snapshot.devices[rows] if is_shared and snapshot.devices is not None else None,
        shares=shares,
        weights=weights,
        scoring=scoring_of(specs, snapshot, rows, packing),
        dislike=_dislike(specs, snapshot, rows, weights, filters),
        fragmentation=fragmentation_of(specs, snapshot, rows, filters) if weights.fragmentation or weights.worth else None,
        domains=numbered(filters.domains(topology, snapshot.nodes)[rows]) if topology else None,
        sums=sums,
        together=tuple(
            Together(label, of_group, filters.domains(label, snapshot.nodes, alone=-1)[rows])
            for label, group in together
            if (of_group := tuple(role for role, (_, uids) in enumerate(members) if uids[0] in group))
        ),
    )


def roles_of(
    pods: Sequence[Candidate], parts: Sequence[tuple[Collection[str], int]], together: Sequence[tuple[str, Collection[str]]]
) -> list[tuple[SchedulingSpec, list[str]]]:
    """The pods that are interchangeable, by uid, and what they ask for."""
    return _by_spec_and_party(pods, parts, together) if parts or together else _by_spec(pods)


def party_of(
    pod: Candidate, parts: Sequence[tuple[Collection[str], int]], together: Sequence[tuple[str, Collection[str]]]
) -> tuple[bool, ...]:
    """To which of ``parts`` and then of ``together`` a pod belongs: only pods alike in this are interchangeable."""
    return (*(pod.uid in part for part, _ in parts), *(pod.uid in group for _, group in together))


def minimums_of(needs: Sequence[tuple[tuple[int, ...], int]], roles: int) -> tuple[Integers, tuple[tuple[tuple[int, ...], int], ...]]:
    """``needs`` are roles and how many of their pods must be placed: those of one role, int64[roles], and those of several together."""
    least = np.zeros(roles, dtype=np.int64)
    for of_part, number in needs:
        if len(of_part) == 1:
            least[of_part[0]] = number
    return least, tuple(need for need in needs if len(need[0]) != 1)


def numbered(codes: Integers) -> Integers:
    """``codes`` as numbers from 0."""
    return np.unique(codes, return_inverse=True)[1].ravel().astype(np.int64)


def capacity_refusals(columns: tuple[str, ...], resources: int, demand: Integers, free: Integers, where: Mask) -> Counted:
    """Reasons why nodes ``where``: bool[nodes] can't take one more pod of ``demand``: taken ports, else each resource that lacks."""
    lacks = demand[:, None] > free
    ports = lacks[resources:].any(axis=0) & where
    others = where & ~ports
    found = [(Reason(Kind.INSUFFICIENT, columns[column]), int(np.count_nonzero(lacks[column] & others))) for column in range(resources)]
    return tuple((reason, nodes) for reason, nodes in [(Reason(Kind.PORTS), int(np.count_nonzero(ports))), *found] if nodes)


def _by_spec(pods: Sequence[Candidate]) -> list[tuple[SchedulingSpec, list[str]]]:
    """Uids by spec. Equal specs are mostly one object, and hashing a spec is slow beside looking at who it is."""
    members: dict[SchedulingSpec, list[str]] = {}
    seen: dict[int, list[str]] = {}
    for pod in pods:
        uids = seen.get(id(pod.spec))
        if uids is None:
            uids = seen[id(pod.spec)] = members.setdefault(pod.spec, [])
        uids.append(pod.uid)
    return list(members.items())


def _by_spec_and_party(
    pods: Sequence[Candidate], parts: Sequence[tuple[Collection[str], int]], together: Sequence[tuple[str, Collection[str]]]
) -> list[tuple[SchedulingSpec, list[str]]]:
    """Uids by spec and by what the pod counts for."""
    members: dict[tuple[SchedulingSpec, tuple[bool, ...]], list[str]] = {}
    for pod in pods:
        members.setdefault((pod.spec, party_of(pod, parts, together)), []).append(pod.uid)
    return [(spec, uids) for (spec, _), uids in members.items()]


def _merged(*reasons: Counted) -> Counted:
    return tuple(sorted(pair for part in reasons for pair in part))


def _free(snapshot: Snapshot, names: tuple[str, ...]) -> Integers:
    """int64[resources, nodes]; a resource no node has is free nowhere, and an over-committed node has nothing free."""
    free = np.zeros((len(names), len(snapshot.nodes)), dtype=np.int64)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    for row, name in enumerate(names):
        column = position.get(name)
        if name == GPU and snapshot.devices is not None:
            free[row] = whole_devices(snapshot.devices)
        elif column is not None:
            np.subtract(snapshot.allocatable[:, column], snapshot.used[:, column], out=free[row])
    return np.minimum(np.maximum(free, 0, out=free), _LARGEST_DEMAND - 1, out=free)


def _dislike(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, weights: Weights, filters: NodeFilters) -> Floats | None:
    """float64[roles, nodes], or ``None`` when nobody has a preference."""
    costs = np.zeros((len(specs), len(rows)))
    for role, spec in enumerate(specs):
        dislikes = filters.preference(spec, snapshot.nodes)
        costs[role] = (weights.affinity * dislikes.affinity + weights.taints * dislikes.taints + weights.images * dislikes.images)[rows]
    return costs if costs.any() else None
