"""Selectors, affinity, tolerations and host ports match as in kube-scheduler."""

import pytest

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, SchedulingSpec, Toleration
from allaboard.model.node import Taint
from allaboard.placement.rules.matching import affinity_matches, all_match, ports_conflict, term_matches, tolerates
from tests.unit.placement.clusters import node

NODE = node("node-1", {}, labels={"zone": "a", "cores": "16", "empty": ""})
ANY = "0.0.0.0"  # noqa: S104


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("absent", "In", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("absent", "NotIn", ("a",), True),
        ("empty", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("absent", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("cores", "Gt", ("15",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Lt", ("17",), True),
        ("cores", "Lt", ("16",), False),
        ("cores", "Gt", ("-1",), True),
        ("absent", "Gt", ("1",), False),
        ("absent", "Lt", ("1",), False),
        ("zone", "Gt", ("1",), False),
        ("cores", "Gt", ("1_0",), False),
        ("cores", "Gt", (" 1",), False),
        ("cores", "Gt", ("99999999999999999999",), False),
        ("cores", "Gt", (), False),
        ("zone", "In", (), False),
        ("zone", "NotIn", (), False),
    ],
)
def test_expression_matches_labels_as_in_kube_scheduler(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    assert term_matches(NodeSelectorTerm((Requirement(key, operator, values),)), NODE) is expected


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("metadata.name", "In", ("node-1",), True),
        ("metadata.name", "In", ("node-2",), False),
        ("metadata.name", "NotIn", ("node-2",), True),
        ("metadata.name", "NotIn", ("node-1",), False),
        ("metadata.name", "In", ("node-1", "node-2"), False),
        ("metadata.name", "Exists", (), False),
        ("metadata.uid", "In", ("node-1",), False),
    ],
)
def test_field_selector_matches_only_the_name_of_a_node(key: str, operator: str, values: tuple[str, ...], expected: bool) -> None:
    assert term_matches(NodeSelectorTerm(fields=(Requirement(key, operator, values),)), NODE) is expected


IN_A = Requirement("zone", "In", ("a",))
IN_B = Requirement("zone", "In", ("b",))
IS_NODE_2 = Requirement("metadata.name", "In", ("node-2",))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (None, True),
        ((), False),
        ((NodeSelectorTerm(),), False),
        ((NodeSelectorTerm(), NodeSelectorTerm((IN_A,))), True),
        ((NodeSelectorTerm((IN_B,)), NodeSelectorTerm((IN_A,))), True),
        ((NodeSelectorTerm((IN_A, IN_B)),), False),
        ((NodeSelectorTerm((IN_A,), (IS_NODE_2,)),), False),
    ],
)
def test_node_must_match_all_parts_of_at_least_one_term_of_a_node_affinity(
    affinity: tuple[NodeSelectorTerm, ...] | None, expected: bool
) -> None:
    assert affinity_matches(SchedulingSpec(requests=(), affinity=affinity), NODE) is expected


def test_node_selector_and_affinity_must_both_match() -> None:
    affinity = (NodeSelectorTerm((IN_A,)),)

    assert affinity_matches(SchedulingSpec(requests=(), node_selector=(("cores", "16"),), affinity=affinity), NODE)
    assert not affinity_matches(SchedulingSpec(requests=(), node_selector=(("cores", "8"),), affinity=affinity), NODE)
    assert not affinity_matches(SchedulingSpec(requests=(), node_selector=(("absent", ""),)), NODE)


def test_node_must_match_the_affinity_of_every_volume() -> None:
    here, elsewhere = (NodeSelectorTerm((IN_A,)),), (NodeSelectorTerm((IN_B,)),)

    assert all_match((here, here), NODE)
    assert not all_match((here, elsewhere), NODE)


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration("key", "Equal", "value", "NoSchedule"), True),
        (Toleration("key", "", "value", ""), True),
        (Toleration("key", "Equal", "other", "NoSchedule"), False),
        (Toleration("key", "Exists", "", "NoSchedule"), True),
        (Toleration("key", "Exists", "", "NoExecute"), False),
        (Toleration("other", "Exists", "", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("key", "Gt", "1", ""), False),
        (Toleration("key", "Lt", "1", ""), False),
    ],
)
def test_toleration_covers_taints_as_in_kube_scheduler(toleration: Toleration, expected: bool) -> None:
    assert tolerates((toleration,), Taint("key", "value", "NoSchedule")) is expected


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (HostPort(ANY, "TCP", 80), HostPort("10.0.0.1", "TCP", 80), True),
        (HostPort("10.0.0.1", "TCP", 80), HostPort("10.0.0.1", "TCP", 80), True),
        (HostPort("10.0.0.1", "TCP", 80), HostPort("10.0.0.2", "TCP", 80), False),
        (HostPort(ANY, "TCP", 80), HostPort(ANY, "UDP", 80), False),
        (HostPort(ANY, "TCP", 80), HostPort(ANY, "TCP", 81), False),
    ],
)
def test_ports_conflict_on_the_same_address_or_a_wildcard_address(left: HostPort, right: HostPort, expected: bool) -> None:
    assert ports_conflict(left, right) is expected
    assert ports_conflict(right, left) is expected
