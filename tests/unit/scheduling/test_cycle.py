"""Tests that a cycle brings every due gang to a decision, in queue order, and that no gang delays other gangs."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from allaboard.cluster.volumes import VolumeView
from allaboard.model.pod import Pod
from allaboard.planning.prepared import prepared
from allaboard.planning.search_processes import SearchError
from tests.unit.scheduling.schedulers import OF_A_JOB, World


async def test_due_gangs_are_planned_in_queue_order() -> None:
    async with World() as world:
        for name, priority, created in (("young", 0, 2.0), ("old", 0, 1.0), ("urgent", 5, 3.0), ("poor", -5, 0.0)):
            world.add(name, priority=priority, created=created)
        await world.run_cycle()
        assert world.searcher.searches == ["briefly urgent", "briefly old", "briefly young", "briefly poor"]
        assert world.counted("transactions", outcome="whole") == 4
        assert world.queue.peek() is None


async def test_a_gang_of_higher_priority_that_becomes_due_during_a_cycle_is_planned_next() -> None:
    async with World() as world:
        for number, name in enumerate("abc"):
            world.add(name, created=float(number))
        world.searcher.meanwhile["briefly a"] = lambda: world.add("urgent", priority=5)
        await world.run_cycle()
        assert world.searcher.searches == ["briefly a", "briefly urgent", "briefly b", "briefly c"]


async def test_a_gang_that_keeps_becoming_due_ends_the_round_of_other_gangs_only_once() -> None:
    """Plans of a round are discarded for such a gang only once before another gang is attempted."""
    async with World(cpus=2) as world:
        urgent = world.add("urgent", 3, priority=5)
        for name in "ab":
            world.add(name)

        def make_due() -> None:
            world.queue.mark(urgent)
            if len(world.searcher.searches) < 20:
                world.searcher.meanwhile["2 together"] = make_due

        make_due()
        await world.run_cycle()
        assert world.searcher.searches[:4] == ["briefly urgent", "2 together"] * 2
        assert world.searcher.searches.count("2 together") == 2


async def test_a_namespace_that_uses_much_search_time_during_a_cycle_goes_behind_other_namespaces() -> None:
    async with World() as world:
        for created, (namespace, name) in enumerate((("slow", "a"), ("slow", "b"), ("quick", "c"))):
            world.add(name, namespace=namespace, created=float(created))
        world.searcher.meanwhile["briefly a"] = lambda: world.shares.charge("slow", 10.0)
        await world.run_cycle()
        assert world.searcher.searches == ["briefly a", "briefly c", "briefly b"]


class BrokenVolumes(VolumeView):
    """A volume view with a defect: it raises an error for each pod of the gang ``bad``."""

    def resolve(self, pod: Pod, is_used: Callable[[str], bool] = lambda claim: False) -> Pod:
        if pod.name.startswith("bad"):
            raise RuntimeError("a defect")
        return pod


@pytest.mark.parametrize("where", ["preparation", "search"])
async def test_a_defect_that_concerns_one_gang_is_reported_and_delays_no_other_gang(where: str) -> None:
    async with World() as world:
        if where == "preparation":
            world.view.volumes = BrokenVolumes()
        if where == "search":
            world.searcher.fails["briefly bad"] = RuntimeError("a defect")
        keys = [world.add(name, created=float(number)) for number, name in enumerate(("a", "bad", "c"))]
        await world.run_cycle()
        bound, failed = "2 members bound", "the scheduler failed on this gang with an internal error; see its log"
        assert [world.message_of(key) for key in keys] == [bound, failed, bound]
        assert world.seconds_until_due(keys[1]) == 1.0


async def test_a_search_that_fails_is_a_failure_of_its_gang_alone() -> None:
    async with World() as world:
        keys = [world.add(name) for name in "ab"]
        world.searcher.fails["briefly a"] = SearchError("the process died")
        await world.run_cycle()
        assert [world.message_of(key) for key in keys] == ["the process died", "2 members bound"]


async def test_a_deleted_gang_has_no_record_after_the_next_cycle() -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        await world.run_cycle()
        assert world.records.find(key) is not None
        world.remove(key)
        await world.run_cycle()
        assert world.records.find(key) is None


async def test_a_gang_that_a_task_acts_on_is_not_attempted_before_the_task_ends() -> None:
    async with World() as world:
        key = world.add("g")
        world.api.answers.clear()
        await world.cycle.run()
        await world.run_other_tasks()
        assert world.api.requests == ["bind g-0", "bind g-1"]
        world.queue.mark(key)
        await world.cycle.run()
        assert world.searcher.searches == ["briefly g"]
        assert world.queue.peek() is None
        world.api.answers.set()
        await world.wait_until_idle()
        assert world.queue.peek() == key


@pytest.mark.parametrize("is_gone", [True, False])
async def test_a_long_search_is_ended_if_its_gang_is_deleted_and_goes_on_if_its_gang_is_due_again(is_gone: bool) -> None:
    async with World() as world:
        world.searcher.may_answer.clear()
        world.searcher.finds_nothing.add("briefly g")
        key = world.add("g")
        await world.cycle.run()
        await world.run_other_tasks()
        assert world.long.is_searching(key)
        if is_gone:
            world.remove(key)
        world.queue.mark(key)
        world.now += 1.0  # the gang's backoff is over
        await world.cycle.run()
        await world.run_other_tasks()
        assert world.long.is_searching(key) is not is_gone


@pytest.mark.parametrize(
    ("cpus", "second", "searches"),
    [
        (2, {}, ["2 together", "briefly b"]),
        (8, {}, ["briefly a", "briefly b"]),  # both gangs fit in any order
        (2, {"priority": 1}, ["briefly b", "briefly a"]),
        (2, {"namespace": "busy"}, ["briefly a", "briefly b"]),
        (3, {"bound": 1}, ["briefly b", "briefly a"]),  # gang b has lost a member
        (3, {"size": 3, "minimum": 1, "bound": 1}, ["briefly a", "briefly b"]),  # gang b is whole
    ],
)
async def test_only_gangs_of_equal_rank_that_contend_are_placed_together(cpus: int, second: dict[str, Any], searches: list[str]) -> None:
    async with World(cpus) as world:
        world.shares.charge("busy", 10.0)
        world.add("a", created=1.0)
        world.add("b", created=2.0, **second)
        await world.run_cycle()
        assert list(dict.fromkeys(world.searcher.searches)) == searches  # a further search of a gang finds its reservation


async def test_a_gang_that_gangs_placed_together_leave_out_gets_a_reservation() -> None:
    async with World(cpus=4) as world:
        large, small = world.add("large", 3, created=1.0), [world.add(name, created=2.0) for name in ("a", "b")]
        await world.run_cycle()
        assert [world.message_of(key) for key in small] == ["2 members bound"] * 2
        assert [each.owner for each in world.ledger.reservations] == [large]
        assert world.message_of(large).startswith("podgroup default/large: 0 of 3 members placeable")


async def test_a_gang_starts_at_once_when_the_pods_are_gone_that_capacity_was_reserved_for() -> None:
    """Kueue evicts an admitted gang by deleting its pods, and the PodGroup stays."""
    async with World(cpus=4) as world:
        world.add("busy", bound=2, walltime=3600.0, started=1000.0)
        evicted, late = world.add("evicted", 3, created=1.0), world.add("late", created=2.0)
        await world.run_cycle()
        assert "the free capacity is reserved for podgroup default/evicted" in world.message_of(late)
        for pod in world.gang(evicted).members:
            world.view.remove_pod(pod.key)
        await world.run_cycle()
        assert not world.ledger.reservations
        await world.queue.drain()
        await world.run_cycle()
        assert world.message_of(late) == "2 members bound"


@pytest.mark.parametrize("is_node", [True, False])
async def test_a_refused_gang_is_due_when_a_pod_is_deleted_and_when_a_node_grows(is_node: bool) -> None:
    async with World(cpus=2) as world:
        bound, waiting = world.add("bound", bound=2), world.add("waiting", created=1.0)
        await world.run_cycle()
        assert world.queue.peek() is None
        if is_node:
            world.resize(4)
        else:
            world.remove(bound)
        await world.queue.drain()
        assert waiting in (world.queue.pop(), world.queue.pop())


@pytest.mark.parametrize("is_gone", [False, True])
async def test_no_condition_is_written_to_a_deleted_pod(is_gone: bool) -> None:
    async with World(cpus=1) as world:
        key = world.add("g")
        await world.run_cycle()
        if is_gone:
            world.remove(key)
        await world.write_reports()
        assert [path for path in world.api.written if "/pods/" in path] == [
            f"/api/v1/namespaces/default/pods/g-{number}/status" for number in range(0 if is_gone else 2)
        ]


async def test_a_scheduler_that_stops_waits_for_running_transactions() -> None:
    """A transaction that is cut off would leave its gang partially bound."""
    async with World() as world:
        key = world.add("g")
        world.api.answers.clear()
        running = asyncio.create_task(world.scheduler.run())
        await world.run_other_tasks()
        assert world.api.requests == ["bind g-0", "bind g-1"]
        running.cancel()
        await world.run_other_tasks()
        assert not running.done()
        world.api.answers.set()
        with suppress(asyncio.CancelledError):
            await running
        assert world.message_of(key) == "2 members bound"


async def test_a_scheduler_that_stops_resumes_suspended_jobs_without_waiting_for_their_pods() -> None:
    """Pods may take any time to terminate; their Jobs are resumed before they are gone."""
    async with World(cpus=2) as world:
        key = world.add_partially_bound("g", **OF_A_JOB)
        world.queue.mark(key)
        world.api.resumes.clear()
        running = asyncio.create_task(world.scheduler.run())
        await world.run_other_tasks()
        assert world.api.requests == ["suspend the Job of g-0", "suspend the Job of g-1"]
        running.cancel()
        async with asyncio.timeout(50):
            with suppress(asyncio.CancelledError):
                await running
        assert world.api.resumes.is_set()


async def test_a_defect_before_the_first_bind_leaves_no_capacity_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World(cpus=2) as world:
        key = world.add("g")
        monkeypatch.setattr(world.podgroup_writer, "mark_being_bound", Mock(side_effect=[RuntimeError("a defect"), None]))
        await world.run_cycle()
        assert (world.api.requests, world.view.counts["assumed_pods"]) == ([], 0)
        world.now += world.seconds_until_due(key)
        await world.run_cycle()
        assert world.message_of(key) == "2 members bound"


async def test_a_defect_that_cannot_be_reported_delays_no_other_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    async with World() as world:
        keys = [world.add(name, created=float(number)) for number, name in enumerate(("bad", "good"))]
        world.searcher.fails["briefly bad"] = RuntimeError("a defect")
        monkeypatch.setattr(world.reporter, "report_wait", Mock(side_effect=RuntimeError("another defect")))
        await world.run_cycle()
        assert world.api.requests == ["bind good-0", "bind good-1"]
        assert world.seconds_until_due(keys[0]) == 1.0


async def test_a_defect_in_a_long_search_is_reported_and_its_gang_is_retried() -> None:
    async with World() as world:
        key = world.add("g")
        world.searcher.finds_nothing.add("briefly g")
        world.searcher.fails["at length g"] = RuntimeError("a defect")
        await world.run_cycle()
        assert world.message_of(key) == "the scheduler failed on this gang with an internal error; see its log"
        assert world.seconds_until_due(key) == 1.0


async def test_a_plan_is_discarded_if_a_task_has_begun_to_act_on_its_gang() -> None:
    async with World() as world:
        gang = prepared(world.gang(world.add("g")))
        world.tasks.start(gang.key, asyncio.sleep(0))
        assert world.due.current(gang) is None
        await world.wait_until_idle()
        assert world.due.current(gang) is not None
