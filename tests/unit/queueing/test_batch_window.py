"""The batch window, in which pods are gathered before a cycle."""

import pytest

from allaboard.queueing.batch_window import BatchWindow


class Arrivals:
    """Pods that come at given times, and a clock that only ``sleep`` moves."""

    def __init__(self, *times: float) -> None:
        self.times = times
        self.now = 0.0

    def count(self) -> int:
        return sum(1 for time in self.times if time <= self.now)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def gathered(self) -> float:
        """Return the time at which a window that opens now closes."""
        await BatchWindow(self.count, 0.04, 1.0, lambda: self.now, self.sleep).gather()
        return self.now


async def test_batch_window_with_a_single_pod_closes_after_the_idle_time() -> None:
    assert await Arrivals(0.0).gathered() == pytest.approx(0.04)


async def test_the_batch_window_stays_open_for_pods_that_follow_each_other() -> None:
    arrivals = Arrivals(*(number * 0.035 for number in range(20)))
    closed = await arrivals.gathered()
    assert arrivals.count() == 20
    assert closed < 20 * 0.035 + 0.3


async def test_the_batch_window_stays_open_longer_once_a_second_pod_has_come() -> None:
    arrivals = Arrivals(0.0, 0.03, 0.14, 0.25)
    await arrivals.gathered()
    assert arrivals.count() == 4


async def test_the_batch_window_closes_after_its_longest_time() -> None:
    assert await Arrivals(*(number * 0.03 for number in range(60))).gathered() == pytest.approx(1.0)


async def test_the_batch_window_closes_when_enough_pods_have_come() -> None:
    assert await Arrivals(*(number * 0.001 for number in range(1000))).gathered() < 0.2


async def test_a_batch_window_of_length_zero_closes_at_once() -> None:
    arrivals = Arrivals(0.0)
    await BatchWindow(arrivals.count, 0.0, 0.0, lambda: arrivals.now, arrivals.sleep).gather()
    assert arrivals.now == 0.0
