"""Tests that the anti-affinity of a gang's pods becomes rules between its members, and a filter because of bound pods."""

from dataclasses import replace

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import NodeSelectorTerm, Requirement
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.members import rules_of
from allaboard.planning.resolve import resolve
from tests.unit.placement.clusters import node, pods

WEB = LabelExpression("app", "In", ("web",))
BY_ZONE = PodTerm("zone", (WEB,))


def members(name: str, number: int, app: str, *terms: PodTerm) -> list[Pod]:
    return [replace(pod, labels=(("app", app),), spec=replace(pod.spec, anti_affinity=terms)) for pod in pods(name, number, {"cpu": 1000})]


def a_gang(*of: Pod) -> Gang:
    return Gang(GangKey("default", "g"), len(of), tuple(of), 0, 0.0, Objective.BINPACK, 60)


def test_term_that_selects_other_members_is_a_rule_between_members() -> None:
    web, db = members("web", 2, "web", BY_ZONE), members("db", 2, "db")
    assert rules_of(a_gang(*web, *db)).couplings == [ApartRule("zone", frozenset({"web-0", "web-1"}), frozenset({"web-0", "web-1"}))]


def test_term_that_selects_members_of_another_role_is_a_rule_between_the_roles() -> None:
    web, db = members("web", 2, "web"), members("db", 1, "db", BY_ZONE)
    assert rules_of(a_gang(*web, *db)).couplings == [ApartRule("zone", frozenset({"db-0"}), frozenset({"web-0", "web-1"}))]


def test_term_that_selects_no_other_member_is_no_rule() -> None:
    elsewhere = PodTerm("zone", (WEB,), namespaces=("elsewhere",))
    assert rules_of(a_gang(*members("web", 1, "web", BY_ZONE))).is_plain
    assert rules_of(a_gang(*members("web", 2, "web", elsewhere))).is_plain
    assert rules_of(a_gang(*members("db", 2, "db", BY_ZONE))).is_plain


def test_members_avoid_the_domains_of_bound_pods_that_their_terms_select() -> None:
    view = ClusterView()
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        view.upsert_node(node(name, {"cpu": 8000}, labels={"zone": zone}))
    [bound] = members("old", 1, "web")
    view.upsert_pod(replace(bound, node_name="n2", phase="Running"))
    gang = resolve(a_gang(*members("web", 2, "web", BY_ZONE)), view.volumes, view)
    avoided = ((NodeSelectorTerm(expressions=(Requirement("zone", "NotIn", ("b",)),)),),)
    assert {pod.spec.avoided_domains for pod in gang.candidates} == {avoided}
    view.remove_pod(bound.key)
    assert resolve(a_gang(*members("web", 2, "web", BY_ZONE)), view.volumes, view).candidates[0].spec.avoided_domains == ()


def test_assumed_pods_count_as_bound_pods() -> None:
    view = ClusterView()
    view.upsert_node(node("n1", {"cpu": 8000}, labels={"zone": "a"}))
    [other] = members("other", 1, "web")
    view.upsert_pod(other)
    view.assume_all([(other, "n1")])
    waiting = a_gang(*members("web", 1, "web", BY_ZONE))
    assert resolve(waiting, view.volumes, view).candidates[0].spec.avoided_domains
    view.forget_all([other])
    assert not resolve(waiting, view.volumes, view).candidates[0].spec.avoided_domains
