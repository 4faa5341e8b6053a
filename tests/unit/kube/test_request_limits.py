"""Concurrent requests are limited, so that no namespace can use up the limit, and no number of requests blocks the event loop."""

import asyncio

import pytest

from allaboard.kube.request_limits import RequestLimits, in_slices
from tests.unit.leadership.elections import now, virtually


async def a_request(limits: RequestLimits, seconds: float) -> float:
    """Make a request of one namespace that is answered after ``seconds``; return the time at which it began."""
    async with limits.turn("one"):
        began = now()
        await asyncio.sleep(seconds)
    return began


async def beginnings(limits: RequestLimits, number: int) -> list[float]:
    """Make ``number`` slow requests at once; return the seconds from now until each began, in ascending order."""
    start = now()
    return sorted([began - start for began in await asyncio.gather(*(a_request(limits, 15.0) for _ in range(number)))])


async def test_requests_of_a_namespace_and_of_all_namespaces_stay_within_their_limits() -> None:
    limits = RequestLimits(5, 2)
    now: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0

    async def request(namespace: str) -> None:
        nonlocal together
        async with limits.turn(namespace):
            now[namespace] = now.get(namespace, 0) + 1
            most[namespace] = max(most.get(namespace, 0), now[namespace])
            together = max(together, sum(now.values()))
            await asyncio.sleep(0)
            now[namespace] -= 1

    await asyncio.gather(*(request(f"ns-{number % 4}") for number in range(80)))
    assert max(most.values()) == 2
    assert len(most) == 4
    assert together == 5


async def test_namespace_without_waiting_requests_is_forgotten() -> None:
    limits = RequestLimits(5, 2)
    for number in range(100):
        async with limits.turn(f"ns-{number}"):
            assert len(limits._tasks) == 1
    assert not limits._tasks
    assert not limits._waiting


def test_any_number_of_slow_namespaces_leaves_concurrent_requests_to_quick_namespaces() -> None:
    waits: list[float] = []

    async def request(limits: RequestLimits, namespace: str, seconds: float) -> None:
        asked = now()
        async with limits.turn(namespace):
            if namespace == "quick":
                waits.append(now() - asked)
            await asyncio.sleep(seconds)

    async def play() -> None:
        limits = RequestLimits(8, 6)
        await request(limits, "quick", 0.01)
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(request(limits, f"slow-{number % 30}", 14.0))
            await asyncio.sleep(1.0)
            for _ in range(40):
                group.create_task(request(limits, "quick", 0.01))

    virtually(play())
    assert max(waits) < 0.3  # 40 requests have at least the quarter of the turns that slow namespaces can't take


def test_requests_of_a_new_namespace_beyond_the_first_four_begin_half_a_second_later_if_the_first_are_slow() -> None:
    begun: list[float] = []

    async def request(limits: RequestLimits) -> None:
        async with limits.turn("new"):
            begun.append(now())
            await asyncio.sleep(15.0)

    async def play() -> None:
        limits, start = RequestLimits(32, 24), now()
        await asyncio.gather(*(request(limits) for _ in range(6)))
        begun[:] = [when - start for when in begun]

    virtually(play())
    assert begun == pytest.approx([0.0] * 4 + [0.5] * 2, abs=0.05)


@pytest.mark.parametrize(("seconds", "begins"), [(0.01, [0.0] * 6 + [15.0] * 2), (1.0, [0.0] * 4 + [15.0] * 4)])
def test_binds_may_use_three_quarters_of_the_request_limit_after_a_quick_dry_run_and_half_after_a_slow_one(
    seconds: float, begins: list[float]
) -> None:
    begun: list[float] = []

    async def play() -> None:
        dry_runs = RequestLimits(8, 6)
        await a_request(dry_runs, seconds)
        begun[:] = await beginnings(RequestLimits(8, 6, dry_runs), len(begins))

    virtually(play())
    assert begun == pytest.approx(begins, abs=0.05)


async def test_next_request_begins_when_a_request_in_flight_is_cancelled() -> None:
    limits = RequestLimits(1, 1)
    begun: list[str] = []

    async def request(name: str) -> None:
        async with limits.turn(name):
            begun.append(name)

    async with limits.turn("first"):
        second, third = (asyncio.create_task(request(name)) for name in ("second", "third"))
        await asyncio.sleep(0)
    second.cancel()  # the second request has got its turn and has not begun
    await asyncio.gather(second, third, return_exceptions=True)
    assert begun == ["third"]


@pytest.mark.parametrize("number", [0, 1, 100, 101, 1000])
async def test_at_most_a_hundred_requests_begin_at_once_and_answers_keep_the_order_of_the_items(number: int) -> None:
    begun, answered = 0, asyncio.Event()

    async def request(item: int) -> int:
        nonlocal begun
        begun += 1
        await answered.wait()
        if item % 7 == 3:
            raise ValueError(item)
        return item

    together, slices, before = asyncio.create_task(in_slices(request, range(number))), [], 0
    while begun < number:
        await asyncio.sleep(0)
        slices.append(begun - before)
        before = begun
    answered.set()
    answers = await together
    assert max(slices, default=0) <= 100
    assert [answer.args[0] if isinstance(answer, ValueError) else answer for answer in answers] == list(range(number))
    assert {answer.args[0] for answer in answers if isinstance(answer, ValueError)} == {item for item in range(number) if item % 7 == 3}


async def test_cancelled_requests_that_have_not_begun_are_never_sent() -> None:
    begun: list[int] = []

    async def request(item: int) -> None:
        begun.append(item)
        await asyncio.Future()

    together = asyncio.create_task(in_slices(request, range(1000)))
    while not begun:  # noqa: ASYNC110  # no event signals the first begin
        await asyncio.sleep(0)
    together.cancel()
    await asyncio.gather(together, return_exceptions=True)
    before = len(begun)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(begun) == before < 1000


@pytest.mark.parametrize(("pause", "begins"), [(0.0, [0.0] * 4 + [15.0] * 2), (601.0, [0.0] * 6)])
def test_namespace_whose_requests_were_slow_counts_as_slow_for_ten_minutes_even_if_they_are_quick_again(
    pause: float, begins: list[float]
) -> None:
    begun: list[float] = []

    async def play() -> None:
        limits = RequestLimits(8, 6)
        await a_request(limits, 1.0)
        await asyncio.sleep(pause)
        await a_request(limits, 0.01)
        begun[:] = await beginnings(limits, len(begins))

    virtually(play())
    assert begun == pytest.approx(begins, abs=0.05)


def test_namespaces_that_were_quick_only_in_dry_runs_leave_a_quarter_of_the_request_limit_to_other_namespaces() -> None:
    begun: list[str] = []

    async def request(limits: RequestLimits, namespace: str, seconds: float) -> None:
        async with limits.turn(namespace):
            begun.append(namespace)
            await asyncio.sleep(seconds)

    async def play() -> None:
        dry_runs = RequestLimits(8, 6)
        for name in ("sly", "sly too"):
            await request(dry_runs, name, 0.01)
        begun.clear()
        limits = RequestLimits(8, 6, dry_runs)
        tasks = [asyncio.create_task(request(limits, name, 0.4)) for name in ("sly", "sly too") for _ in range(6)]
        await asyncio.sleep(0.1)
        assert len(begun) == 6
        await asyncio.gather(*tasks)

    virtually(play())
