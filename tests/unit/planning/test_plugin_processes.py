"""Tests that a failing plug-in costs no gang its placement: the gang is placed in the same cycle, with a warning."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from allaboard.gangs.registry import GangDefaults
from allaboard.model.gang import Objective
from allaboard.placement import Plan, Problem, SearchSettings, build_problem, search
from allaboard.placement.strategies.trial import StrategyError
from allaboard.planning import plugin_processes as module
from allaboard.planning.plugin_processes import PluginProcesses
from allaboard.planning.search_processes import Searcher, SearchError, SearchOverrunError
from allaboard.plugins import SHIPPED_STRATEGIES
from tests.plugged import install
from tests.unit.placement.clusters import node, pods, snapshot
from tests.unit.scheduling.schedulers import World

pytestmark = pytest.mark.processes

SOURCE = """
import os, signal, sys, time
import numpy as np
from dataclasses import dataclass, replace
from allaboard.placement import answer_of
from allaboard.placement.strategies.shipped import FirstFit

class Strategy:
    def accepts(self, problem):
        return True
    def place(self, problem, budget):
        return FirstFit().place(problem, budget)

class Good(Strategy):
    def __init__(self, where=""):
        self.where = where
    def place(self, problem, budget):
        print("on stdout, which belongs to the operator")
        assert 0 < budget.seconds
        if self.where:
            assert self.where == "here"
        return super().place(problem, budget)

class Pid(Strategy):
    def place(self, problem, budget):
        raise ValueError(os.getpid())

class Picky(Strategy):
    def accepts(self, problem):
        return False

class Raises(Strategy):
    def place(self, problem, budget):
        raise ValueError("no weights")

class Interrupts(Strategy):
    def place(self, problem, budget):
        raise KeyboardInterrupt

class Hangs(Strategy):
    def place(self, problem, budget):
        while True:
            try:
                time.sleep(600)
            except BaseException:
                pass

class Loops(Strategy):
    def place(self, problem, budget):
        while True:
            pass

class Dies(Strategy):
    def place(self, problem, budget):
        os.kill(os.getpid(), signal.SIGKILL)

class OverCommits(Strategy):
    def place(self, problem, budget):
        problem.free[:] = 1 << 40
        return FirstFit().place(problem, budget)

class Rubbish(Strategy):
    def place(self, problem, budget):
        class Unpicklable:
            def __reduce__(self):
                raise ValueError("can't be sent")
        return Unpicklable()

class Large(Strategy):
    def place(self, problem, budget):
        plan = FirstFit().place(problem, budget)
        return replace(plan, unplaced=("x" * 1000,) * 1_000_000)
"""
NAMES = {
    "good": "Good",
    "pid": "Pid",
    "picky": "Picky",
    "raises": "Raises",
    "interrupts": "Interrupts",
    "hangs": "Hangs",
    "loops": "Loops",
    "dies": "Dies",
    "over-commits": "OverCommits",
    "rubbish": "Rubbish",
    "large": "Large",
    "missing": "Missing",
}
PROBLEM = build_problem(pods("a", 2, {"cpu": 1000}), 2, snapshot([node("n", {"cpu": 2000})]), objective=Objective.BINPACK)
ASSIGNMENTS = (("a-0", "n"), ("a-1", "n"))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow slow starts, imports and answers on a busy machine. A test sets a limit for a strategy that never answers."""
    monkeypatch.setattr(module, "_WARM_UP_SECONDS", 100.0)
    monkeypatch.setattr(module, "_IMPORT_SECONDS", 100.0)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 100.0)


@pytest.fixture
async def plugin_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PluginProcesses]:
    install(tmp_path, monkeypatch, SOURCE, **NAMES)
    with PluginProcesses({"good": {"where": "here"}}) as found:
        yield found


async def placed(plugin_processes: PluginProcesses, name: str, problem: Problem = PROBLEM) -> tuple[tuple[str, str], ...]:
    await plugin_processes.warm_up([name])
    plan = await plugin_processes.place(name, problem, Searcher(SearchSettings(), workers=0))
    return plan.assignments if plan else ()


@pytest.mark.parametrize("name", ["good", "large"])
async def test_a_plug_in_places_a_gang_in_a_process_of_its_own(plugin_processes: PluginProcesses, name: str) -> None:
    assert await placed(plugin_processes, name) == ASSIGNMENTS


@pytest.mark.parametrize("name", SHIPPED_STRATEGIES)
async def test_a_shipped_strategy_places_a_gang_in_the_search_processes(plugin_processes: PluginProcesses, name: str) -> None:
    assert await placed(plugin_processes, name) == ASSIGNMENTS
    assert not plugin_processes._processes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("picky", "it does not accept the gang"),
        ("raises", "it raised ValueError: no weights"),
        ("interrupts", "it raised KeyboardInterrupt"),
        ("rubbish", "it answered Unpicklable, which is neither a plan nor an explanation"),
        ("missing", "it raised AttributeError: .*has no attribute 'Missing'"),
        ("uninstalled", "it raised UnknownStrategyError: there is no strategy 'uninstalled'"),
    ],
)
async def test_an_error_of_a_plug_in_is_reported_and_its_process_is_kept(
    plugin_processes: PluginProcesses, name: str, message: str
) -> None:
    for _ in range(2):
        with pytest.raises(StrategyError, match=message):
            await placed(plugin_processes, name)


@pytest.mark.parametrize("name", ["hangs", "loops"])
async def test_a_plug_in_that_does_not_answer_is_ended_and_no_gang_waits_while_it_is_loaded_again(
    plugin_processes: PluginProcesses, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plugin_processes.warm_up([name, "pid"])
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    searcher = Searcher(SearchSettings(), workers=0)
    with pytest.raises(SearchOverrunError, match=r"^it took longer than 0\.2 s and was ended$"):
        await plugin_processes.place(name, PROBLEM, searcher)
    with pytest.raises(SearchError, match=r"^it is being loaded$"):
        await plugin_processes.place(name, PROBLEM, searcher)
    loading = plugin_processes._processes[name]._loading
    assert loading is not None
    async with asyncio.timeout(50):
        await loading
    with pytest.raises(SearchOverrunError):
        await plugin_processes.place(name, PROBLEM, searcher)


async def test_a_plug_in_whose_process_dies_affects_no_other_plug_in(plugin_processes: PluginProcesses) -> None:
    with pytest.raises(StrategyError) as before:
        await placed(plugin_processes, "pid")
    for _ in range(2):
        with pytest.raises(SearchError, match="its process died"):
            await placed(plugin_processes, "dies")
    with pytest.raises(StrategyError) as after:
        await placed(plugin_processes, "pid")
    assert str(before.value) == str(after.value)


def a_world(plugin_processes: PluginProcesses) -> World:
    world = World(cpus=4)
    world.registry._defaults = GangDefaults(strategies=(*SHIPPED_STRATEGIES, *NAMES))
    world.planner.plugin_processes = plugin_processes
    return world


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("raises", "it raised ValueError: no weights .plugged_strategies.py:[0-9]+."),
        ("picky", "it does not accept the gang"),
        ("hangs", r"it took longer than 0\.2 s and was ended"),
        ("dies", "its process died"),
        ("over-commits", "its plan is wrong: node n has too little cpu for the pods assigned to it"),
        ("rubbish", "it answered Unpicklable, which is neither a plan nor an explanation"),
    ],
)
async def test_a_gang_whose_strategy_fails_is_placed_by_the_default_in_the_same_cycle(
    plugin_processes: PluginProcesses, name: str, cause: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await plugin_processes.warm_up([name])
    if name == "hangs":
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    async with a_world(plugin_processes) as world:
        # Four of the six members fit, and the minimum is three.
        key = world.add("wrong", 6, minimum=3, cpus=1, options={"strategy": name})
        await world.run_cycle()
        assert len([asked for asked in world.api.requests if asked.startswith("bind wrong")]) == 4
        assert world.has_message(key, "4 members")
        assert ("wrong", "StrategyFailed") in world.events.reported
        assert world.counted("strategy_failures", strategy=name) == 1
        [warning] = [record.getMessage() for record in caplog.records if "genetic decides instead" in record.getMessage()]
        assert re.fullmatch(f"gang default/wrong: strategy {name}: {cause}; genetic decides instead", warning)


async def test_the_plan_of_a_plug_in_is_checked_again_in_the_operator(
    plugin_processes: PluginProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plug-in may have broken the modules that check its plan in its own process."""
    async with a_world(plugin_processes) as world:
        key = world.add("wrong", 6, minimum=3, cpus=1, options={"strategy": "good"})
        gang = world.registry.gang(key)
        assert gang is not None
        on_one_node = replace(search(PROBLEM, SearchSettings(), 0), assignments=tuple((pod.uid, "n") for pod in gang.members))

        async def forged(*_: object) -> Plan:
            return on_one_node

        monkeypatch.setattr(plugin_processes, "place", forged)
        await world.run_cycle()
        assert len([asked for asked in world.api.requests if asked.startswith("bind wrong")]) == 4
        assert ("wrong", "StrategyFailed") in world.events.reported


async def test_a_gang_is_placed_by_its_chosen_strategy_without_a_warning(plugin_processes: PluginProcesses) -> None:
    await plugin_processes.warm_up(["good"])
    async with a_world(plugin_processes) as world:
        world.resize(8)
        world.add("plain")
        world.add("chosen", options={"strategy": "good"})
        world.add("shipped", 1, options={"strategy": "firstfit"})
        await world.run_cycle()
        assert sorted(world.api.requests) == ["bind chosen-0", "bind chosen-1", "bind plain-0", "bind plain-1", "bind shipped-0"]
        assert world.searcher.searches == ["briefly plain"]
        assert "StrategyFailed" not in {reason for _, reason in world.events.reported}


async def test_only_the_default_strategy_decides_that_there_is_no_capacity(plugin_processes: PluginProcesses) -> None:
    async with a_world(plugin_processes) as world:
        key = world.add("large", 5, options={"strategy": "firstfit"})
        await world.run_cycle()
        assert world.searcher.searches == ["briefly large"]
        assert "cpu" in world.message_of(key)
        assert "StrategyFailed" not in {reason for _, reason in world.events.reported}


async def test_a_strategy_that_did_not_answer_is_not_used_for_a_minute_for_gangs_of_the_namespace_that_used_it(
    plugin_processes: PluginProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plugin_processes.warm_up(["hangs"])
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    asked: list[str] = []
    place = plugin_processes.place

    async def noted(name: str, problem: Problem, searcher: Searcher) -> object:
        asked.append(problem.roles[0].pods[0])
        return await place(name, problem, searcher)

    monkeypatch.setattr(plugin_processes, "place", noted)
    async with a_world(plugin_processes) as world:
        for name, namespace in (("a", "one"), ("b", "one"), ("c", "two")):
            world.add(name, 1, namespace=namespace, options={"strategy": "hangs"})
            await world.run_cycle()
        assert asked == ["a-0", "c-0"]
        assert len(world.api.requests) == 3
        world.now += 60
        world.add("d", 1, namespace="one", options={"strategy": "hangs"})
        await world.run_cycle()
        assert asked == ["a-0", "c-0", "d-0"]


async def test_a_strategy_warning_that_keeps_changing_is_reported_once_a_minute(plugin_processes: PluginProcesses) -> None:
    async with a_world(plugin_processes) as world:
        gang, report = world.gang(world.add("g")), world.reporter.strategy_failed
        for number, seconds in enumerate((0, 1, 58, 1)):
            world.now += seconds
            report(gang, f"failed {number}")
        assert [reason for _, reason in world.events.reported] == ["StrategyFailed"] * 2


async def test_a_gang_with_a_strategy_that_is_not_allowed_is_held() -> None:
    async with World() as world:
        key = world.add("g", options={"strategy": "raises"})
        await world.run_cycle()
        assert world.message_of(key) == (
            "podgroup default/g: annotation allaboard.dev/strategy: 'raises' is not one of genetic, exact, bestfit, firstfit, random, "
            "which the setting strategies lists"
        )
        assert ("g", "InvalidAnnotation") in world.events.reported
        assert world.api.requests == world.searcher.searches == []


async def test_the_plan_of_a_plug_in_contains_no_numpy_numbers(plugin_processes: PluginProcesses) -> None:
    await plugin_processes.warm_up(["good"])
    plan = await plugin_processes.place("good", PROBLEM, Searcher(SearchSettings(), workers=0))
    assert plan is not None
    assert not any(isinstance(value, np.generic) for value in (plan.search.score, plan.explanation.placeable))
