"""The preferences of bound pods about other pods, by which kube-scheduler scores nodes for a new pod (interpodaffinity/scoring.go, 1.37).

A bound pod that prefers to be near pods, or away from them, makes the nodes of its domains better or worse for a new pod that its terms
select. A required affinity of a bound pod counts as a preference of weight 1 (``hardPodAffinityWeight``).
"""

from collections.abc import Iterator, Mapping

from allaboard.cluster.anti_affinity import BoundTerms, Labels
from allaboard.cluster.namespaces import Namespaces
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.podterms import PodTerm

_WEIGHT_OF_REQUIRED = 1


class Preferences:
    """The preferences of all bound pods. ``terms`` are their terms, whose amounts are weights."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.terms = BoundTerms(namespaces)

    def __bool__(self) -> bool:
        return bool(self.terms)

    def add(self, namespace: str, spec: SchedulingSpec, node_name: str) -> None:
        """Add the preferences of a pod of ``namespace`` that is on a node."""
        for weight, term in _weighted(spec):
            self.terms.add(namespace, (term,), node_name, weight)

    def remove(self, namespace: str, spec: SchedulingSpec, node_name: str) -> None:
        """Remove the preferences of a pod that were added by ``add``."""
        for weight, term in _weighted(spec):
            self.terms.remove(namespace, (term,), node_name, weight)

    def relevant(self, labels: Labels) -> Labels:
        """Return the labels among ``labels`` that matter to the terms of bound pods."""
        return self.terms.relevant(labels)

    def scores(self, namespace: str, labels: Labels) -> Mapping[str, Mapping[str, int]]:
        """Return by topology key, and for each node by name, what the bound pods there add to the score of each node in their domain.

        The scores are those for a pod of ``namespace`` with ``labels``.
        """
        return self.terms.domains(namespace, self.relevant(labels))


def _weighted(spec: SchedulingSpec) -> Iterator[tuple[int, PodTerm]]:
    yield from spec.preferred_pods
    yield from ((_WEIGHT_OF_REQUIRED, term) for term in spec.pod_affinity)
