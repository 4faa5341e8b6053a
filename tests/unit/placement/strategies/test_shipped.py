"""Tests that each shipped strategy prefers the nodes that it promises, on examples decided by hand, and that none breaks a rule."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Budget, Plan, build_problem, verify
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.strategies import named
from allaboard.placement.strategies.named import make_strategy
from allaboard.placement.strategies.trial import checked_plan
from allaboard.plugins import DEFAULT_STRATEGY, SHIPPED_STRATEGIES, plugged_in, strategy_names
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, snapshot


def assignments_by(
    name: str, cluster: Snapshot, gang: list, *, minimum: int = 0, objective: Objective = Objective.BINPACK, **arguments: object
) -> dict:
    """Return the node of each pod of a gang, as the strategy ``name`` places it; empty if the strategy finds no plan."""
    problem = build_problem(gang, minimum or len(gang), cluster, objective=objective)
    plan = checked_plan(name, arguments, problem, Budget())
    return dict(plan.assignments) if plan else {}


def gpus(**free: int) -> list:
    return [node(name, {"cpu": 64_000, GPU: number}) for name, number in free.items()]


def test_shipped_strategies_have_the_names_that_settings_and_annotations_accept() -> None:
    assert tuple(named._SHIPPED) == SHIPPED_STRATEGIES == strategy_names()[: len(SHIPPED_STRATEGIES)]
    assert DEFAULT_STRATEGY in SHIPPED_STRATEGIES
    assert not plugged_in().keys() & set(SHIPPED_STRATEGIES)


# On node a 5 of 8 GPUs are in use, on node b 2 of 4.
USED = snapshot(gpus(a=8, b=4), {"a": {GPU: 5}, "b": {GPU: 2}})


@pytest.mark.parametrize("objective", Objective)
def test_best_fit_takes_the_node_with_the_least_capacity_left_over_unless_the_option_most_used_is_set(objective: Objective) -> None:
    worker = pods("worker", 1, {GPU: 1})
    assert assignments_by("bestfit", USED, worker, objective=objective) == {"worker-0": "b"}
    assert assignments_by("bestfit", USED, worker, objective=objective, most_used=True) == {"worker-0": "a"}


def test_best_fit_takes_the_first_of_equal_nodes_by_name() -> None:
    equals = snapshot(gpus(c=6, b=2, a=4), {"c": {GPU: 4}, "a": {GPU: 2}})
    assert assignments_by("bestfit", equals, pods("worker", 1, {GPU: 1})) == {"worker-0": "a"}
    assert assignments_by("bestfit", equals, pods("worker", 1, {GPU: 1}), most_used=True) == {"worker-0": "c"}
    unused = snapshot(gpus(b=2, a=2))
    assert assignments_by("bestfit", unused, pods("worker", 1, {GPU: 1}), most_used=True) == {"worker-0": "a"}


def test_best_fit_fills_one_node_before_the_next() -> None:
    found = assignments_by("bestfit", snapshot(gpus(a=4, b=3)), pods("worker", 6, {GPU: 1}))
    assert Counter(found.values()) == {"b": 3, "a": 3}


def test_best_fit_counts_every_requested_resource() -> None:
    nodes = snapshot([node("a", {"cpu": 4000, GPU: 4}), node("b", {"cpu": 8000, GPU: 1}), node("c", {"cpu": 8000, GPU: 4})])
    assert assignments_by("bestfit", nodes, pods("worker", 1, {"cpu": 1000, GPU: 1})) == {"worker-0": "b"}
    assert assignments_by("bestfit", nodes, pods("server", 1, {"cpu": 1000})) == {"server-0": "a"}


def test_most_used_counts_only_gpus_for_pods_that_ask_for_gpus() -> None:
    nodes = snapshot(gpus(a=4, b=4), {"a": {"cpu": 60_000}, "b": {GPU: 1}})
    assert assignments_by("bestfit", nodes, pods("worker", 1, {"cpu": 1000, GPU: 1}), most_used=True) == {"worker-0": "b"}
    assert assignments_by("bestfit", nodes, pods("server", 1, {"cpu": 1000}), most_used=True) == {"server-0": "a"}


def test_first_fit_takes_the_first_node_by_name_with_free_capacity() -> None:
    found = assignments_by("firstfit", snapshot(gpus(b=2, a=1, c=8)), pods("worker", 4, {GPU: 1}))
    assert Counter(found.values()) == {"a": 1, "b": 2, "c": 1}


def test_strategy_random_draws_nodes_by_its_seed_and_by_the_pods() -> None:
    cluster = snapshot(gpus(**{f"n{number}": 1 for number in range(50)}))
    worker, other = pods("worker", 4, {GPU: 1}), pods("other", 4, {GPU: 1})
    first = assignments_by("random", cluster, worker, seed=1)
    assert first == assignments_by("random", cluster, worker, seed=1)
    assert first != assignments_by("random", cluster, worker, seed=2)
    assert sorted(first.values()) != sorted(assignments_by("random", cluster, other, seed=1).values())


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_gang_that_does_not_fit_has_no_plan(name: str) -> None:
    assert assignments_by(name, snapshot(gpus(a=1, b=1)), pods("worker", 3, {GPU: 1})) == {}
    assert assignments_by(name, snapshot([]), pods("worker", 1, {GPU: 1})) == {}


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_surplus_members_are_placed_if_they_fit(name: str) -> None:
    assert len(assignments_by(name, snapshot(gpus(a=1, b=2)), pods("worker", 5, {GPU: 1}), minimum=2)) == 3


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_shipped_strategies_place_members_that_must_share_a_rack_in_one_rack(name: str) -> None:
    racks = snapshot([node(name, {GPU: size}, labels={"rack": name[0]}) for name, size in (("x1", 1), ("x2", 1), ("y1", 2), ("y2", 2))])
    gang = pods("worker", 4, {GPU: 1})
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    plan = checked_plan(name, {}, build_problem(gang, 4, racks, objective=Objective.BINPACK, rules=rules), Budget())
    assert plan is not None
    assert {name[0] for _, name in plan.assignments} == {"y"}


def test_exact_strategy_places_a_gang_that_the_rules_do_not_place() -> None:
    # Only 4+3 on both nodes works. A rule that puts both small pods on node a leaves out a large pod.
    nodes = snapshot([node("a", {"cpu": 7000}), node("b", {"cpu": 7000})])
    gang = [*pods("small", 2, {"cpu": 3000}), *pods("large", 2, {"cpu": 4000})]
    assert len(assignments_by("exact", nodes, gang)) == 4
    assert assignments_by("firstfit", nodes, gang) == assignments_by("bestfit", nodes, gang) == {}


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
@settings(max_examples=40, deadline=None)
@given(case=cases())
def test_no_plan_breaks_a_filter_or_over_commits_a_node(name: str, case: Case) -> None:
    answer = make_strategy(name).place(case.problem(), Budget())
    if isinstance(answer, Plan) and answer.feasible:
        assert len(answer.assignments) >= case.minimum
        assert not verify(dict(answer.assignments), case.gang, case.cluster)
    plan = checked_plan(name, {}, case.problem(), Budget())
    assert (plan is not None) == (isinstance(answer, Plan) and answer.feasible is True)
    assert plan is None or sorted(plan.assignments) == sorted(answer.assignments)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
@settings(max_examples=30, deadline=None)
@given(
    devices=st.lists(st.tuples(*[st.sampled_from((0, 300, 700, 1000))] * 2), min_size=1, max_size=4),
    shares=st.lists(st.tuples(st.sampled_from((200, 500, 600)), st.integers(1, 3)), min_size=1, max_size=3, unique_by=lambda each: each[0]),
    whole=st.integers(0, 2),
)
def test_parts_of_gpus_go_to_devices_with_enough_free(
    name: str, devices: list[tuple[int, int]], shares: list[tuple[int, int]], whole: int
) -> None:
    nodes = [node(f"n{row}", {"cpu": 64_000, GPU: 2}) for row in range(len(devices))]
    used = {f"n{row}": {GPU: sum(free < 1000 for free in each)} for row, each in enumerate(devices)}
    cluster = replace(snapshot(nodes, used), devices=np.array(devices))
    gang = [pod for share, number in shares for pod in pods(f"s{share}", number, {"cpu": 1000}, gpu_share=share)]
    gang += pods("whole", whole, {"cpu": 1000, GPU: 1})
    problem = build_problem(gang, 1, cluster, objective=Objective.FRAGMENTATION)
    plan = checked_plan(name, {}, problem, Budget())
    fits = bool(problem.slots.any())
    assert fits or plan is None
    if name != "exact" and fits:  # the solver counts the sum of devices, and finds nothing where single devices are too small
        assert plan is not None
    assert plan is None or not verify(dict(plan.assignments), gang, cluster)
