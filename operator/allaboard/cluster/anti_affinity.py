"""The required anti-affinity of bound pods, indexed so that terms that can't match a candidate cost nothing.

Any tenant may state terms that select pods in all namespaces, and every candidate must be matched against them. Terms are therefore
indexed by the namespace that they select and by a label that they require. Of one holder namespace a limited number is matched, and the
result is cached for equal labels until a term comes or goes.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from allaboard.model.limits import NAMESPACE_TERMS
from allaboard.model.podterms import PodTerm

Labels = tuple[tuple[str, str], ...]
Several = frozenset[tuple[str, frozenset[str | None]]]
"""Labels for which the pods in question have different values, with these values; ``None`` stands for pods without the label."""
Domains = Mapping[str, Collection[str]]
"""Topology key to names of nodes whose domains the pod must avoid."""

_Place = tuple[str | None, str | None, str | None]
_MOST_REMEMBERED = 1024


class AntiAffinityTerms:
    """The required anti-affinity terms of all bound pods, and the nodes of their holders.

    ``on_excess`` is called with a limit's name when that limit keeps terms from being matched.
    """

    def __init__(self) -> None:
        self.on_excess: Callable[[str], None] = lambda limit: None
        # By the selected namespace (None: any) and a required label with its key (None: no label) and value (None: several); then by the
        # namespace of the holders.
        self._terms: dict[_Place, dict[str, dict[PodTerm, Counter[str]]]] = {}
        self._keys: Counter[str] = Counter()
        self._known: dict[tuple[str, Labels, Several], Domains] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, namespace: str, terms: Collection[PodTerm], node_name: str) -> None:
        """Add a pod of ``namespace`` that holds ``terms`` and is on a node."""
        for term in terms:
            for place in _places(namespace, term):
                self._terms.setdefault(place, {}).setdefault(namespace, {}).setdefault(term, Counter())[node_name] += 1
            self._keys.update(expression.key for expression in term.expressions)
        self._known.clear()

    def remove(self, namespace: str, terms: Collection[PodTerm], node_name: str) -> None:
        """Remove a pod that ``add`` has added."""
        for term in terms:
            for place in _places(namespace, term):
                self._leave(place, namespace, term, node_name)
            for expression in term.expressions:
                self._keys[expression.key] -= 1
                if not self._keys[expression.key]:
                    del self._keys[expression.key]
        self._known.clear()

    def relevant(self, labels: Labels) -> Labels:
        """Return those of ``labels`` whose key occurs in a term: pods that agree in these must avoid the same domains."""
        return tuple(pair for pair in labels if pair[0] in self._keys)

    def domains(self, namespace: str, labels: Labels, several: Several = frozenset()) -> Domains:
        """Return the domains that pods of ``namespace`` with the relevant ``labels``, and any values of ``several``, must avoid."""
        key = (namespace, labels, several)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._find(namespace, dict(labels), dict(several))
        return known

    def _find(self, namespace: str, labels: Mapping[str, str], several: Mapping[str, frozenset[str | None]]) -> Domains:
        found: dict[str, set[str]] = {}
        tried: Counter[str] = Counter()
        has_excess = False
        for place in self._where(namespace, labels, several):
            for holder, terms in self._terms.get(place, {}).items():
                left = NAMESPACE_TERMS.most - tried[holder]
                has_excess = has_excess or len(terms) > left
                for term, nodes in itertools.islice(terms.items(), left):
                    tried[holder] += 1
                    if term.matches(labels, several):
                        found.setdefault(term.topology_key, set()).update(nodes)
        if has_excess:
            self.on_excess(NAMESPACE_TERMS.name)
        return found

    def _where(self, namespace: str, labels: Mapping[str, str], several: Mapping[str, frozenset[str | None]]) -> Iterator[_Place]:
        """Yield the index keys of terms that may match."""
        for concerned in (namespace, None):
            yield concerned, None, None
            for key, stated in labels.items():
                yield concerned, key, stated
                yield concerned, key, None
        for place in self._terms if several else ():
            concerned, label, value = place
            if concerned in (namespace, None) and label in several and (value is None or value in several[str(label)]):
                yield place

    def _leave(self, place: _Place, namespace: str, term: PodTerm, node_name: str) -> None:
        """Count one holder less, and delete empty entries."""
        by_holder = self._terms[place]
        terms = by_holder[namespace]
        nodes = terms[term]
        nodes[node_name] -= 1
        if not nodes[node_name]:
            del nodes[node_name]
        if not nodes:
            del terms[term]
        if not terms:
            del by_holder[namespace]
        if not by_holder:
            del self._terms[place]


def _places(namespace: str, term: PodTerm) -> list[_Place]:
    key, value = term.anchor or (None, None)
    return [(concerned, key, value) for concerned in term.concerns(namespace)]
