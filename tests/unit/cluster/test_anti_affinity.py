"""Required anti-affinity of bound pods: the index finds the same as matching every term."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.anti_affinity import AntiAffinityTerms
from allaboard.model.limits import NAMESPACE_TERMS
from allaboard.model.podterms import LabelExpression, PodTerm
from allaboard.planning.resolve import _merged

keys, values, namespaces = st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from(["n1", "n2", "n3"])
expressions = st.one_of(
    st.builds(LabelExpression, keys, st.sampled_from(["In", "NotIn"]), st.lists(values, max_size=3).map(tuple)),
    st.builds(LabelExpression, keys, st.sampled_from(["Exists", "DoesNotExist"])),
)
terms = st.builds(
    PodTerm,
    topology_key=st.sampled_from(["zone", "rack"]),
    expressions=st.lists(expressions, max_size=3).map(tuple),
    namespaces=st.lists(namespaces, max_size=2).map(tuple),
    in_any_namespace=st.booleans(),
)
holders = st.tuples(namespaces, st.lists(terms, max_size=3), st.sampled_from(["node-1", "node-2"]))
labels = st.dictionaries(keys, values).map(lambda found: tuple(sorted(found.items())))


def naive(held: list[tuple[str, list[PodTerm], str]], namespace: str, pod_labels: dict[str, str]) -> dict[str, set[str]]:
    """By the definition: every term of every holder is tried."""
    found: dict[str, set[str]] = {}
    for holder, stated, node in held:
        for term in stated:
            is_concerned = term.in_any_namespace or namespace in (term.namespaces or (holder,))
            if is_concerned and all(expression.matches(pod_labels) for expression in term.expressions):
                found.setdefault(term.topology_key, set()).add(node)
    return found


@settings(max_examples=300)
@given(st.lists(holders, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), namespaces, st.lists(labels, min_size=1, max_size=3))
def test_the_index_finds_what_trying_every_term_would(
    held: list[tuple[str, list[PodTerm], str]], stay: list[bool], namespace: str, asked: list[tuple[tuple[str, str], ...]]
) -> None:
    anti_affinity = AntiAffinityTerms()
    for holder in held:
        anti_affinity.add(*holder)
    for pod_labels in asked:  # what is remembered is forgotten when holders go
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
def test_labels_of_several_values_keep_a_pod_out_of_whatever_any_of_them_would(
    held: list[tuple[str, list[PodTerm], str]], namespace: str, asked: list[tuple[tuple[str, str], ...]]
) -> None:
    anti_affinity = AntiAffinityTerms()
    for holder in held:
        anti_affinity.add(*holder)
    common, several = _merged(asked)
    of_all = anti_affinity.domains(namespace, common, several)
    for pod_labels in asked:
        for key, nodes in naive(held, namespace, dict(pod_labels)).items():
            assert nodes <= set(of_all.get(key, ()))


def test_of_one_namespace_so_many_terms_are_tried_and_others_have_their_own() -> None:
    anti_affinity, told = AntiAffinityTerms(), Counter[str]()
    anti_affinity.on_excess = lambda limit: told.update([limit])
    for number in range(10 * NAMESPACE_TERMS.most):
        never = LabelExpression("app", "In", (f"v{number}", "w"))
        anti_affinity.add("evil", [PodTerm("zone", (never,), in_any_namespace=True)], "node-1")
    anti_affinity.add("fair", [PodTerm("rack", (LabelExpression("app", "Exists"),), in_any_namespace=True)], "node-2")
    assert anti_affinity.domains("team", (("app", "web"),)) == {"rack": {"node-2"}}
    assert told == {NAMESPACE_TERMS.name: 1}


def test_terms_that_require_another_label_are_not_tried() -> None:
    anti_affinity = AntiAffinityTerms()
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


def test_a_gang_of_many_values_is_kept_out_by_none_that_it_has_not() -> None:
    """As the indices of a large Job are: a term on one that isn't among them has nothing to do with it."""
    anti_affinity = AntiAffinityTerms()
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", ("nobody",)),), in_any_namespace=True)], "node-1")
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "DoesNotExist"),), in_any_namespace=True)], "node-2")
    anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", ("7", "x")),), in_any_namespace=True)], "node-3")
    assert anti_affinity.domains("team", *_merged([(("index", str(number)),) for number in range(64)])) == {"zone": {"node-3"}}


def test_terms_of_a_namespace_beyond_the_limit_are_ignored_wherever_they_are_indexed() -> None:
    anti_affinity, told = AntiAffinityTerms(), Counter[str]()
    anti_affinity.on_excess = lambda limit: told.update([limit])
    for number in range(2 * NAMESPACE_TERMS.most):
        anti_affinity.add("evil", [PodTerm("zone", (LabelExpression("index", "In", (str(number),)),), in_any_namespace=True)], "node-1")
    anti_affinity.domains("team", *_merged([(("index", str(number)),) for number in range(2 * NAMESPACE_TERMS.most)]))
    assert told == {NAMESPACE_TERMS.name: 1}
