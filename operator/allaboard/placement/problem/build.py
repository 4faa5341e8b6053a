"""From a gang and a cluster to the problem of placing it.

It is done in the scheduler's own process, so it is arithmetic on whole arrays; nodes that no role can use are counted for the
explanation and left behind.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.fit import FitScoring
from allaboard.model.gang import Objective
from allaboard.model.gpu_sharing import SHARES
from allaboard.model.gpus import is_gpu
from allaboard.model.packing import BEST_FIT, PACKING, Packing
from allaboard.model.reasons import Counted, Kind, Reason
from allaboard.model.rules import NO_RULES, Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.fragmentation import fragmentation_of
from allaboard.placement.problem.objectives import Weights, scoring_of, weights_of
from allaboard.placement.problem.problem import Candidate, Problem, Role, capacity_refusals, numbered
from allaboard.placement.problem.rule_arrays import exclude_unlabelled, roles_of, rule_arrays_of, with_rules
from allaboard.placement.rules.attachments import attachment_columns
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.devices import GPU, WHOLE, counts_devices, parts_on, slots_on_devices, whole_devices
from allaboard.placement.rules.filters import NodeFilters, Usable
from allaboard.placement.rules.ports import free_ports, port_columns, port_demand

# Nobody can ask for more than this and be placed; it keeps products of demands and counts inside 64 bits.
_LARGEST_DEMAND = 2**62

_SLOTS = f"{GPU} (slots)"


def build_problem(
    pods: Sequence[Candidate],
    minimum: int,
    snapshot: Snapshot,
    *,
    objective: Objective,
    packing: Packing | FitScoring = PACKING,
    topology: str = "",
    rules: Rules = NO_RULES,
    filters: NodeFilters | None = None,
) -> Problem:
    """The placement of ``pods`` on the nodes of ``snapshot``, at least ``minimum`` of them.

    ``packing`` says how full a node is to be taken for, or by which profile of kube-scheduler's it is scored; fragmentation is avoided by
    best fit unless it says more than the default.
    ``topology`` is the label whose values are the domains of which a placement should use few. ``filters``
    remembers what each spec may use between calls with the same nodes.
    """
    filters = filters or NodeFilters()
    members = roles_of(pods, rules)
    specs = tuple(spec for spec, _ in members)
    names = tuple(sorted({resource for spec in specs for resource, amount in spec.requests if amount > 0}))
    free = _free(snapshot, names)
    largest = free.max(axis=1, initial=0).tolist()
    asked = [dict(spec.requests) | {GPU: spec.whole_gpus} for spec in specs]
    amounts = [[of_spec.get(name, 0) for name in names] for of_spec in asked]
    demand = np.array([[min(amount, most + 1) for amount, most in zip(row, largest, strict=True)] for row in amounts], dtype=np.int64)
    demand = demand.reshape(len(specs), len(names))
    shares, devices = np.zeros((len(specs), 0), dtype=np.int64), None
    if snapshot.devices is not None and any(spec.gpu_share for spec in specs):
        shares, devices = np.stack([parts_on(spec, snapshot) for spec in specs]), np.maximum(snapshot.devices, 0)
        # What is asked of the smallest part allows more on nodes where it is a larger one; their devices don't.
        own = np.array([spec.whole_gpus * WHOLE for spec in specs]) + shares.min(axis=1, initial=WHOLE + 1)
        whole, slots = devices.sum(axis=1), _slots(snapshot)
        names = (*names, SHARES, *(() if slots is None else (_SLOTS,)))
        free = np.concatenate([free, whole[None], *(() if slots is None else (slots[None],))])
        taking = np.array([spec.amount(GPU) for spec in specs])
        demand = np.concatenate([demand, own[:, None], *(() if slots is None else (taking[:, None],))], axis=1)
    ports = port_columns(specs)
    if ports:
        free = np.concatenate([free, free_ports(ports, snapshot)])
        demand = np.concatenate([demand, port_demand(ports, specs)], axis=1)
    attachments = attachment_columns(specs, len(pods), snapshot)
    if attachments.names:
        free = np.concatenate([free, attachments.free])
        demand = np.concatenate([demand, attachments.demand], axis=1)
    usable = [filters.usable(spec, snapshot.nodes, snapshot.gpus) for spec in specs]
    admits = np.array([each.admitted for each in usable], dtype=np.bool_).reshape(len(specs), len(snapshot.nodes))
    rule_arrays = rule_arrays_of(rules, [uids[0] for _, uids in members], lambda label: filters.domains(label, snapshot.nodes, -1))
    unlabelled = exclude_unlabelled(rule_arrays, admits)
    slots = np.stack([slots_for(row, free, admits[role]) for role, row in enumerate(demand)]) if specs else admits.astype(np.int64)
    of_parts: dict[int, Integers] = {}
    if devices is not None:
        of_parts = {role: slots_on_devices(devices, shares[role]) for role in np.flatnonzero(shares.any(axis=1)).tolist()}
        for role, on_devices in of_parts.items():
            slots[role] = np.minimum(slots[role], on_devices)
    is_kept = slots.any(axis=0)
    rows = np.flatnonzero(is_kept)
    weights = weights_of(objective, packing)
    columns = (
        *names,
        *(f"port {column.protocol}/{column.port}" for column in ports),
        *(f"volumes of {driver}" for driver in attachments.names),
    )
    reasons = (
        *(Reason(Kind.INSUFFICIENT, GPU if name == _SLOTS else name) for name in names),
        *(Reason(Kind.PORTS) for _ in ports),
        *(Reason(Kind.ATTACHMENTS) for _ in attachments.names),
    )
    problem = Problem(
        minimum=max(0, minimum),
        least=np.zeros(len(specs), dtype=np.int64),
        objective=objective,
        roles=tuple(
            Role(
                pods=tuple(members[role][1]),
                requests=spec.requests,
                refusals=_merged(
                    each.reasons,
                    unlabelled[role],
                    capacity_refusals(reasons, demand[role], free, admits[role] & ~is_kept, of_parts.get(role)),
                    _too_few_gpus(reasons, demand[role], free, each),
                ),
            )
            for role, (spec, each) in enumerate(zip(specs, usable, strict=True))
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
    )
    return with_rules(problem, rule_arrays.restricted_to(rows))


def _merged(*reasons: Counted) -> Counted:
    total: Counter[Reason] = Counter()
    for part in reasons:
        total.update(dict(part))
    return tuple(sorted(total.items()))


def _too_few_gpus(reasons: Sequence[Reason], demand: Integers, free: Integers, usable: Usable) -> Counted:
    """Of the nodes whose GPUs are of the wrong kind, those that have too few free besides: each is told."""
    if usable.refused_by_gpus is None:
        return ()
    found = capacity_refusals(reasons, demand, free, usable.refused_by_gpus)
    return tuple((reason, nodes) for reason, nodes in found if is_gpu(reason.subject))


def _free(snapshot: Snapshot, names: tuple[str, ...]) -> Integers:
    """int64[resources, nodes]; a resource no node has is free nowhere, and an over-committed node has nothing free."""
    free = np.zeros((len(names), len(snapshot.nodes)), dtype=np.int64)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    for row, name in enumerate(names):
        column = position.get(name)
        if column is not None:
            np.subtract(snapshot.allocatable[:, column], snapshot.used[:, column], out=free[row])
        if name == GPU and snapshot.devices is not None:
            free[row] = np.where(counts_devices(snapshot), whole_devices(snapshot.devices), free[row])
    return np.minimum(np.maximum(free, 0, out=free), _LARGEST_DEMAND - 1, out=free)


def _slots(snapshot: Snapshot) -> Integers | None:
    """int64[nodes], pods that the kubelet gives any of a node's GPUs; ``None`` where GPUs are counted by their devices alone."""
    column = snapshot.column_of(GPU)
    if column is None or snapshot.sharing is None:
        return None
    slots: Integers = np.maximum(snapshot.allocatable[:, column] - snapshot.used[:, column], 0)
    return slots


def _taken(snapshot: Snapshot, columns: tuple[str, ...], rows: Integers) -> Integers:
    """int64[columns, nodes], of the nodes ``rows``; 0 of what isn't counted as a resource."""
    taken = np.zeros((len(columns), len(rows)), dtype=np.int64)
    position = {resource: column for column, resource in enumerate(snapshot.resources)}
    for row, name in enumerate(columns):
        if (column := position.get(name)) is not None:
            taken[row] = np.clip(snapshot.used[rows, column], 0, _LARGEST_DEMAND - 1)
    return taken


def _dislike(specs: Sequence[SchedulingSpec], snapshot: Snapshot, rows: Integers, weights: Weights, filters: NodeFilters) -> Floats | None:
    """float64[roles, nodes], or ``None`` when nobody has a preference."""
    costs = np.zeros((len(specs), len(rows)))
    for role, spec in enumerate(specs):
        dislikes = filters.preference(spec, snapshot.nodes)
        costs[role] = (weights.affinity * dislikes.affinity + weights.taints * dislikes.taints + weights.images * dislikes.images)[rows]
        if snapshot.gpus is not None and any(is_gpu(name) for name, _ in spec.requests):
            costs[role] += weights.gpus * snapshot.gpus.policy.weight * (1.0 - snapshot.gpus.grade[rows])
    return costs if costs.any() else None
