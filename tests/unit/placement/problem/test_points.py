"""Scores in points are between 0 and about 100 for all objectives, weights and nodes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import workload_of
from allaboard.placement import Plan, SearchSettings, build_problem, search
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.problem.points import Scale
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, random_counts, snapshot

FILLS_A_NODE = workload_of(
    Counter({SchedulingSpec(as_requests({"cpu": 1000, GPU: 8})): 9, SchedulingSpec(as_requests({"cpu": 1000, GPU: 1})): 1})
)
IN_ZONE_A = ((100, NodeSelectorTerm((Requirement("zone", "In", ("a",)),))),)
WEIGHTS = st.floats(0.0, 1000.0)


def points_of(problem: Problem, counts: np.ndarray) -> float:
    return Scale.of(problem).points(float(Valuation(problem).scores(counts[None])[0]), int(counts.sum()))


def placed(problem: Problem) -> Plan:
    return search(problem, SearchSettings(), 1)


@given(cases(), st.builds(Weights, packing=WEIGHTS, spreading=WEIGHTS, domains=WEIGHTS))
def test_points_are_between_0_and_100_for_all_weights(case: Case, weights: Weights) -> None:
    problem = replace(case.problem(), weights=weights, fragmentation=None)
    assert -1e-6 <= points_of(problem, random_counts(problem, case.seed)) <= 100 + 1e-6


@given(cases(plain=True))
def test_placement_that_takes_gpus_from_the_workload_has_at_least_0_points(case: Case) -> None:
    problem = replace(case, objective=Objective.FRAGMENTATION, cluster=replace(case.cluster, mix=FILLS_A_NODE)).problem()
    assert points_of(problem, random_counts(problem, case.seed)) >= -1e-6


@given(cases(), st.integers(0, 99))
def test_cheaper_placement_has_more_points(case: Case, other: int) -> None:
    problem = case.problem()
    pair = [random_counts(problem, case.seed), random_counts(problem, other)]
    costs = [float(Valuation(problem).scores(counts[None])[0]) for counts in pair]
    if all(counts.any() for counts in pair) and abs(costs[0] - costs[1]) > 1e-6 and Scale.of(problem).worst:
        assert (costs[0] > costs[1]) is (points_of(problem, pair[0]) > points_of(problem, pair[1]))


def test_pod_that_leaves_eight_gpus_without_cpu_has_few_points() -> None:
    gang = pods("eats-cpu", 1, {"cpu": 7500})
    cluster = replace(snapshot([node("n", {"cpu": 8000, GPU: 8, "pods": 10})]), mix=FILLS_A_NODE)
    assert placed(build_problem(gang, 1, cluster, objective=Objective.FRAGMENTATION)).search.score < 50


def test_unmet_preference_costs_points_by_its_weight() -> None:
    gang = pods("fussy", 1, {"cpu": 1000}, preferred=IN_ZONE_A)
    plans = {
        zone: placed(
            build_problem(
                gang,
                1,
                snapshot([node("n", {"cpu": 1000}, labels={"zone": zone}), node("m", {"cpu": 500}, labels={"zone": "a"})]),
                objective=Objective.BINPACK,
            )
        )
        for zone in ("a", "b")
    }
    # Packing weighs 1 and the preference 2. The cpu is full; the node has no memory, and the pod requests none.
    assert {zone: plan.search.score for zone, plan in plans.items()} == {"a": pytest.approx(100.0), "b": pytest.approx(100 / 3)}


def test_empty_placement_has_0_points() -> None:
    assert Scale(7.25).points(0.0, 0) == 0.0
    assert Scale(0.0).points(100.0, 1) == 100.0
