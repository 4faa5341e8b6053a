"""Tests of the simulation that schedules run in: its time, crashes and judgements."""

import asyncio
from itertools import islice
from unittest import mock

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from allaboard.kube.paths import PODS
from allaboard_sandbox import Fault

from . import replay, variations
from .directed import SCHEDULES
from .gangs import GangSpec
from .judge import ViolationError
from .world import World


def history(seed: int) -> list[tuple[str, str, str]]:
    """Return the changes in one schedule, in order."""
    seen: list[tuple[str, str, str]] = []
    with World(seed) as world:
        world.sandbox.store.subscribe(lambda change: seen.append((change.type, change.table, str(change.record.body["metadata"]["uid"]))))
        world.fault(Fault("bind", "pods", nth=2, times=3, status=503))
        world.add(GangSpec("gang"))
        world.advance(2)
        world.crash(1)
        world.advance(5)
    return seen


def test_seed_repeats_its_schedule_of_faults() -> None:
    assert history(7) == history(7) != history(8)


def test_crash_loses_only_requests_that_were_not_carried_out() -> None:
    with World() as world:
        gang = GangSpec("gang", "bare", size=4, minimum=4)
        hold = world.sandbox.faults.pause("bind", "pods", nth=3, times=1000, dry_run=False)
        world.add(gang)
        world.advance(1)
        assert len(world.judge.bound(gang)) == 2
        assert hold.has_arrived
        world.sandbox.faults.clear()
        world.crash(down_seconds=60)
        assert len(world.judge.bound(gang)) == 2
        hold.release()
        world.advance(5)
        assert not world.judge.missing(gang)


def rules_broken(world: World) -> set[str]:
    """Return the rules that the judge says were broken."""
    try:
        world.judge.check()
    except ViolationError as error:
        return set(error.rules)
    return set()


def test_judge_reports_a_scheduler_that_deletes_a_bare_pod() -> None:
    with World() as world:
        world.add(GangSpec("gang", "bare"))
        world.advance(2)
        world.run(world.replicas[0].server.delete(PODS.named("default", "gang-0")))
        assert {"kept pod", "precondition", "release"} <= rules_broken(world)


def test_judge_reports_a_bind_that_over_commits_a_node() -> None:
    with World(nodes=1, cpu=2) as world:
        gang = GangSpec("gang", "bare", size=3, minimum=3)
        world.add(gang)
        world.advance(2)
        assert not world.judge.bound(gang)
        for number in range(3):
            body = {"metadata": {"name": f"gang-{number}"}, "target": {"name": "node-0"}}
            world.run(world.replicas[0].server.post(PODS.named("default", f"gang-{number}", "binding"), body))
        assert {"over-commit", "precondition", "journal"} <= rules_broken(world)


def test_judge_excuses_a_partially_bound_gang_after_a_fault_but_only_for_a_while() -> None:
    with World(startup_delay=3600) as world:
        gang = GangSpec("gang")
        world.fault(Fault("bind", "pods", nth=2, times=1000, status=500))
        world.add(gang)
        world.advance(1.5)
        world.judge.check()
        assert "a fault that hit bind" in world.judge.excuse(gang)
        world.settle()
        assert not world.judge.unexcused()


def test_judge_reports_a_partially_bound_gang_if_there_was_no_fault() -> None:
    with World(startup_delay=3600) as world:
        world.kill_all()
        world.add(GangSpec("gang", "bare", size=3, minimum=3))
        world.advance(30)
        world.bind_by_hand(world.judge.members(world.gangs[0])[0], "node-0", {})
        world.judge.books.deeds.clear()  # as if a scheduler had done it
        world.run(asyncio.sleep(2))
        assert rules_broken(world) == {"open"}


def test_schedule_that_fails_can_be_played_again_by_its_seed() -> None:
    class Rotten(RuleBasedStateMachine):
        @rule(number=st.integers(0, 1000))
        def nothing(self, number: int) -> None:
            if number > 100:
                raise ViolationError(f"{number} is too much")

    with mock.patch.dict(replay.MACHINES, {"rotten": Rotten}):
        with pytest.raises(replay.ScheduleError, match="make faults SEED=rotten:") as caught:
            replay.play("rotten", 20)
        with pytest.raises(ViolationError, match="101 is too much"):
            replay.play_again(caught.value.seed)


def test_random_variations_play_every_directed_schedule_and_their_seeds_repeat_them() -> None:
    names = [name for name, _ in islice(variations.draw(1), len(SCHEDULES))]
    assert sorted(names) == sorted(SCHEDULES)
    latencies = []

    def scene() -> None:
        with World() as world:
            latencies.append(world.chance.random())
            world.advance(1.0)
            latencies.append(world.loop.time())
            raise ViolationError("as if")

    with mock.patch.dict(SCHEDULES, {"scene": scene}):
        for number in (1, 2, 1):
            with pytest.raises(ViolationError, match="as if"):
                replay.play_again(variations.seed_of("scene", number))
    assert latencies[:2] == latencies[4:] != latencies[2:4]
    with pytest.raises(ValueError, match="no such directed schedule"):
        replay.play_again("varied:nothing/1")
