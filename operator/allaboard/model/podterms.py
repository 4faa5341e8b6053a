"""Whom a pod keeps away: its required anti-affinity, which also binds those who come later.

Pods that state such terms are not scheduled by us yet, but they run on the same nodes, bound by other schedulers, and every later pod
that a term matches must stay out of their topology domain (kube-scheduler interpodaffinity, satisfyExistingPodsAntiAffinity).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import items, labels, mapping, text, texts

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


@dataclass(frozen=True, slots=True)
class LabelExpression:
    """One requirement on the labels of a pod."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, pod_labels: Mapping[str, str]) -> bool:
        """Whether the labels meet it; NotIn is met by a label that isn't there."""
        value = pod_labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods that all ``expressions`` match, in ``namespaces`` or any, may not share a domain of ``topology_key`` with the holder."""

    topology_key: str
    expressions: tuple[LabelExpression, ...]
    namespaces: tuple[str, ...] = ()
    in_any_namespace: bool = False

    @property
    def anchor(self) -> tuple[str, str] | None:
        """A label that every pod it matches must have, ``None`` when it requires no single one."""
        for expression in self.expressions:
            if expression.operator == "In" and len(expression.values) == 1:
                return expression.key, expression.values[0]
        return None

    def matches(self, holder_namespace: str, namespace: str, pod_labels: Mapping[str, str]) -> bool:
        """Whether a pod of ``namespace`` with ``pod_labels`` is kept away by a holder in ``holder_namespace``."""
        if not self.in_any_namespace and namespace not in (self.namespaces or (holder_namespace,)):
            return False
        return all(expression.matches(pod_labels) for expression in self.expressions)


def repelling_terms(affinity: Mapping[str, object]) -> tuple[PodTerm, ...]:
    """The required anti-affinity of ``spec.affinity``. Raises ``MalformedError``."""
    path = "spec.affinity.podAntiAffinity."
    anti_affinity = mapping(affinity, "podAntiAffinity", "spec.affinity.")
    return tuple(_terms(anti_affinity, path))


def _terms(anti_affinity: Mapping[str, object], path: str) -> Iterator[PodTerm]:
    for where, term in items(anti_affinity, "requiredDuringSchedulingIgnoredDuringExecution", path):
        if term.get("labelSelector") is None:
            continue  # no selector matches nobody; an empty one everybody
        selector, inside = mapping(term, "labelSelector", where), f"{where}labelSelector."
        expressions = [LabelExpression(key, "In", (value,)) for key, value in sorted(labels(selector, "matchLabels", inside).items())]
        for at, expression in items(selector, "matchExpressions", inside):
            operator = text(expression, "operator", path=at)
            if operator not in _OPERATORS:
                raise MalformedError(f"{at}operator", f"{shown(operator)} is not one of {', '.join(sorted(_OPERATORS))}")
            expressions.append(LabelExpression(text(expression, "key", path=at), operator, texts(expression, "values", at)))
        yield PodTerm(
            topology_key=text(term, "topologyKey", path=where),
            expressions=tuple(expressions),
            namespaces=texts(term, "namespaces", where),
            # Labels of namespaces aren't watched: a selector of namespaces is taken to match them all, which errs on the safe side.
            in_any_namespace=term.get("namespaceSelector") is not None,
        )
