"""Tests which pods the required anti-affinity of a pod keeps away."""

from typing import Any

import pytest

from allaboard.model.errors import MalformedError
from allaboard.model.podterms import LabelExpression, PodTerm, anti_affinity_terms, preferred_pod_terms, spread_constraints

REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"

LABELS = {"app": "web", "tier": "front"}


def term(**fields: Any) -> PodTerm:
    stated = {"topologyKey": "zone", "labelSelector": {}, **fields}
    (found,), problem = anti_affinity_terms({"podAntiAffinity": {REQUIRED: [stated]}})
    assert problem is None
    return found


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "db"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_a_selector_matches_labels_as_kubernetes_does(selector: dict[str, Any], matches: bool) -> None:
    assert term(labelSelector=selector).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("fields", "namespace", "matches"),
    [
        ({}, "ns", True),
        ({}, "other", False),
        ({"namespaces": ["other"]}, "other", True),
        ({"namespaces": ["other"]}, "ns", False),
        ({"namespaceSelector": {}}, "anywhere", True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "of-team-a", True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "ns", False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["other"]}, "other", True),
    ],
)
def test_an_anti_affinity_term_is_for_the_namespace_of_its_pod_unless_it_names_namespaces(
    fields: dict[str, Any], namespace: str, matches: bool
) -> None:
    def labels_of(name: str) -> dict[str, str]:
        return {"team": "a"} if name == "of-team-a" else {}

    found = term(**fields)
    assert found.selects_namespace(namespace, "ns", labels_of) is matches
    if matches:
        assert {namespace, None} & set(found.concerns("ns"))
    assert found.within("ns", labels_of).selects_namespace("ns", "ns", labels_of) or not found.selects_namespace("ns", "ns", labels_of)


def test_an_anti_affinity_term_without_a_selector_keeps_no_pod_away() -> None:
    stated = {"topologyKey": "zone", "labelSelector": None}
    assert anti_affinity_terms({"podAntiAffinity": {REQUIRED: [stated]}}) == ((), None)


def test_the_error_names_an_unknown_operator_of_a_label_selector() -> None:
    stated = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}}
    found, problem = anti_affinity_terms({"podAntiAffinity": {REQUIRED: [stated]}})
    assert found == ()
    assert problem is not None
    assert problem.field.endswith("matchExpressions[0].operator")


POD = {"metadata": {"labels": {"run": "7", "app": "web"}}}


def test_match_label_keys_add_the_pods_own_values_to_the_selector() -> None:
    stated = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["run", "none"], "mismatchLabelKeys": ["app"]}
    (found,), problem = anti_affinity_terms({"podAntiAffinity": {REQUIRED: [stated]}}, POD)
    assert problem is None
    assert found.expressions == (LabelExpression("run", "In", ("7",)), LabelExpression("app", "NotIn", ("web",)))
    (spread,) = spread_constraints({"topologySpreadConstraints": [stated | {"whenUnsatisfiable": "DoNotSchedule"}]}, POD)
    assert spread.expressions == (LabelExpression("run", "In", ("7",)),)


@pytest.mark.parametrize(("weight", "is_valid"), [(0, False), (1, True), (100, True), (101, False)])
def test_a_weight_is_from_1_to_100(weight: int, is_valid: bool) -> None:
    affinity = {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]}}
    if is_valid:
        assert [found for found, _ in preferred_pod_terms(affinity, POD)] == [weight]
    else:
        with pytest.raises(MalformedError, match="is not between 1 and 100"):
            preferred_pod_terms(affinity, POD)


def test_a_whole_number_beyond_64_bits_is_malformed() -> None:
    constraint = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 10**400}
    with pytest.raises(MalformedError, match=r"maxSkew: .* is too large"):
        spread_constraints({"topologySpreadConstraints": [constraint]}, POD)
