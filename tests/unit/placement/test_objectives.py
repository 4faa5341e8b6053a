"""Scores: kube-scheduler's formula, and the batch form of it that the search uses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from allaboard.model.gang import Objective
from allaboard.placement import build_problem
from allaboard.placement.objectives import is_gpu, requested_to_capacity_ratio
from allaboard.placement.valuation import Valuation

from .clusters import GI, GPU, Case, cases, node, pods, random_counts, snapshot

VECTORS = json.loads(Path(__file__).with_name("scoring_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_the_formula_agrees_with_kube_scheduler_to_the_point_that_upstream_rounds_away(vector: dict) -> None:
    requested, allocatable, weights = np.array(vector["resources"], dtype=np.float64).T[:, :, None]
    utilization = np.divide(requested, allocatable, out=np.zeros_like(requested), where=allocatable > 0)

    value = requested_to_capacity_ratio(utilization, np.where(allocatable > 0, weights, 0.0))

    assert value[0] == pytest.approx(vector["score"], abs=1.0)


@given(cases(plain=True))
def test_the_score_of_a_plan_is_the_mean_of_what_the_formula_gives_each_member(case: Case) -> None:
    problem = replace(case, objective=Objective.BINPACK).problem()
    scoring = problem.scoring
    counts = random_counts(problem, case.seed)
    used = scoring.used + np.einsum("rn,rsn->sn", counts, scoring.step)

    members = [
        value
        for role, seats in enumerate(counts)
        for value in np.repeat(requested_to_capacity_ratio(used, scoring.weight[role]), seats).tolist()
    ]

    expected = sum(members) / len(members) if members else 0.0
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(expected)
    spread = replace(case, objective=Objective.SPREAD).problem()
    assert Valuation(spread).scores(counts[None])[0] == pytest.approx(100 - expected if members else 0.0)


def test_an_over_committed_node_counts_as_full_and_no_more() -> None:
    cluster = snapshot([node("n", {"cpu": 1000, "memory": 10 * GI})], {"n": {"cpu": 5000}})
    problem = build_problem(pods("w", 1, {"memory": 5 * GI}), 1, cluster, objective=Objective.BINPACK)

    assert Valuation(problem).scores(np.ones((1, 1, 1), dtype=np.int64))[0] == pytest.approx((100 + 50) / 2)


def test_a_gpu_weighs_five_times_as_much_as_cpu_and_memory() -> None:
    gang = pods("worker", 1, {"cpu": 4000, GPU: 1})
    problem = build_problem(gang, 1, snapshot([node("n", {"cpu": 8000, "memory": 10 * GI, GPU: 4})]), objective=Objective.BINPACK)

    assert problem.scoring.weight[0, :, 0].tolist() == pytest.approx([1 / 7, 1 / 7, 5 / 7])


def test_a_pod_that_asks_for_no_gpu_is_not_scored_by_gpus() -> None:
    gang = [*pods("ps", 1, {"cpu": 4000}), *pods("worker", 1, {GPU: 1})]
    problem = build_problem(gang, 2, snapshot([node("n", {"cpu": 8000, "memory": 10 * GI, GPU: 4})]), objective=Objective.BINPACK)

    assert problem.scoring.weight[0, :, 0].tolist() == pytest.approx([1 / 2, 1 / 2, 0])


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        ("gpu.intel.com/i915", True),
        ("gpu.intel.com/i915_monitoring", False),
        ("habana.ai/gaudi", True),
        ("cpu", False),
        ("nvidia.com/hostdev", False),
        ("example.com/gpu-licence", False),
    ],
)
def test_gpus_of_every_vendor_are_known_by_their_resource(resource: str, expected: bool) -> None:
    assert is_gpu(resource) is expected
