"""Scores of placements agree with kube-scheduler's formula, pod by pod and for whole gangs."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.arrays import Floats
from allaboard.model.gang import Objective
from allaboard.model.packing import Packing
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.placement.problem.objectives import Weights, is_gpu, requested_to_capacity_ratio
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.bounds import score_bound
from tests.unit.placement.clusters import GI, GPU, Case, cases, node, pods, random_counts, snapshot

VECTORS = json.loads(Path(__file__).with_name("scoring_vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_requested_to_capacity_ratio_agrees_with_kube_scheduler_within_one_point(vector: dict) -> None:
    requested, allocatable, weights = np.array(vector["resources"], dtype=np.float64).T[:, :, None]
    utilization = np.divide(requested, allocatable, out=np.zeros_like(requested), where=allocatable > 0)

    value = requested_to_capacity_ratio(utilization, np.where(allocatable > 0, weights, 0.0))

    assert value[0] == pytest.approx(vector["score"], abs=1.0)


@given(cases(plain=True))
def test_score_of_a_plan_is_the_mean_score_of_its_members(case: Case) -> None:
    problem = replace(case, objective=Objective.BINPACK).problem()
    scoring = problem.scoring
    counts = random_counts(problem, case.seed)
    load = np.einsum("rn,rsn->sn", counts, scoring.step)

    def mean(before_and_own: Callable[[int], Floats]) -> float:
        members = [
            value
            for role, slots in enumerate(counts)
            for value in np.repeat(requested_to_capacity_ratio(scoring.used + before_and_own(role), scoring.weight[role]), slots).tolist()
        ]
        return sum(members) / len(members) if members else 0.0

    halfway = mean(lambda role: (load + scoring.step[role]) / 2)
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(halfway)
    spread = replace(case, objective=Objective.SPREAD).problem()
    assert Valuation(spread).scores(counts[None])[0] == pytest.approx(100 - mean(lambda _: load) if counts.any() else 0.0)


def test_score_of_a_gang_is_the_mean_over_all_orders_of_its_members() -> None:
    cluster = snapshot([node("n", {"cpu": 10_000, "memory": 100 * GI})], {"n": {"cpu": 2000}})
    gang = [*pods("a", 3, {"cpu": 1000, "memory": 20 * GI}), *pods("b", 1, {"cpu": 3000, "memory": 10 * GI})]
    problem = build_problem(gang, 4, cluster, objective=Objective.BINPACK)
    means = []
    for order in set(permutations([0, 0, 0, 1])):
        used, scores = problem.scoring.used.copy(), []
        for role in order:
            used += problem.scoring.step[role]
            scores.append(float(requested_to_capacity_ratio(used, problem.scoring.weight[role])[0]))
        means.append(sum(scores) / len(scores))
    counts = problem.count[:, None]
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(sum(means) / len(means))


def upstream(utilization: float, shape: list[tuple[int, int]]) -> float:
    """Return the score 0..100 by kube-scheduler's buildBrokenLinearFunction, unrounded."""
    percent = min(utilization, 1.0) * 100
    for (before, low), (after, high) in pairwise(shape):
        if percent <= shape[0][0]:
            break
        if percent <= after:
            return 10 * (low + (high - low) * (percent - before) / (after - before))
    return 10.0 * (shape[0][1] if percent <= shape[0][0] else shape[-1][1])


some_shapes = st.dictionaries(st.integers(0, 100), st.integers(0, 10), min_size=1, max_size=4).map(lambda points: sorted(points.items()))
shapes = st.just(list(Packing().shape)) | some_shapes
weights_of_resources = st.dictionaries(st.sampled_from(["cpu", "memory", GPU]), st.integers(1, 100), max_size=3)


@given(cases(plain=True), shapes, weights_of_resources)
def test_shape_and_resource_weights_score_members_as_kube_scheduler_does(
    case: Case, shape: list[tuple[int, int]], weights: dict[str, int]
) -> None:
    packing = Packing(tuple(shape), tuple(sorted(weights.items())))
    problem = build_problem(case.gang, case.minimum, case.cluster, objective=Objective.BINPACK, packing=packing)

    members = scores_of_members(case, problem, weights, 5, lambda taken, offered, _: upstream(taken / offered, shape))

    assert_the_mean(problem, case, members)


@given(cases(plain=True))
def test_objective_fragmentation_scores_free_capacity_as_a_share_of_the_largest_node(case: Case) -> None:
    whole = build_problem(case.gang, case.minimum, case.cluster, objective=Objective.FRAGMENTATION)
    problem = replace(whole, weights=Weights(packing=1.0), fragmentation=None)

    members = scores_of_members(case, problem, {}, 1, lambda taken, offered, largest: 100 * min(1, 1 - (offered - taken) / largest))

    assert_the_mean(problem, case, members)


def scores_of_members(
    case: Case, problem: Problem, weights: dict[str, int], gpu: int, score_of: Callable[[float, int, int], float]
) -> list[float]:
    """Return the scores of the members of a random plan.

    ``score_of`` takes three amounts of a resource. They are the amount in use on the node when a member is placed, the amount that the node
    offers, and the largest amount that any node offers.
    """
    rows = np.flatnonzero([one.name in problem.nodes for one in case.cluster.nodes])
    specs = [next(pod.spec for pod in case.gang if pod.uid == role.pods[0]) for role in problem.roles]
    counts = random_counts(problem, case.seed)
    weights = weights or {"cpu": 1, "memory": 1, **{name: gpu for spec in specs for name, _ in spec.requests if is_gpu(name)}}
    taken = case.cluster.used.astype(np.float64)
    assumed = {"cpu": 100, "memory": 200 * 2**20}
    asked = [assumed | {name: amount for name, amount in spec.requests if amount} for spec in specs]
    for role, amounts in enumerate(asked):
        for name, amount in amounts.items():
            if (column := case.cluster.column_of(name)) is not None:
                taken[rows, column] += counts[role] * amount / 2
    members = []
    for role, spec in enumerate(specs):
        for position in np.repeat(np.arange(len(rows)), counts[role]).tolist():
            total = weighed = 0.0
            for name, weight in weights.items():
                column = case.cluster.column_of(name)
                offered = int(case.cluster.allocatable[rows[position], column]) if column is not None else 0
                if not offered or (name not in ("cpu", "memory") and not spec.amount(name)):
                    continue
                largest = max(case.cluster.allocatable[:, column].tolist())
                score = score_of(taken[rows[position], column] + asked[role].get(name, 0) / 2, offered, largest)
                total, weighed = total + weight * (score > 0), weighed + weight * score
            members.append(weighed / total if total else 0.0)
    return members


def assert_the_mean(problem: Problem, case: Case, members: list[float]) -> None:
    counts = random_counts(problem, case.seed)
    found = Valuation(problem).scores(counts[None])[0]
    assert found == pytest.approx(sum(members) / len(members) if members else 0.0)
    assert found <= score_bound(problem) + 1e-6 or counts.sum() < problem.total


def test_small_member_avoids_the_large_node_unless_weights_are_set() -> None:
    sizes = {"large": (96_000, 8), "small": (24_000, 2)}
    cluster = snapshot(
        [node(name, {"cpu": cpu, "memory": 100 * GI, GPU: gpus}) for name, (cpu, gpus) in sizes.items()], {"large": {GPU: 4}}
    )

    def chosen_nodes(packing: Packing) -> set[str]:
        gang = pods("w", 1, {"cpu": 1000, GPU: 1})
        problem = build_problem(gang, 1, cluster, objective=Objective.FRAGMENTATION, packing=packing)
        return {where for _, where in search(problem, SearchSettings(), 0).assignments}

    assert chosen_nodes(Packing()) == {"small"}
    assert chosen_nodes(Packing(resources=((GPU, 1),))) == {"large"}


def test_shape_decides_between_an_idle_and_a_busy_node() -> None:
    cluster = snapshot([node(name, {"cpu": 10_000, "memory": 100 * GI}) for name in ("idle", "half")], {"half": {"cpu": 5000}})
    gang = pods("w", 2, {"cpu": 1000})

    def chosen_nodes(packing: Packing) -> set[str]:
        problem = build_problem(gang, 2, cluster, objective=Objective.BINPACK, packing=packing)
        return {where for _, where in search(problem, SearchSettings(), 0).assignments}

    assert chosen_nodes(Packing()) == {"half"}
    assert chosen_nodes(Packing(((0, 10), (100, 0)))) == {"idle"}
    assert chosen_nodes(Packing(((0, 0), (10, 10), (100, 0)))) == {"idle"}


def test_over_committed_node_counts_as_exactly_full() -> None:
    cluster = snapshot([node("n", {"cpu": 1000, "memory": 10 * GI})], {"n": {"cpu": 5000}})
    problem = build_problem(pods("w", 1, {"memory": 5 * GI}), 1, cluster, objective=Objective.BINPACK)

    assert Valuation(problem).scores(np.ones((1, 1, 1), dtype=np.int64))[0] == pytest.approx((100 + 50) / 2)


def test_gpu_weighs_five_times_as_much_as_cpu_or_memory() -> None:
    gang = pods("worker", 1, {"cpu": 4000, GPU: 1})
    problem = build_problem(gang, 1, snapshot([node("n", {"cpu": 8000, "memory": 10 * GI, GPU: 4})]), objective=Objective.BINPACK)

    assert problem.scoring.weight[0, :, 0].tolist() == pytest.approx([1 / 7, 1 / 7, 5 / 7])


def test_pod_without_gpus_is_not_scored_by_gpus() -> None:
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
def test_gpu_resources_of_all_vendors_are_recognised(resource: str, expected: bool) -> None:
    assert is_gpu(resource) is expected
