"""Tests that terms of pod affinity find the bound pods that they select, as a comparison of each pod with the term does."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from allaboard.cluster.namespaces import Namespaces
from allaboard.cluster.pod_labels import PodLabels
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm
from tests.unit.placement.clusters import pods

LABELS = st.dictionaries(
    st.sampled_from(["app", "tier", "batch.kubernetes.io/job-completion-index"]), st.sampled_from(["a", "b"]), max_size=3
)
EXPRESSIONS = st.builds(
    LabelExpression,
    st.sampled_from(["app", "tier", "batch.kubernetes.io/job-completion-index"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.just(("a",)),
)
TERMS = st.builds(
    PodTerm,
    st.just("zone"),
    st.lists(EXPRESSIONS, max_size=2).map(tuple),
    st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True).map(tuple),
    st.booleans(),
    st.lists(st.builds(LabelExpression, st.just("team"), st.sampled_from(["In", "NotIn"]), st.just(("a",))), max_size=1).map(tuple),
)
TEAMS = {"x": {"team": "a"}, "y": {"team": "b"}}
EVENTS = st.tuples(st.integers(0, 4), st.sampled_from(["x", "y"]), LABELS, st.sampled_from(["", "n1", "n2"]))


def a_pod(number: int, namespace: str, labels: dict[str, str]) -> Pod:
    [pod] = pods(f"p{number}", 1, {"cpu": 1000})
    return replace(pod, uid=f"u{number}", namespace=namespace, labels=tuple(sorted(labels.items())))


@given(st.lists(EVENTS, max_size=12), TERMS)
def test_term_finds_the_nodes_of_the_pods_that_it_selects(events, term) -> None:
    namespaces = Namespaces()
    for name, labels in TEAMS.items():
        namespaces.upsert(name, labels)
    known, index = dict[int, tuple[Pod, str]](), PodLabels(namespaces)
    for number, namespace, labels, node_name in events:
        pod = a_pod(number, namespace, labels)
        if node_name:
            known[number] = pod, node_name
            index.put(pod, node_name)
        else:
            known.pop(number, None)
            index.remove(pod.uid)
    for holder in (a_pod(9, "x", {}), a_pod(0, "x", {})):
        chosen = {*term.namespaces} or ({holder.namespace} if not term.in_any_namespace else set())
        if term.in_any_namespace:
            chosen |= {name for name, labels in TEAMS.items() if all(each.matches(labels) for each in term.of_namespaces)}
        expected = Counter(
            node_name
            for pod, node_name in known.values()
            if pod.uid != holder.uid and pod.namespace in chosen and term.matches(dict(pod.labels))
        )
        assert index.nodes_of((term,), holder) == expected


def test_pods_that_are_being_deleted_are_left_out_if_that_is_asked() -> None:
    found, (asking, stays, leaves) = PodLabels(), (a_pod(number, "x", {}) for number in range(3))
    found.put(stays, "n1")
    found.put(replace(leaves, is_terminating=True), "n2")
    every = (PodTerm("zone", ()),)
    assert found.nodes_of(every, asking) == {"n1": 1, "n2": 1}
    assert found.nodes_of(every, asking, with_leaving=False) == {"n1": 1}
