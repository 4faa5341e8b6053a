"""Tests the scores of nodes by their utilization."""

import numpy as np
import pytest

from allaboard.model.packing import PACKING, packing_from


@pytest.mark.parametrize(
    ("utilization", "score"), [(0.0, 0.2), (0.1, 0.2), (0.2, 0.2), (0.35, 0.6), (0.5, 1.0), (0.75, 0.5), (1.0, 0.0), (3.0, 0.0)]
)
def test_scores_of_a_shape_are_linear_between_its_points_and_constant_beyond_them(utilization: float, score: float) -> None:
    packing = packing_from({"100": "0", "20": "2", "50": "10"}, {})
    assert packing.score(np.array([utilization]))[0] == pytest.approx(score)
    assert packing.best == 1.0


def test_without_a_shape_the_score_is_the_utilization() -> None:
    packing = packing_from({}, {"nvidia.com/gpu": "3"})
    assert packing.is_plain
    assert packing.shape == PACKING.shape
    assert packing.resources == (("nvidia.com/gpu", 3),)


@pytest.mark.parametrize(
    ("shape", "resources", "wrong"),
    [
        ({"101": "1"}, {}, "utilization must be a whole number from 0 to 100, not '101'"),
        ({"1": "11"}, {}, "score must be a whole number from 0 to 10"),
        ({"1": "-1"}, {}, "score must be"),
        ({"²": "1"}, {}, "utilization must be"),
        ({"1" * 5000: "1"}, {}, "utilization must be"),
        ({"1": "1", "01": "2"}, {}, "once only"),
        ({}, {"cpu": "0"}, "weight of cpu must be a whole number from 1 to 100"),
        ({}, {"cpu": "heavy"}, "weight of cpu"),
    ],
)
def test_the_error_names_a_malformed_shape_or_weight(shape: dict[str, str], resources: dict[str, str], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        packing_from(shape, resources)
