"""The queue position of a gang, and the changes that wake a refused gang."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import Gang, GangKey, Objective, OnMemberLost, Outline
from allaboard.model.reasons import Kind, Reason
from allaboard.placement import Explanation, RoleExplanation, SearchSettings, Shortage, build_problem, search
from allaboard.queueing.order import order_of, wakes_up_on
from allaboard.records.sort_key import Order
from tests.unit.placement.clusters import GPU, node, pods, snapshot

WORKERS, SERVERS = pods("w", 3, {GPU: 1, "cpu": 500}), pods("s", 1, {"cpu": 1000, "memory": 1})
NO_GPU, TAINTED = Reason(Kind.INSUFFICIENT, GPU), Reason(Kind.TAINT, "dedicated")

FEW = st.integers(-1, 1)
OUTLINES = st.builds(
    Outline,
    st.builds(GangKey, st.just("default"), st.sampled_from("ab")),
    FEW,
    FEW.map(float),
    st.booleans(),
    st.sampled_from(OnMemberLost),
)
STANDINGS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"is_first": st.booleans(), "usage": st.integers(0, 2), "share": st.integers(0, 2)}
)
PLACED = st.tuples(OUTLINES, STANDINGS)
ORDERS = PLACED.map(lambda placed: order_of(placed[0], **placed[1]))


def plainly(gang: Outline, standing: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the facts that decide a gang's queue position, the most important first."""
    heals = gang.is_partially_bound and gang.on_member_lost is not OnMemberLost.IGNORE and standing["usage"] == 0
    return -gang.priority, not standing["is_first"], not heals, standing["usage"], standing["share"], gang.created, gang.key


@given(st.lists(PLACED, max_size=12))
def test_gangs_rank_by_priority_then_precedence_rules_then_search_time_then_share_then_age(placed: list[tuple[Outline, Any]]) -> None:
    assert sorted(placed, key=lambda each: order_of(each[0], **each[1])[:7]) == sorted(placed, key=lambda each: plainly(*each))


@given(ORDERS, ORDERS)
def test_gang_that_ranks_before_another_gang_has_a_lower_or_equal_value_of_each_comparison_key(one: Order, other: Order) -> None:
    first, second = sorted((one, other))
    for part in ("level_key", "standing_key", "rank_key"):
        assert getattr(first, part) <= getattr(second, part)


@pytest.mark.parametrize(("stamped", "has_lost_a_member"), [(3, True), (2, False)])
def test_gang_whose_minimum_is_raised_does_not_move_to_the_front(stamped: int, has_lost_a_member: bool) -> None:
    bound = [replace(pod, node_name="node-1", transaction="a", stamped_min_member=stamped) for pod in WORKERS[:2]]
    gang = Gang(GangKey("default", "g"), 3, (*bound, WORKERS[2]), 0, 5.0, Objective.BINPACK, 60)
    older = Outline(GangKey("default", "older"), 0, 1.0)
    assert (order_of(gang) < order_of(older)) is has_lost_a_member


def an_explanation(*roles: tuple[Reason, ...], shortage: Shortage | None = None) -> Explanation:
    explained = (RoleExplanation((), 1, 0, tuple((reason, 1) for reason in reasons)) for reasons in roles)
    return Explanation(3, 3, 0, tuple(explained), shortage)


@pytest.mark.parametrize(
    ("explanation", "awaited"),
    [
        (an_explanation((NO_GPU, TAINTED)), {GPU}),
        (an_explanation((TAINTED,)), {None}),
        (an_explanation((TAINTED,), shortage=Shortage("cpu", 4, 2)), {"cpu"}),
        (an_explanation((NO_GPU,), ()), {GPU, "cpu", "memory"}),  # capacity for one role may let another move
        *((an_explanation((NO_GPU, Reason(kind))), {None}) for kind in (Kind.TOPOLOGY, Kind.PORTS, Kind.AVOIDED)),
    ],
)
def test_a_refused_gang_is_woken_by_what_could_help(explanation: Explanation, awaited: set[str | None]) -> None:
    assert set(wakes_up_on(explanation, [*WORKERS, *SERVERS]).awaited) == awaited


def test_a_gang_for_which_a_search_finds_too_few_gpus_is_woken_by_gpus() -> None:
    cluster = snapshot([node("a", {GPU: 2, "cpu": 9000}), node("b", {"cpu": 9000})])
    plan = search(build_problem(WORKERS, 3, cluster, objective=Objective.BINPACK), SearchSettings(), 0)
    assert set(wakes_up_on(plan.explanation, WORKERS).awaited) == {GPU}
