"""Schedules on releases: which members of partially bound gangs, and of gangs that have lost members, are released."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults import hostile
from tests.faults.gangs import GangSpec
from tests.faults.world import demand

from .ground import NEVER, cut_off, end, quiet_world


def refused() -> None:
    """One member is refused for good: the bound members are released."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=403, message="denied"))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(30)
        world.fill()
        world.advance(45)
        end(world)


def refused_for_a_while() -> None:
    """One member can't be bound for a moment: it is bound then, and no pod is released."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(3)
        world.sandbox.faults.clear()
        world.advance(30)
        end(world)


def refused_while_it_runs() -> None:
    """One member can't be bound until the other members run: they are kept."""
    with quiet_world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(20)
        world.fill()
        world.advance(40)
        end(world)


def bare_lost() -> None:
    """A bare member's bind fails until the gang's time-out: the other members are kept."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=403))
        world.add(GangSpec("gang", "bare", size=3, minimum=3))
        world.advance(60)
        end(world)


def job_lost() -> None:
    """A member's bind fails until the time-out, in the gang of a Job that counts every lost pod: the other members are kept."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=403))
        world.add(GangSpec("gang", "job", size=3, minimum=3))
        world.advance(60)
        end(world)


def two_partially_bound_gangs() -> None:
    """Two gangs are partially bound and run; one of them is released for the other."""
    with quiet_world(nodes=1) as world:
        cut_off(world, GangSpec("first", size=4, minimum=4), GangSpec("second", size=4, minimum=4))
        world.bind_foreign(0, 4)
        world.advance(2)
        world.settle()
        end(world)


def members_lost() -> None:
    """A gang that was whole loses a member: the member is replaced, and no other pod is released."""
    with quiet_world() as world:
        gang = GangSpec("gang", size=4, minimum=4, cpu=2)
        world.add(gang)
        world.advance(3)
        world.delete_member(gang, 1)
        world.advance(5)
        world.fill()
        world.delete_member(gang, 2, grace=0)
        world.advance(60)
        end(world)


def rejected_again_and_again() -> None:
    """A kubelet rejects every new member: the pauses between binds grow."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", size=3, minimum=3)
        world.add(gang)
        for _ in range(200):
            world.advance(0.1)
            for number in range(3):
                world.reject(gang, number)
        end(world)


def surplus_rejected_again_and_again() -> None:
    """A kubelet rejects each surplus member; the gang is whole without one."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", size=4, minimum=3)
        world.add(gang)
        for _ in range(80):
            world.advance(0.3)
            world.reject(gang, 3)
        end(world)


def minimum_raised_and_group_deleted() -> None:
    """The minimum is raised, and the PodGroup deleted: no pod is released."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", size=3, minimum=2, has_group=True, cpu=3)
        world.add(gang)
        world.advance(3)
        world.set_minimum(gang, 6)
        world.advance(40)
        world.delete_group(gang)
        world.advance(40)
        end(world)


def kept_open() -> None:
    """A gang that can't be released is kept partially bound, and its status says so."""
    with quiet_world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=500))
        world.add(GangSpec("gang", size=3, minimum=3, has_group=True))
        world.advance(20)
        world.fill()
        world.advance(20)
        end(world)


def suspended() -> None:
    """A Job is suspended and resumed, to release its partially bound gang."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=30, status=403))
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(60)
        end(world)


def suspended_by_another() -> None:
    """Another controller suspends a Job that carries our label: the Job stays as it is."""
    with quiet_world() as world:
        world.make_hostile(hostile.MANAGED_JOB)
        world.advance(60)
        world.judge.check()
        end(world)


def suspendable_without_jobs() -> None:
    """A gang without Jobs says that it may be suspended, and a member is refused for long: capacity is still sought for the member."""
    with quiet_world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4, suspends=True))
        world.advance(60)
        world.sandbox.faults.clear()
        world.advance(60)
        world.judge.check()
        end(world)


def given_up() -> None:
    """A running gang asks to be released when it can't be healed: all its members are released then.

    Another gang doesn't ask and is kept.
    """
    with quiet_world() as world:
        gang, other = GangSpec("gang", size=3, minimum=3, cpu=3, gives_up=True), GangSpec("other", size=3, minimum=3, cpu=3)
        world.add(gang)
        world.add(other)
        world.advance(3)
        world.fill()
        for spec in (gang, other):
            world.delete_member(spec, 0, grace=0)
            world.fill()
        world.advance(60)
        demand(["[unresolved] a gang that wanted to be released is kept"] if world.judge.bound(gang) else [])
        demand([] if world.judge.bound(other) else ["[release] a gang that wanted to be healed is gone"])
        end(world)


def given_up_in_vain() -> None:
    """A gang of bare pods asks to be released when it can't be healed: it is kept, and healed when there are pods to bind."""
    with quiet_world() as world:
        gang = GangSpec("gang", "bare", size=3, minimum=3, gives_up=True)
        world.add(gang)
        world.advance(3)
        world.delete_member(gang, 0, grace=0)
        world.advance(60)
        end(world)


def refused_for_long() -> None:
    """A member can't be bound within the time for finishing: the bound members are released then, and no later."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(40)
        world.sandbox.faults.clear()
        world.advance(30)
        end(world)


def forgiving_job_lost() -> None:
    """The gang of a Job that doesn't count evicted pods is partially bound: members that haven't started are evicted."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=30, status=403))
        world.add(GangSpec("gang", "job", size=3, minimum=3, forgives=True))
        world.advance(30)
        world.fill()
        world.advance(40)
        end(world)


def job_that_runs_in_part() -> None:
    """Part of a Job runs, the Job may be suspended, and no gang waits for its capacity: no pod is lost."""
    with quiet_world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=500))
        world.add(GangSpec("gang", "job", size=3, minimum=3, suspends=True))
        world.advance(90)
        end(world)


def guarded() -> None:
    """Part of a Job runs, guarded by a disruption budget, and a gang waits for its capacity: no pod is lost."""
    with quiet_world(nodes=1, cpu=6) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=500))
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(5)
        world.guard(gang)
        world.fill()
        world.remove_foreign()
        world.add(GangSpec("other", size=6, minimum=6))
        world.advance(90)
        world.judge.check()
        demand([] if world.judge.bound(gang) else ["[release] a guarded gang is gone"])
        end(world)


def group_deleted() -> None:
    """The PodGroup of a running gang is deleted: no pod is released."""
    with quiet_world() as world:
        gang = GangSpec("gang", size=3, minimum=3, has_group=True)
        world.add(gang)
        world.advance(10)
        world.delete_group(gang)
        world.advance(40)
        world.judge.check()
        assert not world.judge.releases.released
        end(world)


def minimum_lowered() -> None:
    """A gang that doesn't fit lowers its minimum, and is placed."""
    with quiet_world(nodes=1) as world:
        gang = GangSpec("gang", size=4, minimum=4, has_group=True, cpu=3)
        world.add(gang)
        world.advance(20)
        world.set_minimum(gang, 2)
        world.advance(20)
        demand([] if len(world.judge.bound(gang)) == 2 else ["[idle] a gang that asks for less than before waits"])
        end(world)


def leaving_a_suspended_job() -> None:
    """The pods of a suspended Job terminate slowly."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=30, status=403))
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(20)
        world.hold(gang)
        world.advance(45)
        world.remove_finalizers("gang")
        world.advance(40)
        end(world)


def released_in_vain() -> None:
    """A partially bound gang that can't be evicted gets free capacity first, however often its release for another gang has failed."""
    with quiet_world(nodes=1, cpu=8) as world:
        gang = GangSpec("gang", size=4, minimum=4, cpu=2)
        cut_off(world, gang)
        world.fill()
        world.fault(Fault("evict", "pods", "gang-*", times=FOR_EVER, status=403))
        world.advance(35)
        world.add(GangSpec("other", size=2, minimum=2, cpu=2))
        world.advance(45)
        world.remove_foreign()
        world.advance(60)
        demand(
            []
            if len(world.judge.bound(gang)) == 4
            else ["[unresolved] a partially bound gang was overtaken by the gang that it was to be released for"]
        )
        world.judge.check()
        world.sandbox.faults.clear()
        end(world)


def too_large_to_release_others_for() -> None:
    """A partially bound gang runs beyond its time-out. Another gang wouldn't fit even if the first were released, so no pod is released."""
    with quiet_world(nodes=1) as world:
        hold = world.sandbox.faults.pause("bind", "pods", name="half-*", nth=3, times=FOR_EVER, dry_run=False)
        world.add(GangSpec("half", size=4, minimum=4))
        world.advance(5)
        world.crash()
        hold.release()
        world.sandbox.faults.clear()
        world.fill()
        world.advance(1)
        world.add(GangSpec("large", size=6, minimum=6, cpu=3))
        world.advance(90)
        end(world)


def leaving_members() -> None:
    """Members that terminate for long don't count as members of the next commit."""
    with quiet_world(startup_delay=NEVER, nodes=1) as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.hold(gang)
        world.fill()
        world.lose_all_bound(gang)
        world.advance(3)
        world.remove_foreign()
        world.bind_foreign(0, 2)
        world.advance(20)
        world.judge.check()
        world.remove_finalizers("gang-")
        world.advance(20)
        end(world)


def last_refused() -> None:
    """The bind of one of four members is refused for good, and then all nodes are filled: the three bound members are released."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=4, times=FOR_EVER, status=403))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(0.15)
        world.fill()
        world.advance(45)
        world.judge.check()
        end(world)


def minimum_raised_beyond_the_capacity() -> None:
    """The minimum of a running gang is raised beyond its time-out; the gang asks to be released when it loses members."""
    with quiet_world(nodes=1, cpu=8) as world:
        gang = GangSpec("gang", size=3, minimum=2, cpu=3, has_group=True, gives_up=True)
        world.add(gang)
        world.advance(5)
        world.set_minimum(gang, 3)
        world.advance(80)
        end(world)


def job_that_was_whole() -> None:
    """A Job's gang that was whole loses a member before any has started, and a replacement doesn't fit for long."""
    with quiet_world(startup_delay=NEVER, nodes=1) as world:
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(3)
        world.fill()
        world.advance(1)
        world.cordon(0, is_cordoned=True)
        world.delete_member(gang, 1, grace=0)
        world.advance(90)
        world.judge.check()
        world.cordon(0, is_cordoned=False)
        end(world)


def evicted_already() -> None:
    """Part of a Job's gang is evicted while it runs, and the watch shows that late: its Job isn't suspended for pods that are gone."""
    for seconds in (35, 45):  # the time of its next release attempt depends on when it was last attempted
        with quiet_world() as world:
            gang = GangSpec("gang", "job", size=4, minimum=4, suspends=True, forgives=True)
            cut_off(world, gang)
            world.fill()
            world.fault(Fault("evict", "pods", "gang-*", times=FOR_EVER, status=403))
            world.advance(seconds)
            world.sandbox.faults.clear()
            world.lag("pods", 8.0)
            world.add(GangSpec("other", size=2, minimum=2))
            world.advance(45)
            world.judge.check()
            end(world)
