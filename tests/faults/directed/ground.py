"""Defines the world in which directed schedules begin, and how they end."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from allaboard_sandbox import Fault
from tests.faults.gangs import HIGH_PRIORITY, GangSpec, Role
from tests.faults.world import World, demand

NEVER = 3600.0
"""Start-up time in seconds of pods that never start."""
QUIET_SECONDS = 6.0


@contextmanager
def quiet_world(**options: Any) -> Iterator[World]:
    """Yield a world in which nothing has happened for ``QUIET_SECONDS``."""
    with World(**options) as world:
        world.advance(QUIET_SECONDS)
        yield world


def gang_needing_search(name: str, cpu: int, **fields: Any) -> GangSpec:
    """Return a gang of two members, one of each role; only a search can find out whether it fits."""
    return GangSpec(name, size=1, minimum=2, cpu=cpu, others=(Role("ps", 1, cpu),), least=1, **fields)


def cut_off(world: World, *gangs: GangSpec) -> None:
    """Add gangs of four, let the scheduler be killed when two members of each are bound, and start it again."""
    for spec in gangs:
        world.hold_binds(f"{spec.name}-*", nth=3)
        world.add(spec)
    world.advance(1)
    world.crash(1)


def end(world: World) -> None:
    """Judge the end: first when all has been quiet, then when there is capacity for all gangs."""
    world.settle()
    world.judge.check()
    demand(world.judge.over_committed(), world.judge.suspended(), world.leaked())
    world.add_capacity()
    world.settle()
    world.judge.check()
    demand(world.judge.incomplete(), world.judge.over_committed(), world.judge.suspended(), world.leaked())


def add_beside_slow_gangs(world: World, added: GangSpec, slow: Sequence[GangSpec]) -> None:
    """Add a gang that needs capacity; members of the gangs ``slow`` terminate slowly when they are released."""
    for gang in slow:
        world.hold(gang)
    world.add(added)
    world.advance(50)
    world.judge.check()
    for gang in slow:
        world.remove_finalizers(f"{gang.name}-")
    end(world)


def need_capacity_of_a_job(large: GangSpec, after: float) -> None:
    """Add the gang ``large``, which needs the capacity of a Job and of another gang, while the Job is being released.

    ``large`` is added when the scheduler has waited ``after`` seconds for the release.
    """
    with quiet_world(nodes=1, cpu=12) as world:
        job = GangSpec("job", "job", size=4, minimum=4, cpu=2, priority=HIGH_PRIORITY, suspends=True)
        cut_off(world, GangSpec("other", size=4, minimum=4), job)
        world.fill()
        world.advance(20)
        hold = world.sandbox.faults.pause("get", "jobs")
        world.advance(after)
        world.add(large)
        world.advance(8)
        hold.release()
        world.advance(30)
        world.judge.check()
        end(world)


def delay_release_of_a_job(trouble: Fault) -> None:
    """Delay the release of a Job for a partially bound gang by the fault ``trouble``.

    The partially bound gang is released itself before the fault is over.
    """
    with quiet_world(nodes=1, cpu=8) as world:
        cut_off(world, GangSpec("first", size=4, minimum=4), GangSpec("second", "job", size=4, minimum=4, suspends=True))
        world.fill()
        world.advance(20)
        world.fault(trouble)
        world.advance(12)
        world.add(GangSpec("late", size=2, minimum=2))
        world.advance(45)
        world.judge.check()
        end(world)
