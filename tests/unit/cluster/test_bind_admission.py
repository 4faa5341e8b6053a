"""Tests in which namespaces admission may refuse binds, by the rules and selectors of webhooks and policies."""

from typing import Any

import pytest

from allaboard.cluster.bind_admission import BindAdmission, policy_binding_from, selectors_of_policy, selectors_of_webhooks
from allaboard.cluster.namespaces import Namespaces

Raw = dict[str, Any]
BINDS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}
TEAM_A = {"matchLabels": {"team": "a"}}


def admission() -> BindAdmission:
    """Return the admission of a cluster with the namespaces a and b, of which all objects are known and none sees binds."""
    namespaces = Namespaces()
    namespaces.upsert("a", {"team": "a"})
    namespaces.upsert("b", {"team": "b"})
    found = BindAdmission(namespaces)
    found.is_known = lambda: True
    return found


def refusing(found: BindAdmission) -> str:
    return "".join(namespace for namespace in "ab" if found.may_refuse(namespace))


def test_without_webhooks_and_policies_no_bind_may_be_refused() -> None:
    assert refusing(admission()) == ""


def test_as_long_as_not_all_is_known_any_bind_may_be_refused() -> None:
    found = admission()
    found.is_known = lambda: False
    assert refusing(found) == "ab"


def test_binds_in_an_unknown_namespace_may_be_refused() -> None:
    assert admission().may_refuse("new")


@pytest.mark.parametrize("kind", ["validating_webhooks", "mutating_webhooks"])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, "ab"),
        ({"resources": ["pods", "pods/*"]}, "ab"),
        ({"resources": ["*/binding"]}, "ab"),
        ({"resources": ["*/*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}, "ab"),
        ({"scope": "Namespaced"}, "ab"),
        ({"scope": "Cluster"}, ""),
        ({"resources": ["*"]}, ""),
        ({"resources": ["pods", "pods/status", "bindings"]}, ""),
        ({"operations": ["UPDATE", "DELETE", "CONNECT"]}, ""),
        ({"apiGroups": ["apps"]}, ""),
        ({"apiVersions": ["v2"]}, ""),
        ({"resources": "pods/binding"}, "ab"),  # malformed
        ({"operations": None}, "ab"),
    ],
)
def test_webhook_sees_binds_if_a_rule_matches_them(kind: str, rule: Raw, expected: str) -> None:
    found = admission()
    rules = [{**BINDS, "resources": ["nodes"]}, {**BINDS, **rule}]
    getattr(found, kind).upsert("w", selectors_of_webhooks({"webhooks": [{"rules": rules}]}))
    assert refusing(found) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, "ab"),
        (None, "ab"),
        (TEAM_A, "a"),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, "b"),
        ({"matchExpressions": [{"key": "exempt", "operator": "Exists"}]}, ""),
        ({"matchExpressions": [{"key": "team", "operator": "Like", "values": ["a"]}]}, "ab"),  # unknown, so it counts as a match
        ({"matchLabels": {f"label-{number}": "x" for number in range(10_000)}}, "ab"),  # longer than what is read
        ("team=a", "ab"),
    ],
)
def test_webhook_sees_binds_in_the_namespaces_that_its_selector_matches(selector: object, expected: str) -> None:
    found = admission()
    webhooks = [{"rules": [BINDS], "namespaceSelector": selector}]
    found.validating_webhooks.upsert("w", selectors_of_webhooks({"webhooks": webhooks}))
    assert refusing(found) == expected


@pytest.mark.parametrize("kind", ["validating", "mutating"])
@pytest.mark.parametrize(
    ("constraints", "resources", "expected"),
    [
        ({"resourceRules": [BINDS]}, {}, "ab"),
        ({"resourceRules": [BINDS]}, None, "ab"),
        ({"resourceRules": [BINDS], "namespaceSelector": TEAM_A}, {}, "a"),
        ({"resourceRules": [BINDS]}, {"namespaceSelector": TEAM_A}, "a"),
        ({"resourceRules": [BINDS], "namespaceSelector": TEAM_A}, {"namespaceSelector": {"matchLabels": {"team": "b"}}}, ""),
        ({"resourceRules": [BINDS]}, {"resourceRules": [{**BINDS, "resources": ["pods"]}]}, ""),
        ({"resourceRules": [{**BINDS, "resources": ["*"]}]}, {}, ""),
        ({}, {}, "ab"),
    ],
)
def test_policy_sees_binds_that_match_both_the_policy_and_its_binding(
    kind: str, constraints: Raw, resources: object, expected: str
) -> None:
    found = admission()
    policies, bindings = getattr(found, f"{kind}_policies"), getattr(found, f"{kind}_bindings")
    policies.upsert("p", selectors_of_policy({"spec": {"matchConstraints": constraints}}))
    assert refusing(found) == ""  # A policy without a binding does nothing.
    bindings.upsert("other", policy_binding_from({"spec": {"policyName": "q"}}))
    assert refusing(found) == ""
    bindings.upsert("b", policy_binding_from({"spec": {"policyName": "p", "matchResources": resources}}))
    assert refusing(found) == expected


@pytest.mark.parametrize(
    "raw", [{}, {"webhooks": "x"}, {"webhooks": [None, 7, {"rules": [None]}]}, {"spec": 3}, {"spec": {"matchConstraints": []}}]
)
def test_malformed_objects_are_read_without_an_error(raw: Raw) -> None:
    selectors_of_webhooks(raw)
    selectors_of_policy(raw)
    policy_binding_from(raw)
