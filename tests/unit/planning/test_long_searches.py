"""Tests that long searches run one at a time, and that namespaces take turns."""

import asyncio

import pytest

from allaboard.model.gang import GangKey
from allaboard.placement import Explanation, Plan, SearchReport
from allaboard.planning.long_searches import LongSearches, SearchAbandonedError
from allaboard.queueing.search_time import SearchTime
from allaboard.records.record import GangRecords
from allaboard.records.sort_key import Order
from tests.unit.scheduling.clocks import Clock

PLAN = Plan(None, (), (), Explanation(0, 0, 0, (), None), SearchReport(0.0, 0.0, 0, "", (), ""))


def long_searches(clock: Clock) -> LongSearches:
    return LongSearches(GangRecords(), clock, SearchTime(clock))


def place(key: GangKey, created: float = 0.0) -> Order:
    return Order(0, True, 2, 0, 0, created, key)


def key_of(namespace: str, name: object) -> GangKey:
    return GangKey(namespace, str(name))


async def search_for(searches: LongSearches, clock: Clock, key: GangKey, seconds: float) -> None:
    """Run a long search of ``seconds`` for the gang ``key``."""

    async def work() -> Plan:
        clock.now += seconds
        return PLAN

    assert await searches.search(key, work) is PLAN


async def turns(searches: LongSearches, clock: Clock, seconds: float) -> list[GangKey]:
    """Run a long search of ``seconds`` for each gang that waits, and return the gangs in the order of their searches."""
    order = []
    while (key := searches.next()) is not None:
        order.append(key)
        await search_for(searches, clock, key, seconds)
    return order


async def test_within_a_namespace_the_first_gang_in_queue_order_gets_the_next_long_search() -> None:
    clock = Clock()
    searches = long_searches(clock)
    for name, created in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        searches.join(key_of("team", name), place(key_of("team", name), created))
    assert [key.name for key in await turns(searches, clock, 1.0)] == ["a", "b", "c"]


async def test_namespaces_take_turns_however_many_gangs_one_of_them_has() -> None:
    clock = Clock()
    searches = long_searches(clock)
    for number in range(12):
        searches.join(key_of("many", number), place(key_of("many", number)))
    for number in range(3):
        searches.join(key_of("few", number), place(key_of("few", number), created=100.0))  # younger than all gangs of the other namespace
    order = [key.namespace for key in await turns(searches, clock, 12.0)]
    assert order[:6] == ["many", "few"] * 3
    assert order[6:] == ["many"] * 9


async def test_a_namespace_that_used_less_search_time_goes_first() -> None:
    clock = Clock()
    searches = long_searches(clock)
    await search_for(searches, clock, key_of("long", 0), 30.0)
    for number in range(3):
        searches.join(key_of("long", number), place(key_of("long", number)))
        searches.join(key_of("short", number), place(key_of("short", number)))
    assert [key.namespace for key in await turns(searches, clock, 1.0)] == ["short"] * 3 + ["long"] * 3


async def test_one_long_search_runs_at_a_time() -> None:
    clock, go = Clock(), asyncio.Event()
    searches = long_searches(clock)
    searches.join(key_of("team", "a"), place(key_of("team", "a")))
    searches.join(key_of("team", "b"), place(key_of("team", "b")))
    first = searches.next()
    assert first is not None

    async def work() -> Plan:
        await go.wait()
        return PLAN

    task = asyncio.create_task(searches.search(first, work))
    await asyncio.sleep(0)
    assert searches.next() is None
    assert not searches.is_idle
    go.set()
    await task
    assert searches.is_idle is False
    assert searches.next() == key_of("team", "b")


async def test_the_next_gang_is_returned_only_after_the_gang_before_it_is_done() -> None:
    searches = long_searches(Clock())
    for name in "ab":
        searches.join(key_of("team", name), place(key_of("team", name)))
    assert searches.next() == key_of("team", "a")
    assert searches.next() is None
    searches.done(key_of("team", "b"))
    assert searches.next() is None
    searches.done(key_of("team", "a"))
    assert searches.next() == key_of("team", "b")


async def test_a_gang_that_no_longer_waits_gets_no_search_and_leaves_no_entry() -> None:
    searches = long_searches(Clock())
    searches.join(key_of("team", "a"), place(key_of("team", "a")))
    searches.leave(key_of("team", "a"))
    searches.leave(key_of("team", "a"))
    assert len(searches) == 0
    assert searches.next() is None


async def is_ended(searches: LongSearches, key: GangKey, end: str) -> bool:
    """Run a search that never answers, and return whether ``end`` cancels it: "stop", "abandon" or "cancel"."""
    is_cancelled = False

    async def work() -> Plan:
        nonlocal is_cancelled
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        return PLAN

    task = asyncio.create_task(searches.search(key, work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if end == "stop":
        searches.stop()
    elif end == "abandon":
        searches.abandon(key)
    else:
        task.cancel()
    with pytest.raises(asyncio.CancelledError if end == "cancel" else SearchAbandonedError):
        await task
    await asyncio.sleep(0)
    return is_cancelled


@pytest.mark.parametrize("end", ["abandon", "stop", "cancel"])
async def test_a_search_whose_result_is_no_longer_wanted_is_ended(end: str) -> None:
    searches = long_searches(Clock())
    assert await is_ended(searches, key_of("team", "a"), end)
    assert searches.is_idle


async def test_abandoning_the_search_for_one_gang_does_not_end_the_search_for_another() -> None:
    searches = long_searches(Clock())
    go = asyncio.Event()

    async def work() -> Plan:
        await go.wait()
        return PLAN

    task = asyncio.create_task(searches.search(key_of("team", "a"), work))
    await asyncio.sleep(0)
    searches.abandon(key_of("team", "b"))
    go.set()
    assert await task is PLAN


async def test_a_search_that_ends_with_an_error_is_charged_to_its_namespace() -> None:
    clock = Clock()
    searches = long_searches(clock)

    async def work() -> Plan:
        clock.now += 60.0
        raise ValueError("of the search itself")

    with pytest.raises(ValueError, match="itself"):
        await searches.search(key_of("team", "a"), work)
    assert searches.shares.used("team") == pytest.approx(60.0)


async def test_no_search_begins_after_stop() -> None:
    searches = long_searches(Clock())
    searches.join(key_of("team", "a"), place(key_of("team", "a")))
    searches.stop()
    searches.join(key_of("team", "b"), place(key_of("team", "b")))
    assert searches.next() is None


async def test_work_after_a_search_delays_the_next_search_and_is_not_ended_with_the_search() -> None:
    """Work after a long search runs in the processes of short searches, which must not be ended."""
    searches = long_searches(Clock())
    key, other, has_ended = key_of("a", 0), key_of("b", 0), asyncio.Event()

    async def work() -> Plan:
        return PLAN

    async def afterwards(plan: Plan) -> None:
        searches.join(other, place(other))
        assert plan is PLAN
        assert searches.next() is None
        assert not searches.is_searching(key)
        searches.abandon(key)
        has_ended.set()

    assert await searches.search(key, work, afterwards) is PLAN
    assert has_ended.is_set()
    assert searches.next() == other


async def test_the_next_gang_is_found_without_visiting_all_waiting_gangs() -> None:
    class Counted(SearchTime):
        asked = 0

        def used(self, namespace: str) -> float:
            self.asked += 1
            return super().used(namespace)

    clock = Clock()
    shares = Counted(clock)
    searches, keys = LongSearches(GangRecords(), clock, shares), [key_of("team", number) for number in range(1000)]
    for number, key in enumerate(keys):
        searches.join(key, place(key, float(number)))
    for key in keys[500:]:
        searches.leave(key)
    assert len(searches) == 500
    for number in range(500):
        assert searches.next() == keys[number]
        searches.done(keys[number])
    assert shares.asked <= 500
    assert searches.next() is None
