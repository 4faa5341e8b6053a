"""Says in which namespaces admission may refuse a bind: by webhooks and admission policies whose rules match ``pods/binding``.

Rules match as in kube-apiserver 1.37, apiserver/pkg/admission/plugin/webhook/predicates/rules. Conditions that only narrow a match are
left out: selectors of objects, match conditions, and excluded rules. What can't be read counts as a match. So a bind that admission sees is
never missed, and some binds count although admission doesn't see them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from allaboard.cluster.namespaces import Namespaces
from allaboard.cluster.records import Records
from allaboard.model.errors import MalformedError
from allaboard.model.podterms import LabelExpression, expressions_in

Selector = tuple[LabelExpression, ...]
"""Expressions that the labels of a namespace must all meet; empty for every namespace."""

EVERY: Selector = ()


class PolicyBinding(NamedTuple):
    """Applies the admission policy named ``policy`` to binds in namespaces that meet any of ``selectors``."""

    policy: str
    selectors: frozenset[Selector]


class BindAdmission:
    """The webhooks and policies that see binds. ``is_known`` returns whether all of them are known."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.is_known: Callable[[], bool] = lambda: False
        self.validating_webhooks = Records[frozenset[Selector]](_no_listener)
        self.mutating_webhooks = Records[frozenset[Selector]](_no_listener)
        self.validating_policies = Records[frozenset[Selector]](_no_listener)
        self.validating_bindings = Records[PolicyBinding](_no_listener)
        self.mutating_policies = Records[frozenset[Selector]](_no_listener)
        self.mutating_bindings = Records[PolicyBinding](_no_listener)
        self._namespaces = namespaces

    def may_refuse(self, namespace: str) -> bool:
        """Return whether admission may refuse binds in ``namespace``; True if that isn't known."""
        labels = self._namespaces.get(namespace)
        if labels is None or not self.is_known():
            return True
        webhooks = (*self.validating_webhooks.all(), *self.mutating_webhooks.all())
        return any(_meets(labels, selectors) for selectors in (*webhooks, *self._applied_policies(labels)))

    def _applied_policies(self, labels: Mapping[str, str]) -> Iterator[frozenset[Selector]]:
        """Yield the selectors of each policy that a policy binding applies to a namespace with ``labels``."""
        pairs = (self.validating_policies, self.validating_bindings), (self.mutating_policies, self.mutating_bindings)
        for policies, bindings in pairs:
            for binding in bindings.all():
                selectors = policies.get(binding.policy)
                if selectors and _meets(labels, binding.selectors):
                    yield selectors


def selectors_of_webhooks(raw: Mapping[str, Any]) -> frozenset[Selector]:
    """Return the selectors of namespaces in which a webhook of a raw webhook configuration sees binds."""
    return frozenset(_selector_in(each) for each in _items(raw.get("webhooks")) if _any_sees_binds(_items(_field(each, "rules"))))


def selectors_of_policy(raw: Mapping[str, Any]) -> frozenset[Selector]:
    """Return the selectors of namespaces in which a raw admission policy sees binds."""
    return _selectors_of(_field(raw.get("spec"), "matchConstraints"))


def policy_binding_from(raw: Mapping[str, Any]) -> PolicyBinding:
    """Return which policy a raw policy binding applies, and where."""
    spec = raw.get("spec")
    return PolicyBinding(str(_field(spec, "policyName")), _selectors_of(_field(spec, "matchResources")))


def _selectors_of(match: object) -> frozenset[Selector]:
    """Return the selectors of raw match resources that see binds; without rules they see all objects."""
    rules = _field(match, "resourceRules")
    return frozenset([_selector_in(match)] if not rules or _any_sees_binds(_items(rules)) else [])


def _selector_in(match: object) -> Selector:
    selector = _field(match, "namespaceSelector")
    try:
        return expressions_in(selector, "") if isinstance(selector, dict) else EVERY
    except MalformedError:  # also one that is longer than what is read
        return EVERY


def _any_sees_binds(rules: Iterable[object]) -> bool:
    return any(
        _has(rule, "operations", "CREATE", "*")
        and _has(rule, "apiGroups", "", "*")
        and _has(rule, "apiVersions", "v1", "*")
        and _has(rule, "resources", "pods/binding", "pods/*", "*/binding", "*/*")  # "*" stands for no subresource
        and _field(rule, "scope") != "Cluster"
        for rule in rules
    )


def _has(rule: object, field: str, *values: str) -> bool:
    stated = _field(rule, field)
    return not isinstance(stated, list) or any(value in stated for value in values)


def _field(raw: object, name: str) -> object:
    return raw.get(name) if isinstance(raw, dict) else None


def _items(raw: object) -> Collection[object]:
    return raw if isinstance(raw, list) else ()


def _meets(labels: Mapping[str, str], selectors: frozenset[Selector]) -> bool:
    return any(all(expression.matches(labels) for expression in selector) for selector in selectors)


def _no_listener(*_change: object) -> None:
    """Ignore a change: a transaction asks when it begins."""
