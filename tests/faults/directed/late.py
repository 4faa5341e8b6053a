"""Schedules on requests that are repeated, and on decisions made before the cluster changed."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import GangSpec
from tests.faults.world import World

from .ground import NEVER, cut_off, end, quiet_world

_LONG_SECONDS = 20.0
"""Seconds that a search takes. The short search is ended after 3 s, and the long one ends after 14 s without any event."""


def _break_watches(world: World) -> None:
    """Break all watches of pods and nodes, and refuse new watches and lists."""
    for verb in ("watch", "list"):
        for plural in ("pods", "nodes"):
            world.fault(Fault(verb, plural, times=FOR_EVER, status=503))
    world.drop_watches()


def released_again() -> None:
    """The first try to release a member meets a conflict or an error."""
    for status in (409, 503):
        with quiet_world(startup_delay=NEVER) as world:
            world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=403, message="denied"))
            world.fault(Fault("delete", "pods", "gang-*", times=2, status=status))
            world.add(GangSpec("gang", size=4, minimum=4))
            world.advance(30)
            end(world)


def started_while_it_was_released() -> None:
    """A member starts while its release is in flight: the member is kept."""
    with quiet_world(startup_delay=8.0) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        hold = world.sandbox.faults.pause("delete", "pods", times=FOR_EVER)
        world.advance(9)
        hold.release()
        world.sandbox.faults.clear()
        world.fill()
        world.advance(30)
        end(world)


def bound_again() -> None:
    """A bind meets a conflict, and is repeated after the pod was read."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, status=409, message="the object has been modified", dry_run=False))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(30)
        end(world)


def taken_over_by_a_queue() -> None:
    """A Job that the scheduler has suspended is given to Kueue before it is resumed."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=30, status=403))
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(5)
        world.hold(gang)
        world.advance(40)
        world.give_to_queue(gang)
        world.advance(3)
        world.remove_finalizers("gang-")
        world.advance(30)
        world.judge.check()


def placed_while_watches_are_broken() -> None:
    """A long search ends while the scheduler's watches are down, and the capacity is gone."""
    with quiet_world(nodes=2) as world:
        world.slow_down(_LONG_SECONDS)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(9)
        world.slow_down(0)
        _break_watches(world)
        world.advance(2)
        world.fill()
        world.advance(14)
        end(world)


def released_while_watches_are_broken() -> None:
    """A long search finds no capacity while the watches are down, and the partially bound gang that blocks it may be whole already."""
    with quiet_world(nodes=1) as world:
        cut_off(world, GangSpec("half", size=4, minimum=4))
        world.fill()
        world.advance(40)
        world.slow_down(_LONG_SECONDS)
        world.add(GangSpec("gang", size=2, minimum=2))
        world.advance(9)
        world.slow_down(0)
        _break_watches(world)
        world.advance(16)
        end(world)
