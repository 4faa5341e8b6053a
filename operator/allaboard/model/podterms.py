"""The terms by which a pod selects other pods: affinity, anti-affinity and topology spread (kube-scheduler interpodaffinity).

Required anti-affinity concerns two directions.

A pod must stay out of the topology domains in which pods run that its own terms match. And once it is bound, every later pod that its terms
match must stay out of its domain (``satisfyExistingPodsAntiAffinity``). The pod that states a term is called the term's holder.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import (
    AFFINITY_TERMS,
    POD_EXPRESSIONS,
    POD_NAMESPACES,
    POD_TERMS,
    POD_VALUES,
    SPREADS,
    OverLimitError,
    Tally,
)
from allaboard.model.raw_fields import integer, items, labels, mapping, sequence, text, texts

NO_LABELS: Mapping[str, frozenset[str | None]] = MappingProxyType({})
_NOTHING: Mapping[str, object] = MappingProxyType({})
_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_OF_VALUES = frozenset({"In", "NotIn"})
_POLICIES = ("Honor", "Ignore")
_WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_LARGEST_WEIGHT = 100  # of a preference (the API server's validation)


@dataclass(frozen=True, slots=True)
class LabelExpression:
    """One requirement on a label of a pod."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches_any(self, values: frozenset[str | None]) -> bool:
        """Return whether one of the possible ``values`` of the label meets the expression; ``None`` stands for an absent label."""
        match self.operator:
            case "In":
                return not values.isdisjoint(self.values)
            case "NotIn":
                return len(values) > len(self.values) or not values.issubset(self.values)
            case "Exists":
                return values != {None}
            case _:
                return None in values

    def matches(self, pod_labels: Mapping[str, str]) -> bool:
        """Return whether ``pod_labels`` meet the expression. An absent label meets NotIn."""
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
    """One term of the required anti-affinity of a pod, which is called the term's holder.

    Pods that match all ``expressions`` must not share a domain of ``topology_key`` with the holder. They are in ``namespaces``, or with
    ``in_any_namespace`` also in each namespace whose labels meet ``of_namespaces``. Without both they are in the holder's namespace.
    """

    topology_key: str
    expressions: tuple[LabelExpression, ...]
    namespaces: tuple[str, ...] = ()
    in_any_namespace: bool = False
    of_namespaces: tuple[LabelExpression, ...] = ()

    def selects_namespace(self, namespace: str, holder_namespace: str, labels_of: Callable[[str], Mapping[str, str]]) -> bool:
        """Return whether the term selects pods of ``namespace``; ``labels_of`` returns the labels of a namespace."""
        if not self.in_any_namespace:
            return namespace in (self.namespaces or (holder_namespace,))
        if not self.of_namespaces or namespace in self.namespaces:
            return True
        stated = labels_of(namespace)
        return all(expression.matches(stated) for expression in self.of_namespaces)

    def within(self, namespace: str, labels_of: Callable[[str], Mapping[str, str]]) -> "PodTerm":
        """Return a term that selects the same pods of ``namespace``, the holder's, without a selector of namespaces."""
        if not self.of_namespaces:
            return self
        if self.selects_namespace(namespace, namespace, labels_of):
            return replace(self, in_any_namespace=False, of_namespaces=(), namespaces=(namespace,))
        return replace(self, in_any_namespace=False, of_namespaces=(), expressions=(_NO_POD,))

    def concerns(self, holder_namespace: str) -> tuple[str | None, ...]:
        """Return the namespaces whose pods the term may select; ``None`` stands for any namespace.

        ``holder_namespace``: the namespace of the pod that has the term.
        """
        return (None,) if self.in_any_namespace else self.namespaces or (holder_namespace,)

    @property
    def anchor(self) -> tuple[str, str | None] | None:
        """A label that every matching pod must have, as (key, value); ``None`` if no label is required.

        The value is ``None`` if several values match.
        """
        required = [expression for expression in self.expressions if expression.operator in ("In", "Exists")]
        for expression in required:
            if expression.operator == "In" and len(expression.values) == 1:
                return expression.key, expression.values[0]
        return (required[0].key, None) if required else None

    def matches(self, pod_labels: Mapping[str, str], several: Mapping[str, frozenset[str | None]] = NO_LABELS) -> bool:
        """Return whether the term keeps away a pod with ``pod_labels``, in a namespace that the term concerns.

        ``several`` has labels of which several values are possible. Such a label meets an expression if one of its values does; ``None``
        stands for an absent label.
        """
        return all(
            expression.matches_any(several[expression.key]) if expression.key in several else expression.matches(pod_labels)
            for expression in self.expressions
        )


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A topology spread constraint of a pod: the pods of its namespace that match all ``expressions`` are counted by domain.

    ``min_domains``: with fewer eligible domains the fewest pods in a domain count as 0.
    """

    topology_key: str
    expressions: tuple[LabelExpression, ...]
    max_skew: int = 1
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    @property
    def counts_pods(self) -> bool:
        """False with an empty selector: it counts no pods, although it matches all (kube-scheduler podtopologyspread/common.go)."""
        return bool(self.expressions)

    @property
    def term(self) -> PodTerm:
        """The constraint as a term that selects the same pods."""
        return PodTerm(self.topology_key, self.expressions)


_NO_POD = LabelExpression("", "In", ())
"""An expression that the labels of no pod meet."""


def anti_affinity_terms(
    affinity: Mapping[str, object], pod: Mapping[str, object] = _NOTHING
) -> tuple[tuple[PodTerm, ...], MalformedError | None]:
    """Return the readable terms of the required anti-affinity in ``spec.affinity``, and the error in the first unreadable term.

    ``pod`` is the raw pod. The API server adds ``matchLabelKeys`` to the selectors of pods; here they are added for manifests, too.

    A term that can't be read keeps no pod away, which harms only the pod that has the term. If it kept pods away, it could shut out all
    other pods.
    """
    path, key = "spec.affinity.podAntiAffinity.", "requiredDuringSchedulingIgnoredDuringExecution"
    anti_affinity = mapping(affinity, "podAntiAffinity", "spec.affinity.")
    stated = sequence(anti_affinity, key, path)
    if not stated:
        return (), None
    problem: MalformedError | None = None
    if len(stated) > POD_TERMS.most:
        problem = OverLimitError(f"{path}{key}", POD_TERMS, len(stated))
    found = []
    for where, term in items({key: stated[: POD_TERMS.most]}, key, path):
        try:
            if term.get("labelSelector") is not None:  # without a selector a term matches no pod, with an empty one all pods
                found.append(_term(term, where, pod))
        except MalformedError as error:
            problem = problem or error.noted()
    return tuple(found), problem


def affinity_terms(affinity: Mapping[str, object], pod: Mapping[str, object]) -> tuple[PodTerm, ...]:
    """Return the terms of the required pod affinity in ``spec.affinity``. Raises ``MalformedError``.

    A term without a selector selects no pod, so it is kept, with an expression that no label meets.
    """
    path, key = "spec.affinity.podAffinity.", "requiredDuringSchedulingIgnoredDuringExecution"
    terms = items(mapping(affinity, "podAffinity", "spec.affinity."), key, path, AFFINITY_TERMS)
    return tuple(
        _term(term, where, pod) if term.get("labelSelector") is not None else PodTerm(text(term, "topologyKey", path=where), (_NO_POD,))
        for where, term in terms
    )


def preferred_pod_terms(affinity: Mapping[str, object], pod: Mapping[str, object]) -> tuple[tuple[int, PodTerm], ...]:
    """Return (weight, term) of each preferred affinity and anti-affinity to pods. Raises ``MalformedError``.

    The weight is positive for affinity and negative for anti-affinity. A term without a selector selects no pod, and is left out.
    """
    found = []
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    for field, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for path, stated in items(mapping(affinity, field, "spec.affinity."), key, f"spec.affinity.{field}.", AFFINITY_TERMS):
            weight, term = integer(stated, "weight", path=path), mapping(stated, "podAffinityTerm", path)
            if not 0 < weight <= _LARGEST_WEIGHT:
                raise MalformedError(f"{path}weight", f"{weight} is not between 1 and {_LARGEST_WEIGHT}")
            if term.get("labelSelector") is not None:
                found.append((sign * weight, _term(term, f"{path}podAffinityTerm.", pod)))
    return tuple(found)


def spread_constraints(
    spec: Mapping[str, object], pod: Mapping[str, object], unsatisfiable: str = "DoNotSchedule"
) -> tuple[SpreadConstraint, ...]:
    """Return the topology spread constraints of a pod's ``spec``. Raises ``MalformedError``.

    ``unsatisfiable``: ``DoNotSchedule`` for the constraints that are requirements, ``ScheduleAnyway`` for those that are preferences.
    """
    found = []
    for where, stated in items(spec, "topologySpreadConstraints", "spec.", SPREADS):
        when = _one_of(_WHEN_UNSATISFIABLE, stated, "whenUnsatisfiable", where)
        if when != unsatisfiable:
            continue
        has_selector = stated.get("labelSelector") is not None
        expressions = _with_keys(stated, where, pod, ("matchLabelKeys",)) if has_selector else (_NO_POD,)
        found.append(
            SpreadConstraint(
                topology_key=text(stated, "topologyKey", path=where),
                expressions=expressions,
                max_skew=_at_least_one(stated, "maxSkew", where),
                min_domains=_at_least_one(stated, "minDomains", where),
                honors_affinity=_one_of(_POLICIES, stated, "nodeAffinityPolicy", where) == "Honor",
                honors_taints=_one_of(_POLICIES[::-1], stated, "nodeTaintsPolicy", where) == "Honor",
            )
        )
    return tuple(found)


def _one_of(values: Sequence[str], stated: Mapping[str, object], key: str, where: str) -> str:
    """Return the value under ``key``, by default the first of ``values``. Raises ``MalformedError`` if it is none of them."""
    value = text(stated, key, values[0], where)
    if value not in values:
        raise MalformedError(f"{where}{key}", f"{shown(value)} is not one of {', '.join(values)}")
    return value


def _at_least_one(stated: Mapping[str, object], key: str, where: str) -> int:
    """Return the whole number under ``key``, by default 1. Raises ``MalformedError`` if it is less than 1."""
    number = integer(stated, key, 1, where)
    if number < 1:
        raise MalformedError(f"{where}{key}", f"{number} is less than 1")
    return number


def _with_keys(
    stated: Mapping[str, object], where: str, pod: Mapping[str, object], keys: Sequence[str] = ("matchLabelKeys", "mismatchLabelKeys")
) -> tuple[LabelExpression, ...]:
    """Return the expressions of a term's selector, and those of its ``matchLabelKeys`` and ``mismatchLabelKeys``."""
    expressions = expressions_in(mapping(stated, "labelSelector", where), f"{where}labelSelector.")
    for key in keys:
        for name in texts(stated, key, where, POD_VALUES):
            value = mapping(mapping(pod, "metadata"), "labels").get(name)
            if isinstance(value, str):
                expressions = (*expressions, LabelExpression(name, "In" if key == "matchLabelKeys" else "NotIn", (value,)))
    return tuple(dict.fromkeys(expressions))


def _term(term: Mapping[str, object], where: str, pod: Mapping[str, object]) -> PodTerm:
    return PodTerm(
        topology_key=text(term, "topologyKey", path=where),
        expressions=_with_keys(term, where, pod),
        namespaces=texts(term, "namespaces", where, POD_NAMESPACES),
        in_any_namespace=term.get("namespaceSelector") is not None,
        of_namespaces=expressions_in(mapping(term, "namespaceSelector", where), f"{where}namespaceSelector."),
    )


def expressions_in(selector: Mapping[str, object], path: str) -> tuple[LabelExpression, ...]:
    """Return the expressions of a LabelSelector, which a pod's labels must all meet. Raises ``MalformedError``."""
    expressions_of_selector, values_of_selector = Tally(POD_EXPRESSIONS), Tally(POD_VALUES)
    alike = labels(selector, "matchLabels", path, expressions_of_selector)
    expressions = [LabelExpression(key, "In", (value,)) for key, value in sorted(alike.items())]
    for at, expression in items(selector, "matchExpressions", path, expressions_of_selector):
        operator = text(expression, "operator", path=at)
        if operator not in _OPERATORS:
            raise MalformedError(f"{at}operator", f"{shown(operator)} is not one of {', '.join(sorted(_OPERATORS))}")
        values = texts(expression, "values", at, values_of_selector)
        if (operator in _OF_VALUES) is not bool(values):
            raise MalformedError(f"{at}values", f"must be {'stated' if operator in _OF_VALUES else 'absent'} with operator {operator}")
        expressions.append(LabelExpression(text(expression, "key", path=at), operator, values))
    return tuple(expressions)
