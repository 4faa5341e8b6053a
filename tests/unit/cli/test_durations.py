"""Tests that times are written as kubectl writes them."""

import time

import pytest

from allaboard.cli.durations import duration, moment


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0s"), (0.4, "0s"), (59.9, "59s"), (60, "1m"), (61, "1m1s"), (3_600, "1h"), (7_530, "2h5m"), (86_400, "1d"), (100_000, "1d3h")],
)
def test_a_duration_has_its_two_largest_units(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e300, -1e300, 1e12])
def test_a_number_that_is_no_time_is_unknown(number: float) -> None:
    assert (duration(number), moment(number, 0.0), moment(0.0, number)) == ("<unknown>", "<unknown>", "<unknown>")


def test_a_moment_of_another_day_has_a_date() -> None:
    now = time.mktime((2026, 3, 5, 13, 7, 0, 0, 0, -1))
    assert moment(now + 60, now) == "13:08"
    assert moment(now + 86_400, now) == "2026-03-06 13:07"
