"""The search time of namespaces, which fades within minutes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.queueing.search_time import MUCH_SECONDS, SearchTime
from tests.unit.scheduling.clocks import Clock


def test_used_search_time_fades_within_minutes() -> None:
    clock = Clock()
    search_time = SearchTime(clock)
    search_time.charge("team", 10.0)
    clock.now = 60.0
    assert search_time.used("team") == pytest.approx(10.0 / 2.71828, rel=1e-3)
    clock.now = 600.0
    assert search_time.used("team") < 0.001


def test_usage_level_is_zero_for_ordinary_use_and_rises_by_one_with_each_doubling() -> None:
    search_time = SearchTime(Clock())
    search_time.charge("team", 0.9 * MUCH_SECONDS)
    assert search_time.level("team") == 0
    search_time.charge("team", 0.6 * MUCH_SECONDS)
    assert search_time.level("team") == 1
    search_time.charge("team", 3.0 * MUCH_SECONDS)
    assert search_time.level("team") == 3
    assert search_time.level("other") == 0


def test_namespace_whose_usage_level_has_fallen_is_returned_once() -> None:
    clock = Clock()
    search_time = SearchTime(clock)
    search_time.charge("team", 5.0)
    search_time.charge("other", 0.1)
    assert search_time.fallen() == set()
    clock.now = 50.0
    assert search_time.fallen() == {"team"}
    assert search_time.fallen() == set()
    clock.now = 200.0
    assert search_time.fallen() == {"team"}
    assert search_time.level("team") == 0


@given(st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(0.0, 2.0)), max_size=40))
def test_charges_never_lower_a_usage_level_and_time_never_raises_it(charges: list[tuple[float, float]]) -> None:
    clock = Clock()
    search_time = SearchTime(clock)
    for pause, seconds in charges:
        before = search_time.level("team")
        clock.now += pause
        assert search_time.level("team") <= before
        before = search_time.level("team")
        search_time.charge("team", seconds)
        assert search_time.level("team") >= before


@pytest.mark.parametrize("seconds", [0.1, 2.0])
def test_namespaces_whose_search_time_has_faded_are_dropped(seconds: float) -> None:
    clock = Clock()
    search_time = SearchTime(clock)
    most = 0
    for number in range(20_000):
        clock.now += seconds
        search_time.charge(f"made-up-{number}", seconds)
        most = max(most, len(search_time), len(search_time._levels))
    # A charge of 0.1 s fades to nothing within 140 s. So some 1,400 namespaces are kept, and as many again before they are dropped.
    assert most < 4_000
