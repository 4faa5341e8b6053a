"""Check a plan once more before any pod is bound, against the *current* cluster and without the search's arrays.

The search may have a bug, and the search's snapshot is old. So this check counts in plain integers, node by node, and applies every filter
again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from allaboard.model.constraints import HostPort, SchedulingSpec
from allaboard.model.gpu_sharing import DRIVERS, GPU
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement.rules.claims import volumes_for
from allaboard.placement.rules.devices import WHOLE, assign_devices_exactly
from allaboard.placement.rules.filters import refusal_of_state, refusal_to_share, resolved_rules
from allaboard.placement.rules.gpus import refusals_by_gpus
from allaboard.placement.rules.matching import affinity_matches, all_match, ports_conflict
from allaboard.placement.rules.members import NO_RULES, Rules


class Wrong(StrEnum):
    """The kind of a violation.

    - ``STRANGER``: the pod is not of this gang;
    - ``NO_NODE``: the node does not exist;
    - ``REFUSED``: the node refuses the pod, for the ``reason``;
    - ``VOLUME``: a volume claim has changed, as the ``subject`` says;
    - ``PORT``: the host port ``subject`` is taken;
    - ``TAKEN``: other pods have taken the capacity since it was assumed;
    - ``OVERLOAD``: the members request more of the resource ``subject`` than is free;
    - ``DEVICES``: parts of GPUs don't fit on the node's devices together;
    - ``BROKEN``: a rule between members is broken, as the ``reason`` says.
    """

    STRANGER = "stranger"
    NO_NODE = "no node"
    REFUSED = "refused"
    VOLUME = "volume"
    PORT = "port"
    TAKEN = "taken"
    OVERLOAD = "overload"
    DEVICES = "devices"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with a plan. ``pod`` is ``namespace/name``; amounts are in the units of ``model.requests``."""

    wrong: Wrong
    pod: str = ""
    node: str = ""
    reason: Reason | None = None
    subject: str = ""
    pods: int = 0
    requested: int = 0
    free: int = 0


def verify(assignments: Mapping[str, str], pods: Sequence[Pod], snapshot: Snapshot, rules: Rules = NO_RULES) -> tuple[Violation, ...]:
    """Return what is wrong with binding pods (by UID) to nodes (by name); empty if the plan is valid.

    ``pods``: the pods of the gang; pods without an assignment are ignored. No pod of the gang may be counted in ``snapshot`` yet.
    """
    by_uid = {pod.uid: pod for pod in pods}
    rows = _rows(snapshot, set(assignments.values()))
    violations: list[Violation] = []
    assigned: dict[str, list[Pod]] = {}
    for uid, node_name in assignments.items():
        pod = by_uid.get(uid)
        if pod is None:
            violations.append(Violation(Wrong.STRANGER, uid))
        elif node_name not in rows:
            violations.append(Violation(Wrong.NO_NODE, pod.key, node_name))
        else:
            assigned.setdefault(node_name, []).append(pod)
    for node_name, members in assigned.items():
        row = rows[node_name]
        node = snapshot.nodes[row]
        # Equal specs are mostly one object, and comparing identities is faster than comparing specs.
        specs = {id(pod.spec): pod.spec for pod in members}
        refusals = {kind: refusal_on(spec, node) for kind, spec in specs.items()}
        refusals = {kind: refusals[kind] or refusal_by_gpus(spec, snapshot, row) for kind, spec in specs.items()}
        if any(refusals.values()):
            violations.extend(Violation(Wrong.REFUSED, pod.key, node_name, reason) for pod in members if (reason := refusals[id(pod.spec)]))
        if any(spec.host_ports for spec in specs.values()):
            violations.extend(_port_violations(node_name, members, snapshot.host_ports.get(row, frozenset())))
        if snapshot.attachable and any(spec.attaches for spec in specs.values()):
            violations.extend(_attachment_violations(node_name, members, row, snapshot))
        counted = Counter(id(pod.spec) for pod in members)
        asked = [(specs[kind], pods) for kind, pods in counted.items()]
        violations.extend(_overloads(node_name, asked, row, snapshot))
        violations.extend(_device_violations(node_name, members, row, snapshot))
    node_of = {uid: snapshot.nodes[rows[name]] for uid, name in assignments.items() if name in rows and uid in by_uid}
    unbound = [(claim, node_of[uid], uid) for uid in node_of for claim in by_uid[uid].spec.unbound]
    if unbound and volumes_for([(claim, node) for claim, node, _ in unbound]) is None:
        reason = Reason(Kind.NO_VOLUME)
        violations.extend(Violation(Wrong.REFUSED, by_uid[uid].key, node.name, reason) for _, node, uid in unbound[:1])
    violations.extend(Violation(Wrong.BROKEN, reason=reason) for reason in rules.broken(node_of, snapshot.nodes))
    return tuple(violations)


def refusal_on(spec: SchedulingSpec, node: Node) -> Reason | None:
    """Return why ``node`` doesn't admit pods of ``spec``, whatever is free on it; ``None`` if the node admits such pods."""
    refusal = refusal_of_state(node.is_unschedulable, node.is_ready, node.taints, spec.tolerations)
    if refusal:
        return refusal
    if not affinity_matches(spec, node):
        return Reason(Kind.AFFINITY)
    if of_sharing := refusal_to_share(spec, node):
        return of_sharing
    return next((Reason(kind) for kind, rules in resolved_rules(spec) if not all_match(rules, node)), None)


def refusal_by_gpus(spec: SchedulingSpec, snapshot: Snapshot, row: int) -> Reason | None:
    """Return the first GPU rule of ``spec`` that the node in ``row`` doesn't meet; ``None`` if it meets all."""
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


def _attachment_violations(node_name: str, members: Sequence[Pod], row: int, snapshot: Snapshot) -> Iterator[Violation]:
    """Yield a violation for each member whose volumes exceed what the node can attach.

    A volume that several members share counts once.
    """
    own: Counter[str] = Counter()
    shared: dict[str, set[str]] = {}
    for pod in members:
        for each in pod.spec.attaches:
            alone, others = each.needed_on(node_name)
            own[each.driver] += alone
            shared.setdefault(each.driver, set()).update(others)
            free = snapshot.attachable.get(each.driver)
            needed = own[each.driver] + len(shared[each.driver])
            if free is not None and needed and (alone or others) and needed > max(0, int(free[row])):
                yield Violation(Wrong.REFUSED, pod.key, node_name, Reason(Kind.ATTACHMENTS))


def _overloads(node_name: str, asked: Sequence[tuple[SchedulingSpec, int]], row: int, snapshot: Snapshot) -> Iterator[Violation]:
    """Yield a violation for each resource of which the members request more than is free.

    ``asked``: specs, each with the number of members that have it.
    """
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


def _device_violations(node_name: str, members: Sequence[Pod], row: int, snapshot: Snapshot) -> Iterator[Violation]:
    """Yield a violation if the members don't fit on the node's devices together.

    A part of a GPU takes one device. A whole GPU takes a device that is entirely free.
    """
    asked = _device_requests(members, snapshot.nodes[row], snapshot)
    if asked and snapshot.devices is not None and _device_positions(asked, row, snapshot) is None:
        parts = [part for _, parts in asked for part in parts]
        free = sum(max(0, each) for each in snapshot.devices[row].tolist())
        yield Violation(Wrong.DEVICES, node=node_name, pods=len(asked), requested=sum(parts), free=free)


def chosen_devices(assignments: Mapping[str, str], pods: Sequence[Pod], snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the devices, by UUID, of each pod (by UID) whose node shares its GPUs. The plan must be valid.

    The result doesn't depend on the order of ``pods``. The largest part goes first, to the device with the least left.
    """
    if snapshot.devices is None or snapshot.sharing is None:
        return {}
    rows = _rows(snapshot, set(assignments.values()))
    assigned: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: pod.key):
        if (node_name := assignments.get(pod.uid)) in rows and node_name is not None:
            assigned.setdefault(node_name, []).append(pod)
    chosen: dict[str, tuple[str, ...]] = {}
    for node_name, members in assigned.items():
        node = snapshot.nodes[rows[node_name]]
        asked = _device_requests(members, node, snapshot)
        if node.shared is None or not asked:
            continue
        for (pod, _), positions in zip(asked, _device_positions(asked, rows[node_name], snapshot) or (), strict=False):
            chosen[pod.uid] = tuple(node.shared.devices[position].uuid for position in positions)
    return chosen


_DeviceRequests = list[tuple[Pod, tuple[int, ...]]]
"""For each pod: the pod, and the thousandths that it needs of each of its devices."""


def _device_requests(members: Sequence[Pod], node: Node, snapshot: Snapshot) -> _DeviceRequests:
    """Return the members' requests for devices of ``node``; empty if the node's devices aren't counted one by one."""
    if snapshot.devices is None:
        return []
    if snapshot.sharing is None:
        asked = [(pod, (pod.spec.gpu_share,) if pod.spec.gpu_share else (WHOLE,) * pod.spec.whole_gpus) for pod in members]
        return [each for each in asked if each[1]] if any(pod.spec.gpu_share for pod in members) else []
    if node.shared is None:
        return []
    found: _DeviceRequests = []
    for pod in members:
        if share := pod.spec.share:
            found.append((pod, (share.of(node.shared.memory, node.shared.least),)))
        elif DRIVERS[node.shared.driver].count == GPU and pod.spec.whole_gpus:
            found.append((pod, (WHOLE,) * min(pod.spec.whole_gpus, len(node.shared.devices) + 1)))
    return found


def _device_positions(asked: _DeviceRequests, row: int, snapshot: Snapshot) -> list[tuple[int, ...]] | None:
    """Return the positions of the devices that each pod gets; ``None`` if not all pods fit."""
    if snapshot.devices is None:
        return None
    found = assign_devices_exactly(snapshot.devices[row].tolist(), [part for _, parts in asked for part in parts])
    if found is None:
        return None
    positions = iter(found)
    return [tuple(next(positions) for _ in parts) for _, parts in asked]
