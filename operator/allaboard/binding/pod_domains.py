"""The topology domains that bound pods keep a pod out of, or that its affinity and its topology spread ask for.

Domains that a pod must avoid are terms on node labels. A node must match every term.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from allaboard.cluster.anti_affinity import Labels, Several
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import Neighbours, NodeSelectorTerm, Requirement
from allaboard.model.pod import Pod
from allaboard.model.podterms import SpreadConstraint
from allaboard.placement.rules.selection import Selection
from allaboard.placement.rules.spread import is_eligible

ScoresByLabel = Mapping[str, Mapping[str, int]]
"""Scores of topology domains: by node label, and by the label's value."""

Entries = tuple[tuple[NodeSelectorTerm, ...], ...]


def forbidden_domains(view: ClusterView, namespace: str, labels: Labels, several: Several = frozenset()) -> Entries:
    """Return the domains that bound pods' required anti-affinity forbids to pods with the relevant ``labels``.

    The pods differ in the labels of ``several``.
    """
    if not view.anti_affinity:
        return ()
    return _without(view, view.anti_affinity.domains(namespace, labels, several))


def avoided_domains(view: ClusterView, pod: Pod) -> Entries:
    """Return the domains with bound pods that the required anti-affinity of ``pod`` selects."""
    names: dict[str, set[str]] = {}
    for term in pod.spec.anti_affinity:
        names.setdefault(term.topology_key, set()).update(view.labels.nodes_of((term,), pod))
    return _without(view, names)


def served_domains(view: ClusterView, pod: Pod) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (label, values) of each label in the pod's required affinity: the domains of bound pods that all its terms select."""
    nodes = view.labels.nodes_of(pod.spec.pod_affinity, pod)
    keys = dict.fromkeys(term.topology_key for term in pod.spec.pod_affinity)
    return tuple((key, tuple(sorted(_values(view, key, nodes)))) for key in keys)


def spread_counts(view: ClusterView, pod: Pod, constraints: Sequence[SpreadConstraint]) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return for each of ``constraints`` of ``pod`` (value of the label, number) of the bound pods that it counts.

    The constraints are the required topology spread of the pod, or the preferred one. Pods count on the nodes that have all labels of the
    constraints, and that the pod may use as far as the constraint says so.
    """
    keys = [constraint.topology_key for constraint in constraints]
    found = []
    for constraint in constraints:
        counts: Counter[str] = Counter()
        counted = view.labels.nodes_of((constraint.term,), pod, with_leaving=False) if constraint.counts_pods else Counter[str]()
        for name, number in counted.items():
            node = view.node(name)
            if node is not None and is_eligible(node, constraint, keys, pod.spec):
                counts[node.labels[constraint.topology_key]] += number
        found.append(tuple(sorted(counts.items())))
    return tuple(found)


def gains_of(view: ClusterView, namespace: str, labels: Labels) -> ScoresByLabel:
    """Return what the preferences of bound pods add to the scores of domains, for a pod of ``namespace`` with ``labels``.

    By node label and its value.
    """
    found: dict[str, Counter[str]] = {}
    for label, amounts in view.preferences.scores(namespace, labels).items():
        _add(found, view, label, amounts, 1)
    return found


def neighbours_of(view: ClusterView, pod: Pod, group: Selection, gains: ScoresByLabel) -> Neighbours | None:
    """Return the pods that count for the preferences of ``pod`` about other pods: bound pods, and the other pods of its gang, ``group``.

    ``gains`` are those of the preferences of bound pods about ``pod``. None if there are no preferences.
    """
    spec = pod.spec
    if not (gains or spec.preferred_pods or spec.preferred_spread):
        return None
    scores = {label: Counter(of_label) for label, of_label in gains.items()}
    most = {1: 0, -1: 0}
    for weight, term in spec.preferred_pods:
        _add(scores, view, term.topology_key, view.labels.nodes_of((term,), pod), weight)
        most[1 if weight > 0 else -1] += abs(weight) * group.number(term.within(pod.namespace, view.namespaces.labels_of), but=pod)
    return Neighbours(
        scores=tuple((label, amounts) for label, of_label in sorted(scores.items()) if (amounts := _amounts(of_label))),
        attracting=most[1],
        repelling=most[-1],
        counts=spread_counts(view, pod, spec.preferred_spread),
        members=tuple(group.number(each.term, but=pod) if each.counts_pods else 0 for each in spec.preferred_spread),
    )


def _add(scores: dict[str, Counter[str]], view: ClusterView, label: str, amounts: Mapping[str, int], weight: int) -> None:
    """Add amounts by node, times ``weight``, to the scores of the values that the nodes have of a label."""
    for name, amount in amounts.items():
        if (node := view.node(name)) is not None and (value := node.labels.get(label)) is not None:
            scores.setdefault(label, Counter())[value] += weight * amount


def _amounts(of_label: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((value, amount) for value, amount in of_label.items() if amount))


def _values(view: ClusterView, key: str, names: Iterable[str]) -> set[str]:
    return {value for name in names if (node := view.node(name)) is not None and (value := node.labels.get(key)) is not None}


def _without(view: ClusterView, names: Mapping[str, Iterable[str]]) -> Entries:
    """Return terms that exclude the domains of the nodes ``names``, which are given by topology key."""
    domains = {key: _values(view, key, nodes) for key, nodes in names.items()}
    return tuple(
        (NodeSelectorTerm(expressions=(Requirement(key, "NotIn", tuple(sorted(values))),)),)
        for key, values in sorted(domains.items())
        if values
    )
