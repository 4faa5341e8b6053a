"""Predicates for a pod's constraints on nodes: kube-scheduler's selectors, affinity, tolerations and host ports, exactly.

Each predicate takes plain values. So the arrays of ``filters`` and the last check of ``verify`` can use the same predicates, although the
two count separately. Sources: component-helpers scheduling/corev1/nodeaffinity/nodeaffinity.go and helpers.go, apimachinery
labels/selector.go, kube-scheduler framework HostPortInfo (1.37).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable

from allaboard.model.constraints import NAME_FIELD, HostPort, NodeSelectorTerm, Requirement, SchedulingSpec, Toleration
from allaboard.model.node import Node, Taint

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, never bound to
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")

_HARD_EFFECTS = ("NoSchedule", "NoExecute")
_READINESS_KEYS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Go's ParseInt: int() would also take blanks, underscores and other scripts' digits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def label_matches(requirement: Requirement, value: str | None) -> bool:
    """Return whether a node whose label ``requirement.key`` is ``value`` (None: no such label) meets the requirement."""
    operator, values = requirement.operator, requirement.values
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return bool(values) and (value is None or value not in values)
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator not in ("Gt", "Lt") or value is None or len(values) != 1:
        return False
    have, want = _integer(value), _integer(values[0])
    if have is None or want is None:
        return False
    return have > want if operator == "Gt" else have < want


def name_matches(requirement: Requirement, name: str) -> bool:
    """Return whether a ``matchFields`` requirement allows the node ``name``.

    Kubernetes allows only ``metadata.name`` here, with the operator In or NotIn and one value.
    """
    if requirement.key != NAME_FIELD or len(requirement.values) != 1:
        return False
    if requirement.operator == "In":
        return name == requirement.values[0]
    return requirement.operator == "NotIn" and name != requirement.values[0]


def term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    """Return whether all expressions and fields of ``term`` match ``node``; an empty term matches no node."""
    if not (term.expressions or term.fields):
        return False
    return all(label_matches(expression, node.labels.get(expression.key)) for expression in term.expressions) and all(
        name_matches(requirement, node.name) for requirement in term.fields
    )


def any_term_matches(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Return whether any of ``terms`` matches ``node``; False without terms."""
    return any(term_matches(term, node) for term in terms)


def affinity_matches(spec: SchedulingSpec, node: Node) -> bool:
    """Return whether the nodeSelector and the required node affinity both admit the node."""
    if any(node.labels.get(key) != value for key, value in spec.node_selector):
        return False
    return spec.affinity is None or any_term_matches(spec.affinity, node)


def all_match(rules: Iterable[Iterable[NodeSelectorTerm]], node: Node) -> bool:
    """Return whether every entry of ``rules`` has a term that matches ``node``."""
    return all(any_term_matches(terms, node) for terms in rules)


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether one of the tolerations covers ``taint``. The alpha operators Lt and Gt tolerate nothing here."""
    return any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (not toleration.key or toleration.key == taint.key)
        and (toleration.operator == "Exists" or (toleration.operator in ("", "Equal") and toleration.value == taint.value))
        for toleration in tolerations
    )


def untolerated_taint(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> Taint | None:
    """Return the first taint that keeps the pod off the node; ``None`` if there is none.

    A PreferNoSchedule taint keeps no pod off.
    """
    return next((taint for taint in taints if taint.effect in _HARD_EFFECTS and not tolerates(tolerations, taint)), None)


def undesired_taints(taints: Iterable[Taint], tolerations: tuple[Toleration, ...]) -> list[Taint]:
    """Return the PreferNoSchedule taints that a pod doesn't tolerate."""
    return [taint for taint in taints if taint.effect == "PreferNoSchedule" and not tolerates(tolerations, taint)]


def image_size(node: Node, name: str) -> int:
    """Return the MiB of an image on a node; 0 if the node doesn't have the image."""
    place = bisect_left(node.images, (name,))
    return node.images[place][1] if place < len(node.images) and node.images[place][0] == name else 0


def readiness_is_tainted(taints: Iterable[Taint]) -> bool:
    """Return whether a NoSchedule taint marks the node as not ready, so that the pod's tolerations decide.

    A NoExecute taint alone doesn't count: the API server lets every pod tolerate that taint for five minutes.
    """
    return any(taint.key in _READINESS_KEYS and taint.effect == "NoSchedule" for taint in taints)


def ports_conflict(left: HostPort, right: HostPort) -> bool:
    """Return whether two pods with these ports can't share a node."""
    if (left.protocol, left.port) != (right.protocol, right.port):
        return False
    return left.ip == right.ip or EVERY_ADDRESS in (left.ip, right.ip)


def _integer(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
