"""Schedules on the order of gangs, and on the messages of waiting pods."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import HIGH_PRIORITY, GangSpec, Role
from tests.faults.world import demand

from .ground import QUIET_SECONDS, end, gang_needing_search, quiet_world


def priorities() -> None:
    """Capacity is enough for one of two gangs, and the later one has a higher priority."""
    with quiet_world(nodes=1) as world:
        world.fill()
        world.add(GangSpec("low", size=4, minimum=4, cpu=2))
        world.advance(3)
        world.add(GangSpec("high", size=4, minimum=4, cpu=2, priority=HIGH_PRIORITY))
        world.advance(3)
        world.remove_foreign()
        world.advance(30)
        end(world)


def healing_below_a_priority() -> None:
    """A gang of a low priority that has lost a member isn't served before a gang of a high priority that needs the same capacity."""
    with quiet_world(nodes=1) as world:
        low = GangSpec("low", size=4, minimum=4)
        world.add(low)
        world.advance(2)
        world.fill()
        world.delete_member(low, 0, grace=0)
        world.fill()
        world.advance(3)
        world.add(GangSpec("high", size=5, minimum=5, priority=HIGH_PRIORITY))
        world.advance(20)
        world.remove_foreign()
        world.advance(30)
        end(world)


def two_roles_that_do_not_fit() -> None:
    """The message of a gang of two roles that doesn't fit names the reasons node by node."""
    with quiet_world() as world:
        world.cordon(3, is_cordoned=True)
        world.advance(QUIET_SECONDS)
        world.add(GangSpec("gang", size=4, minimum=6, cpu=5, others=(Role("ps", 2, 1, 1),)))
        world.advance(40)
        world.judge.check()
        end(world)


def capacity_is_freed() -> None:
    """A gang has waited longer than its time-out, and is placed when capacity is freed."""
    with quiet_world() as world:
        world.fill()
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(60)
        world.remove_foreign()
        world.advance(40)
        world.judge.check()
        end(world)


def relisted() -> None:
    """Pods are deleted while the watches are broken: the scheduler learns only from its next list that their capacity is free."""
    with quiet_world(nodes=1, cpu=4) as world:
        world.fill()
        world.advance(1)
        world.compact()
        world.remove_foreign()
        world.compact()
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        end(world)


def refused_beside_another() -> None:
    """Two gangs that are refused for good and one that isn't compete for the same capacity at the same moments.

    The outcome of one run is random, so several seeds are played.
    """
    for seed in range(4):
        with quiet_world(nodes=1, seed=seed) as world:
            world.fill()
            for name in ("gang-1", "gang-2", "other"):
                world.add(gang_needing_search(name, cpu=3))
            world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, status=403))
            world.advance(2)
            world.remove_foreign()
            world.advance(15)
            demand([] if world.judge.bound(world.gangs[2]) else ["[idle] gang other waits beside gangs that are refused again and again"])


def priority_in_backoff() -> None:
    """A gang of a high priority is in backoff after refusals, when capacity is freed for it and for a gang that has just come."""
    with quiet_world(nodes=2) as world:
        world.fill()
        world.add(gang_needing_search("high", cpu=4, priority=HIGH_PRIORITY))
        world.advance(3)
        for number in range(5):
            world.empty(1)
            world.bind_foreign(1, 6 + number % 2)
            world.advance(3)
        world.add(gang_needing_search("low", cpu=4))
        world.advance(2)
        world.empty(0)
        world.advance(30)
        end(world)


def capacity_freed_during_a_search_below() -> None:
    """Two gangs of a low priority are due, and capacity is freed during the search for the first.

    A gang of a higher priority waits for enough capacity.
    """
    with quiet_world(nodes=1) as world:
        low = [GangSpec(name, size=3, minimum=4, has_group=True) for name in ("first", "second")]
        world.fill()
        for each in (*low, GangSpec("high", size=6, minimum=6, priority=HIGH_PRIORITY)):
            world.add(each)
        world.advance(20)
        world.slow_down(0.2)
        for each in low:
            world.set_minimum(each, 3)
        world.advance(0.1)
        world.remove_foreign()
        world.advance(20)
        end(world)


def other_schedulers_pods_end() -> None:
    """Pods of another scheduler end, node by node, and the waiting gang is placed."""
    with quiet_world(nodes=2) as world:
        world.fill()
        world.add(GangSpec("gang", size=3, minimum=3, cpu=4))
        world.advance(20)
        world.empty(0)
        world.advance(20)
        world.empty(1)
        world.advance(40)
        world.judge.check()
        end(world)


def node_gone_before_its_pods() -> None:
    """A node is deleted, and a new one is there before the watch reports that the old one's pods are gone: the new node is empty."""
    with quiet_world(nodes=1, cpu=4) as world:
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(5)
        world.lag("pods", 5.0)
        world.delete_node(0)
        world.advance(0.5)
        world.add_node(7, cpu=4)
        world.advance(0.5)
        world.judge.note("a node joins")
        end(world)
