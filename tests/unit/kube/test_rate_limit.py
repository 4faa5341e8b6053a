"""Requests follow each other no faster than they may."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.kube.rate_limit import Pace


async def sent(per_second: float, burst: int, arrivals: list[float]) -> list[float]:
    """When requests that come at ``arrivals`` are sent."""
    now, times = 0.0, []

    async def sleep(seconds: float) -> None:
        times[-1] += seconds

    pace = Pace(per_second, burst, lambda: now, sleep)
    for now in arrivals:  # the clock reads it
        times.append(now)
        await pace.wait()
    return times


async def test_a_burst_goes_at_once_and_what_follows_at_the_pace() -> None:
    assert await sent(2.0, 3, [10.0] * 5) == [10.0, 10.0, 10.0, 10.5, 11.0]


async def test_without_a_limit_no_request_waits() -> None:
    assert await sent(0.0, 1, [1.0] * 4) == [1.0] * 4


@given(st.integers(1, 4), st.lists(st.integers(0, 40), min_size=1, max_size=30))
async def test_no_second_has_more_than_the_burst_and_its_share(burst: int, gaps: list[int]) -> None:
    arrivals = [sum(gaps[: end + 1]) / 16 for end in range(len(gaps))]
    times = await sent(4.0, burst, arrivals)
    assert times == sorted(times)
    for first in times:
        assert sum(first <= moment < first + 1 for moment in times) <= burst + 4
