"""The waits of gangs in a replay, and the errors of expected starts."""

from dataclasses import replace

from allaboard.simulation.waits import PlacedGang, as_figures, expected_start_error, mean_slowdown, waits_of

GANG = PlacedGang("g", 1, 0, arrived=0.0, started=10.0, run_seconds=100.0)


def test_waits_are_computed_by_size_and_by_priority_if_there_are_several() -> None:
    gangs = [replace(GANG, started=float(seconds), gpus=gpus) for seconds, gpus in ((0, 0), (10, 0.5), (20, 3), (30, 16), (90, 64))]
    figures = as_figures(waits_of(gangs))
    assert list(figures) == ["no GPU", "1-3 GPUs", "16 GPUs or more"]
    assert figures["1-3 GPUs"] == {"gangs": 2, "p50": 15.0, "p95": 19.5, "max": 20.0}
    urgent = replace(GANG, priority=10, started=5.0)
    assert list(as_figures(waits_of([GANG, urgent])))[1:] == ["priority 10", "priority 0"]
    assert waits_of([]) == []


def test_slowdown_is_relative_to_the_run_time_and_bounded_for_short_gangs() -> None:
    assert mean_slowdown([GANG, replace(GANG, run_seconds=1.0)]) == (1.1 + 1.1) / 2
    assert mean_slowdown([replace(GANG, started=0.0, run_seconds=1.0)]) == 1.0
    assert mean_slowdown([replace(GANG, run_seconds=None)]) == 1.0


def test_error_of_expected_starts_is_the_median_over_gangs_with_an_expected_start() -> None:
    gangs = [GANG, *(replace(GANG, expected=10.0 + error) for error in (-5.0, 1.0, 30.0))]
    assert expected_start_error(gangs) == 5.0
    assert expected_start_error([GANG]) is None
