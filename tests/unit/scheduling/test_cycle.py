"""Every gang that is due is brought to a decision, the first in queue order first, and none keeps the others from theirs."""

import asyncio
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from allaboard.cluster.volumes import VolumeView
from allaboard.model.pod import Pod
from allaboard.planning.search_processes import SearchError
from tests.unit.scheduling.schedulers import OF_A_JOB, World


async def test_gangs_are_decided_about_in_queue_order() -> None:
    async with World() as world:
        for name, priority, created in (("young", 0, 2.0), ("old", 0, 1.0), ("urgent", 5, 3.0), ("poor", -5, 0.0)):
            world.add(name, priority=priority, created=created)
        await world.cycle()
        assert world.searched.asked == ["briefly urgent", "briefly old", "briefly young", "briefly poor"]
        assert world.counted("transactions", outcome="whole") == 4
        assert world.queue.peek() is None


async def test_whoever_comes_meanwhile_and_goes_before_the_others_has_the_next_turn() -> None:
    async with World() as world:
        for number, name in enumerate("abc"):
            world.add(name, created=float(number))
        world.searched.meanwhile["briefly a"] = lambda: world.add("urgent", priority=5)
        await world.cycle()
        assert world.searched.asked == ["briefly a", "briefly urgent", "briefly b", "briefly c"]


async def test_who_goes_before_the_others_and_is_due_again_and_again_is_yielded_to_once() -> None:
    """Plans aren't thrown away for it until one of the others has had a turn."""
    async with World(cpus=2) as world:
        urgent = world.add("urgent", 3, priority=5)
        for name in "ab":
            world.add(name)

        def ring() -> None:
            world.queue.mark(urgent)
            if len(world.searched.asked) < 20:
                world.searched.meanwhile["2 together"] = ring

        ring()
        await world.cycle()
        assert world.searched.asked[:4] == ["briefly urgent", "2 together"] * 2
        assert world.searched.asked.count("2 together") == 2


async def test_a_namespace_that_has_used_much_search_time_meanwhile_goes_behind_the_others() -> None:
    async with World() as world:
        for created, (namespace, name) in enumerate((("slow", "a"), ("slow", "b"), ("quick", "c"))):
            world.add(name, namespace=namespace, created=float(created))
        world.searched.meanwhile["briefly a"] = lambda: world.shares.charge("slow", 10.0)
        await world.cycle()
        assert world.searched.asked == ["briefly a", "briefly c", "briefly b"]


class Torn(VolumeView):
    """A defect meets the gang ``bad`` at its look."""

    def resolve(self, pod: Pod) -> Pod:
        if pod.name.startswith("bad"):
            raise RuntimeError("a defect")
        return pod


@pytest.mark.parametrize("where", ["look", "search"])
async def test_a_gang_whose_handling_fails_is_told_and_tried_again_and_the_others_go_on(where: str) -> None:
    async with World() as world:
        if where == "look":
            world.view.volumes = Torn()
        if where == "search":
            world.searched.fails["briefly bad"] = RuntimeError("a defect")
        keys = [world.add(name, created=float(number)) for number, name in enumerate(("a", "bad", "c"))]
        await world.cycle()
        bound, failed = "2 members bound", "the scheduler failed on this gang; its log says how"
        assert [world.said(key) for key in keys] == [bound, failed, bound]
        assert world.seconds_until_due(keys[1]) == 1.0


async def test_a_search_that_fails_is_its_own_gang_s_failure() -> None:
    async with World() as world:
        keys = [world.add(name) for name in "ab"]
        world.searched.fails["briefly a"] = SearchError("the process died")
        await world.cycle()
        assert [world.said(key) for key in keys] == ["the process died", "2 members bound"]


async def test_a_gang_that_is_gone_is_forgotten() -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        await world.cycle()
        assert world.records.find(key) is not None
        world.remove(key)
        await world.cycle()
        assert world.records.find(key) is None


async def test_a_gang_under_way_is_passed_over_and_looked_at_when_that_has_ended() -> None:
    async with World() as world:
        key = world.add("g")
        world.api.answers.clear()
        await world.cycle_.run()
        await world.breathe()
        assert world.api.asked == ["bind g-0", "bind g-1"]
        world.queue.mark(key)
        await world.cycle_.run()
        assert world.searched.asked == ["briefly g"]
        assert world.queue.peek() is None
        world.api.answers.set()
        await world.settle()
        assert world.queue.peek() == key


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_long_search_is_ended_when_nobody_is_to_be_searched_for_any_more(is_gone: bool) -> None:
    async with World() as world:
        world.searched.goes_on.clear()
        world.searched.finds_nothing.add("briefly g")
        key = world.add("g")
        await world.cycle_.run()
        await world.breathe()
        assert world.long.is_searching(key)
        if is_gone:
            world.remove(key)
        world.queue.mark(key)
        world.now += 1.0  # its pause is over
        await world.cycle_.run()
        await world.breathe()
        assert world.long.is_searching(key) is not is_gone


@pytest.mark.parametrize(
    ("cpus", "second", "asked"),
    [
        (2, {}, ["2 together", "briefly b"]),
        (8, {}, ["briefly a", "briefly b"]),  # there is room for both whatever the order
        (2, {"priority": 1}, ["briefly b", "briefly a"]),
        (2, {"namespace": "owes"}, ["briefly a", "briefly b"]),
        (3, {"bound": 1}, ["briefly b", "briefly a"]),  # it has lost a member
        (3, {"size": 3, "minimum": 1, "bound": 1}, ["briefly a", "briefly b"]),  # it is whole
    ],
)
async def test_equal_gangs_that_contend_are_placed_together(cpus: int, second: dict[str, Any], asked: list[str]) -> None:
    async with World(cpus) as world:
        world.shares.charge("owes", 10.0)
        world.add("a", created=1.0)
        world.add("b", created=2.0, **second)
        await world.cycle()
        assert world.searched.asked == asked


async def test_whoever_is_overtaken_by_gangs_that_are_placed_together_has_that_counted() -> None:
    async with World(cpus=4) as world:
        large, small = world.add("large", 3, created=1.0), [world.add(name, created=2.0) for name in ("a", "b")]
        await world.cycle()
        assert [world.said(key) for key in small] == ["2 members bound"] * 2
        assert world.records.of(large).queue.overtaken == (1, world.now)
        assert world.said(large).startswith("podgroup default/large: 0 of 3 members placeable")


@pytest.mark.parametrize("is_node", [True, False])
async def test_who_lacked_room_is_due_when_somebody_goes_and_when_a_node_grows(is_node: bool) -> None:
    async with World(cpus=2) as world:
        sitting, waiting = world.add("sitting", bound=2), world.add("waiting", created=1.0)
        await world.cycle()
        assert world.queue.peek() is None
        if is_node:
            world.resize(4)
        else:
            world.remove(sitting)
        await world.queue.drain()
        assert waiting in (world.queue.pop(), world.queue.pop())


@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_pod_that_is_gone_is_not_told_any_more_why_it_waits(is_gone: bool) -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        await world.cycle()
        if is_gone:
            world.remove(key)
        await world.write()
        assert [path for path in world.api.written if "/pods/" in path] == [
            f"/api/v1/namespaces/default/pods/g-{number}/status" for number in range(0 if is_gone else 2)
        ]


async def test_a_scheduler_that_stops_ends_the_transactions_that_are_under_way() -> None:
    """Cut off in the middle, one would leave its gang half bound."""
    async with World() as world:
        key = world.add("g")
        world.api.answers.clear()
        running = asyncio.create_task(world.scheduler.run())
        await world.breathe()
        assert world.api.asked == ["bind g-0", "bind g-1"]
        running.cancel()
        await world.breathe()
        assert not running.done()
        world.api.answers.set()
        with suppress(asyncio.CancelledError):
            await running
        assert world.said(key) == "2 members bound"


async def test_a_scheduler_that_stops_waits_for_no_pods_of_the_jobs_that_it_has_suspended() -> None:
    """Their going takes as long as they please; the Jobs are resumed before."""
    async with World(cpus=2) as world:
        key = world.add_half("g", **OF_A_JOB)
        world.queue.mark(key)
        world.api.resumes.clear()
        running = asyncio.create_task(world.scheduler.run())
        await world.breathe()
        assert world.api.asked == ["suspend the Job of g-0", "suspend the Job of g-1"]
        running.cancel()
        async with asyncio.timeout(50):
            with suppress(asyncio.CancelledError):
                await running
        assert world.api.resumes.is_set()


async def test_a_defect_before_the_first_bind_keeps_no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(cpus=2) as world:
        key = world.add("g")
        monkeypatch.setattr(world.keeper, "begin_bind", Mock(side_effect=[RuntimeError("a defect"), None]))
        await world.cycle()
        assert (world.api.asked, world.view.counts["assumed_pods"]) == ([], 0)
        world.now += world.seconds_until_due(key)
        await world.cycle()
        assert world.said(key) == "2 members bound"
