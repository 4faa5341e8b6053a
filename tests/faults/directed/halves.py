"""Schedules on several partially bound gangs, unanswered or failing binds, and what tenants forge or delete."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import HIGH_PRIORITY, STAMP, GangSpec
from tests.faults.world import demand

from .ground import NEVER, add_beside_slow_gangs, cut_off, delay_release_of_a_job, end, need_capacity_of_a_job, quiet_world


def three_partially_bound_gangs() -> None:
    """Three gangs are partially bound and run; the capacity of one is enough to finish another."""
    with quiet_world(nodes=1, cpu=12) as world:
        cut_off(world, *(GangSpec(name, size=4, minimum=4) for name in ("first", "second", "third")))
        world.fill()
        world.advance(50)
        world.judge.check()
        end(world)


def released_gang_that_terminates_slowly() -> None:
    """Three gangs are partially bound and run; the members of the released one terminate slowly."""
    with quiet_world(nodes=1, cpu=12) as world:
        gangs = [GangSpec(name, size=4, minimum=4) for name in ("first", "second", "third")]
        cut_off(world, *gangs)
        world.fill()
        world.advance(1)
        add_beside_slow_gangs(world, GangSpec("late", size=2, minimum=2), gangs)


def capacity_freed_while_victims_are_chosen() -> None:
    """Two dozen gangs are partially bound and wait for pods, and a gang needs the capacity of most.

    Capacity is freed elsewhere while the scheduler decides which gangs to release.
    """
    with quiet_world(nodes=1, cpu=96) as world:
        world.add(GangSpec("quick", size=1, minimum=1))  # before any pod was bound, at most four binds would be held
        world.advance(1)
        halves = [GangSpec(f"half-{number:02}", size=4, minimum=4) for number in range(24)]
        cut_off(world, *halves)
        world.fill()
        world.advance(10)
        for half in halves:
            world.scale(half, 2)
        world.advance(35)
        world.add(GangSpec("late", size=46, minimum=46))
        world.advance(0.95)
        world.remove_foreign()
        world.advance(5)
        world.judge.check()
        end(world)


def capacity_freed_while_an_eviction_is_checked() -> None:
    """A gang is partially bound and runs.

    The check whether it can be evicted for another gang is answered late, when the other gang fits without it.
    """
    with quiet_world(nodes=1, cpu=8) as world:
        cut_off(world, GangSpec("half", size=4, minimum=4, cpu=2))
        world.fill()
        world.advance(45)
        world.fault(Fault("evict", "pods", "half-*", status=429, retry_after=10, dry_run=True))
        world.add(GangSpec("late", size=1, minimum=1))
        world.advance(3)
        world.recreate_node(1, 1)
        world.advance(12)
        world.judge.check()
        end(world)


def released_for_one_that_can_not_be() -> None:
    """Three partially bound gangs run. The first can't be released, so one of the others is released for the first, and one is kept."""
    with quiet_world(nodes=1, cpu=12) as world:
        first, *others = (GangSpec(name, size=4, minimum=4) for name in ("first", "second", "third"))
        cut_off(world, first, *others)
        world.fill()
        world.fault(Fault("evict", "pods", f"{first.name}-*", times=FOR_EVER, status=500))  # the dry run of its eviction succeeds
        add_beside_slow_gangs(world, GangSpec("large", size=6, minimum=6), others)


def partially_bound_gang_of_a_higher_priority() -> None:
    """A partially bound gang runs; a gang of a lower priority fits only with its capacity."""
    with quiet_world(nodes=1) as world:
        cut_off(world, GangSpec("first", size=4, minimum=4, priority=HIGH_PRIORITY))
        world.bind_foreign(0, 5)
        world.advance(45)
        world.add(GangSpec("low", size=3, minimum=3))
        world.advance(60)
        world.judge.check()
        end(world)


def partially_bound_gang_beside_a_job() -> None:
    """Two gangs are partially bound and run, one of a Job that counts lost pods: neither is released for a gang that needs both."""
    with quiet_world(nodes=1, cpu=8) as world:
        cut_off(world, GangSpec("first", size=4, minimum=4), GangSpec("second", "job", size=4, minimum=4))
        world.fill()
        world.advance(20)
        world.add(GangSpec("large", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        end(world)


def partially_bound_gang_beside_a_guarded_one() -> None:
    """Two gangs are partially bound and run, one guarded by a disruption budget: neither is released for a gang that needs both."""
    with quiet_world(nodes=1, cpu=8) as world:
        guarded = GangSpec("second", size=4, minimum=4)
        cut_off(world, GangSpec("first", size=4, minimum=4), guarded)
        world.fill()
        world.guard(guarded)
        world.advance(20)
        world.add(GangSpec("large", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        end(world)


def needed_while_a_job_is_released() -> None:
    """Two gangs are partially bound and run. While the release of one, a Job, is under way and fails, a gang comes that needs both."""
    need_capacity_of_a_job(GangSpec("large", size=6, minimum=6), after=8)


def needed_while_a_job_is_released_for_long() -> None:
    """Like ``needed_while_a_job_is_released``, but the Job's release takes longer than the scheduler waits for it."""
    need_capacity_of_a_job(GangSpec("large", size=6, minimum=6, priority=HIGH_PRIORITY), after=16)


def release_delayed_by_a_slow_read() -> None:
    """Two gangs are partially bound and run. The release of one, a Job, for the other is so slow that the other is released first."""
    delay_release_of_a_job(Fault("get", "jobs", status=0, delay=14.0))


def release_delayed_by_a_failed_suspension() -> None:
    """Like ``release_delayed_by_a_slow_read``, but the suspension of the Job fails: it isn't repeated."""
    delay_release_of_a_job(Fault("patch", "jobs", times=3, status=503, retry_after=10))


def release_refused() -> None:
    """Two gangs are partially bound and run; the release of the second is refused, and nothing else happens."""
    with quiet_world(nodes=1, cpu=8) as world:
        cut_off(world, *(GangSpec(name, size=4, minimum=4) for name in ("first", "second")))
        world.fill()
        world.fault(Fault("evict", "pods", times=4, status=403))
        world.advance(200)
        world.judge.check()
        end(world)


def partially_bound_gang_beside_a_small_one() -> None:
    """A gang that was refused often is partially bound, for good. A smaller gang that has waited for long needs its capacity."""
    with quiet_world(nodes=1, cpu=4) as world:
        small = GangSpec("small", size=1, minimum=1)
        world.add(small)
        world.refuse_for_good(small, "bind", 403, None)
        world.advance(40)
        world.fault(Fault("bind", "pods", "half-*", times=12, status=403, dry_run=False))
        world.fault(Fault("bind", "pods", "half-*", nth=14, times=FOR_EVER, status=403, dry_run=False))
        half = GangSpec("half", "job", size=3, minimum=3, suspends=True)
        world.add(half)
        for _ in range(40):
            if not world.judge.bound(half):
                world.advance(0.5)
        world.fill()
        world.advance(80)
        world.judge.check()
        end(world)


def unanswered_for_long() -> None:
    """The binds of one member get no answer: the other members are released after the time for finishing, which is extended once."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-2", times=FOR_EVER, drop=True, dry_run=False))
        world.add(GangSpec("gang", "recreated", size=3, minimum=3))
        world.advance(60)
        world.judge.check()
        world.sandbox.faults.clear()
        end(world)


def bound_late_in_doubt() -> None:
    """A gang's binds get no answer.

    Half a minute later one is carried out, and another gang needs its capacity: the time-out begins then.
    """
    for seed in range(16):  # whether a bind without an answer is carried out is random
        with quiet_world(nodes=1, cpu=4, seed=seed) as world:
            world.fault(Fault("bind", "pods", "gang-*", status=0, delay=32.0))
            world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, drop=True))
            world.fault(Fault("patch", "pods", "gang-*", times=FOR_EVER, status=503))
            gang = GangSpec("gang", size=2, minimum=2, cpu=2)
            world.add(gang)
            world.advance(5)
            world.add(GangSpec("other", size=2, minimum=2, cpu=2))
            world.advance(29)
            if not world.judge.bound(gang):
                continue
            world.sandbox.faults.clear()
            world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, drop=True))
            world.advance(50)
            world.judge.check()
            world.sandbox.faults.clear()
            end(world)
            return
    demand(["no bind came late"])


def errors_for_answers() -> None:
    """The binds of a gang fail without a definite answer, and its pods can't be written to: no other gang gets its capacity."""
    with quiet_world(nodes=1, cpu=4, startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=60, status=503, dry_run=False))
        world.fault(Fault("patch", "pods", "gang-*", times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=2, minimum=2, cpu=2))
        world.advance(0.5)
        world.add(GangSpec("rival", size=2, minimum=2, cpu=2))
        world.advance(60)
        world.judge.check()
        end(world)


def too_many_requests() -> None:
    """All binds of a commit are refused for a while, at all tries: they are repeated together."""
    with quiet_world(nodes=2) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=12, status=429, dry_run=False))
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(20)
        world.judge.check()
        end(world)


def partially_bound_gang_without_a_group() -> None:
    """A bare gang is partially bound when its PodGroup is deleted: it is finished, up to its stamped minimum."""
    with quiet_world(nodes=1, seed=2) as world:
        gang = GangSpec("gang", "bare", size=4, minimum=4, has_group=True)
        world.fault(Fault("bind", "pods", nth=3, times=24, status=429, dry_run=False))
        world.add(gang)
        world.advance(0.3)
        demand([] if 0 < len(world.judge.bound(gang)) < 4 else ["[open] the gang isn't partially bound"])
        world.delete_group(gang)
        world.advance(100)
        demand([] if len(world.judge.bound(gang)) == 4 else ["[unresolved] the gang isn't finished"])
        world.judge.check()


def forged_stamp() -> None:
    """A tenant writes a larger stamped minimum to its own bound pods, and the scheduler restarts: no pod is released."""
    with quiet_world(startup_delay=NEVER, crd="none") as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.annotate(gang, {STAMP: "deadbeef/9"})
        world.advance(2)
        world.crash(1)
        world.advance(60)
        world.judge.check()
        end(world)


def evicted_soon() -> None:
    """All members of a gang are evicted a moment after they were bound, and the new ones are dry-run before they are bound."""
    with quiet_world(nodes=1) as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(5)
        world.lose_all_bound(gang)
        world.advance(20)
        world.judge.check()
        end(world)


def surplus_bound_later() -> None:
    """The quorum of a gang, two of four members, fits; the other members are bound when capacity is freed."""
    with quiet_world(nodes=1) as world:
        world.bind_foreign(0, 4)
        gang = GangSpec("gang", size=4, minimum=2, cpu=2)
        world.add(gang)
        world.advance(5)
        demand([] if len(world.judge.bound(gang)) == 2 else ["[idle] the quorum isn't bound"])
        world.remove_foreign()
        world.advance(60)
        world.judge.check()
        end(world)
