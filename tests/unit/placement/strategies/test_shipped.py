"""The shipped strategies: what each prefers, on cases small enough to decide by hand, and that none breaks a rule."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.rules import Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Budget, Plan, build_problem, verify
from allaboard.placement.strategies import named
from allaboard.placement.strategies.named import make_strategy
from allaboard.placement.strategies.trial import checked_plan
from allaboard.plugins import DEFAULT_STRATEGY, SHIPPED_STRATEGIES, plugged_in, strategy_names
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, snapshot


def slots(
    name: str, cluster: Snapshot, gang: list, *, minimum: int = 0, objective: Objective = Objective.BINPACK, **arguments: object
) -> dict:
    """Where a strategy seats a gang, node by pod; nobody if it finds no seats."""
    problem = build_problem(gang, minimum or len(gang), cluster, objective=objective)
    plan = checked_plan(name, arguments, problem, Budget())
    return dict(plan.assignments) if plan else {}


def gpus(**free: int) -> list:
    return [node(name, {"cpu": 64_000, GPU: number}) for name, number in free.items()]


def test_the_names_are_those_that_settings_and_annotations_know() -> None:
    assert tuple(named._SHIPPED) == SHIPPED_STRATEGIES == strategy_names()[: len(SHIPPED_STRATEGIES)]
    assert DEFAULT_STRATEGY in SHIPPED_STRATEGIES
    assert not plugged_in().keys() & set(SHIPPED_STRATEGIES)


# Nodes a: 8 GPUs of which 5 are in use, b: 4 of which 2 are.
USED = snapshot(gpus(a=8, b=4), {"a": {GPU: 5}, "b": {GPU: 2}})


@pytest.mark.parametrize("objective", Objective)
def test_best_fit_leaves_least_over_and_not_most_in_use(objective: Objective) -> None:
    worker = pods("worker", 1, {GPU: 1})
    assert slots("bestfit", USED, worker, objective=objective) == {"worker-0": "b"}
    assert slots("bestfit", USED, worker, objective=objective, most_used=True) == {"worker-0": "a"}


def test_best_fit_takes_the_first_by_name_among_equals_whatever_is_in_use() -> None:
    equals = snapshot(gpus(c=6, b=2, a=4), {"c": {GPU: 4}, "a": {GPU: 2}})
    assert slots("bestfit", equals, pods("worker", 1, {GPU: 1})) == {"worker-0": "a"}
    assert slots("bestfit", equals, pods("worker", 1, {GPU: 1}), most_used=True) == {"worker-0": "c"}
    unused = snapshot(gpus(b=2, a=2))
    assert slots("bestfit", unused, pods("worker", 1, {GPU: 1}), most_used=True) == {"worker-0": "a"}


def test_best_fit_fills_a_node_before_it_opens_another() -> None:
    found = slots("bestfit", snapshot(gpus(a=4, b=3)), pods("worker", 6, {GPU: 1}))
    assert Counter(found.values()) == {"b": 3, "a": 3}


def test_best_fit_counts_every_resource_that_is_asked_for() -> None:
    nodes = snapshot([node("a", {"cpu": 4000, GPU: 4}), node("b", {"cpu": 8000, GPU: 1}), node("c", {"cpu": 8000, GPU: 4})])
    assert slots("bestfit", nodes, pods("worker", 1, {"cpu": 1000, GPU: 1})) == {"worker-0": "b"}
    assert slots("bestfit", nodes, pods("server", 1, {"cpu": 1000})) == {"server-0": "a"}


def test_most_used_goes_by_the_gpus_that_a_pod_asks_for() -> None:
    nodes = snapshot(gpus(a=4, b=4), {"a": {"cpu": 60_000}, "b": {GPU: 1}})
    assert slots("bestfit", nodes, pods("worker", 1, {"cpu": 1000, GPU: 1}), most_used=True) == {"worker-0": "b"}
    assert slots("bestfit", nodes, pods("server", 1, {"cpu": 1000}), most_used=True) == {"server-0": "a"}


def test_first_fit_takes_the_first_by_name_with_room() -> None:
    found = slots("firstfit", snapshot(gpus(b=2, a=1, c=8)), pods("worker", 4, {GPU: 1}))
    assert Counter(found.values()) == {"a": 1, "b": 2, "c": 1}


def test_random_draws_by_its_seed_and_by_who_is_to_be_seated() -> None:
    cluster = snapshot(gpus(**{f"n{number}": 1 for number in range(50)}))
    worker, other = pods("worker", 4, {GPU: 1}), pods("other", 4, {GPU: 1})
    first = slots("random", cluster, worker, seed=1)
    assert first == slots("random", cluster, worker, seed=1)
    assert first != slots("random", cluster, worker, seed=2)
    assert sorted(first.values()) != sorted(slots("random", cluster, other, seed=1).values())


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_whom_no_node_fits_is_not_seated_at_all(name: str) -> None:
    assert slots(name, snapshot(gpus(a=1, b=1)), pods("worker", 3, {GPU: 1})) == {}
    assert slots(name, snapshot([]), pods("worker", 1, {GPU: 1})) == {}


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_surplus_members_ride_along_when_they_fit(name: str) -> None:
    assert len(slots(name, snapshot(gpus(a=1, b=2)), pods("worker", 5, {GPU: 1}), minimum=2)) == 3


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
def test_members_who_must_share_a_rack_do(name: str) -> None:
    racks = snapshot([node(name, {GPU: size}, labels={"rack": name[0]}) for name, size in (("x1", 1), ("x2", 1), ("y1", 2), ("y2", 2))])
    gang = pods("worker", 4, {GPU: 1})
    rules = Rules(together=[("rack", {pod.uid for pod in gang})])
    plan = checked_plan(name, {}, build_problem(gang, 4, racks, objective=Objective.BINPACK, rules=rules), Budget())
    assert plan is not None
    assert {name[0] for _, name in plan.assignments} == {"y"}


def test_the_exact_strategy_seats_a_gang_that_rules_do_not() -> None:
    # 4+3 and 4+3 are the only way; whoever fits the smaller first, or the larger by name, leaves one out.
    nodes = snapshot([node("a", {"cpu": 7000}), node("b", {"cpu": 7000})])
    gang = [*pods("small", 2, {"cpu": 3000}), *pods("large", 2, {"cpu": 4000})]
    assert len(slots("exact", nodes, gang)) == 4
    assert slots("firstfit", nodes, gang) == slots("bestfit", nodes, gang) == {}


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
def test_parts_of_gpus_sit_on_devices_that_have_room(
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
    if name != "exact" and fits:  # the solver counts the sum of devices, and gives up where that isn't enough
        assert plan is not None
    assert plan is None or not verify(dict(plan.assignments), gang, cluster)
