"""A cycle decides about every due gang, in queue order, and no gang delays the others' decisions."""

import asyncio
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from allaboard.cluster.volumes import VolumeView
from allaboard.model.pod import Pod
from allaboard.planning.prepared import prepared
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


async def test_a_gang_that_becomes_due_during_a_cycle_and_ranks_before_the_others_is_next() -> None:
    async with World() as world:
        for number, name in enumerate("abc"):
            world.add(name, created=float(number))
        world.searched.meanwhile["briefly a"] = lambda: world.add("urgent", priority=5)
        await world.cycle()
        assert world.searched.asked == ["briefly a", "briefly urgent", "briefly b", "briefly c"]


async def test_a_gang_that_is_due_again_and_again_ends_the_round_of_the_others_once() -> None:
    """Plans are discarded for such a gang only once, until another gang had an attempt."""
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


async def test_a_namespace_that_uses_much_search_time_during_a_cycle_goes_behind_the_others() -> None:
    async with World() as world:
        for created, (namespace, name) in enumerate((("slow", "a"), ("slow", "b"), ("quick", "c"))):
            world.add(name, namespace=namespace, created=float(created))
        world.searched.meanwhile["briefly a"] = lambda: world.shares.charge("slow", 10.0)
        await world.cycle()
        assert world.searched.asked == ["briefly a", "briefly c", "briefly b"]


class Torn(VolumeView):
    """Fails by a defect at each attempt at the gang ``bad``."""

    def resolve(self, pod: Pod) -> Pod:
        if pod.name.startswith("bad"):
            raise RuntimeError("a defect")
        return pod


@pytest.mark.parametrize("where", ["look", "search"])
async def test_a_defect_in_one_gangs_handling_is_reported_and_retried_and_other_gangs_go_on(where: str) -> None:
    async with World() as world:
        if where == "look":
            world.view.volumes = Torn()
        if where == "search":
            world.searched.fails["briefly bad"] = RuntimeError("a defect")
        keys = [world.add(name, created=float(number)) for number, name in enumerate(("a", "bad", "c"))]
        await world.cycle()
        bound, failed = "2 members bound", "the scheduler failed on this gang with an internal error; see its log"
        assert [world.said(key) for key in keys] == [bound, failed, bound]
        assert world.seconds_until_due(keys[1]) == 1.0


async def test_a_search_that_fails_counts_as_a_failure_of_its_gang_alone() -> None:
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


async def test_a_gang_with_a_running_task_is_deferred_until_the_task_ends() -> None:
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
async def test_a_long_search_is_ended_when_its_gang_needs_no_search_any_more(is_gone: bool) -> None:
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
        world.now += 1.0  # its backoff is over
        await world.cycle_.run()
        await world.breathe()
        assert world.long.is_searching(key) is not is_gone


@pytest.mark.parametrize(
    ("cpus", "second", "asked"),
    [
        (2, {}, ["2 together", "briefly b"]),
        (8, {}, ["briefly a", "briefly b"]),  # both fit in any order
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


async def test_a_gang_that_is_overtaken_by_gangs_placed_together_has_that_counted() -> None:
    async with World(cpus=4) as world:
        large, small = world.add("large", 3, created=1.0), [world.add(name, created=2.0) for name in ("a", "b")]
        await world.cycle()
        assert [world.said(key) for key in small] == ["2 members bound"] * 2
        assert world.records.of(large).queue.overtaken == (1, world.now)
        assert world.said(large).startswith("podgroup default/large: 0 of 3 members placeable")


@pytest.mark.parametrize("is_node", [True, False])
async def test_a_gang_without_capacity_is_due_when_a_pod_goes_and_when_a_node_grows(is_node: bool) -> None:
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
async def test_no_condition_is_written_to_a_pod_that_is_gone(is_gone: bool) -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        await world.cycle()
        if is_gone:
            world.remove(key)
        await world.write()
        assert [path for path in world.api.written if "/pods/" in path] == [
            f"/api/v1/namespaces/default/pods/g-{number}/status" for number in range(0 if is_gone else 2)
        ]


async def test_a_scheduler_that_stops_waits_for_running_transactions() -> None:
    """A transaction that is cut off would leave its gang partially bound."""
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


async def test_a_scheduler_that_stops_does_not_wait_for_pods_of_the_jobs_that_it_suspended() -> None:
    """Pods may take any time to terminate; the Jobs are resumed before."""
    async with World(cpus=2) as world:
        key = world.add_partially_bound("g", **OF_A_JOB)
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
        monkeypatch.setattr(world.keeper, "mark_being_bound", Mock(side_effect=[RuntimeError("a defect"), None]))
        await world.cycle()
        assert (world.api.asked, world.view.counts["assumed_pods"]) == ([], 0)
        world.now += world.seconds_until_due(key)
        await world.cycle()
        assert world.said(key) == "2 members bound"


async def test_a_gang_whose_defect_cannot_even_be_reported_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World() as world:
        keys = [world.add(name, created=float(number)) for number, name in enumerate(("bad", "good"))]
        world.searched.fails["briefly bad"] = RuntimeError("a defect")
        monkeypatch.setattr(world.reporter, "report_wait", Mock(side_effect=RuntimeError("another defect")))
        await world.cycle()
        assert world.api.asked == ["bind good-0", "bind good-1"]
        assert world.seconds_until_due(keys[0]) == 1.0


async def test_a_defect_in_a_long_search_is_reported_and_the_gang_is_tried_again() -> None:
    async with World() as world:
        key = world.add("g")
        world.searched.finds_nothing.add("briefly g")
        world.searched.fails["at length g"] = RuntimeError("a defect")
        await world.cycle()
        assert world.said(key) == "the scheduler failed on this gang with an internal error; see its log"
        assert world.seconds_until_due(key) == 1.0


async def test_a_gang_on_which_a_task_acts_is_not_bound_by_a_plan_that_was_made_before() -> None:
    async with World() as world:
        gang = prepared(world.gang(world.add("g")))
        world.tasks.start(gang.key, asyncio.sleep(0))
        assert world.due.current(gang) is None
        await world.settle()
        assert world.due.current(gang) is not None
