"""Tests that long searches delay only gangs of their own namespace: a whole scheduler, in virtual time."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from allaboard.app import App
from allaboard.placement import Plan, Problem, search
from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.joint import Joint
from allaboard.planning.search_processes import SearchError, SearchOverrunError
from allaboard.records.record import QueueState
from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults import simulation
from tests.faults.gangs import GangSpec, manifests
from tests.faults.simulation import POOLS, SEARCH, InlineSearcher, Simulation

HARD = 5
"""The size of gangs that are hard to place: a short search finds neither a placement nor a proof for them."""

SHORT_SECONDS, LONG_SECONDS, JOINT_SECONDS = 0.4, 12.0, 0.8
BAR_SECONDS = 2.0


class SlowSearcher(InlineSearcher):
    """A searcher that is slow for gangs of five, which are hard to place, and records its searches for them."""

    answers = False
    """True if a short search finds a placement or a proof."""
    finds = False
    """True if a long search finds a placement or a proof."""
    overruns = False
    """True if a short search takes too long."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self.searched: list[str] = []
        self.running = self.most_at_once = self.ended_early = 0
        self.running_for: Counter[str] = Counter()
        self.twice_at_once: set[str] = set()

    async def search_briefly(self, problem: Problem, seed: int) -> Plan:
        if problem.total != HARD:
            return await super().search_briefly(problem, seed)
        with self._running(problem):
            await asyncio.sleep(SHORT_SECONDS)
        if self.overruns:
            raise SearchOverrunError("too long")
        if self.answers:
            return search(problem, SEARCH, seed)
        return replace(search(problem, SEARCH, seed), feasible=None)

    async def search(self, problem: Problem, seed: int) -> Plan:
        if problem.total != HARD:
            return await super().search(problem, seed)
        self.searched.append(problem.roles[0].pods[0])
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        plan = search(problem, SEARCH, seed)
        try:
            with self._running(problem):
                await asyncio.sleep(LONG_SECONDS)
        except asyncio.CancelledError:
            self.ended_early += 1
            raise
        finally:
            self.running -= 1
        return plan if self.finds else replace(plan, feasible=None)

    @contextmanager
    def _running(self, problem: Problem) -> Iterator[None]:
        pod = problem.roles[0].pods[0]
        self.running_for[pod] += 1
        if self.running_for[pod] > 1:
            self.twice_at_once.add(pod)
        try:
            yield
        finally:
            self.running_for[pod] -= 1

    async def place_together(self, contest: Contest, *, is_easy: bool = False) -> Joint:
        await asyncio.sleep(JOINT_SECONDS)
        raise SearchError("no joint search")


class Scene:
    """A cluster with capacity for all gangs, its scheduler, and the searcher."""

    def __init__(self, world: Simulation, searcher: SlowSearcher) -> None:
        self.world, self.searcher = world, searcher

    @property
    def app(self) -> App:
        assert self.world.app is not None
        return self.world.app

    def create(self, *gangs: GangSpec) -> None:
        for gang in gangs:
            for body in manifests(gang):
                self.world.sandbox.create(body)

    def delete(self, gang: GangSpec) -> None:
        for number in range(gang.size):
            self.world.sandbox.delete("pods", f"{gang.name}-{number}", gang.namespace, grace=0)

    def bound(self, gang: GangSpec) -> int:
        pods = self.world.sandbox.list("pods", gang.namespace)
        return sum(1 for pod in pods if pod["metadata"]["name"].startswith(f"{gang.name}-") and pod["spec"].get("nodeName"))

    async def seconds_until(self, gang: GangSpec, most: float = 60.0) -> float:
        """Return the seconds until the gang is bound, ``most`` at most."""
        started = self.world.loop.time()
        while self.bound(gang) < gang.size and self.world.loop.time() - started < most:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.01)
        return self.world.loop.time() - started

    def name_of(self, uid: str) -> str:
        """Return the name of the pod with ``uid``."""
        return next(str(pod["metadata"]["name"]) for pod in self.world.sandbox.list("pods") if pod["metadata"]["uid"] == uid)

    def namespaces(self) -> list[str]:
        """Return the namespace of each long search, in order."""
        namespaces = {pod["metadata"]["uid"]: pod["metadata"]["namespace"] for pod in self.world.sandbox.list("pods")}
        return [namespaces[uid] for uid in self.searcher.searched]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """A scene with eight nodes of eight processors each."""
    searchers: list[SlowSearcher] = []

    def make(chance: random.Random) -> SlowSearcher:
        searchers.append(SlowSearcher(chance))
        return searchers[-1]

    monkeypatch.setattr(simulation, "InlineSearcher", make)
    with Simulation(nodes=8, cpu=8) as world:
        yield Scene(world, searchers[-1])


def hard_to_place(number: int, namespace: str = "elsewhere") -> GangSpec:
    return GangSpec(f"hard{number}", kind="bare", size=HARD, minimum=HARD, namespace=namespace)


def small(name: str = "small") -> GangSpec:
    return GangSpec(name, kind="bare", size=2, minimum=2, namespace="team")


HARD_GANGS = [hard_to_place(number) for number in range(12)]


def test_a_small_gang_is_not_delayed_by_twelve_hard_to_place_gangs_created_with_it(scene: Scene) -> None:
    async def story() -> float:
        scene.create(*HARD_GANGS, small())
        return await scene.seconds_until(small())

    assert scene.world.run(story()) <= BAR_SECONDS


@pytest.mark.parametrize("seconds", [0.5, 3.0, 40.0, 200.0])
def test_a_small_gang_is_not_delayed_by_twelve_hard_to_place_gangs_created_before_it(scene: Scene, seconds: float) -> None:
    async def story() -> float:
        scene.create(*HARD_GANGS)
        await asyncio.sleep(seconds)
        scene.create(small())
        return await scene.seconds_until(small())

    assert scene.world.run(story()) <= BAR_SECONDS


def test_small_gangs_are_not_delayed_while_hard_to_place_gangs_are_created(scene: Scene) -> None:
    async def story() -> list[float]:
        waits = []
        for number in range(60):
            scene.create(hard_to_place(number))
            await asyncio.sleep(0.5)
            if number % 6 == 5:
                scene.create(small(f"small{number}"))
                waits.append(await scene.seconds_until(small(f"small{number}")))
        return waits

    assert max(scene.world.run(story())) <= BAR_SECONDS


def test_a_small_gang_is_not_delayed_by_hard_to_place_gangs_that_freed_capacity_keeps_waking(scene: Scene) -> None:
    async def story() -> float:
        scene.create(*HARD_GANGS)
        for number in range(30):
            scene.create(GangSpec(f"passing{number}", kind="bare", size=1, minimum=1, namespace="elsewhere"))
            await asyncio.sleep(0.5)
            scene.world.sandbox.delete("pods", f"passing{number}-0", "elsewhere", grace=0)
        scene.create(small())
        return await scene.seconds_until(small())

    assert scene.world.run(story()) <= BAR_SECONDS
    assert not scene.searcher.twice_at_once
    assert scene.searcher.most_at_once == 1


def test_a_small_gang_is_not_delayed_by_short_searches_that_overrun(scene: Scene) -> None:
    scene.searcher.overruns = True

    async def story() -> float:
        scene.create(*HARD_GANGS)
        await asyncio.sleep(30.0)
        scene.create(small())
        return await scene.seconds_until(small())

    assert scene.world.run(story()) <= BAR_SECONDS
    assert len(scene.searcher.searched) > 1


def test_a_placement_that_only_a_long_search_finds_is_bound_after_that_search(scene: Scene) -> None:
    scene.searcher.finds = True

    async def story() -> float:
        scene.create(hard_to_place(0))
        return await scene.seconds_until(hard_to_place(0))

    assert scene.world.run(story()) <= JOINT_SECONDS + SHORT_SECONDS + LONG_SECONDS + 0.5
    assert len(scene.searcher.searched) == 1


def test_two_namespaces_with_long_searches_take_turns(scene: Scene) -> None:
    async def story() -> list[str]:
        scene.create(*HARD_GANGS)
        await asyncio.sleep(5.0)
        scene.create(hard_to_place(20, "team"), hard_to_place(21, "team"))
        await asyncio.sleep(6 * LONG_SECONDS)
        return scene.namespaces()

    assert scene.world.run(story())[:5] == ["elsewhere", "team", "elsewhere", "team", "elsewhere"]


def test_an_outdated_plan_of_a_long_search_is_discarded_and_its_gang_is_attempted_again(scene: Scene) -> None:
    scene.searcher.finds = True

    async def story() -> tuple[int, int]:
        scene.create(hard_to_place(0))
        await asyncio.sleep(3.0)
        takers = [GangSpec(f"taker{number}", kind="bare", size=1, minimum=1, cpu=8, namespace="team") for number in range(8)]
        scene.create(*takers)
        await asyncio.sleep(LONG_SECONDS + 2.0)
        bound_before = scene.bound(hard_to_place(0))
        for taker in takers:
            scene.delete(taker)
        await scene.seconds_until(hard_to_place(0))
        return bound_before, scene.bound(hard_to_place(0))

    assert scene.world.run(story()) == (0, HARD)


def test_the_long_search_for_a_deleted_gang_is_ended_and_the_next_begins(scene: Scene) -> None:
    async def story() -> None:
        scene.create(hard_to_place(0), hard_to_place(1))
        await asyncio.sleep(4.0)
        assert len(scene.searcher.searched) == 1
        first = next(gang for gang in (hard_to_place(0), hard_to_place(1)) if f"{gang.name}-" in scene.name_of(scene.searcher.searched[0]))
        scene.delete(first)
        await asyncio.sleep(1.0)

    scene.world.run(story())
    assert scene.searcher.ended_early == 1
    assert len(scene.searcher.searched) == 2
    assert scene.searcher.running == 1


def test_deleted_gangs_leave_no_records(scene: Scene) -> None:
    async def story() -> None:
        scene.create(*HARD_GANGS)
        await asyncio.sleep(20.0)
        for gang in HARD_GANGS:
            scene.delete(gang)
        await asyncio.sleep(20.0)

    scene.world.run(story())
    scheduler = scene.app._scheduler
    assert scheduler is not None
    longer, executor = scheduler.cycle.longer, scheduler.cycle.executor
    assert not len(longer.long)
    assert longer.long.is_idle
    assert not executor.tasks.tasks()
    assert set(scene.app.queue.sizes().values()) == {0}
    assert all(
        record.queue == QueueState() and not record.advice.wanted_for for record in scene.app.records
    )  # only gangs with a PodGroup have records
    assert scene.searcher.running == 0


def test_a_scheduler_that_stops_ends_the_running_long_search(scene: Scene) -> None:
    async def story() -> float:
        scene.create(*HARD_GANGS)
        await asyncio.sleep(5.0)
        assert scene.searcher.running == 1
        started = scene.world.loop.time()
        await scene.app.stop()
        return scene.world.loop.time() - started

    assert scene.world.run(story()) < 3.0
    assert scene.searcher.running == 0
    assert len(scene.searcher.searched) == 1


def test_gangs_that_wait_for_a_long_search_report_what_the_short_search_found(scene: Scene) -> None:
    async def story() -> list[str]:
        scene.create(hard_to_place(0), hard_to_place(1))
        await asyncio.sleep(6.0)
        return [
            condition.get("reason", "")
            for pod in scene.world.sandbox.list("pods", "elsewhere")
            for condition in pod["status"].get("conditions", [])
            if condition["type"] == "PodScheduled"
        ]

    assert scene.world.run(story()) == ["Unschedulable"] * HARD  # the pods of the gang whose long search waits


def test_a_small_gang_is_not_delayed_while_victims_are_searched_among_many_gangs(scene: Scene) -> None:
    """Finding the victims takes a search for each partially bound gang."""
    victims = [GangSpec(f"victim{number:02}", "recreated", size=4, minimum=4, namespace="elsewhere", pool=POOLS[0]) for number in range(12)]
    scene.searcher.answers = True
    scene.world.sandbox.faults.add(Fault("bind", "pods", "victim*-[23]", times=FOR_EVER, status=403, dry_run=False))
    scene.world.sandbox.faults.add(Fault("evict", "pods", "victim*", times=FOR_EVER, status=429))

    async def story() -> float:
        scene.create(*victims)
        await asyncio.sleep(60.0)  # until the time-outs of the victims are over
        assert sum(scene.bound(victim) > 0 for victim in victims) >= 10
        scene.create(replace(hard_to_place(0), pool=POOLS[0], cpu=4))
        await asyncio.sleep(0.5)
        scene.create(replace(small(), pool=POOLS[1]))
        return await scene.seconds_until(small())

    assert scene.world.run(story()) <= BAR_SECONDS
