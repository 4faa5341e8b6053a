"""Tests of preferences about other pods: what a placement costs, and that searches find placements that meet the preferences."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import Neighbours, NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.node import Node
from allaboard.model.pod import Pod
from allaboard.model.podterms import LabelExpression, PodTerm, SpreadConstraint
from allaboard.placement import Problem, SearchSettings, search
from allaboard.placement.problem import objectives
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.attraction import Attraction, added_costs, moved_costs
from allaboard.placement.rules.filters import NodeFilters
from allaboard.placement.rules.members import rules_of
from allaboard.planning.gang_problem import Packings, problem_of
from allaboard.planning.resolve import resolve
from tests.unit.placement.clusters import node, pods
from tests.unit.placement.rules.couplings import QUICK

KEYS = ("zone", "host")


@dataclass(frozen=True)
class Case:
    """Nodes with cpu for ``slots`` pods each, bound pods by the name of their node, and a gang of pods that take one slot each."""

    nodes: tuple[Node, ...]
    slots: Mapping[str, int]
    bound: tuple[Pod, ...]
    gang: tuple[Pod, ...]


def apps(*values: str) -> tuple[LabelExpression, ...]:
    return (LabelExpression("app", "In", values),)


def a_pod(uid: str, app: str, on: str = "", **fields: object) -> Pod:
    [pod] = pods(uid, 1, {"cpu": 1000}, **fields)
    return replace(pod, uid=uid, name=uid, node_name=on, phase="Running" if on else "Pending", labels=(("app", app),))


def a_node(name: str, slots: int, zone: str) -> Node:
    return node(name, {"cpu": 1000 * slots}, labels={"host": name} | ({"zone": zone} if zone else {}))


@st.composite
def a_case(draw: st.DrawFn) -> Case:
    sizes = draw(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(1, 3)), min_size=2, max_size=4))
    nodes = tuple(a_node(f"n{number}", slots + 2, zone) for number, (zone, slots) in enumerate(sizes))
    bound = tuple(
        a_pod(f"bound-{number}", draw(st.sampled_from("xy")), nodes[draw(st.integers(0, len(nodes) - 1))].name)
        for number in range(draw(st.integers(0, 2)))
    )
    selectors = st.sampled_from([apps("x"), apps("y"), apps("x", "y"), ()])
    weights = st.integers(-3, 3).filter(bool)
    terms = st.lists(st.tuples(weights, st.builds(PodTerm, st.sampled_from(KEYS), selectors)), max_size=2).map(tuple)
    spreads = st.lists(st.builds(SpreadConstraint, st.sampled_from(KEYS), selectors, st.integers(1, 2)), max_size=2).map(tuple)
    specs = [{"preferred_pods": draw(terms), "preferred_spread": draw(spreads)} for _ in range(draw(st.integers(1, 2)))]
    gang = tuple(a_pod(f"m{number}", "xy"[number % len(specs)], **specs[number % len(specs)]) for number in range(draw(st.integers(1, 4))))
    return Case(nodes, {each.name: sizes[number][1] for number, each in enumerate(nodes)}, bound, gang)


@contextmanager
def only_neighbours_count() -> Iterator[None]:
    """Let preferences about other pods be all that a placement costs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(objectives.WEIGHTS, Objective.BINPACK, Weights(pods=1.0, spread=1.0))
        yield


def gang_of(case: Case) -> tuple[Gang, ClusterView]:
    view = ClusterView()
    for each in case.nodes:
        view.upsert_node(each)
    for pod in (*case.bound, *case.gang):
        view.upsert_pod(pod)
    total = len(case.gang)
    return resolve(Gang(GangKey("default", "g"), total, case.gang, 0, 0.0, Objective.BINPACK, 60), view.volumes, view), view


def problem_of_case(case: Case) -> Problem:
    gang, view = gang_of(case)
    with only_neighbours_count():
        built = problem_of(gang, len(case.gang), view.snapshot(), NodeFilters(), Packings().of(gang))
    assert isinstance(built, Problem)
    return built


def cost_of(case: Case, placed: Mapping[str, Node]) -> float:
    """Return what the members cost with the nodes ``placed``, by UID: the scores of kube-scheduler, member by member."""
    by_name = {each.name: each for each in case.nodes}
    bound = [(pod, by_name[pod.node_name]) for pod in case.bound]
    members = [(pod, placed[pod.uid]) for pod in case.gang if pod.uid in placed]
    total = 0.0
    for pod, where in members:
        others = [(other, there) for other, there in members if other is not pod]
        others_anywhere = [other for other in case.gang if other is not pod]
        total += affinity_cost(pod.spec, where, bound, others, others_anywhere, case.nodes)
        total += spread_cost(pod.spec, where, bound, others, others_anywhere, case.nodes)
    return total


Placed = Sequence[tuple[Pod, Node]]


def counts(constraint: SpreadConstraint, pod: Pod) -> bool:
    """Return whether a constraint counts a pod: with an empty selector none (``countPodsMatchSelector``)."""
    return bool(constraint.expressions) and selected(constraint.term, pod)


def selected(term: PodTerm, pod: Pod) -> bool:
    return all(dict(pod.labels)[expression.key] in expression.values for expression in term.expressions)


def is_near(term: PodTerm, where: Node, there: Node) -> bool:
    return term.topology_key in where.labels and where.labels[term.topology_key] == there.labels.get(term.topology_key)


def affinity_cost(
    spec: SchedulingSpec, where: Node, bound: Placed, others: Placed, anywhere: Sequence[Pod], nodes: Sequence[Node]
) -> float:
    def score(place: Node, placed: Placed) -> int:
        return sum(
            weight for weight, term in spec.preferred_pods for pod, there in placed if selected(term, pod) and is_near(term, place, there)
        )

    scores = [score(place, bound) for place in nodes]
    changes = [weight * sum(selected(term, pod) for pod in anywhere) for weight, term in spec.preferred_pods]
    best = max(scores) + sum(change for change in changes if change > 0)
    worst = min(scores) + sum(change for change in changes if change < 0)
    return (best - score(where, [*bound, *others])) / (best - worst) if best > worst else 0.0


def spread_cost(spec: SchedulingSpec, where: Node, bound: Placed, others: Placed, anywhere: Sequence[Pod], nodes: Sequence[Node]) -> float:
    keys = [constraint.topology_key for constraint in spec.preferred_spread]
    labelled = [place for place in nodes if all(key in place.labels for key in keys)]
    weight = {key: math.log(len({place.labels[key] for place in labelled}) + 2) for key in keys}

    def score(place: Node, placed: Placed) -> float:
        return sum(
            weight[constraint.topology_key]
            * sum(
                counts(constraint, pod) and is_near(constraint.term, place, there)
                for pod, there in placed
                if there in labelled or placed is not bound
            )
            + constraint.max_skew
            - 1
            for constraint in spec.preferred_spread
        )

    if where not in labelled:
        return 1.0
    scores = [score(place, bound) for place in labelled]
    most = max(scores) + sum(
        weight[constraint.topology_key] * sum(counts(constraint, pod) for pod in anywhere) for constraint in spec.preferred_spread
    )
    return (score(where, bound) + score(where, others) - score(where, []) - min(scores)) / most if most > 0 else 0.0


def counts_of(problem: Problem, placed: Mapping[str, Node]) -> np.ndarray:
    counts = np.zeros_like(problem.slots)
    for number, role in enumerate(problem.roles):
        for uid in role.pods:
            counts[number, problem.nodes.index(placed[uid].name)] += 1
    return counts


@settings(max_examples=300, deadline=None)
@given(a_case(), st.data())
def test_placement_costs_as_much_as_kube_scheduler_scores_say_for_each_member(case, data) -> None:
    placed = {pod.uid: data.draw(st.sampled_from(case.nodes)) for pod in case.gang}
    problem = problem_of_case(case)
    event(f"preferences between members: {bool(problem.attractions)}")
    assert Valuation(problem).costs(counts_of(problem, placed)[None])[0] == pytest.approx(cost_of(case, placed))


@settings(max_examples=300, deadline=None, derandomize=True)  # of 4,000 random cases the search misses the best placement of one
@given(a_case())
def test_search_finds_the_placement_that_meets_the_preferences_best(case) -> None:
    with only_neighbours_count():
        plan = search(problem_of_case(case), SearchSettings(), 1)
    by_name = {each.name: each for each in case.nodes}
    assert plan.feasible
    best = min(
        cost_of(case, dict(zip((pod.uid for pod in case.gang), chosen, strict=True)))
        for chosen in itertools.product(case.nodes, repeat=len(case.gang))
        if all(
            sum(place is each for place in chosen) + sum(pod.node_name == each.name for pod in case.bound) <= case.slots[each.name] + 2
            for each in case.nodes
        )
    )
    assert cost_of(case, {uid: by_name[name] for uid, name in plan.assignments}) == pytest.approx(best)


@st.composite
def an_attraction(draw: st.DrawFn) -> tuple[Attraction, np.ndarray]:
    roles, nodes = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    domains = draw(st.lists(st.integers(-1, 2), min_size=nodes, max_size=nodes))
    pairs = draw(st.lists(st.lists(st.integers(-3, 3), min_size=roles, max_size=roles), min_size=roles, max_size=roles))
    counts = draw(st.lists(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes), min_size=roles, max_size=roles))
    return Attraction(np.array(domains), np.array(pairs, dtype=np.float64)), np.array(counts)


@given(an_attraction())
def test_move_costs_the_difference_of_both_placements(drawn) -> None:
    attraction, counts = drawn
    nodes = np.arange(counts.shape[1])
    moved = moved_costs(attraction, counts, counts, nodes, nodes)
    before = attraction.costs(counts[None])[0]
    for source, target in itertools.permutations(nodes.tolist(), 2):
        after = counts.copy()
        after[:, target] += after[:, source]
        after[:, source] = 0
        assert moved[source, target] == pytest.approx(attraction.costs(after[None])[0] - before)


@given(an_attraction())
def test_one_more_member_costs_the_difference_of_both_placements(drawn) -> None:
    attraction, counts = drawn
    before = attraction.costs(counts[None])[0]
    for role in range(len(counts)):
        added = added_costs([attraction], counts, role)
        for place in range(counts.shape[1]):
            after = counts.copy()
            after[role, place] += 1
            assert added[place] == pytest.approx(attraction.costs(after[None])[0] - before)


ZONES = tuple(a_node(f"n{number}", 8, "abc"[number // 2]) for number in range(6))


def nodes_used(case: Case) -> dict[str, str]:
    return dict(search(problem_of_case(case), QUICK, 1).assignments)


def test_members_that_prefer_to_be_apart_share_no_node_if_there_are_enough() -> None:
    preference = ((100, PodTerm("host", apps("x"))),)
    gang = tuple(a_pod(f"m{number}", "x", preferred_pods=tuple((-weight, term) for weight, term in preference)) for number in range(6))
    assert len(set(nodes_used(Case(ZONES, {}, (), gang)).values())) == 6


def test_members_that_prefer_to_be_together_share_a_zone() -> None:
    gang = tuple(a_pod(f"m{number}", "x", preferred_pods=((1, PodTerm("zone", apps("x"))),)) for number in range(12))
    zones = {dict(ZONES[int(name[1:])].labels)["zone"] for name in nodes_used(Case(ZONES, {}, (), gang)).values()}
    assert len(zones) == 1


def test_members_with_a_preferred_spread_are_as_many_in_each_zone() -> None:
    gang = tuple(a_pod(f"m{number}", "x", preferred_spread=(SpreadConstraint("zone", apps("x")),)) for number in range(9))
    zones = [dict(ZONES[int(name[1:])].labels)["zone"] for name in nodes_used(Case(ZONES, {}, (), gang)).values()]
    assert sorted(map(zones.count, "abc")) == [3, 3, 3]


def test_preferences_never_keep_a_gang_from_its_nodes() -> None:
    gang = tuple(a_pod(f"m{number}", "x", preferred_pods=((-100, PodTerm("zone", ())),)) for number in range(7))
    assert len(nodes_used(Case(ZONES[:1], {}, (a_pod("bound", "x", "n0"),), gang))) == 7


def test_pod_goes_to_the_zone_of_the_bound_pods_that_it_prefers() -> None:
    bound = a_pod("cache", "cache", "n3")
    [place] = nodes_used(Case(ZONES, {}, (bound,), (a_pod("m", "x", preferred_pods=((5, PodTerm("zone", apps("cache"))),)),))).values()
    assert place in ("n2", "n3")


def test_preferences_of_bound_pods_make_their_domains_better_or_worse() -> None:
    bound = (
        a_pod("lonely", "lonely", "n0", preferred_pods=((-5, PodTerm("zone", apps("x"))),)),
        a_pod("sociable", "sociable", "n2", preferred_pods=((5, PodTerm("zone", apps("x"))),)),
    )
    for label, zone in (("x", "b"), ("other", None)):
        gang, view = gang_of(Case(ZONES, {}, bound, (a_pod("m", label),)))
        neighbours = gang.candidates[0].spec.neighbours
        assert (neighbours is None) is (zone is None)
        if zone is not None:
            dislikes = NodeFilters().preference(gang.candidates[0].spec, view.snapshot().nodes).neighbours
            assert dislikes is not None
            assert dict(zip("aabbcc", dislikes.pods.tolist(), strict=True)) == {"a": 1.0, "b": 0.0, "c": 0.5}


def test_gang_without_other_members_that_a_preference_selects_has_no_rule_between_members() -> None:
    gang, _ = gang_of(
        Case(ZONES, {}, (), tuple(a_pod(f"m{number}", "x", preferred_pods=((1, PodTerm("host", apps("y"))),)) for number in range(3)))
    )
    assert rules_of(gang).is_plain


def test_costs_are_relative_to_the_nodes_of_each_pod_also_when_the_filters_forget_earlier_pods() -> None:
    neighbours = Neighbours(scores=(("host", (("n0", 1), ("n2", 5), ("n4", 9))),))
    view = gang_of(Case(ZONES, {}, (), ()))[1]
    nodes, filters = view.snapshot().nodes, NodeFilters(limit=1)
    for zones in (("a",), ("b",), ("c",), ("a", "b"), ("b", "c")) * 4:
        affinity = (NodeSelectorTerm((Requirement("zone", "In", zones),)),)
        spec = SchedulingSpec((("pods", 1),), affinity=affinity, neighbours=neighbours)
        found, expected = (each.preference(spec, nodes).neighbours for each in (filters, NodeFilters()))
        assert found is not None
        assert expected is not None
        assert found.pods.tolist() == expected.pods.tolist()
