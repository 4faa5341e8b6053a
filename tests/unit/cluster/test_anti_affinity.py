"""The index of the required anti-affinity of bound pods finds the same domains as matching every term."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.anti_affinity import BoundTerms
from allaboard.cluster.namespaces import Namespaces
from allaboard.model.limits import NAMESPACE_TERMS
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.planning.resolve import _merged

keys, values, namespaces = st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from(["n1", "n2", "n3"])
NAMESPACES = ("n1", "n2", "n3")
expressions = st.one_of(
    st.builds(LabelExpression, keys, st.sampled_from(["In", "NotIn"]), st.lists(values, max_size=3).map(tuple)),
    st.builds(LabelExpression, keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
of_team = st.builds(LabelExpression, st.just("team"), st.sampled_from(["In", "NotIn"]), st.just(("a",)))
terms = st.builds(
    PodTerm,
    topology_key=st.sampled_from(["zone", "rack"]),
    expressions=st.lists(expressions, max_size=3).map(tuple),
    namespaces=st.lists(namespaces, max_size=2).map(tuple),
    in_any_namespace=st.booleans(),
    of_namespaces=st.lists(of_team, max_size=1).map(tuple),
)
holders = st.tuples(namespaces, st.lists(terms, max_size=3), st.sampled_from(["node-1", "node-2"]))
labels = st.dictionaries(keys, values).map(lambda found: tuple(sorted(found.items())))


def team_of(namespace: str) -> dict[str, str]:
    return {"team": "a" if namespace == "n1" else "b"}


def terms_of_a_cluster() -> BoundTerms:
    found = Namespaces()
    for name in NAMESPACES:
        found.upsert(name, team_of(name))
    return BoundTerms(found)


def naive(held: list[tuple[str, list[PodTerm], str]], namespace: str, pod_labels: dict[str, str]) -> dict[str, Counter[str]]:
    """Return the forbidden nodes, each with the number of terms, by the definition: match every term of every holder."""
    found: dict[str, Counter[str]] = {}
    for holder, stated, node in held:
        for term in stated:
            is_chosen = term.in_any_namespace and all(each.matches(team_of(namespace)) for each in term.of_namespaces)
            is_concerned = is_chosen or namespace in (term.namespaces or (() if term.in_any_namespace else (holder,)))
            if is_concerned and all(expression.matches(pod_labels) for expression in term.expressions):
                found.setdefault(term.topology_key, Counter())[node] += 1
    return found


@settings(max_examples=300)
@given(st.lists(holders, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), namespaces, st.lists(labels, min_size=1, max_size=3))
def test_index_of_anti_affinity_terms_finds_the_same_domains_as_a_comparison_with_every_term(
    held: list[tuple[str, list[PodTerm], str]], stay: list[bool], namespace: str, asked: list[tuple[tuple[str, str], ...]]
) -> None:
    anti_affinity = terms_of_a_cluster()
    for holder in held:
        anti_affinity.add(*holder)
    for pod_labels in asked:  # fills the cache, which must be emptied when holders go
        anti_affinity.domains(namespace, anti_affinity.relevant(pod_labels))
    for holder, stays in zip(held, stay, strict=False):
        if not stays:
            anti_affinity.remove(*holder)
    left = [holder for holder, stays in zip(held, stay, strict=False) if stays]
    for pod_labels in asked:
        assert anti_affinity.domains(namespace, anti_affinity.relevant(pod_labels)) == naive(left, namespace, dict(pod_labels))
    for holder in left:
        anti_affinity.remove(*holder)
    assert not anti_affinity
    assert not anti_affinity._keys


@settings(max_examples=300)
@given(st.lists(holders, max_size=6), namespaces, st.lists(labels, min_size=2, max_size=4))
def test_query_for_several_label_values_forbids_the_domains_of_each_value(
    held: list[tuple[str, list[PodTerm], str]], namespace: str, asked: list[tuple[tuple[str, str], ...]]
) -> None:
    anti_affinity = terms_of_a_cluster()
    for holder in held:
        anti_affinity.add(*holder)
    common, several = _merged(asked)
    of_all_values = anti_affinity.domains(namespace, common, several)
    for pod_labels in asked:
        for key, nodes in naive(held, namespace, dict(pod_labels)).items():
            assert set(nodes) <= set(of_all_values.get(key, ()))


def test_number_of_anti_affinity_terms_that_are_matched_is_limited_for_each_namespace_that_states_them() -> None:
    anti_affinity, exceeded = BoundTerms(), Counter[str]()
    anti_affinity.on_excess = lambda limit: exceeded.update([limit])
    for number in range(10 * NAMESPACE_TERMS.most):
        never = LabelExpression("app", "In", (f"v{number}", "w"))
        anti_affinity.add("evil", [PodTerm("zone", (never,), in_any_namespace=True)], "node-1")
    anti_affinity.add("fair", [PodTerm("rack", (LabelExpression("app", "Exists"),), in_any_namespace=True)], "node-2")
    assert anti_affinity.domains("team", (("app", "web"),)) == {"rack": {"node-2": 1}}
    assert exceeded == {NAMESPACE_TERMS.name: 1}


def test_as_many_terms_as_the_limit_allows_do_not_exceed_it() -> None:
    anti_affinity, exceeded = BoundTerms(), Counter[str]()
    anti_affinity.on_excess = lambda limit: exceeded.update([limit])
    for number in range(NAMESPACE_TERMS.most):
        anti_affinity.add("team", [PodTerm("zone", (LabelExpression("app", "In", (f"v{number}", "web")),))], f"node-{number}")
    assert len(anti_affinity.domains("team", (("app", "web"),))["zone"]) == NAMESPACE_TERMS.most
    assert not exceeded


def test_a_pod_is_not_compared_with_anti_affinity_terms_that_require_a_label_it_lacks() -> None:
    anti_affinity = BoundTerms()
    tried = []

    class Watched(PodTerm):
        def matches(self, pod_labels: object, several: object = ()) -> bool:
            tried.append(self)
            return False

    for number in range(100):
        anti_affinity.add("evil", [Watched("zone", (LabelExpression("app", "In", (f"v{number}",)),), in_any_namespace=True)], "node-1")
        anti_affinity.add("evil", [Watched("zone", (LabelExpression(f"k{number}", "Exists"),), in_any_namespace=True)], "node-1")
        anti_affinity.add("evil", [Watched("zone", ())], "node-1")
    anti_affinity.domains("team", (("app", "v7"),))
    assert [term.expressions[0].values for term in tried] == [("v7",)]


def test_anti_affinity_term_on_a_label_value_that_no_member_has_forbids_no_domain() -> None:
    """Example: the pods of a Job have the indexes 0 to 63. A term on another index doesn't concern them."""
    anti_affinity = BoundTerms()
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", ("none",)),), in_any_namespace=True)], "node-1")
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "DoesNotExist"),), in_any_namespace=True)], "node-2")
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", ("7", "x")),), in_any_namespace=True)], "node-3")
    assert anti_affinity.domains("team", *_merged([(("index", str(number)),) for number in range(64)])) == {"zone": {"node-3": 1}}


def test_terms_that_are_indexed_by_different_labels_count_towards_one_limit_for_their_namespace() -> None:
    anti_affinity, exceeded = BoundTerms(), Counter[str]()
    anti_affinity.on_excess = lambda limit: exceeded.update([limit])
    for number in range(2 * NAMESPACE_TERMS.most):
        anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", (str(number),)),), in_any_namespace=True)], "node-1")
    anti_affinity.domains("team", *_merged([(("index", str(number)),) for number in range(2 * NAMESPACE_TERMS.most)]))
    assert exceeded == {NAMESPACE_TERMS.name: 1}
