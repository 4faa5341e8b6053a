"""Checks a plan once more before anybody is bound, against the cluster as it is *now* and without the search's arrays.

The search may have a bug and the snapshot it worked on is old: this counts in plain integers, node by node, and asks every filter again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.model.rules import NO_RULES, Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement.rules.devices import GPU, WHOLE, fit_on_devices
from allaboard.placement.rules.filters import refusal_of_state, surrounding_rules
from allaboard.placement.rules.gpus import refusals_by_gpus
from allaboard.placement.rules.matching import affinity_matches, all_match, ports_conflict


class Wrong(StrEnum):
    """What is wrong with a plan."""

    STRANGER = "stranger"  # the pod isn't of this gang
    NO_NODE = "no node"
    REFUSED = "refused"  # for a ``Reason``
    PORT = "port"  # the ``subject`` is taken
    TAKEN = "taken"  # by others, since the seat was promised
    OVERLOAD = "overload"  # too much is asked for of the resource ``subject``
    DEVICES = "devices"  # parts of GPUs don't fit on the node's devices together
    BROKEN = "broken"  # a rule between members, which is the ``Reason``


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong. ``pod`` is ``namespace/name``; amounts are in the units of ``model.requests``."""

    wrong: Wrong
    pod: str = ""
    node: str = ""
    reason: Reason | None = None
    subject: str = ""
    pods: int = 0
    requested: int = 0
    free: int = 0


def verify(assignments: Mapping[str, str], pods: Sequence[Pod], snapshot: Snapshot, rules: Rules = NO_RULES) -> tuple[Violation, ...]:
    """What is wrong with binding pods (by uid) to nodes (by name); nothing when all is well.

    ``pods`` are the gang's, of which the unassigned are ignored; none of them may be counted in ``snapshot`` yet.
    """
    by_uid = {pod.uid: pod for pod in pods}
    rows = _rows(snapshot, set(assignments.values()))
    violations: list[Violation] = []
    seated: dict[str, list[Pod]] = {}
    for uid, node_name in assignments.items():
        pod = by_uid.get(uid)
        if pod is None:
            violations.append(Violation(Wrong.STRANGER, uid))
        elif node_name not in rows:
            violations.append(Violation(Wrong.NO_NODE, pod.key, node_name))
        else:
            seated.setdefault(node_name, []).append(pod)
    for node_name, members in seated.items():
        row = rows[node_name]
        node = snapshot.nodes[row]
        # Equal specs are mostly one object, and who it is is told sooner than that it is equal.
        specs = {id(pod.spec): pod.spec for pod in members}
        refusals = {kind: refusal_on(spec, node) for kind, spec in specs.items()}
        refusals = {kind: refusals[kind] or refusal_by_gpus(spec, snapshot, row) for kind, spec in specs.items()}
        if any(refusals.values()):
            violations.extend(Violation(Wrong.REFUSED, pod.key, node_name, reason) for pod in members if (reason := refusals[id(pod.spec)]))
        if any(spec.host_ports for spec in specs.values()):
            violations.extend(_port_violations(node_name, members, snapshot.host_ports.get(row, frozenset())))
        counted = Counter(id(pod.spec) for pod in members)
        asked = [(specs[kind], pods) for kind, pods in counted.items()]
        violations.extend(_overloads(node_name, asked, row, snapshot))
        violations.extend(_device_violations(node_name, asked, row, snapshot))
    seats = {uid: snapshot.nodes[rows[name]] for uid, name in assignments.items() if name in rows}
    violations.extend(Violation(Wrong.BROKEN, reason=reason) for reason in rules.broken(seats))
    return tuple(violations)


def refusal_on(spec: SchedulingSpec, node: Node) -> Reason | None:
    """Why ``node`` doesn't admit pods like this, whatever room it has; ``None`` when it does."""
    refusal = refusal_of_state(node.is_unschedulable, node.is_ready, node.taints, spec.tolerations)
    if refusal:
        return refusal
    if not affinity_matches(spec, node):
        return Reason(Kind.AFFINITY)
    return next((Reason(kind) for kind, rules in surrounding_rules(spec) if not all_match(rules, node)), None)


def refusal_by_gpus(spec: SchedulingSpec, snapshot: Snapshot, row: int) -> Reason | None:
    """What the GPUs of the node in ``row`` lack that ``spec`` asks for."""
    return next(refusals_by_gpus(spec.gpus, snapshot.gpus, row), None) if spec.gpus else None


def _rows(snapshot: Snapshot, names: set[str]) -> dict[str, int]:
    return {node.name: row for row, node in enumerate(snapshot.nodes) if node.name in names}


def _port_violations(node_name: str, members: Sequence[Pod], taken: frozenset[HostPort]) -> Iterator[Violation]:
    held = list(taken)
    for pod in members:
        clash = next((port for port in pod.spec.host_ports if any(ports_conflict(port, other) for other in held)), None)
        if clash:
            yield Violation(Wrong.PORT, pod.key, node_name, subject=f"{clash.ip}:{clash.port}/{clash.protocol}")
        held.extend(pod.spec.host_ports)


def _overloads(node_name: str, asked: Sequence[tuple[SchedulingSpec, int]], row: int, snapshot: Snapshot) -> Iterator[Violation]:
    """``asked``: what members ask for, and how many of them."""
    requested: Counter[str] = Counter()
    for spec, pods in asked:
        for resource, amount in spec.requests:
            requested[resource] += pods * amount
    for resource, amount in sorted(requested.items()):
        column = snapshot.column_of(resource)
        free = 0 if column is None else int(snapshot.allocatable[row, column]) - int(snapshot.used[row, column])
        if amount > max(free, 0):
            pods = sum(pods for _, pods in asked)
            yield Violation(Wrong.OVERLOAD, node=node_name, subject=resource, pods=pods, requested=amount, free=max(free, 0))


def _device_violations(node_name: str, asked: Sequence[tuple[SchedulingSpec, int]], row: int, snapshot: Snapshot) -> Iterator[Violation]:
    """Who asks for a part of a GPU sits on one device; who asks for whole ones takes devices that are free altogether."""
    parts = [spec.gpu_share for spec, pods in asked for _ in range(pods) if spec.gpu_share]
    if not parts or snapshot.devices is None:
        return
    whole = sum(spec.amount(GPU) * pods for spec, pods in asked)
    free = sorted(map(int, snapshot.devices[row]))
    taken = free[len(free) - whole :]
    if len(taken) < whole or any(each < WHOLE for each in taken) or not fit_on_devices(free[: len(free) - whole], parts):
        yield Violation(Wrong.DEVICES, node=node_name, pods=len(parts), requested=sum(parts), free=sum(free))
