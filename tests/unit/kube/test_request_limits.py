"""No namespace takes the others' turns, and no multitude the event loop's."""

import asyncio

import pytest

from allaboard.kube.request_limits import RequestLimits, in_slices
from tests.unit.leadership.elections import now, virtually


async def a_request(turns: RequestLimits, seconds: float) -> float:
    """Of one namespace, answered after ``seconds``; returns when it began."""
    async with turns.turn("one"):
        began = now()
        await asyncio.sleep(seconds)
    return began


async def beginnings(turns: RequestLimits, number: int) -> list[float]:
    """When each of so many slow requests, made together, began: seconds from now, the first of them first."""
    start = now()
    return sorted([began - start for began in await asyncio.gather(*(a_request(turns, 15.0) for _ in range(number)))])


async def test_no_namespace_has_more_than_its_own_turns_and_all_have_no_more_than_the_total() -> None:
    turns = RequestLimits(5, 2)
    now: dict[str, int] = {}
    most: dict[str, int] = {}
    together = 0

    async def request(namespace: str) -> None:
        nonlocal together
        async with turns.turn(namespace):
            now[namespace] = now.get(namespace, 0) + 1
            most[namespace] = max(most.get(namespace, 0), now[namespace])
            together = max(together, sum(now.values()))
            await asyncio.sleep(0)
            now[namespace] -= 1

    await asyncio.gather(*(request(f"ns-{number % 4}") for number in range(80)))
    assert max(most.values()) == 2
    assert len(most) == 4
    assert together == 5


async def test_a_namespace_without_waiting_requests_is_forgotten() -> None:
    turns = RequestLimits(5, 2)
    for number in range(100):
        async with turns.turn(f"ns-{number}"):
            assert len(turns._tasks) == 1
    assert not turns._tasks
    assert not turns._waiting


def test_slow_namespaces_leave_turns_to_quick_ones_however_many_they_are() -> None:
    waits: list[float] = []

    async def request(turns: RequestLimits, namespace: str, seconds: float) -> None:
        asked = now()
        async with turns.turn(namespace):
            if namespace == "quick":
                waits.append(now() - asked)
            await asyncio.sleep(seconds)

    async def play() -> None:
        turns = RequestLimits(8, 6)
        await request(turns, "quick", 0.01)
        async with asyncio.TaskGroup() as group:
            for number in range(300):
                group.create_task(request(turns, f"slow-{number % 30}", 14.0))
            await asyncio.sleep(1.0)
            for _ in range(40):
                group.create_task(request(turns, "quick", 0.01))

    virtually(play())
    assert max(waits) < 0.3  # 40 requests by a fourth of the turns, six of a namespace at once


def test_a_gang_whose_first_answers_are_out_begins_with_the_others_as_soon_as_it_is_known_to_be_slow() -> None:
    begun: list[float] = []

    async def request(turns: RequestLimits) -> None:
        async with turns.turn("new"):
            begun.append(now())
            await asyncio.sleep(15.0)

    async def play() -> None:
        turns, start = RequestLimits(32, 24), now()
        await asyncio.gather(*(request(turns) for _ in range(6)))
        begun[:] = [when - start for when in begun]

    virtually(play())
    assert begun == pytest.approx([0.0] * 4 + [0.5] * 2, abs=0.05)


@pytest.mark.parametrize(("seconds", "begins"), [(0.01, [0.0] * 6 + [15.0] * 2), (1.0, [0.0] * 4 + [15.0] * 4)])
def test_binds_begin_together_after_a_quick_dry_run_and_get_half_the_turns_after_a_slow_one(seconds: float, begins: list[float]) -> None:
    begun: list[float] = []

    async def play() -> None:
        dry_runs = RequestLimits(8, 6)
        await a_request(dry_runs, seconds)
        begun[:] = await beginnings(RequestLimits(8, 6, dry_runs), len(begins))

    virtually(play())
    assert begun == pytest.approx(begins, abs=0.05)


async def test_a_cancelled_request_leaves_its_turn() -> None:
    turns = RequestLimits(1, 1)
    begun: list[str] = []

    async def request(name: str) -> None:
        async with turns.turn(name):
            begun.append(name)

    async with turns.turn("first"):
        second, third = (asyncio.create_task(request(name)) for name in ("second", "third"))
        await asyncio.sleep(0)
    second.cancel()  # its turn has come, and it hasn't begun
    await asyncio.gather(second, third, return_exceptions=True)
    assert begun == ["third"]


@pytest.mark.parametrize("number", [0, 1, 100, 101, 1000])
async def test_of_thousands_of_requests_a_hundred_begin_at_a_stretch_and_the_answers_keep_their_order(number: int) -> None:
    begun, answered = 0, asyncio.Event()

    async def request(item: int) -> int:
        nonlocal begun
        begun += 1
        await answered.wait()
        if item % 7 == 3:
            raise ValueError(item)
        return item

    together, stretches, before = asyncio.create_task(in_slices(request, range(number))), [], 0
    while begun < number:
        await asyncio.sleep(0)
        stretches.append(begun - before)
        before = begun
    answered.set()
    answers = await together
    assert max(stretches, default=0) <= 100
    assert [answer.args[0] if isinstance(answer, ValueError) else answer for answer in answers] == list(range(number))
    assert {answer.args[0] for answer in answers if isinstance(answer, ValueError)} == {item for item in range(number) if item % 7 == 3}


async def test_cancelled_requests_that_have_not_begun_are_never_sent() -> None:
    begun: list[int] = []

    async def request(item: int) -> None:
        begun.append(item)
        await asyncio.Future()

    together = asyncio.create_task(in_slices(request, range(1000)))
    while not begun:  # noqa: ASYNC110  # nothing signals it
        await asyncio.sleep(0)
    together.cancel()
    await asyncio.gather(together, return_exceptions=True)
    before = len(begun)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(begun) == before < 1000


@pytest.mark.parametrize(("pause", "begins"), [(0.0, [0.0] * 4 + [15.0] * 2), (601.0, [0.0] * 6)])
def test_a_namespace_that_was_slow_leaves_turns_for_ten_minutes_though_it_is_quick_now(pause: float, begins: list[float]) -> None:
    begun: list[float] = []

    async def play() -> None:
        turns = RequestLimits(8, 6)
        await a_request(turns, 1.0)
        await asyncio.sleep(pause)
        await a_request(turns, 0.01)
        begun[:] = await beginnings(turns, len(begins))

    virtually(play())
    assert begun == pytest.approx(begins, abs=0.05)


def test_namespaces_whose_dry_runs_alone_were_quick_leave_a_fourth_of_the_turns() -> None:
    begun: list[str] = []

    async def request(turns: RequestLimits, namespace: str, seconds: float) -> None:
        async with turns.turn(namespace):
            begun.append(namespace)
            await asyncio.sleep(seconds)

    async def play() -> None:
        dry_runs = RequestLimits(8, 6)
        for name in ("sly", "sly too"):
            await request(dry_runs, name, 0.01)
        begun.clear()
        turns = RequestLimits(8, 6, dry_runs)
        tasks = [asyncio.create_task(request(turns, name, 0.4)) for name in ("sly", "sly too") for _ in range(6)]
        await asyncio.sleep(0.1)
        assert len(begun) == 6
        await asyncio.gather(*tasks)

    virtually(play())
