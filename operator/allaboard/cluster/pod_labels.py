"""The labels of pods that have a node, for terms of pod affinity: on which nodes are pods that a term selects?

Pods of one template have equal labels, except for a few labels such as a pod's index. So pods are counted by node for each set of labels,
and a term is matched once with each set. Labels that are a pod's own are kept apart: only a term that names such a label looks at each pod.
"""

from collections import Counter
from collections.abc import Sequence

from allaboard.cluster.namespaces import Namespaces
from allaboard.model.pod import OWN_LABELS, Pod
from allaboard.model.podterms import PodTerm

Labels = tuple[tuple[str, str], ...]


class PodLabels:
    """Counts the pods that have a node by namespace, labels and node. ``version`` counts the changes."""

    def __init__(self, namespaces: Namespaces | None = None) -> None:
        self.version = 0
        self._namespaces = namespaces or Namespaces()
        self._pods: dict[str, tuple[str, Labels, str]] = {}
        """The namespace, the labels and the node of each pod that is counted, by UID."""
        self._kinds: dict[str, dict[Labels, Counter[str]]] = {}
        """By namespace and by the labels that aren't a pod's own: the number of pods on each node."""
        self._own: dict[str, set[str]] = {}
        """By namespace, the UIDs of the pods that have labels of their own."""
        self._leaving: set[str] = set()
        """The UIDs of pods that are being deleted."""

    def put(self, pod: Pod, node_name: str) -> None:
        """Count a pod on its node, or replace what is known of it."""
        (self._leaving.add if pod.is_terminating else self._leaving.discard)(pod.uid)
        now = pod.namespace, pod.labels, node_name
        if (known := self._pods.get(pod.uid)) != now:
            if known is not None:
                self._remove(pod.uid, *known)
            self._add(pod.uid, *now)

    def nodes_of(self, terms: Sequence[PodTerm], holder: Pod, *, with_leaving: bool = True) -> Counter[str]:
        """Return the number of pods on each node that all ``terms`` of the pod ``holder`` select, without the holder itself.

        ``with_leaving``: pods that are being deleted count, too.
        """
        concerned = [term.concerns(holder.namespace) for term in terms]
        found: Counter[str] = Counter()
        names_own = any(is_own(expression.key) for term in terms for expression in term.expressions)
        named = [frozenset(map(str, each)) for each in concerned if None not in each]
        for namespace in frozenset.intersection(*named) if named else list(self._kinds):
            if not self._select(terms, namespace, holder):
                continue
            for labels, nodes in self._kinds.get(namespace, {}).items():
                if _match(terms, labels):
                    found.update(nodes)
            if names_own:
                # Pods with labels of their own are counted by all labels.
                for uid in self._own.get(namespace, ()):
                    _, labels, node_name = self._pods[uid]
                    found[node_name] += _match(terms, labels) - _match(terms, _shared(labels))
        for uid in {holder.uid, *(() if with_leaving else self._leaving)} & self._pods.keys():
            namespace, labels, node_name = self._pods[uid]
            if self._select(terms, namespace, holder) and _match(terms, labels):
                found[node_name] -= 1
        return +found

    def _select(self, terms: Sequence[PodTerm], namespace: str, holder: Pod) -> bool:
        return all(term.selects_namespace(namespace, holder.namespace, self._namespaces.labels_of) for term in terms)

    def _add(self, uid: str, namespace: str, labels: Labels, node_name: str) -> None:
        self.version += 1
        self._pods[uid] = namespace, labels, node_name
        shared = _shared(labels)
        self._kinds.setdefault(namespace, {}).setdefault(shared, Counter())[node_name] += 1
        if len(shared) < len(labels):
            self._own.setdefault(namespace, set()).add(uid)

    def remove(self, uid: str) -> None:
        """Stop counting a pod, if it is counted."""
        self._leaving.discard(uid)
        if (known := self._pods.pop(uid, None)) is not None:
            self._remove(uid, *known)

    def _remove(self, uid: str, namespace: str, labels: Labels, node_name: str) -> None:
        self.version += 1
        kinds, shared = self._kinds[namespace], _shared(labels)
        nodes = kinds[shared]
        nodes[node_name] -= 1
        if not nodes[node_name]:
            del nodes[node_name]
        if not nodes:
            del kinds[shared]
        if not kinds:
            del self._kinds[namespace]
        if len(shared) < len(labels):
            self._own[namespace].discard(uid)
            if not self._own[namespace]:
                del self._own[namespace]


def _match(terms: Sequence[PodTerm], labels: Labels) -> bool:
    stated = dict(labels)
    return all(term.matches(stated) for term in terms)


def is_own(key: str) -> bool:
    """Return whether a label differs between the pods of one template."""
    return key.endswith(OWN_LABELS)


def _shared(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if not is_own(pair[0]))
