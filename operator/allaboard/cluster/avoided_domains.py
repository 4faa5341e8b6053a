"""The topology domains that anti-affinity keeps a pod out of, as terms on node labels. A node must match every term."""

from collections.abc import Iterable, Mapping

from allaboard.cluster.anti_affinity import Labels, Several
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import NodeSelectorTerm, Requirement
from allaboard.model.pod import Pod

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
        names.setdefault(term.topology_key, set()).update(view.labels.nodes_of(term, pod))
    return _without(view, names)


def _without(view: ClusterView, names: Mapping[str, Iterable[str]]) -> Entries:
    """Return terms that exclude the domains of the nodes ``names``, which are given by topology key."""
    domains = {
        key: {value for name in nodes if (node := view.node(name)) is not None and (value := node.labels.get(key)) is not None}
        for key, nodes in names.items()
    }
    return tuple(
        (NodeSelectorTerm(expressions=(Requirement(key, "NotIn", tuple(sorted(values))),)),)
        for key, values in sorted(domains.items())
        if values
    )
