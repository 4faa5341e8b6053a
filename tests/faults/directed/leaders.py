"""Schedules on schedulers that are killed or stand still, and on the requests that they had sent."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import HIGH_PRIORITY, GangSpec
from tests.faults.world import demand

from .ground import NEVER, end, quiet_world


def killed_in_a_commit() -> None:
    """The scheduler is killed when two of four members are bound, and the next one finds no free capacity."""
    with quiet_world(startup_delay=NEVER) as world:
        world.crash_at("bind", "pods", 3, after=False, down_seconds=5)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(1)
        world.fill()
        world.advance(30)
        end(world)


def killed_while_it_heals() -> None:
    """A gang that was whole loses two members, and the scheduler is killed when it has replaced one; another gang needs the capacity."""
    with quiet_world(nodes=1, crd="none") as world:
        gang = GangSpec("gang", size=4, minimum=4, cpu=2)
        world.add(gang)
        world.advance(3)
        world.crash_at("bind", "pods", 3, after=False, down_seconds=2)
        for _ in range(2):
            world.delete_member(gang, 0, grace=0)
        world.advance(1)
        world.bind_foreign(0, 2)
        world.add(GangSpec("other", size=3, minimum=3, cpu=2))
        world.advance(100)
        end(world)


def stopped_in_a_commit() -> None:
    """The scheduler shuts down gracefully while its binds are in flight: it waits for them."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, status=0, delay=1.0, dry_run=False))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(0.5)
        world.restart(1)
        world.advance(30)
        end(world)


def leader_stands_still() -> None:
    """The leader stands still after it has sent its binds; they arrive when another leads and has assigned the capacity to another gang."""
    with quiet_world(startup_delay=NEVER, replicas=2, nodes=1, cpu=4) as world:
        world.advance(3)
        world.stall_at("bind", "pods", 6, after=False, seconds=40)  # four dry runs come first
        world.add(GangSpec("gang", "bare", size=4, minimum=4))
        world.advance(20)
        world.add(GangSpec("rival", "bare", size=2, minimum=2))
        world.advance(60)
        end(world)


def two_replicas() -> None:
    """Two replicas run, and only one decides."""
    with quiet_world(replicas=2) as world:
        for number in range(4):
            world.add(GangSpec(f"gang-{number}", size=3, minimum=3))
            world.advance(3)
        end(world)


def killed_with_a_follower() -> None:
    """The leader is killed in a commit, and the follower binds the pending members."""
    with quiet_world(startup_delay=NEVER, replicas=2) as world:
        world.advance(3)
        world.add(GangSpec("waiting", size=6, minimum=6, cpu=6))
        world.crash_at("bind", "pods", 2, after=False, down_seconds=30)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(60)
        end(world)


def stopped_with_a_follower() -> None:
    """The leader shuts down gracefully, and the follower goes on at once."""
    with quiet_world(replicas=2) as world:
        world.advance(3)
        world.restart(20)
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(4)
        demand([] if world.judge.bound(world.gangs[0]) else ["[idle] no replica has taken the lease over from the leader that shut down"])
        end(world)


def stopped_in_a_commit_with_a_follower() -> None:
    """The leader shuts down gracefully while its binds have no answer yet, and another replica waits for the lease."""
    with quiet_world(startup_delay=NEVER, replicas=2) as world:
        world.advance(3)
        world.fault(Fault("bind", "pods", "gang-*", times=8, status=0, delay=3.0, dry_run=False))
        world.add(GangSpec("gang", "bare", size=4, minimum=4))
        world.advance(0.5)
        world.restart(20)
        world.advance(6)
        world.judge.check()
        end(world)


def binds_of_a_killed_leader_come_late() -> None:
    """Binds of a killed leader are carried out later than the next leader's: their capacity must not have been assigned to another gang."""
    with quiet_world(startup_delay=NEVER, replicas=2, nodes=1, cpu=4) as world:
        world.advance(3)
        world.stall_at("bind", "pods", 6, after=False, seconds=60)  # four dry runs come first
        world.fault(Fault("patch", "pods", "gang-*", times=FOR_EVER, status=503))
        world.add(GangSpec("gang", "bare", size=4, minimum=4))
        world.advance(25)
        world.add(GangSpec("rival", "bare", size=2, minimum=2))
        world.advance(120)
        world.sandbox.faults.clear()
        world.advance(30)
        end(world)


def pods_that_can_not_be_fenced() -> None:
    """A webhook refuses every write to the pods of a waiting gang when another replica takes over; then capacity is freed for them."""
    with quiet_world(replicas=2, nodes=1, cpu=4) as world:
        world.advance(3)
        world.fill()
        gang = GangSpec("gang", size=3, minimum=3)
        world.add(gang)
        world.advance(5)
        world.refuse_for_good(gang, "patch", 403, None)
        world.crash(60)
        world.advance(20)
        world.remove_foreign()
        world.advance(30)
        end(world)


def fencing_received_late() -> None:
    """A gang is partially bound, and the next leader receives late that its pods are fenced; a gang of a lower priority waits."""
    with quiet_world(replicas=2, nodes=1, cpu=7) as world:
        world.hold_binds("high-*", nth=3)
        world.add(GangSpec("high", size=4, minimum=4, priority=HIGH_PRIORITY))
        world.add(GangSpec("low", size=4, minimum=4))
        world.advance(1)
        world.lag("pods", 6.0)
        world.crash(1)
        world.advance(60)
        world.judge.check()
        end(world)
