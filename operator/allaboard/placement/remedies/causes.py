"""Finds the cause of a gang's refusal by comparing what the gang requests with what the nodes offer and with what is free on them.

Only nodes that the filters admit are counted. The first of these causes that holds is reported:

- ``Constraints``: too few members are admitted by any node.
- ``NeverFits``: the gang wouldn't fit on these nodes if they were empty, ready and schedulable, as an upper bound proves. For members of
  several roles the bound proves less than is true, so the caller lets the solver decide (``on_empty_nodes`` and ``can_not_fit``).
- ``Insufficient``: for one resource, less is free in total than the minimum requests.
- ``Fragmented``: enough of each resource is free in total, but the free pieces are too small, or no placement was found.

The caller reports ``Constraints`` instead of ``Fragmented`` if only a rule between members or pods prevents the placement. To decide
between these two causes, the caller searches again without such rules. ``amounts_alone`` returns copies of the pods whose specs have no
such rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.gpu_inventory import WHOLE_GPUS
from allaboard.model.gpus import is_gpu
from allaboard.model.node import Node
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.build import build_problem
from allaboard.placement.problem.problem import Candidate, Problem
from allaboard.placement.problem.rule_arrays import NodePlaces, exclude_nodes, roles_of, rule_arrays_of
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.devices import GPU, counts_devices, whole_devices
from allaboard.placement.rules.filters import NodeFilters, refusal_to_share
from allaboard.placement.rules.members import NO_RULES, Rules
from allaboard.placement.solvers.bounds import may_fit
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.milp import Finding, satisfies, solve
from allaboard.placement.solvers.search import is_quick

_LARGEST = 2**62
_PROOF_EFFORT = 50_000  # Microseconds that the solver may take to prove a gang too large: other gangs wait for the cause.

TEMPORARY = "node.kubernetes.io/"
"""The prefix of taints that Kubernetes sets for the present condition of a node."""


@dataclass(slots=True)
class Repaired:
    """Returns nodes as they would be if they were ready and schedulable. The last result is cached."""

    filters: NodeFilters = field(default_factory=NodeFilters)
    _nodes: tuple[Node, ...] = ()
    _repaired: tuple[Node, ...] = ()

    def of(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return ``nodes``, in their order, each as if it were ready and schedulable and had no temporary taints."""
        if nodes is not self._nodes:
            self._nodes, self._repaired = nodes, tuple(map(_repaired, nodes))
        return self._repaired


def cause_of(
    pods: Sequence[Candidate],
    minimum: int,
    snapshot: Snapshot,
    *,
    rules: Rules = NO_RULES,
    filters: NodeFilters,
    repaired: Repaired,
) -> Cause:
    """Return why ``pods``, of which ``minimum`` are needed, don't fit on ``snapshot``.

    The cause ``FRAGMENTED`` is true only if no rule between pods prevents the placement. To check this, the caller searches again with the
    pods that ``amounts_alone`` returns.
    """
    found = _cause_of(pods, minimum, snapshot, rules=rules, filters=filters, repaired=repaired)
    requested = pods[0].spec.gpus if len(pods) == 1 else None
    if requested is None or not requested.number or not is_gpu(found.resource) or found.requested != requested.number:
        return found
    spec, nodes = pods[0].spec, snapshot.nodes
    free = _amounts(snapshot, _offered([spec], snapshot)[1], [found.resource])[0]
    if snapshot.sharing is not None:
        free[[refusal_to_share(spec, node) is not None for node in nodes]] = 0
    if not len(nodes) or free.max() >= requested.number:
        return found
    return found._replace(node=nodes[int(free.argmax())].name, most=int(free.max()))


def _cause_of(
    pods: Sequence[Candidate],
    minimum: int,
    snapshot: Snapshot,
    *,
    rules: Rules = NO_RULES,
    filters: NodeFilters,
    repaired: Repaired,
) -> Cause:
    members = roles_of(pods, rules)
    specs = tuple(spec for spec, _ in members)
    rule_arrays = rule_arrays_of(rules, [uids[0] for _, uids in members], NodePlaces(filters, snapshot.nodes))
    need = _Need(minimum, np.array([len(uids) for _, uids in members], dtype=np.int64), rule_arrays.least, rule_arrays.sums)
    groups = [(group.roles, group.domains) for group in rule_arrays.together]
    labelled = np.ones((len(specs), len(snapshot.nodes)), dtype=np.bool_)
    exclude_nodes(rule_arrays, labelled)
    admits = _admitted(specs, snapshot, snapshot.nodes, filters) & labelled
    if need.lacks(np.where(admits.any(axis=1), need.count, 0)):
        return Cause(Code.CONSTRAINTS)
    names = tuple(sorted({resource for spec in specs for resource, amount in spec.requests if amount > 0}))
    demand = np.array([[min(dict(spec.requests).get(name, 0), _LARGEST) for name in names] for spec in specs], dtype=np.int64)
    demand = demand.reshape(len(specs), len(names))
    nodes = repaired.of(snapshot.nodes)
    offered, left = _offered(specs, snapshot)
    allocatable = _amounts(snapshot, _without_gpu_errors(snapshot, offered), names)
    admits_repaired = _admitted(list(map(_anywhere, specs)), snapshot, nodes, repaired.filters) & labelled
    slots = np.stack([slots_for(row, allocatable, admits_repaired[role]) for role, row in enumerate(demand)])
    at_best = _tightest(need, names, demand, allocatable, admits_repaired)
    most = partial(_most_in_domains, need.count, slots)
    if at_best.requested > at_best.there or need.lacks(most(())):
        fits = slots.any(axis=1)
        misfits = np.flatnonzero(~fits).tolist() if need.lacks(np.where(fits, need.count, 0)) else []
        return _never(at_best, names, demand, allocatable, admits_repaired, {role: members[role][1][0] for role in misfits})
    if need.lacks(most(groups)):
        alone = (each for each, group in zip(rule_arrays.together, groups, strict=True) if need.lacks(most([group])))
        return Cause(Code.NEVER_FITS, rule=Reason(Kind.TOPOLOGY, next(alone, rule_arrays.together[0]).label))
    free = _amounts(snapshot, left, names)
    now = _tightest(need, names, demand, free, admits)
    now = now if now.requested > now.there else _fragmented(need, names, demand, free, admits)
    if snapshot.gpus is not None and now.resource in WHOLE_GPUS:
        now = now._replace(unwell=int(np.count_nonzero((snapshot.gpus.unwell > 0) & admits.any(axis=0))))
    return now


def _without_gpu_errors(snapshot: Snapshot, offered: Integers) -> Integers:
    """Return ``offered`` as if no GPU had an error.

    A GPU with an error is replaced or restarted in time, so it is no reason for ``NEVER_FITS``.
    """
    if snapshot.gpus is None or not snapshot.gpus.unwell.any():
        return offered
    columns = [column for column, name in enumerate(snapshot.resources) if name in WHOLE_GPUS]
    found = offered.copy()
    found[:, columns] += snapshot.gpus.unwell[:, None]
    return found


def on_empty_nodes(pods: Sequence[Candidate], minimum: int, snapshot: Snapshot, rules: Rules, repaired: Repaired) -> Problem | None:
    """Return the problem of placing ``pods`` if all nodes were empty, ready and schedulable.

    Volumes aren't considered. Return None if the bound of ``cause_of`` is exact (for members of one role without rules between them), or if
    drivers share the GPUs of the nodes.
    """
    # Equal specs are mostly one object, and identities are quicker to compare.
    specs = set({id(pod.spec): pod.spec for pod in pods}.values())
    is_bound_exact = len(specs) == 1 and not rules.couplings and not any(spec.host_ports for spec in specs)
    if snapshot.devices is not None or is_bound_exact:
        return None
    empty = replace(
        snapshot,
        nodes=repaired.of(snapshot.nodes),
        allocatable=_without_gpu_errors(snapshot, snapshot.allocatable),
        used=np.zeros_like(snapshot.used),
        host_ports={},
        attachable={},
    )
    alone = with_specs(pods, lambda spec: replace(_anywhere(spec), attaches=(), unbound=()))
    return build_problem(alone, minimum, empty, objective=Objective.BINPACK, rules=rules, filters=repaired.filters)


def can_not_fit(problem: Problem) -> bool:
    """Return whether a proof shows that the minimum of ``problem`` has no placement."""
    fits = _fits(problem)
    return solve(problem, budget=Budget(_PROOF_EFFORT)).finding is Finding.CANNOT_FIT if fits is None else not fits


def can_quickly_not_fit(problem: Problem) -> bool | None:
    """Return what ``can_not_fit`` returns, if that takes at most some ten milliseconds; None if it may take longer."""
    fits = _fits(problem) if is_quick(problem) else None
    return None if fits is None else not fits


def _fits(problem: Problem) -> bool | None:
    """Return whether the minimum of ``problem`` has a placement, by bounds and by one greedy rule; None if neither decides it."""
    if not may_fit(problem):
        return False
    return any(satisfies(problem, seed) for _, seed in greedy_seeds(problem, names=("binpack",))) or None


def whole_amounts(snapshot: Snapshot, names: Sequence[str]) -> tuple[Integers, Integers]:
    """Return how much of the resources ``names`` nodes offer, and how much is free, for pods that ask for whole GPUs.

    Both results are int64[resources, nodes]. Negative amounts, on over-committed nodes, count as 0.
    """
    allocatable, free = _offered((), snapshot)
    return _amounts(snapshot, allocatable, names), _amounts(snapshot, free, names)


def amounts_alone(pods: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return ``pods`` without host ports and volumes, so that only amounts of resources decide whether the pods fit."""
    return with_specs(pods, lambda spec: replace(spec, host_ports=(), attaches=(), unbound=()))


def _anywhere(spec: SchedulingSpec) -> SchedulingSpec:
    """Return ``spec`` without the domains that bound pods forbid, since these pods may end."""
    return replace(spec, forbidden_domains=(), avoided_domains=())


def with_specs(pods: Sequence[Candidate], change: Callable[[SchedulingSpec], SchedulingSpec]) -> Sequence[Candidate]:
    """Return ``pods`` with the specs that ``change`` returns for theirs."""
    # Equal specs are mostly one object, and identities are quicker to compare.
    changed = {each: change(spec) for each, spec in {id(pod.spec): pod.spec for pod in pods}.items()}
    return [_Changed(pod.uid, changed[id(pod.spec)]) for pod in pods]


@dataclass(frozen=True, slots=True)
class _Changed:
    uid: str
    spec: SchedulingSpec


@dataclass(frozen=True, slots=True, eq=False)
class _Need:
    """Numbers of pods that are needed: in total, of each role, and of some roles together."""

    minimum: int
    count: Integers
    least: Integers
    sums: tuple[tuple[tuple[int, ...], int], ...]

    def lacks(self, most: Integers) -> bool:
        """Return whether fewer pods than are needed can be placed. ``most``: int64[roles], an upper bound on the pods of each role."""
        enough = bool(most.sum() >= self.minimum and (most >= self.least).all())
        return not (enough and all(most[list(roles)].sum() >= least for roles, least in self.sums))


def _admitted(specs: Sequence[SchedulingSpec], snapshot: Snapshot, nodes: tuple[Node, ...], filters: NodeFilters) -> Mask:
    masks = np.array([filters.usable(spec, nodes, snapshot.gpus).admitted for spec in specs], dtype=np.bool_)
    return masks.reshape(len(specs), len(nodes))


def _offered(specs: Sequence[SchedulingSpec], snapshot: Snapshot) -> tuple[Integers, Integers]:
    """Return how much of each resource nodes offer, and how much is free: each int64[nodes, resources].

    A node whose GPUs are shared by a driver has one GPU in its allocatable for each pod that may share them. For pods that request whole
    GPUs only, such a node has no more GPUs than usable devices.
    """
    allocatable, free = snapshot.allocatable, snapshot.allocatable - snapshot.used
    column = snapshot.column_of(GPU)
    if column is None or snapshot.devices is None or snapshot.sharing is None or any(spec.share for spec in specs):
        return allocatable, free
    rows = np.flatnonzero(counts_devices(snapshot))
    shared = [snapshot.nodes[row].shared for row in rows.tolist()]
    usable = np.array([sum(device.is_usable for device in each.devices) if each else 0 for each in shared], dtype=np.int64)
    allocatable = allocatable.copy()
    allocatable[rows, column] = np.minimum(allocatable[rows, column], usable)
    free[rows, column] = np.minimum(free[rows, column], whole_devices(snapshot.devices[rows]))
    return allocatable, free


def _amounts(snapshot: Snapshot, table: Integers, names: Sequence[str]) -> Integers:
    """Return the amounts of the resources ``names``: int64[resources, nodes], none negative.

    ``table``: int64[nodes, resources of the snapshot], the amounts of all resources.
    """
    amounts = np.zeros((len(names), len(snapshot.nodes)), dtype=np.int64)
    for row, name in enumerate(names):
        if (column := snapshot.column_of(name)) is not None:
            amounts[row] = np.clip(table[:, column], 0, _LARGEST - 1)
    return amounts


def _most_in_domains(count: Integers, slots: Integers, groups: Sequence[tuple[tuple[int, ...], Integers]]) -> Integers:
    """Return an upper bound on the placed pods of each role: int64[roles].

    Each of ``groups`` is a set of roles that must share a domain, with the domain of each node. Each role is counted in the domain with the
    most slots for this role alone.
    """
    most: Integers = np.minimum(slots.sum(axis=1), count)
    for roles, domains in groups:
        known, place = np.unique(domains, return_inverse=True)
        for role in roles:
            in_domain = np.bincount(place.ravel(), weights=np.minimum(slots[role], count[role]), minlength=len(known))
            most[role] = min(int(most[role]), int(in_domain[known >= 0].max(initial=0)))
    return most


def _never(
    in_all: Cause, names: Sequence[str], demand: Integers, allocatable: Integers, admits_repaired: Mask, misfits: Mapping[int, str]
) -> Cause:
    """Return the cause for a gang that wouldn't fit on empty nodes, with the resource that empty nodes have too little of.

    ``misfits``: needed roles whose pods fit on no node, each with the uid of a member. The cause names such a member rather than the whole
    gang.
    """
    for role, member in misfits.items():
        if not admits_repaired[role].any():
            continue  # no amount would help this role
        largest = allocatable[:, admits_repaired[role]].max(axis=1, initial=0)
        short = np.flatnonzero(demand[role] > largest)
        if len(short):
            column = max(short.tolist(), key=lambda each: Fraction(int(demand[role, each]), max(1, int(largest[each]))))
            return Cause(Code.NEVER_FITS, names[column], int(demand[role, column]), int(largest[column]), member=member)
    return in_all._replace(code=Code.NEVER_FITS) if in_all.requested > in_all.there else Cause(Code.NEVER_FITS)


def _tightest(need: _Need, names: Sequence[str], demand: Integers, free: Integers, admits: Mask) -> Cause:
    """Return the requested and the free amount of the resource with the highest ratio of requested to free.

    The ratio is that of all needed pods, or of the needed pods of one role, if that is higher.
    """
    found = []
    for column, name in enumerate(names):
        found.append(_of_resource(need, name, demand[:, column], free[column], admits))
        for role in np.flatnonzero((need.least > 0) & (demand[:, column] > 0)).tolist():
            members = int(need.least[role])
            there = sum(free[column, admits[role]].tolist())
            found.append(Cause(Code.INSUFFICIENT, name, members * int(demand[role, column]), there, members=members))
    return _most_asked(found)


def _of_resource(need: _Need, name: str, demand: Integers, free: Integers, admits: Mask) -> Cause:
    """Return how much of one resource the minimum requests at least, and how much is free.

    What is free is counted on the nodes that admit any pod requesting the resource.
    """
    there = sum(free[admits[demand > 0].any(axis=0)].tolist())
    return Cause(Code.INSUFFICIENT, name, _least_asked(need, demand.tolist()), there)


def _most_asked(causes: Sequence[Cause]) -> Cause:
    return max(causes, key=lambda cause: (cause.requested > cause.there, Fraction(cause.requested, max(1, cause.there)), not cause.members))


def _fragmented(need: _Need, names: Sequence[str], demand: Integers, free: Integers, admits: Mask) -> Cause:
    """Return the resource that is free only in pieces that are too small.

    Among several such resources, the one with the highest ratio of requested to free is returned. No resource is named if only several
    resources together make the pieces too small.
    """
    found = []
    for column, name in enumerate(names):
        slots = np.stack([slots_for(row[[column]], free[[column]], admits[role]) for role, row in enumerate(demand)])
        # Roles that request none of the resource are not limited by it.
        if need.lacks(np.where(demand[:, column] > 0, np.minimum(slots.sum(axis=1), need.count), need.count)):
            found.append(_of_resource(need, name, demand[:, column], free[column], admits))
    return _most_asked(found)._replace(code=Code.FRAGMENTED) if found else Cause(Code.FRAGMENTED)


def _least_asked(need: _Need, amounts: Sequence[int]) -> int:
    """Return the least amount of a resource that as many members as the gang's minimum can request.

    The pods that the minimum of each role needs are counted first. Then the pods that request least are counted, up to the gang's minimum.
    """
    least: list[int] = need.least.tolist()
    count: list[int] = need.count.tolist()
    requested = sum(number * amount for number, amount in zip(least, amounts, strict=True))
    remaining = max(0, need.minimum - sum(least))
    for amount, left in sorted(zip(amounts, (there - number for there, number in zip(count, least, strict=True)), strict=True)):
        taken = min(left, remaining)
        requested += taken * amount
        remaining -= taken
    return requested


def _repaired(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(TEMPORARY))
    if node.is_ready and not node.is_unschedulable and len(taints) == len(node.taints):
        return node
    return replace(node, is_ready=True, is_unschedulable=False, taints=taints)
