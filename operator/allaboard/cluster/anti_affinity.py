"""The terms by which bound pods keep other pods away, or prefer their company, indexed so that terms that can't match cost nothing.

The *holder* of a term is the bound pod that states it. Any tenant may state terms that select pods in all namespaces, and every candidate
must be matched against them. Terms are therefore indexed by the namespace that they select and by a label that they require. At most a
limited number of terms is matched for the holders of one namespace. Results are cached for equal labels until a term comes or goes.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from allaboard.cluster.namespaces import Namespaces
from allaboard.model.limits import NAMESPACE_TERMS
from allaboard.model.podterms import PodTerm

Labels = tuple[tuple[str, str], ...]
Several = frozenset[tuple[str, frozenset[str | None]]]
"""The labels in which the pods of a query differ: (key, values). ``None`` stands for the absence of a label.

Example: the indexes of a Job's pods, so that one query finds what any of these pods must avoid.
"""
Domains = Mapping[str, Mapping[str, int]]
"""By topology key, the nodes in whose domains there are holders: the sum of their amounts on each node, by name."""

_IndexKey = tuple[str | None, str | None, str | None]
_MOST_CACHED = 1024


class BoundTerms:
    """Terms of all bound pods, and the nodes of their holders: the terms of required anti-affinity, or those of preferences.

    Each holder adds an amount to its node, which is 1, or the weight of a preference. ``on_excess`` is called with the name of a limit when
    terms aren't matched because of that limit.
    """

    def __init__(self, namespaces: Namespaces | None = None) -> None:
        self._namespaces = namespaces or Namespaces()
        self.on_excess: Callable[[str], None] = lambda limit: None
        # The key is the selected namespace (None: any), with the key (None: no label) and value (None: several) of a required label. The
        # terms of each key are indexed by the namespace of their holders, with the sum of the holders' amounts on each node.
        self._terms: dict[_IndexKey, dict[str, dict[PodTerm, Counter[str]]]] = {}
        self._keys: Counter[str] = Counter()
        self._cache: dict[tuple[str, Labels, Several], Domains] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, namespace: str, terms: Collection[PodTerm], node_name: str, amount: int = 1) -> None:
        """Add the ``terms`` of a pod of ``namespace`` that is on a node."""
        for term in terms:
            for index_key in _index_keys(namespace, term):
                self._change(index_key, namespace, term, node_name, amount)
            self._keys.update(expression.key for expression in term.expressions)
        self._cache.clear()

    def remove(self, namespace: str, terms: Collection[PodTerm], node_name: str, amount: int = 1) -> None:
        """Remove the terms of a pod that were added by ``add``."""
        for term in terms:
            for index_key in _index_keys(namespace, term):
                self._change(index_key, namespace, term, node_name, -amount)
            for expression in term.expressions:
                self._keys[expression.key] -= 1
                if not self._keys[expression.key]:
                    del self._keys[expression.key]
        self._cache.clear()

    def forget_results(self) -> None:
        """Forget what was found for earlier queries, since labels of namespaces have changed."""
        self._cache.clear()

    def relevant(self, labels: Labels) -> Labels:
        """Return the labels among ``labels`` whose key occurs in a term. Pods that agree in these labels must avoid the same domains."""
        return tuple(pair for pair in labels if pair[0] in self._keys)

    def domains(self, namespace: str, labels: Labels, several: Several = frozenset()) -> Domains:
        """Return the domains with holders of terms that select pods of ``namespace`` with ``labels`` and any values of ``several``.

        ``labels`` are the relevant ones.
        """
        key = (namespace, labels, several)
        known = self._cache.get(key)
        if known is None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            known = self._cache[key] = self._find(namespace, dict(labels), dict(several))
        return known

    def _find(self, namespace: str, labels: Mapping[str, str], several: Mapping[str, frozenset[str | None]]) -> Domains:
        found: dict[str, Counter[str]] = {}
        matched: Counter[str] = Counter()
        has_excess = False
        for index_key in self._keys_that_match(namespace, labels, several):
            for holder, terms in self._terms.get(index_key, {}).items():
                left = NAMESPACE_TERMS.most - matched[holder]
                has_excess = has_excess or len(terms) > left
                for term, nodes in itertools.islice(terms.items(), left):
                    matched[holder] += 1
                    if term.matches(labels, several) and term.selects_namespace(namespace, holder, self._namespaces.labels_of):
                        found.setdefault(term.topology_key, Counter()).update(nodes)
        if has_excess:
            self.on_excess(NAMESPACE_TERMS.name)
        return found

    def _keys_that_match(
        self, namespace: str, labels: Mapping[str, str], several: Mapping[str, frozenset[str | None]]
    ) -> Iterator[_IndexKey]:
        """Yield the index keys of the terms that may match a pod with these labels in this namespace."""
        for selected in (namespace, None):
            yield selected, None, None
            for key, stated in labels.items():
                yield selected, key, stated
                yield selected, key, None
        for index_key in self._terms if several else ():
            selected, label, value = index_key
            if selected in (namespace, None) and label in several and (value is None or value in several[str(label)]):
                yield index_key

    def _change(self, index_key: _IndexKey, namespace: str, term: PodTerm, node_name: str, amount: int) -> None:
        """Add an amount to a term's amount on a node, and delete entries without an amount."""
        by_holder = self._terms.setdefault(index_key, {})
        terms = by_holder.setdefault(namespace, {})
        nodes = terms.setdefault(term, Counter())
        nodes[node_name] += amount
        if not nodes[node_name]:
            del nodes[node_name]
        if not nodes:
            del terms[term]
        if not terms:
            del by_holder[namespace]
        if not by_holder:
            del self._terms[index_key]


def _index_keys(namespace: str, term: PodTerm) -> list[_IndexKey]:
    key, value = term.anchor or (None, None)
    return [(selected, key, value) for selected in dict.fromkeys(term.concerns(namespace))]
