"""Schedules on commits: all members are bound or none, on nodes with capacity, once."""

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER
from tests.faults.gangs import GangSpec, Role
from tests.faults.world import demand

from .ground import NEVER, QUIET_SECONDS, end, quiet_world


def no_faults() -> None:
    """Gangs of every kind arrive, and nothing goes wrong."""
    with quiet_world() as world:
        world.add(GangSpec("made", size=4, minimum=4))
        world.add(GangSpec("bare", "bare", size=3, minimum=3))
        world.advance(3)
        world.add(GangSpec("job", "job", size=3, minimum=2, has_group=True))
        world.advance(5)
        end(world)


def no_faults_spread() -> None:
    """A gang that needs several nodes arrives, and nothing goes wrong."""
    with quiet_world() as world:
        world.add(GangSpec("gang", size=4, minimum=4, cpu=6))
        world.advance(5)
        end(world)


def pools() -> None:
    """The pods of a gang select some of the nodes."""
    with quiet_world() as world:
        world.bind_foreign(1, 6)
        world.advance(1)
        for pool in ("left", "right"):
            world.add(GangSpec(pool, size=2, minimum=2, cpu=2, pool=pool))
        world.advance(5)
        end(world)


def no_capacity() -> None:
    """A gang of six pods with 3 cpu each arrives where four fit: no pod is bound."""
    with quiet_world(nodes=2) as world:
        world.add(GangSpec("gang", size=6, minimum=6, cpu=3))
        world.advance(5)
        end(world)


def two_at_once() -> None:
    """Two gangs arrive together, capacity is enough for one, and the binds of the first are slow."""
    with quiet_world(nodes=1) as world:
        world.fault(Fault("bind", "pods", "first-*", times=4, status=0, delay=1.0))
        world.add(GangSpec("first", size=4, minimum=4, cpu=2))
        world.add(GangSpec("second", size=4, minimum=4, cpu=2))
        world.advance(10)
        end(world)


def bare_refused() -> None:
    """One bare member is refused for good, in the dry run too, whichever it is: no pod is bound."""
    for refused in range(3):
        with quiet_world() as world:
            world.fault(Fault("bind", "pods", f"gang-{refused}", times=FOR_EVER, status=403, message="denied", dry_run=None))
            world.add(GangSpec("gang", "bare", size=3, minimum=3))
            world.advance(10)
            end(world)


def member_replaced_in_a_commit() -> None:
    """One waiting member is replaced while the binds are in flight."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", "recreated", size=4, minimum=4)
        world.act_at("bind", 2, lambda: world.replace_member(gang, 1), after=False, is_dry_run=False)
        world.add(gang)
        world.advance(20)
        end(world)


def filled_while_searching() -> None:
    """Another scheduler fills the node during the search, or during the dry run."""
    with quiet_world(startup_delay=NEVER, nodes=1) as world:
        world.act_at("bind", 1, world.fill, after=False, is_dry_run=True)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(20)
        end(world)


def node_lost_in_dry_run() -> None:
    """One of two nodes is deleted during the dry run."""
    with quiet_world(startup_delay=NEVER, nodes=2) as world:
        world.act_at("bind", 1, lambda: world.delete_node(0), after=False, is_dry_run=True)
        world.add(GangSpec("gang", size=4, minimum=4, cpu=3))
        world.advance(20)
        end(world)


def member_lost_in_dry_run() -> None:
    """A member of a bare gang is deleted during the dry run: no pod is bound, since too few are left."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", "bare", size=3, minimum=3)
        world.act_at("bind", 3, lambda: world.delete_member(gang, 1, grace=0), after=True, is_dry_run=True)
        world.add(gang)
        world.advance(20)
        end(world)


def refused_at_every_bind() -> None:
    """All binds of a gang are refused, but not the dry runs: the attempts become rarer."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, status=403, dry_run=False))
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(60)
        world.judge.check()
        end(world)


def node_lost_between_tries() -> None:
    """A bind fails for a while, and its node is cordoned in between."""
    with quiet_world(startup_delay=NEVER, nodes=2) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=4, times=2, status=503, delay=0.3))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(0.3)
        for number in range(2):
            world.cordon(number, is_cordoned=True)
        world.advance(20)
        end(world)


def node_cordoned_before() -> None:
    """Nodes were cordoned long ago; the gang goes to the other nodes."""
    with quiet_world(startup_delay=NEVER) as world:
        for number in range(3):
            world.cordon(number, is_cordoned=True)
        world.advance(2)
        world.add(GangSpec("gang", size=4, minimum=4, cpu=2))
        world.add(GangSpec("other", size=4, minimum=4, cpu=2))
        world.advance(5)
        world.judge.check()
        end(world)


def unanswered() -> None:
    """Binds without an answer arrive late, their pods can't be fenced, and another gang wants the capacity."""
    with quiet_world(startup_delay=NEVER, nodes=1, cpu=2) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, status=0, delay=70.0))
        world.fault(Fault("patch", "pods", "gang-*", times=FOR_EVER, status=503))
        world.add(GangSpec("gang", "bare", size=2, minimum=2))
        world.advance(10)
        world.add(GangSpec("rival", "bare", size=2, minimum=2))
        world.advance(150)
        end(world)


def refused_after_a_lost_answer() -> None:
    """A bind is carried out, its answer lost, and the repeated bind refused."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", nth=3, drop=True, after=True))
        world.fault(Fault("bind", "pods", nth=4, status=403))
        world.add(GangSpec("gang"))
        world.advance(20)
        end(world)


def answers_lost() -> None:
    """Binds are carried out, and their answers lost."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=12, drop=True, after=True))
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(40)
        end(world)


def taken_by_another() -> None:
    """While a member is being bound, another scheduler binds it to another node."""
    with quiet_world(startup_delay=NEVER) as world:
        gang = GangSpec("gang", "recreated", size=3, minimum=3, pool="left")

        def steal() -> None:
            waiting = next(pod for pod in world.judge.members(gang) if not pod["spec"].get("nodeName"))
            world.bind_by_hand(waiting, "node-1", {})

        world.act_at("bind", 2, steal, after=False, is_dry_run=False)
        world.add(gang)
        world.advance(10)
        end(world)


def long_retry_after() -> None:
    """A webhook asks one gang to wait for five minutes; other gangs don't wait."""
    with quiet_world(nodes=1, cpu=4) as world:
        world.refuse_for_good(GangSpec("gang"), "bind", 429, 300)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(3)
        world.add(GangSpec("other", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        end(world)


def group_deleted_while_waiting() -> None:
    """The PodGroup of a waiting gang is deleted: no pod of the gang is bound when capacity is freed."""
    with quiet_world(nodes=1) as world:
        world.fill()
        gang = GangSpec("gang", size=4, minimum=4, has_group=True)
        world.add(gang)
        world.advance(5)
        world.delete_group(gang)
        world.advance(80)
        world.remove_foreign()
        world.advance(60)
        world.judge.check()


def gated() -> None:
    """A scheduling gate is set on one member."""
    with quiet_world(startup_delay=NEVER) as world:
        world.add(GangSpec("gang", "recreated", size=3, minimum=3, is_gated=True))
        world.advance(10)
        world.judge.check()
        assert not world.judge.releases.released


def leaving() -> None:
    """Terminating pods hold their capacity until they are gone."""
    with quiet_world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.hold(gang)
        world.lose_all_bound(gang)
        world.advance(10)
        world.judge.check()
        world.remove_finalizers("gang-")
        world.advance(10)
        end(world)


def capacity_taken_by_another_scheduler() -> None:
    """Pods of another scheduler take capacity."""
    with quiet_world() as world:
        world.fill()
        world.advance(1)
        world.add(GangSpec("gang", size=2, minimum=2))
        world.advance(5)
        end(world)


def second_run() -> None:
    """A run of bare pods has succeeded; only two pods of the next run fit."""
    with quiet_world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", "bare", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.finish(gang)
        world.advance(1)
        world.bind_foreign(0, 2)
        world.run_again(gang)
        world.advance(10)
        end(world)


def second_wave() -> None:
    """Three of four pods of a Job's first wave succeed, and only two pods of the next wave fit."""
    with quiet_world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", "job", size=4, minimum=4, completions=8)
        world.add(gang)
        world.advance(3)
        for number in range(3):
            world.finish(gang, number)
        world.bind_foreign(0, 1)
        world.advance(10)
        end(world)


def groups() -> None:
    """Gangs with PodGroups are whole, and their PodGroups say so."""
    with quiet_world() as world:
        for number, size in enumerate((3, 2, 4)):
            world.add(GangSpec(f"gang-{number}", size=size, minimum=size, has_group=True))
        world.advance(60)
        world.judge.check()
        end(world)


def roles() -> None:
    """A role has a minimum of its own, and no member of the role fits."""
    with quiet_world(nodes=2) as world:
        gang = GangSpec("gang", size=4, minimum=2, others=(Role("ps", 2, cpu=9),), least=1)
        world.add(gang)
        world.advance(10)
        demand(["[quorum] a gang has started without the role that it needs"] if world.judge.bound(gang) else [])
        end(world)


def roles_that_fit() -> None:
    """A role has a minimum of its own, and all its members fit."""
    with quiet_world(nodes=2) as world:
        world.add(GangSpec("gang", size=4, minimum=2, others=(Role("ps", 2),), least=1))
        world.advance(10)
        end(world)


def singles() -> None:
    """Pods that name no gang are bound one by one."""
    with quiet_world() as world:
        for number in range(4):
            world.add(GangSpec(f"single-{number}", "bare", size=1, minimum=1, is_single=True))
        world.advance(40)
        world.judge.check()
        end(world)


def node_tainted() -> None:
    """No pod is bound to a tainted node."""
    with quiet_world(nodes=2) as world:
        world.taint(0, is_tainted=True)
        world.advance(QUIET_SECONDS)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(10)
        end(world)


def silent_watches() -> None:
    """Watches fall silent while a node is cordoned: no pod is bound on the old state, and the watches are replaced soon."""
    with quiet_world(nodes=2) as world:
        for plural in ("nodes", "pods"):
            world.silence(plural)
        world.advance(2)
        world.cordon(0, is_cordoned=True)
        world.advance(20)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(40)
        world.judge.check()
        end(world)


def released_before_retry_after_ends() -> None:
    """One member is bound, one is refused for good, and the other binds get a Retry-After.

    They are repeated only after that time, also when the gang was released before.
    """
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, status=403))
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=20, status=429, retry_after=8))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(40)
        world.sandbox.faults.clear()
        end(world)


def finished_after_retry_after() -> None:
    """Binds that finish a partially bound gang, and binds of surplus members of a whole gang, get a Retry-After."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "half-*", nth=3, times=20, status=429, retry_after=4))
        world.add(GangSpec("half", size=4, minimum=4))
        world.fault(Fault("bind", "pods", "whole-*", nth=3, times=20, status=429, retry_after=4))
        world.add(GangSpec("whole", size=4, minimum=2))
        world.advance(40)
        world.sandbox.faults.clear()
        end(world)


def finished_with_a_refused_surplus_member() -> None:
    """The dry run of a surplus member fails with a Retry-After; other binds fail, and the partially bound gang is finished."""
    with quiet_world(startup_delay=NEVER) as world:
        world.fault(Fault("bind", "pods", "half-*", nth=5, status=500, retry_after=4, dry_run=True))
        world.fault(Fault("bind", "pods", "half-*", times=3, status=404, dry_run=False))
        world.add(GangSpec("half", "bare", size=6, minimum=5))
        world.advance(20)
        end(world)


def denied_beside_bound() -> None:
    """Two members of a Job's gang are lost, and one replacement is denied: no pod is bound before that is known."""
    with quiet_world(startup_delay=NEVER, nodes=2) as world:
        gang = GangSpec("gang", "job", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=403, message="denied", dry_run=None))
        for number in (3, 2):
            world.delete_member(gang, number, grace=0)
        world.advance(3)
        world.judge.check()
        world.sandbox.faults.clear()
        end(world)


def filled_between_tries() -> None:
    """Another scheduler takes the rest of the node while failed binds wait for their next try."""
    with quiet_world(startup_delay=NEVER, nodes=1) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=2, status=503, delay=0.3, dry_run=False))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(0.3)
        world.fill()
        world.advance(20)
        world.judge.check()
        end(world)


def group_deleted_in_dry_run() -> None:
    """The PodGroup is deleted during the gang's dry run, which ends after the scheduler has heard of that: no pod is bound."""
    with quiet_world(startup_delay=NEVER, nodes=2) as world:
        gang = GangSpec("gang", size=4, minimum=4, has_group=True)
        world.deletions_missed = 0.0
        hold = world.sandbox.faults.pause("bind", "pods", after=True, dry_run=True)
        world.add(gang)
        world.advance(1)
        world.delete_group(gang)
        world.advance(1)
        hold.release()
        world.advance(20)
        world.judge.check()
