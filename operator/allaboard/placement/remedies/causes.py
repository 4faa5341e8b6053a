"""Why a gang was refused, in one word: what is asked in sum, what the nodes are when they are empty, and what rules leave.

Each cause is told by counting on the nodes that the filters admit:

=============  ===========================================================================================================
Constraints    too few members are admitted by any node, or amounts alone would fit and a rule between members or pods doesn't
NeverFits      it wouldn't fit on these nodes if they were empty, ready and schedulable (by a bound that no placement exceeds)
Insufficient   of one resource less is free there in sum than the minimum asks for
Fragmented     enough of each is free in sum, and it can't be put together, or wasn't
=============  ===========================================================================================================

The first that holds is told. That a rule is in the way takes a search without it, which is left to the caller: ``amounts_alone``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import numpy as np

from allaboard.model.arrays import Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gpu_inventory import WHOLE_GPUS
from allaboard.model.gpus import is_gpu
from allaboard.model.node import Node
from allaboard.model.reasons import Cause, Code, Kind, Reason
from allaboard.model.rules import NO_RULES, Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement.problem.problem import Candidate
from allaboard.placement.problem.rule_arrays import roles_of, rule_arrays_of
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.rules.devices import GPU, counts_devices, whole_devices
from allaboard.placement.rules.filters import NodeFilters, refusal_to_share

_PASSING = "node.kubernetes.io/"  # taints that say how a node is just now
_LARGEST = 2**62


@dataclass(slots=True)
class Repaired:
    """Nodes as they would be if they were ready and schedulable; the last are remembered."""

    filters: NodeFilters = field(default_factory=NodeFilters)
    _nodes: tuple[Node, ...] = ()
    _repaired: tuple[Node, ...] = ()

    def of(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The same nodes in the same order."""
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
    """Why ``pods``, of which ``minimum`` are needed, have no room on ``snapshot``.

    ``FRAGMENTED`` is only told if no rule is in the way: see ``amounts_alone``.
    """
    found = _cause_of(pods, minimum, snapshot, rules=rules, filters=filters, repaired=repaired)
    asked = pods[0].spec.gpus if len(pods) == 1 else None
    if asked is None or not asked.number or not is_gpu(found.resource) or found.requested != asked.number:
        return found
    spec, nodes = pods[0].spec, snapshot.nodes
    free = _amounts(snapshot, _offered([spec], snapshot)[1], [found.resource])[0]
    if snapshot.sharing is not None:
        free[[refusal_to_share(spec, node) is not None for node in nodes]] = 0
    if not len(nodes) or free.max() >= asked.number:
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
    rule_arrays = rule_arrays_of(rules, [uids[0] for _, uids in members], lambda label: filters.domains(label, snapshot.nodes, -1))
    solve = _Ask(minimum, np.array([len(uids) for _, uids in members], dtype=np.int64), rule_arrays.least, rule_arrays.sums)
    groups = [(group.roles, group.domains) for group in rule_arrays.together]
    labelled = _labelled(len(specs), len(snapshot.nodes), groups)
    admits = _admitted(specs, snapshot, snapshot.nodes, filters) & labelled
    if solve.lacks(np.where(admits.any(axis=1), solve.count, 0)):
        return Cause(Code.CONSTRAINTS)
    names = tuple(sorted({resource for spec in specs for resource, amount in spec.requests if amount > 0}))
    demand = np.array([[min(dict(spec.requests).get(name, 0), _LARGEST) for name in names] for spec in specs], dtype=np.int64)
    demand = demand.reshape(len(specs), len(names))
    nodes = repaired.of(snapshot.nodes)
    anywhere = [replace(spec, forbidden_domains=()) for spec in specs]  # whoever keeps them away there may end, too
    offered, left = _offered(specs, snapshot)
    has = _amounts(snapshot, _as_if_well(snapshot, offered), names)
    could = _admitted(anywhere, snapshot, nodes, repaired.filters) & labelled
    room = np.stack([slots_for(row, has, could[role]) for role, row in enumerate(demand)])
    at_best = _tightest(solve, names, demand, has, could)
    most = partial(_most_in_domains, solve.count, room)
    if at_best.requested > at_best.there or solve.lacks(most(())):
        fits = room.any(axis=1)
        misfits = np.flatnonzero(~fits).tolist() if solve.lacks(np.where(fits, solve.count, 0)) else []
        return _never(at_best, names, demand, has, could, {role: members[role][1][0] for role in misfits})
    if solve.lacks(most(groups)):
        alone = (each for each, group in zip(rule_arrays.together, groups, strict=True) if solve.lacks(most([group])))
        return Cause(Code.NEVER_FITS, rule=Reason(Kind.TOPOLOGY, next(alone, rule_arrays.together[0]).label))
    free = _amounts(snapshot, left, names)
    now = _tightest(solve, names, demand, free, admits)
    now = now if now.requested > now.there else _in_pieces(solve, names, demand, free, admits)
    if snapshot.gpus is not None and now.resource in WHOLE_GPUS:
        now = now._replace(unwell=int(np.count_nonzero((snapshot.gpus.unwell > 0) & admits.any(axis=0))))
    return now


def _as_if_well(snapshot: Snapshot, offered: Integers) -> Integers:
    """``offered`` by nodes if no GPU had an error: such a one is replaced or restarted, so nobody never fits because of it."""
    if snapshot.gpus is None or not snapshot.gpus.unwell.any():
        return offered
    columns = [column for column, name in enumerate(snapshot.resources) if name in WHOLE_GPUS]
    found = offered.copy()
    found[:, columns] += snapshot.gpus.unwell[:, None]
    return found


def whole_amounts(snapshot: Snapshot, names: Sequence[str]) -> tuple[Integers, Integers]:
    """Return what nodes have of the resources ``names``, and what of it is free, for pods that ask for whole GPUs.

    Each is int64[resources, nodes], and nothing where there is less than that.
    """
    has, free = _offered((), snapshot)
    return _amounts(snapshot, has, names), _amounts(snapshot, free, names)


def amounts_alone(pods: Sequence[Candidate]) -> list[Candidate]:
    """``pods`` without the rules that keep them from each other: what has no room then lacks nothing but amounts."""
    specs = {spec: replace(spec, host_ports=(), attaches=()) for spec in {pod.spec for pod in pods}}
    return [_Bare(pod.uid, specs[pod.spec]) for pod in pods]


@dataclass(frozen=True, slots=True)
class _Bare:
    uid: str
    spec: SchedulingSpec


@dataclass(frozen=True, slots=True, eq=False)
class _Ask:
    """How many are needed: in all, of each role, and of some roles together."""

    minimum: int
    count: Integers
    least: Integers
    sums: tuple[tuple[tuple[int, ...], int], ...]

    def lacks(self, most: Integers) -> bool:
        """Whether ``most``: int64[roles] are too few."""
        enough = bool(most.sum() >= self.minimum and (most >= self.least).all())
        return not (enough and all(most[list(roles)].sum() >= least for roles, least in self.sums))


def _admitted(specs: Sequence[SchedulingSpec], snapshot: Snapshot, nodes: tuple[Node, ...], filters: NodeFilters) -> Mask:
    masks = np.array([filters.usable(spec, nodes, snapshot.gpus).admitted for spec in specs], dtype=np.bool_)
    return masks.reshape(len(specs), len(nodes))


def _labelled(roles: int, nodes: int, groups: Sequence[tuple[tuple[int, ...], Integers]]) -> Mask:
    """bool[roles, nodes]: those of a group may only go where there is a domain at all."""
    mask = np.ones((roles, nodes), dtype=np.bool_)
    for grouped, domains in groups:
        mask[list(grouped)] &= domains >= 0
    return mask


def _offered(specs: Sequence[SchedulingSpec], snapshot: Snapshot) -> tuple[Integers, Integers]:
    """What nodes have, and what of it is free: int64[nodes, resources]. Of GPUs that a driver hands out a node offers as many as pods may
    share them; to those who ask for whole ones alone that is no more than there are.
    """
    has, free = snapshot.allocatable, snapshot.allocatable - snapshot.used
    column = snapshot.column_of(GPU)
    if column is None or snapshot.devices is None or snapshot.sharing is None or any(spec.share for spec in specs):
        return has, free
    rows = np.flatnonzero(counts_devices(snapshot))
    shared = [snapshot.nodes[row].shared for row in rows.tolist()]
    usable = np.array([sum(device.is_usable for device in each.devices) if each else 0 for each in shared], dtype=np.int64)
    has = has.copy()
    has[rows, column] = np.minimum(has[rows, column], usable)
    free[rows, column] = np.minimum(free[rows, column], whole_devices(snapshot.devices[rows]))
    return has, free


def _amounts(snapshot: Snapshot, table: Integers, names: Sequence[str]) -> Integers:
    """int64[resources, nodes] of ``table``: int64[nodes, resources of the snapshot], nothing where there is less."""
    amounts = np.zeros((len(names), len(snapshot.nodes)), dtype=np.int64)
    for row, name in enumerate(names):
        if (column := snapshot.column_of(name)) is not None:
            amounts[row] = np.clip(table[:, column], 0, _LARGEST - 1)
    return amounts


def _most_in_domains(count: Integers, room: Integers, groups: Sequence[tuple[tuple[int, ...], Integers]]) -> Integers:
    """int64[roles], what no placement exceeds when each group sits within one domain: of its roles each in the best for that one."""
    most: Integers = np.minimum(room.sum(axis=1), count)
    for roles, domains in groups:
        known, place = np.unique(domains, return_inverse=True)
        for role in roles:
            slots = np.bincount(place.ravel(), weights=np.minimum(room[role], count[role]), minlength=len(known))
            most[role] = min(int(most[role]), int(slots[known >= 0].max(initial=0)))
    return most


def _never(in_all: Cause, names: Sequence[str], demand: Integers, has: Integers, could: Mask, misfits: Mapping[int, str]) -> Cause:
    """What the nodes lack when they are empty: for a member of a role of ``misfits``, which can't be done without, or for all together."""
    for role, member in misfits.items():
        largest = has[:, could[role]].max(axis=1, initial=0)
        short = np.flatnonzero(demand[role] > largest)
        if len(short):
            column = max(short.tolist(), key=lambda each: Fraction(int(demand[role, each]), max(1, int(largest[each]))))
            return Cause(Code.NEVER_FITS, names[column], int(demand[role, column]), int(largest[column]), member=member)
    return in_all._replace(code=Code.NEVER_FITS) if in_all.requested > in_all.there else Cause(Code.NEVER_FITS)


def _tightest(solve: _Ask, names: Sequence[str], demand: Integers, free: Integers, admits: Mask) -> Cause:
    """The resource of which most is asked beside what is free: by all who are needed, or by those of a role that it can't do without."""
    found = []
    for column, name in enumerate(names):
        found.append(_of_resource(solve, name, demand[:, column], free[column], admits))
        for role in np.flatnonzero((solve.least > 0) & (demand[:, column] > 0)).tolist():
            least = int(solve.least[role]) * int(demand[role, column])
            found.append(Cause(Code.INSUFFICIENT, name, least, sum(free[column, admits[role]].tolist())))
    return _most_asked(found)


def _of_resource(solve: _Ask, name: str, demand: Integers, free: Integers, admits: Mask) -> Cause:
    """What is asked at least of one resource, and what of it is free where any who ask for it may go."""
    there = sum(free[admits[demand > 0].any(axis=0)].tolist())
    return Cause(Code.INSUFFICIENT, name, _least_asked(solve, demand.tolist()), there)


def _most_asked(causes: Sequence[Cause]) -> Cause:
    return max(causes, key=lambda cause: (cause.requested > cause.there, Fraction(cause.requested, max(1, cause.there))))


def _in_pieces(solve: _Ask, names: Sequence[str], demand: Integers, free: Integers, admits: Mask) -> Cause:
    """Which resource is in pieces too small, the one of which most is asked first; none is named if it takes several to tell."""
    found = []
    for column, name in enumerate(names):
        slots = np.stack([slots_for(row[[column]], free[[column]], admits[role]) for role, row in enumerate(demand)])
        # Who asks for none of it sits anywhere, as far as that goes.
        if solve.lacks(np.where(demand[:, column] > 0, np.minimum(slots.sum(axis=1), solve.count), solve.count)):
            found.append(_of_resource(solve, name, demand[:, column], free[column], admits))
    return _most_asked(found)._replace(code=Code.FRAGMENTED) if found else Cause(Code.FRAGMENTED)


def _least_asked(solve: _Ask, amounts: Sequence[int]) -> int:
    """What the minimum asks for at least: what roles need by themselves, and the least demanding of the others up to the minimum."""
    least: list[int] = solve.least.tolist()
    count: list[int] = solve.count.tolist()
    asked = sum(number * amount for number, amount in zip(least, amounts, strict=True))
    wanted = max(0, solve.minimum - sum(least))
    for amount, left in sorted(zip(amounts, (there - number for there, number in zip(count, least, strict=True)), strict=True)):
        taken = min(left, wanted)
        asked += taken * amount
        wanted -= taken
    return asked


def _repaired(node: Node) -> Node:
    taints = tuple(taint for taint in node.taints if not taint.key.startswith(_PASSING))
    if node.is_ready and not node.is_unschedulable and len(taints) == len(node.taints):
        return node
    return replace(node, is_ready=True, is_unschedulable=False, taints=taints)
