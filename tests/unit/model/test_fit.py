"""Scores by utilization equal those of kube-scheduler, for each range of versions that score alike."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.fit import Era, FitScoring, Strategy

VECTORS = json.loads(Path(__file__).with_name("fit_vectors.json").read_text())["vectors"]

AMOUNTS = st.integers(0, 2**50)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_node_gets_the_points_that_each_range_of_kube_scheduler_versions_gives(vector: dict) -> None:
    names, requested, allocatable, weights, asked = zip(*vector["resources"], strict=True)
    fit = FitScoring(
        Strategy(vector["strategy"]),
        Era(vector["era"]),
        tuple(zip(names, weights, strict=True)),
        tuple(map(tuple, vector.get("shape", ()))),
    )
    counted = np.array([fit.counts(name, is_asked) for name, is_asked in zip(names, asked, strict=True)])

    points = fit.scores(np.array(requested)[:, None], np.array(allocatable)[:, None], counted)

    assert points.tolist() == [vector["score"]]


def go_divided(dividend: int, divisor: int) -> int:
    found = abs(dividend) // abs(divisor)
    return found if (dividend < 0) == (divisor < 0) else -found


def ratio(shape: list[tuple[int, int]], resources: list[tuple[int, int, int]]) -> int:
    """Return the score by RequestedToCapacityRatio of kube-scheduler 1.37, translated from Go line by line."""
    numerator = denominator = 0
    for requested, allocatable, weight in resources:
        if not allocatable:
            continue
        percent = 100 if requested > allocatable else requested * 100 // allocatable
        for position, (utilization, score) in enumerate(shape):
            if percent <= utilization:
                if position == 0:
                    points = score * 10
                else:
                    before, low = shape[position - 1]
                    points = low * 10 + go_divided((score - low) * 10 * (percent - before), utilization - before)
                break
        else:
            points = shape[-1][1] * 10
        if points > 0:
            numerator, denominator = numerator + points * weight, denominator + weight
    return math.floor(numerator / denominator + 0.5) if denominator else 0


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=5, unique_by=lambda point: point[0]),
    st.lists(st.tuples(AMOUNTS, AMOUNTS, st.integers(1, 100)), min_size=1, max_size=4),
)
def test_scores_by_a_shape_equal_those_of_the_go_code_translated_line_by_line(
    shape: list[tuple[int, int]], resources: list[tuple[int, int, int]]
) -> None:
    shape = sorted(shape)
    requested, allocatable, weights = zip(*resources, strict=True)
    names = tuple(f"example.com/r{number}" for number in range(len(resources)))
    fit = FitScoring(Strategy.RATIO, Era.TODAY, tuple(zip(names, weights, strict=True)), tuple(shape))

    points = fit.scores(np.array(requested)[:, None], np.array(allocatable)[:, None])

    assert points.tolist() == [ratio(shape, resources)]
    assert 0 <= points[0] <= 100 * fit.best


@given(st.sampled_from(Era), st.sampled_from(Strategy), st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=2, max_size=6))
def test_scores_of_many_nodes_at_once_equal_the_scores_of_each_node_alone(
    era: Era, strategy: Strategy, nodes: list[tuple[int, int]]
) -> None:
    fit = FitScoring(strategy, era, (("cpu", 3), ("memory", 2)), ((0, 9), (40, 1), (70, 7)))
    requested, allocatable = np.array(nodes).T
    together = fit.scores(np.stack([requested, requested[::-1]]), np.stack([allocatable, allocatable[::-1]]))
    apart = [
        fit.scores(np.array([[own[0]], [other[0]]]), np.array([[own[1]], [other[1]]]))[0]
        for own, other in zip(nodes, nodes[::-1], strict=True)
    ]
    assert together.tolist() == apart


def test_weights_that_cancel_out_give_the_score_zero_in_v1alpha1() -> None:
    fit = FitScoring(Strategy.RATIO, Era.V1ALPHA, (("cpu", 1), ("memory", -1)), ((0, 0), (100, 100)))
    assert fit.scores(np.array([[1], [1]]), np.array([[2], [2]])).tolist() == [0]
