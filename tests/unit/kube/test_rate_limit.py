"""Requests are sent no faster than the rate limit allows."""

from hypothesis import given
from hypothesis import strategies as st

from allaboard.kube.rate_limit import RateLimit


async def sent(per_second: float, burst: int, arrivals: list[float]) -> list[float]:
    """Return the times at which requests that come at ``arrivals`` are sent, in seconds."""
    now, times = 0.0, []

    async def sleep(seconds: float) -> None:
        times[-1] += seconds

    limit = RateLimit(per_second, burst, lambda: now, sleep)
    for now in arrivals:  # the clock returns this variable
        times.append(now)
        await limit.wait()
    return times


async def test_burst_is_sent_at_once_and_later_requests_at_the_limited_rate() -> None:
    assert await sent(2.0, 3, [10.0] * 5) == [10.0, 10.0, 10.0, 10.5, 11.0]


async def test_no_request_waits_if_no_rate_limit_is_set() -> None:
    assert await sent(0.0, 1, [1.0] * 4) == [1.0] * 4


@given(st.integers(1, 4), st.lists(st.integers(0, 40), min_size=1, max_size=30))
async def test_no_second_has_more_requests_than_the_burst_and_the_rate_together(burst: int, gaps: list[int]) -> None:
    arrivals = [sum(gaps[: end + 1]) / 16 for end in range(len(gaps))]
    times = await sent(4.0, burst, arrivals)
    assert times == sorted(times)
    for first in times:
        assert sum(first <= moment < first + 1 for moment in times) <= burst + 4
