"""Schedules on reservations and preemption: the scheduler reserves capacity, and evicts pods for gangs of a higher priority."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allaboard_sandbox.faults import FOR_EVER, Fault
from tests.faults.gangs import HIGH_PRIORITY, GangSpec
from tests.faults.world import World, demand

from .ground import end, quiet_world

_HOUR = 3600


@contextmanager
def _world(**options: Any) -> Iterator[World]:
    with quiet_world(has_policies=True, **options) as world:
        yield world


def _add_small_and_large(world: World) -> None:
    """Let two gangs run, one after the other; ``large`` has one pod more, so that its eviction costs more."""
    for name, size in (("small", 7), ("large", 8)):
        world.add(GangSpec(name, size=size, minimum=size))
        world.advance(3)


def preempted() -> None:
    """A gang of a high priority fits only in the place of another gang; a third gang has one pod more, so that it stays."""
    with _world(nodes=2) as world:
        _add_small_and_large(world)
        high = GangSpec("high", size=7, minimum=7, priority=HIGH_PRIORITY)
        world.add(high)
        world.advance(20)
        demand([] if len(world.judge.bound(high)) == 7 else ["[preemption] the gang of a high priority doesn't run"])
        end(world)


def hopeless_gang_of_a_high_priority() -> None:
    """A gang of a high priority doesn't fit even on empty nodes."""
    with _world(nodes=2) as world:
        for name in ("one", "other"):
            world.add(GangSpec(name, size=8, minimum=8))
        world.advance(3)
        world.add(GangSpec("high", size=17, minimum=17, priority=HIGH_PRIORITY))
        world.advance(40)
        world.judge.check()
        end(world)


def equals_wait() -> None:
    """A gang waits for capacity that gangs of the same priority use."""
    with _world(nodes=1) as world:
        world.add(GangSpec("first", size=8, minimum=8, priority=HIGH_PRIORITY))
        world.advance(3)
        world.add(GangSpec("second", size=4, minimum=4, priority=HIGH_PRIORITY))
        world.advance(40)
        world.judge.check()
        end(world)


def slow_victims() -> None:
    """The victims of a preemption terminate slowly, and the gang that needs their capacity is attempted again meanwhile."""
    with _world(nodes=2) as world:
        _add_small_and_large(world)
        world.hold(world.gangs[-2])
        world.add(GangSpec("high", size=7, minimum=7, priority=HIGH_PRIORITY))
        for node in (0, 1, 0, 1):
            world.advance(5)
            world.bind_foreign(node, 1)
            world.advance(5)
            world.empty(node)
        world.judge.check()
        world.remove_finalizers("small-")
        world.advance(20)
        end(world)


def capacity_that_leaves_already() -> None:
    """The pods of a deleted gang terminate slowly, and a gang of a high priority fits once they are gone."""
    with _world(nodes=2) as world:
        gangs = [world.add(GangSpec(name, size=8, minimum=8)) for name in ("leaves", "stays")]
        world.advance(3)
        world.hold(gangs[0])
        world.leave(gangs[0])
        world.advance(3)
        world.add(GangSpec("high", size=8, minimum=8, priority=HIGH_PRIORITY))
        world.advance(15)
        world.judge.check()
        world.remove_finalizers("leaves-")
        world.advance(20)
        end(world)


def reserved_below_a_priority() -> None:
    """A gang of a high priority waits until a Job has ended, which no scheduler may end; a gang of a low priority fits meanwhile."""
    with _world(nodes=1) as world:
        world.add(GangSpec("runs", "bare", size=1, minimum=1, cpu=4, walltime=_HOUR))
        world.advance(3)
        world.add(GangSpec("high", size=2, minimum=2, cpu=4, priority=HIGH_PRIORITY))
        world.advance(20)
        world.add(GangSpec("low", "bare", size=2, minimum=2))
        world.advance(30)
        world.judge.check()
        end(world)


def lost_member_of_a_rack() -> None:
    """A member of a gang that must share a rack is lost, and only another rack has capacity for it; a gang waits behind it."""
    with _world() as world:
        for node in (0, 2, 3):
            world.bind_foreign(node, 8 if node != 2 else 6)
        gang = GangSpec("rack", size=4, minimum=4, cpu=2, has_group=True, shares_rack=True)
        world.add(gang)
        world.advance(3)
        world.delete_member(gang, 0, grace=0)
        world.bind_foreign(1, 2)
        world.advance(1)
        world.add(GangSpec("behind", size=4, minimum=4, has_group=True))
        world.advance(40)
        world.judge.check()
        end(world)


def promised_start() -> None:
    """A gang is promised a start, and a gang behind it fits on the capacity that it will need."""
    with _world(nodes=1) as world:
        world.add(GangSpec("runs", "bare", size=1, minimum=1, cpu=6, walltime=_HOUR))
        world.advance(3)
        world.add(GangSpec("wide", "bare", size=8, minimum=8, has_group=True))
        world.advance(20)
        world.add(GangSpec("behind", "bare", size=2, minimum=2))
        world.advance(30)
        world.judge.check()
        end(world)


def waiting_gang_is_deleted() -> None:
    """The gang for which capacity is reserved is deleted, and a gang waits that fits on that capacity."""
    with _world(nodes=1) as world:
        world.add(GangSpec("runs", "bare", size=1, minimum=1, cpu=6, walltime=_HOUR))
        world.advance(3)
        wide = world.add(GangSpec("wide", "bare", size=8, minimum=8))
        world.advance(20)
        behind = world.add(GangSpec("behind", "bare", size=2, minimum=2))
        world.advance(10)
        demand(["[reserved] a gang takes reserved capacity"] if world.judge.bound(behind) else [])
        world.end_gang(wide)
        world.advance(60)
        world.judge.check()
        end(world)


def eviction_is_refused() -> None:
    """The evictions of a preemption are refused for a while."""
    with _world(nodes=1) as world:
        world.add(GangSpec("low", size=8, minimum=8))
        world.advance(3)
        world.fault(Fault("evict", "pods", "low-*", nth=3, times=FOR_EVER, status=429, dry_run=False))
        world.add(GangSpec("high", size=8, minimum=8, priority=HIGH_PRIORITY))
        world.advance(30)
        end(world)


def killed_between_two_evictions() -> None:
    """The scheduler is killed after it has evicted the first of several victims."""
    with _world(nodes=2) as world:
        _add_small_and_large(world)
        world.sandbox.faults.pause("evict", "pods", nth=3, times=FOR_EVER, dry_run=False)
        world.add(GangSpec("high", size=7, minimum=7, priority=HIGH_PRIORITY))
        world.advance(2)
        world.sandbox.faults.clear()
        world.crash(2)
        world.advance(30)
        world.judge.check()
        end(world)
