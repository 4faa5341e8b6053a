"""Check a plan against the present gang and cluster: the whole plan before it is assumed, and each assignment before each try of its bind.

Both checks call ``placement.verify``, so that every rule that is checked for the plan is also checked before each try.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from allaboard.binding.outcomes import Assignment, MembersChanged, Refused
from allaboard.binding.pod_domains import avoided_domains, forbidden_domains
from allaboard.cluster.records import ClaimError
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Violation, Wrong, verify
from allaboard.placement.rules.members import Rules, rules_of
from allaboard.placement.rules.verify import chosen_devices


def checked(gang: Gang, node_names: Mapping[str, str], snapshot: Snapshot) -> Sequence[Assignment] | Refused:
    """Return the assignments of a plan if it is valid for the present gang and cluster; otherwise return the reason as ``Refused``.

    ``node_names`` is the plan: node name by pod UID. None of its members may be assumed yet. ``snapshot`` is the present cluster as the
    gang may use it, and ``gang`` must be as fresh. Members that have gone since the plan was made are left out, and the remaining members
    must make a quorum.
    """
    # 1. Which planned members still exist?
    pods = {pod.uid: pod for pod in gang.candidates}
    assignments: Sequence[Assignment] = [Assignment(pods[uid], node_name) for uid, node_name in node_names.items() if uid in pods]
    if not assignments or gang.missing_once_bound({assignment.pod.uid for assignment in assignments}):
        return Refused(MembersChanged(len(assignments), gang.missing))
    # 2. Do all members still fit? This is computed in plain integers against the present cluster.
    chosen_nodes = {assignment.pod.uid: assignment.node_name for assignment in assignments}
    rules = rules_of(gang)
    violations = verify(chosen_nodes, [assignment.pod for assignment in assignments], snapshot, rules)
    if violations:
        return Refused(violations[0])
    assignments = _with_domains(assignments, rules, {node.name: node for node in snapshot.nodes} if rules.couplings else {})
    # 3. Which devices does each member get? No other pod can be assumed between this choice and the assumption of the plan.
    devices = chosen_devices(chosen_nodes, [assignment.pod for assignment in assignments], snapshot)
    return [replace(assignment, devices=devices.get(assignment.pod.uid, ())) for assignment in assignments] if devices else assignments


def spoilt(assignment: Assignment, gang: Gang, view: ClusterView) -> Violation | None:
    """Return the rule that an assignment, which is assumed in ``view``, violates now; ``None`` if the assignment is valid."""
    pod, node = assignment.pod, view.node(assignment.node_name)
    if node is None:
        return Violation(Wrong.NO_NODE, pod.key, assignment.node_name)
    for label, value in assignment.domains:
        if (now := node.labels.get(label)) != value:
            return Violation(Wrong.BROKEN, pod.key, node.name, Reason(Kind.TOPOLOGY, label, ", ".join((value, now or "none"))))
    if view.is_overbooked(node.name, assignment.devices):
        return Violation(Wrong.TAKEN, pod.key, node.name)
    with view.without(pod):
        try:
            spec = _present_spec(pod, view)
        except ClaimError as error:
            return Violation(Wrong.VOLUME, pod.key, node.name, subject=str(error))
        present = pod if spec is pod.spec else replace(pod, spec=spec)
        found = verify({pod.uid: node.name}, [present], view.snapshot_of(node, gang.priority))
    return found[0] if found else None


def _present_spec(pod: Pod, view: ClusterView) -> SchedulingSpec:
    """Return the spec of a member with its present volumes and forbidden domains. Raises ``ClaimError``."""
    current = view.pod(pod.key)
    if current is None or current.uid != pod.uid:
        return pod.spec
    resolved = view.resource_claims.resolve(view.volumes.resolve(current, view.attached.is_used)).spec
    attaches = view.attached.asked_by(current)
    forbidden, avoided = forbidden_domains(view, pod.namespace, view.relevant(current.labels)), avoided_domains(view, current)
    found = replace(
        pod.spec,
        volumes=resolved.volumes,
        storage=resolved.storage,
        unbound=resolved.unbound,
        attaches=attaches,
        forbidden_domains=forbidden,
        avoided_domains=avoided,
    )
    return pod.spec if found == pod.spec else found


def _with_domains(assignments: Sequence[Assignment], rules: Rules, nodes: Mapping[str, Node]) -> Sequence[Assignment]:
    """Return ``assignments`` with the topology domains that rules between members concern.

    The domains are kept, since a node may leave its domain later. Anti-affinity allows nodes without a domain.
    """
    if not rules.couplings:
        return assignments
    return [
        replace(
            assignment,
            domains=tuple(
                (rule.label, value)
                for rule in rules.couplings
                if assignment.pod.uid in rule.members and (value := nodes[assignment.node_name].labels.get(rule.label)) is not None
            ),
        )
        for assignment in assignments
    ]
