"""The labels of pods that have a node, for terms of pod affinity: on which nodes are pods that a term selects?

Pods of one template have equal labels, except for a few labels such as a pod's index. So pods are counted by node for each set of labels,
and a term is matched once with each set. Labels that are a pod's own are kept apart: only a term that names such a label looks at each pod.
"""

from collections import Counter

from allaboard.model.pod import OWN_LABELS, Pod
from allaboard.model.podterms import PodTerm

Labels = tuple[tuple[str, str], ...]


class PodLabels:
    """Counts the pods that have a node by namespace, labels and node."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Labels, str]] = {}
        """The namespace, the labels and the node of each pod that is counted, by UID."""
        self._kinds: dict[str, dict[Labels, Counter[str]]] = {}
        """By namespace and by the labels that aren't a pod's own: the number of pods on each node."""
        self._own: dict[str, set[str]] = {}
        """By namespace, the UIDs of the pods that have labels of their own."""

    def put(self, pod: Pod, node_name: str) -> None:
        """Count a pod on its node, or replace what is known of it."""
        now = pod.namespace, pod.labels, node_name
        if (known := self._pods.get(pod.uid)) != now:
            if known is not None:
                self.remove(pod.uid)
            self._add(pod.uid, *now)

    def nodes_of(self, term: PodTerm, holder: Pod) -> Counter[str]:
        """Return the number of pods on each node that a ``term`` of the pod ``holder`` selects, without the holder itself."""
        concerned = term.concerns(holder.namespace)
        found: Counter[str] = Counter()
        names_own = any(is_own(expression.key) for expression in term.expressions)
        for namespace in list(self._kinds) if None in concerned else map(str, concerned):
            for labels, nodes in self._kinds.get(namespace, {}).items():
                if term.matches(dict(labels)):
                    found.update(nodes)
            if names_own:
                self._correct(found, term, namespace)
        namespace, labels, node_name = self._pods.get(holder.uid, ("", (), ""))
        if node_name and (None in concerned or namespace in concerned) and term.matches(dict(labels)):
            found[node_name] -= 1
        return +found

    def _correct(self, found: Counter[str], term: PodTerm, namespace: str) -> None:
        """Count pods with labels of their own by all labels, for a term that names such a label."""
        for uid in self._own.get(namespace, ()):
            _, labels, node_name = self._pods[uid]
            found[node_name] += term.matches(dict(labels)) - term.matches(dict(_shared(labels)))

    def _add(self, uid: str, namespace: str, labels: Labels, node_name: str) -> None:
        self._pods[uid] = namespace, labels, node_name
        shared = _shared(labels)
        self._kinds.setdefault(namespace, {}).setdefault(shared, Counter())[node_name] += 1
        if len(shared) < len(labels):
            self._own.setdefault(namespace, set()).add(uid)

    def remove(self, uid: str) -> None:
        """Stop counting a pod, if it is counted."""
        if (known := self._pods.pop(uid, None)) is None:
            return
        namespace, labels, node_name = known
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


def is_own(key: str) -> bool:
    """Return whether a label differs between the pods of one template."""
    return key.endswith(OWN_LABELS)


def _shared(labels: Labels) -> Labels:
    return tuple(pair for pair in labels if not is_own(pair[0]))
