"""Search time of the last minutes is kept, and no namespace for longer than that."""

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


def test_ordinary_use_is_level_zero_and_each_doubling_of_much_use_is_one_level_more() -> None:
    search_time = SearchTime(Clock())
    search_time.charge("team", 0.9 * MUCH_SECONDS)
    assert search_time.level("team") == 0
    search_time.charge("team", 0.6 * MUCH_SECONDS)
    assert search_time.level("team") == 1
    search_time.charge("team", 3.0 * MUCH_SECONDS)
    assert search_time.level("team") == 3
    assert search_time.level("other") == 0


def test_a_namespace_whose_level_falls_is_promoted_once() -> None:
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
def test_use_never_lowers_a_level_and_time_never_raises_one(charges: list[tuple[float, float]]) -> None:
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
def test_namespaces_that_come_and_go_are_forgotten(seconds: float) -> None:
    clock = Clock()
    search_time = SearchTime(clock)
    most = 0
    for number in range(20_000):
        clock.now += seconds
        search_time.charge(f"made-up-{number}", seconds)
        most = max(most, len(search_time), len(search_time._levels))
    # 0.1 s fades to nothing within 140 s: some 1,400 names, and as many again before they are deleted.
    assert most < 4_000
