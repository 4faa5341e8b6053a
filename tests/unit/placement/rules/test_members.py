"""Tests which rules between members are made from the terms of their pods, and from what bound pods are found for these terms."""

from dataclasses import replace

import numpy as np

from allaboard.model.constraints import SchedulingSpec, Toleration
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import Node, Taint
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm, SpreadConstraint
from allaboard.placement import NodeFilters
from allaboard.placement.rules.members import rules_of
from allaboard.placement.rules.near import NearRule
from allaboard.placement.rules.spread import SpreadRule, is_eligible

SPEC = SchedulingSpec((("pods", 1),))
APP = (LabelExpression("app", "In", ("x",)),)


def a_gang(*specs: SchedulingSpec) -> Gang:
    members = tuple(
        Pod("ns", f"m{number}", f"uid-{number}", "1", 0.0, "allaboard", "", "Pending", 0, spec, labels=(("app", "x"),))
        for number, spec in enumerate(specs)
    )
    return Gang(GangKey("ns", "g"), len(members), members, 0, 0.0, Objective.BINPACK, 60)


def test_no_member_begins_in_a_domain_if_a_bound_pod_is_selected_in_a_domain_of_another_label() -> None:
    terms = (PodTerm("zone", APP), PodTerm("rack", APP))
    rules = rules_of(a_gang(replace(SPEC, pod_affinity=terms, near=(("zone", ()), ("rack", ("r1",))))))
    assert [(rule.label, rule.values, rule.others_are_bound) for rule in rules.couplings if isinstance(rule, NearRule)] == [
        ("zone", (), True),
        ("rack", ("r1",), False),
    ]


def test_only_one_of_two_groups_that_select_each_other_begins_in_a_domain() -> None:
    """Whichever pod is bound first, the other must join it."""
    of_any, of_one = (PodTerm("zone", (LabelExpression("app", operator, values),)) for operator, values in (("Exists", ()), ("In", ("x",))))
    gang = a_gang(replace(SPEC, pod_affinity=(of_any,)), replace(SPEC, pod_affinity=(of_one,)))
    (rule,) = rules_of(gang).couplings
    nodes = [Node(f"n{zone}", f"n{zone}", (), {"zone": zone}) for zone in "ab"]
    assert list(rule.broken({"uid-0": nodes[0], "uid-1": nodes[1]}, nodes))
    assert not list(rule.broken({"uid-0": nodes[0], "uid-1": nodes[0]}, nodes))


def test_an_empty_selector_of_a_spread_constraint_counts_no_members() -> None:
    """kube-scheduler counts no pods then, although the selector matches every pod (podtopologyspread/common.go)."""
    constraints = (SpreadConstraint("zone", APP), SpreadConstraint("rack", ()))
    of_app, of_all = rules_of(a_gang(*[replace(SPEC, spread=constraints)] * 2)).couplings
    assert (of_app.matched, of_all.matched) == ({"uid-0", "uid-1"}, frozenset())
    preferred = replace(SPEC, preferred_spread=(SpreadConstraint("rack", ()),))
    assert not rules_of(a_gang(preferred, preferred)).attractions


def test_an_empty_value_of_a_label_is_a_domain() -> None:
    nodes = [Node("n0", "n0", (), {"zone": ""}), Node("n1", "n1", (), {"zone": "a"}), Node("n2", "n2", (), {})]
    rule = SpreadRule(SpreadConstraint("zone", APP), ("zone",), {"a", "b"}, {"a", "b"}, (), SPEC)
    assert not list(rule.broken({"a": nodes[0], "b": nodes[1]}, nodes))
    assert [each.value for each in rule.broken({"a": nodes[0], "b": nodes[0]}, nodes)] == [""]
    assert [each.value for each in rule.broken({"a": nodes[2]}, nodes)] == ["none"]


def test_taints_that_a_pod_tolerates_do_not_exclude_a_node_from_its_spread() -> None:
    constraint = SpreadConstraint("zone", APP, honors_taints=True)
    tainted = Node("n", "n", (), {"zone": "a"}, taints=(Taint("gpu", "", "NoSchedule"),))
    tolerant = replace(SPEC, tolerations=(Toleration("gpu", "Exists", "", ""),))
    assert is_eligible(tainted, constraint, ("zone",), tolerant)
    assert not is_eligible(tainted, constraint, ("zone",), SPEC)


def test_node_affinity_counts_for_a_spread_only_if_the_constraint_honours_it() -> None:
    nodes = tuple(Node(f"n{pool}", f"n{pool}", (), {"pool": pool}) for pool in "ab")
    spec, filters = replace(SPEC, node_selector=(("pool", "a"),)), NodeFilters()
    assert np.array_equal(filters.eligible(spec, nodes, by_affinity=True, by_taints=False), [True, False])
    assert np.array_equal(filters.eligible(spec, nodes, by_affinity=False, by_taints=False), [True, True])
