"""Tests that a selection finds the same members as a comparison of each member with each term."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.podterms import PodTerm
from allaboard.placement.rules.selection import Selection
from tests.unit.cluster.test_anti_affinity import labels, terms
from tests.unit.placement.clusters import pods


@settings(max_examples=300)
@given(st.lists(labels, min_size=1, max_size=12), st.lists(terms, max_size=3))
def test_selection_agrees_with_a_comparison_of_each_member(stated, some: list[PodTerm]) -> None:
    members = [replace(pod, namespace="n1", labels=each) for pod, each in zip(pods("m", len(stated), {"cpu": 1}), stated, strict=True)]
    some = [replace(term, of_namespaces=()) for term in some]
    group = Selection(members)

    def selects(term: PodTerm, pod) -> bool:
        return (term.in_any_namespace or "n1" in (term.namespaces or ("n1",))) and term.matches(dict(pod.labels))

    assert group.of(some) == {pod.uid for pod in members if all(selects(term, pod) for term in some)}
    for term in some:
        assert group.number(term, but=members[0]) == sum(selects(term, pod) for pod in members[1:])


def test_an_empty_gang_has_no_selected_members() -> None:
    assert Selection(()).of((PodTerm("zone", ()),)) == frozenset()
