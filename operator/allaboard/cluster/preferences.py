"""The preferences of bound pods about other pods, by which kube-scheduler scores nodes for a new pod (interpodaffinity/scoring.go, 1.37).

A bound pod that prefers to be near pods, or away from them, makes the nodes of its domains better or worse for a new pod that its terms
select. A required affinity of a bound pod counts as a preference of weight 1 (``hardPodAffinityWeight``).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from allaboard.cluster.anti_affinity import AntiAffinityTerms, Labels
from allaboard.cluster.namespaces import Namespaces
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.podterms import PodTerm

_WEIGHT_OF_REQUIRED = 1


class Preferences:
    """The preferences of all bound pods, indexed like required anti-affinity: one index for each weight."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._terms: dict[int, AntiAffinityTerms] = {}

    def __bool__(self) -> bool:
        return bool(self._terms)

    def add(self, namespace: str, spec: SchedulingSpec, node_name: str) -> None:
        """Add the preferences of a pod of ``namespace`` that is on a node."""
        for weight, term in _weighted(spec):
            self._terms.setdefault(weight, AntiAffinityTerms(self._namespaces)).add(namespace, (term,), node_name)

    def remove(self, namespace: str, spec: SchedulingSpec, node_name: str) -> None:
        """Remove the preferences of a pod that were added by ``add``."""
        for weight, term in _weighted(spec):
            self._terms[weight].remove(namespace, (term,), node_name)
            if not self._terms[weight]:
                del self._terms[weight]

    def forget_results(self) -> None:
        """Forget what was found for earlier queries, since labels of namespaces have changed."""
        for terms in self._terms.values():
            terms.forget_results()

    def scores(self, namespace: str, labels: Labels) -> Mapping[str, Mapping[str, int]]:
        """Return what a pod of ``namespace`` with ``labels`` gains by topology key, for the domain of each node by name.

        Several bound pods may be in one domain, on different nodes: their scores add up.
        """
        found: dict[str, Counter[str]] = {}
        for weight, terms in self._terms.items():
            for key, nodes in terms.domains(namespace, terms.relevant(labels)).items():
                of_key = found.setdefault(key, Counter())
                for name, holders in nodes.items():
                    of_key[name] += weight * holders
        return found


def _weighted(spec: SchedulingSpec) -> Iterator[tuple[int, PodTerm]]:
    yield from spec.preferred_pods
    yield from ((_WEIGHT_OF_REQUIRED, term) for term in spec.pod_affinity)
