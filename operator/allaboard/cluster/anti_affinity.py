"""Whom bound pods keep out of their topology domains: required anti-affinity, indexed so that terms which can't match cost nothing.

Anybody may state terms that reach into all namespaces, and every candidate has to be tried on them. So terms are found by the namespace
that they concern and by a label that they require, of one namespace so many are tried and no more, and what came of it is remembered for
labels that are alike until a term comes or goes.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from allaboard.model.limits import NAMESPACE_TERMS
from allaboard.model.podterms import PodTerm

Labels = tuple[tuple[str, str], ...]
Several = frozenset[tuple[str, frozenset[str | None]]]
"""Labels of which the pods that are asked for have different values, and these; ``None`` for those without such a label."""
Domains = Mapping[str, Collection[str]]
"""Names of nodes by topology key: of the domains that these are in a pod is kept out."""

_Place = tuple[str | None, str | None, str | None]
_MOST_REMEMBERED = 1024


class AntiAffinityTerms:
    """The terms of all bound pods, and the nodes of their holders. ``on_excess`` hears of the limit that keeps some from being tried."""

    def __init__(self) -> None:
        self.on_excess: Callable[[str], None] = lambda limit: None
        # By the namespace that they concern (None: any) and a label that they require, its value (None: several) and key (None: no label);
        # then by the namespace of the holders.
        self._terms: dict[_Place, dict[str, dict[PodTerm, Counter[str]]]] = {}
        self._keys: Counter[str] = Counter()
        self._known: dict[tuple[str, Labels, Several], Domains] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, namespace: str, terms: Collection[PodTerm], node_name: str) -> None:
        """A pod of ``namespace`` that holds ``terms`` is on a node."""
        for term in terms:
            for place in _places(namespace, term):
                self._terms.setdefault(place, {}).setdefault(namespace, {}).setdefault(term, Counter())[node_name] += 1
            self._keys.update(expression.key for expression in term.expressions)
        self._known.clear()

    def remove(self, namespace: str, terms: Collection[PodTerm], node_name: str) -> None:
        """It isn't any more."""
        for term in terms:
            for place in _places(namespace, term):
                self._leave(place, namespace, term, node_name)
            for expression in term.expressions:
                self._keys[expression.key] -= 1
                if not self._keys[expression.key]:
                    del self._keys[expression.key]
        self._known.clear()

    def relevant(self, labels: Labels) -> Labels:
        """Those of ``labels`` that any term has to do with: pods that have these in common are kept out of the same domains."""
        return tuple(pair for pair in labels if pair[0] in self._keys)

    def domains(self, namespace: str, labels: Labels, several: Several = frozenset()) -> Domains:
        """What pods of ``namespace`` are kept out of that have the relevant ``labels``, any of them with ``several`` values of others."""
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
        """Where the terms are that may match."""
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
        """Count one holder less, and leave nothing empty behind."""
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
