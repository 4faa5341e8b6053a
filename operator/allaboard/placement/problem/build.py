"""Build the problem of placing a gang on a cluster.

The scheduler's own process builds all but the largest problems, so everything here is arithmetic on whole arrays. Nodes that no role can
use are counted for the explanation and left out of the problem.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Objective
from allaboard.model.gpu_sharing import SHARES
from allaboard.model.gpus import is_gpu
from allaboard.model.node import Node
from allaboard.model.packing import BEST_FIT, PACKING, Packing
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.fragmentation import fragmentation_of
from allaboard.placement.problem.objectives import Weights, scoring_of, weights_of
from allaboard.placement.problem.problem import LATE_FILTERS, Candidate, Problem, Role, capacity_refusals, numbered
from allaboard.placement.problem.rule_arrays import NodePlaces, RuleArrays, exclude_nodes, roles_of, rule_arrays_of, with_rules
from allaboard.placement.rules.attachments import attachment_columns
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.claims import claim_columns
from allaboard.placement.rules.devices import GPU, WHOLE, counts_devices, parts_on, slots_on_devices, whole_devices
from allaboard.placement.rules.filters import NodeFilters, Usable
from allaboard.placement.rules.members import NO_RULES, Rules
from allaboard.placement.rules.ports import free_ports, port_columns, port_demand

# No pod that requests more than this can be placed. The limit keeps products of demands and counts within 64 bits.
_LARGEST_DEMAND = 2**62

_GPU_SLOTS = f"{GPU} (slots)"
"""Name of the capacity that ``_gpu_slots`` returns, among ``Problem.columns``."""


def build_problem(
    pods: Sequence[Candidate],
    minimum: int,
    snapshot: Snapshot,
    *,
    objective: Objective,
    packing: Packing | FitScoring = PACKING,
    topology: str = "",
    ordered_by: Sequence[str] = (),
    rules: Rules = NO_RULES,
    filters: NodeFilters | None = None,
) -> Problem:
    """Return the problem of placing ``pods``, at least ``minimum`` of them, on the nodes of ``snapshot``.

    ``packing`` scores how full a node is, or is the kube-scheduler profile that scores nodes. With the default packing, the objective
    ``fragmentation`` packs by best fit. ``topology`` is the label whose values are topology domains, of which a placement should use few.
    Nodes are ordered by the labels ``ordered_by``. Pods of a role get nodes in this order, so pods that follow each other are neighbours.
    ``filters`` caches which nodes each spec may use; the cache is valid between calls with the same nodes.
    """
    filters = filters or NodeFilters()
    members = roles_of(pods, rules)
    specs = tuple(spec for spec, _ in members)
    names = tuple(sorted({resource for spec in specs for resource, amount in spec.requests if amount > 0}))
    free = _free(snapshot, names)
    largest = free.max(axis=1, initial=0).tolist()
    amounts_of = [dict(spec.requests) | {GPU: spec.whole_gpus} for spec in specs]
    amounts = [[of_spec.get(name, 0) for name in names] for of_spec in amounts_of]
    demand = np.array([[min(amount, most + 1) for amount, most in zip(row, largest, strict=True)] for row in amounts], dtype=np.int64)
    demand = demand.reshape(len(specs), len(names))
    shares, devices = np.zeros((len(specs), 0), dtype=np.int64), None
    if snapshot.devices is not None and any(spec.gpu_share for spec in specs):
        shares, devices = np.stack([parts_on(spec, snapshot) for spec in specs]), np.maximum(snapshot.devices, 0)
        # A part of a GPU may be larger on some nodes. The column counts its smallest size; ``devices`` limit it exactly.
        thousandths = np.array([spec.whole_gpus * WHOLE for spec in specs]) + shares.min(axis=1, initial=WHOLE + 1)
        free_thousandths, gpu_slots = devices.sum(axis=1), _gpu_slots(snapshot)
        names = (*names, SHARES, *(() if gpu_slots is None else (_GPU_SLOTS,)))
        free = np.concatenate([free, free_thousandths[None], *(() if gpu_slots is None else (gpu_slots[None],))])
        requested = np.array([spec.amount(GPU) for spec in specs])
        demand = np.concatenate([demand, thousandths[:, None], *(() if gpu_slots is None else (requested[:, None],))], axis=1)
    ports = port_columns(specs)
    if ports:
        free = np.concatenate([free, free_ports(ports, snapshot)])
        demand = np.concatenate([demand, port_demand(ports, specs)], axis=1)
    attachments = attachment_columns(specs, len(pods), snapshot)
    claims = claim_columns(specs, len(pods), snapshot.nodes, filters)
    free = np.concatenate([free, attachments.free, claims.free])
    demand = np.concatenate([demand, attachments.demand, claims.demand], axis=1)
    usable = [filters.usable(spec, snapshot.nodes, snapshot.gpus) for spec in specs]
    admits = np.array([each.admitted for each in usable], dtype=np.bool_).reshape(len(specs), len(snapshot.nodes))
    rule_arrays = rule_arrays_of(rules, [uids[0] for _, uids in members], NodePlaces(filters, snapshot.nodes))
    excluded = exclude_nodes(rule_arrays, admits)
    slots = np.stack([slots_for(row, free, admits[role]) for role, row in enumerate(demand)]) if specs else admits.astype(np.int64)
    device_slots: dict[int, Integers] = {}
    if devices is not None:
        device_slots = {role: slots_on_devices(devices, shares[role]) for role in np.flatnonzero(shares.any(axis=1)).tolist()}
        for role, on_devices in device_slots.items():
            slots[role] = np.minimum(slots[role], on_devices)
    is_kept = slots.any(axis=0)
    rows = np.flatnonzero(is_kept)
    weights = weights_of(objective, packing)
    columns = (
        *names,
        *(f"port {column.protocol}/{column.port}" for column in ports),
        *(f"volumes of {driver}" for driver in attachments.names),
        *(f"free volumes of kind {number}" for number in range(len(claims.free))),
    )
    reasons = (
        *(Reason(Kind.INSUFFICIENT, GPU if name == _GPU_SLOTS else name) for name in names),
        *(Reason(Kind.PORTS) for _ in ports),
        *(Reason(Kind.ATTACHMENTS) for _ in attachments.names),
        *(Reason(Kind.NO_VOLUME) for _ in claims.free),
    )
    coupled = list(_coupled(rule_arrays, np.zeros_like(slots))) if len(pods) == 1 else None
    refusals = [
        _merged(
            each.reasons,
            _refused(reasons, demand[role], free, admits[role] & ~is_kept, each.late, excluded[role], coupled, device_slots.get(role)),
            _too_few_gpus(reasons, demand[role], free, each),
        )
        for role, each in enumerate(usable)
    ]
    problem = Problem(
        minimum=max(0, minimum),
        least=np.zeros(len(specs), dtype=np.int64),
        objective=objective,
        roles=tuple(
            Role(
                pods=tuple(members[role][1]),
                requests=spec.requests,
                refusals=refusals[role],
            )
            for role, spec in enumerate(specs)
        ),
        nodes=tuple(snapshot.nodes[row].name for row in rows.tolist()),
        total_nodes=len(snapshot.nodes),
        columns=columns,
        reasons=reasons,
        resources=len(names),
        count=np.array([len(uids) for _, uids in members], dtype=np.int64),
        demand=demand,
        free=free.take(rows, axis=1),
        taken=_taken(snapshot, columns, rows),
        admits=admits.take(rows, axis=1),
        slots=slots.take(rows, axis=1),
        devices=None if devices is None else devices[rows],
        shares=shares if devices is None else shares.take(rows, axis=1),
        weights=weights,
        scoring=scoring_of(specs, snapshot, rows, BEST_FIT if packing == PACKING and objective is Objective.FRAGMENTATION else packing),
        dislike=_dislike(specs, snapshot, rows, weights, filters),
        fragmentation=fragmentation_of(specs, snapshot, rows, filters) if weights.fragmentation or weights.worth else None,
        domains=numbered(filters.domains(topology, snapshot.nodes)[rows]) if topology else None,
        order=node_order(ordered_by, snapshot.nodes, filters)[rows] if ordered_by else None,
    )
    return with_rules(problem, rule_arrays.restricted_to(rows))


def _refused(
    reasons: Sequence[Reason],
    demand: Integers,
    free: Integers,
    where: Mask,
    late: Sequence[tuple[Reason, Mask]],
    excluded: Sequence[tuple[Reason, Mask]],
    coupled: Sequence[tuple[Reason, Mask]] | None,
    on_devices: Integers | None,
) -> Counted:
    """Return why nodes refuse a pod that no early filter refuses, each reason with the number of these nodes.

    ``where``: bool[nodes], the nodes with too little capacity. Each reason comes with the nodes that it refuses. ``late`` are
    filters that kube-scheduler asks after it has compared resources. ``excluded`` are rules between members that exclude nodes wherever
    other members are. ``coupled`` are all rules between members, if the pod is the only one. Nodes that only ``coupled`` rules refuse
    aren't counted, since they stay in the problem. ``on_devices``: int64[nodes], how many more pods the devices take, for a role that asks
    for a part of a GPU.
    """
    where = where.copy()
    for _, refused in (*late, *excluded):
        where |= refused
    found: Counter[Reason] = Counter()
    # A missing label of our own rule counts first, since no pod that ends can add the label.
    for reason, refused in excluded:
        if reason.kind is Kind.UNLABELLED:
            found[reason] += int(np.count_nonzero(where & refused))
            where &= ~refused
    is_early = np.array([reason.kind in (Kind.INSUFFICIENT, Kind.PORTS) for reason in reasons], dtype=np.bool_)
    early = np.where(is_early, demand, 0)
    found.update(dict(capacity_refusals(reasons, early, free, where, on_devices)))
    where &= (early[:, None] <= free).all(axis=0)
    if on_devices is not None:
        where &= on_devices > 0
    columns = [(reasons[column], demand[column] > free[column]) for column in np.flatnonzero(~is_early).tolist()]
    asked = [*late, *(excluded if coupled is None else coupled), *columns]
    kinds_asked = {reason.kind for reason, _ in asked}
    for plugin in LATE_FILTERS if asked else ():
        if kinds_asked.isdisjoint(chain.from_iterable(plugin)):
            continue
        refused_by_plugin = np.zeros_like(where)
        for kinds in plugin:
            left = where.copy()
            for reason, refused in (each for each in asked if each[0].kind in kinds):
                found[reason] += int(np.count_nonzero(left & refused))
                left &= ~refused
            refused_by_plugin |= where & ~left
        where &= ~refused_by_plugin
    return tuple((reason, nodes) for reason, nodes in found.items() if nodes)


def _coupled(rule_arrays: RuleArrays, counts: Integers) -> Iterator[tuple[Reason, Mask]]:
    """Yield the nodes that each rule between members refuses to the only pod: bool[nodes].

    ``counts``: int64[1, nodes], zeros.
    """
    for coupling in rule_arrays.couplings:
        for excluded, reason in coupling.excluded.values():
            yield reason, excluded
        yield coupling.reason, ~coupling.allows(counts, 0)


def _merged(*reasons: Counted) -> Counted:
    total: Counter[Reason] = Counter()
    for part in reasons:
        total.update(dict(part))
    return tuple(sorted(total.items()))


def _too_few_gpus(reasons: Sequence[Reason], demand: Integers, free: Integers, usable: Usable) -> Counted:
    """Return the reasons that nodes have too few GPUs for a pod, each with the number of these nodes.

    Only nodes that GPU rules alone refuse are counted. The explanation counts such a node twice: for the GPU rule and for the shortage.
    """
    if usable.refused_by_gpus is None:
        return ()
    found = capacity_refusals(reasons, demand, free, usable.refused_by_gpus)
    return tuple((reason, nodes) for reason, nodes in found if is_gpu(reason.subject))


def _free(snapshot: Snapshot, names: tuple[str, ...]) -> Integers:
    """Return how much of each resource is free on each node: int64[resources, nodes].

    A resource that no node has counts as 0 everywhere. An over-committed resource counts as 0 on its node.
    """
    free = np.zeros((len(names), len(snapshot.nodes)), dtype=np.int64)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    for row, name in enumerate(names):
        column = position.get(name)
        if column is not None:
            np.subtract(snapshot.allocatable[:, column], snapshot.used[:, column], out=free[row])
        if name == GPU and snapshot.devices is not None:
            free[row] = np.where(counts_devices(snapshot), whole_devices(snapshot.devices), free[row])
    return np.minimum(np.maximum(free, 0, out=free), _LARGEST_DEMAND - 1, out=free)


def _gpu_slots(snapshot: Snapshot) -> Integers | None:
    """Return how many more requests for a GPU the kubelet can grant on each node: int64[nodes].

    ``None`` if no node offers GPUs or no driver shares GPUs. In these cases only the devices are counted.
    """
    column = snapshot.column_of(GPU)
    if column is None or snapshot.sharing is None:
        return None
    slots: Integers = np.maximum(snapshot.allocatable[:, column] - snapshot.used[:, column], 0)
    return slots


def node_order(labels: Sequence[str], nodes: tuple[Node, ...], filters: NodeFilters) -> Integers:
    """Return the place of each node: int64[nodes]. Nodes that have the first labels in common are next to each other."""
    keys = [np.arange(len(nodes)), *(filters.domains(label, nodes, -1) for label in reversed(labels))]
    places = np.empty(len(nodes), dtype=np.int64)
    places[np.lexsort(keys)] = np.arange(len(nodes))
    return places


def _taken(snapshot: Snapshot, columns: tuple[str, ...], rows: Integers) -> Integers:
    """Return how much of each capacity is used on the nodes ``rows``: int64[capacities, nodes].

    A capacity that is no resource, such as a host port, counts as 0.
    """
    taken = np.zeros((len(columns), len(rows)), dtype=np.int64)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    for row, name in enumerate(columns):
        if (column := position.get(name)) is not None:
            taken[row] = np.clip(snapshot.used[rows, column], 0, _LARGEST_DEMAND - 1)
    return taken


def _dislike(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, weights: Weights, filters: NodeFilters) -> Floats | None:
    """Return what unmet preferences, missing images and worse GPUs cost a pod of each role: float64[roles, nodes].

    ``None`` if these cost nothing on any node.
    """
    costs = np.zeros((len(specs), len(rows)))
    for role, spec in enumerate(specs):
        dislikes = filters.preference(spec, snapshot.nodes)
        costs[role] = (weights.affinity * dislikes.affinity + weights.taints * dislikes.taints + weights.images * dislikes.images)[rows]
        if dislikes.neighbours is not None:
            costs[role] += (weights.pods * dislikes.neighbours.pods + weights.spread * dislikes.neighbours.spread)[rows]
        if snapshot.gpus is not None and any(is_gpu(name) for name, _ in spec.requests):
            costs[role] += weights.gpus * snapshot.gpus.policy.weight * (1.0 - snapshot.gpus.grade[rows])
    return costs if costs.any() else None
