"""Tests that members are kept apart by anti-affinity, and that a placement is found whenever one exists."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.node import HOSTNAME
from allaboard.placement import Plan, build_problem, search, verify
from allaboard.placement.rules.apart import ApartRule
from allaboard.placement.rules.members import Rules
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.milp import Finding, solve
from allaboard.placement.strategies.shipped import BestFit, Exact, FirstFit, Random
from tests.unit.placement.clusters import pods
from tests.unit.placement.rules.couplings import QUICK, cluster_of, fits

_SETS = st.frozensets(st.integers(0, 1), min_size=1)


@settings(max_examples=400, deadline=None)
@given(
    cpus=st.lists(st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(1, 3)), min_size=1, max_size=4),
    roles=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), min_size=2, max_size=2),
    terms=st.lists(st.tuples(st.sampled_from(["zone", HOSTNAME]), _SETS, _SETS), min_size=1, max_size=2),
    spare=st.integers(0, 4),
)
def test_gang_with_anti_affinity_is_placed_whenever_that_is_possible(cpus, roles, terms, spare) -> None:
    gang = [pod for number, (count, cpu) in enumerate(roles) for pod in pods(f"r{number}", count, {"cpu": cpu * 1000})]
    of_role = [{pod.uid for pod in gang if pod.uid.startswith(f"r{number}")} for number in range(2)]

    def members(chosen: frozenset[int]) -> set[str]:
        return {uid for number in chosen for uid in of_role[number]}

    rules = Rules(couplings=[ApartRule(label, members(holders), members(matched)) for label, holders, matched in terms])
    cluster, minimum = cluster_of(cpus), max(1, len(gang) - spare)
    problem = build_problem(gang, minimum, cluster, objective=Objective.BINPACK, rules=rules)
    plan = search(problem, QUICK, 1)
    expected = fits(gang, cluster, rules, minimum)
    event(f"fits: {expected}")
    assert plan.feasible is expected
    assert verify(dict(plan.assignments), gang, cluster, rules) == ()
    answer = solve(problem)
    assert answer.finding is (Finding.FITS if expected else Finding.CANNOT_FIT)


def test_one_member_for_each_node_is_a_capacity_and_no_coupling() -> None:
    gang = pods("w", 3, {"cpu": 1000})
    uids = {pod.uid for pod in gang}
    rules = Rules(couplings=[ApartRule(HOSTNAME, uids, uids)])
    problem = build_problem(gang, 3, cluster_of([("a", 4)] * 3), objective=Objective.BINPACK, rules=rules)
    assert problem.couplings == ()
    assert len({name for _, name in search(problem, QUICK, 1).assignments}) == 3


@pytest.mark.parametrize("label", ["zone", HOSTNAME])
def test_gang_of_more_members_than_domains_is_impossible(label: str) -> None:
    gang = pods("w", 4, {"cpu": 1000})
    uids = {pod.uid for pod in gang}
    rules = Rules(couplings=[ApartRule(label, uids, uids)])
    problem = build_problem(gang, 4, cluster_of([("a", 9), ("b", 9), ("c", 9)]), objective=Objective.BINPACK, rules=rules)
    plan = search(problem, QUICK, 1)
    assert plan.feasible is False
    assert len(plan.assignments) == 3


def test_gang_of_many_members_in_zones_of_their_own_is_placed() -> None:
    gang = pods("w", 100, {"cpu": 1000})
    uids = {pod.uid for pod in gang}
    rules = Rules(couplings=[ApartRule("zone", uids, uids)])
    cluster = cluster_of([(f"z{number % 100}", 2) for number in range(200)])
    plan = search(build_problem(gang, 100, cluster, objective=Objective.BINPACK, rules=rules), QUICK, 1)
    assert plan.feasible
    assert verify(dict(plan.assignments), gang, cluster, rules) == ()


def test_strategies_say_whether_they_keep_members_apart() -> None:
    gang = pods("w", 2, {"cpu": 1000})
    uids = {pod.uid for pod in gang}
    rules = Rules(couplings=[ApartRule("zone", uids, uids)])
    cluster = cluster_of([("a", 9), ("a", 9), ("b", 9)])
    problem = build_problem(gang, 2, cluster, objective=Objective.BINPACK, rules=rules)
    plan = Exact().place(problem, Budget())
    assert isinstance(plan, Plan)
    assert verify(dict(plan.assignments), gang, cluster, rules) == ()
    assert not any(strategy.accepts(problem) for strategy in (BestFit(), FirstFit(), Random()))
