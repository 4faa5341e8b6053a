"""Schedules that aim at one promise each: what random ones find in time, these find at once. On a scheduler that keeps its promises they
find nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from allaboard.sandbox import Fault
from allaboard.sandbox.faults import FOR_EVER

from .gangs import HIGH_PRIORITY, GangSpec, Role
from .world import World, demand

_NEVER = 3600.0
_QUIET_SECONDS = 6.0


@contextmanager
def _world(**options: Any) -> Iterator[World]:
    """A world in which all has been quiet for a while."""
    with World(**options) as world:
        world.advance(_QUIET_SECONDS)
        yield world


def _end(world: World) -> None:
    """Judge how it ends, when all has been quiet, and when there is room for everybody."""
    world.settle()
    world.judge.check()
    demand(world.judge.over_committed(), world.judge.suspended(), world.leaked())
    world.make_room()
    world.settle()
    world.judge.check()
    demand(world.judge.incomplete(), world.judge.over_committed(), world.judge.suspended(), world.leaked())


def no_room() -> None:
    """Six of three cpu, and room for four: nobody is bound."""
    with _world(nodes=2) as world:
        world.add(GangSpec("gang", size=6, minimum=6, cpu=3))
        world.advance(5)
        _end(world)


def refused() -> None:
    """One member is refused for good: those that are bound are released."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=403, message="denied"))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(30)
        world.fill()
        world.advance(30)
        _end(world)


def refused_for_a_while() -> None:
    """One member can't be bound for a moment: it is bound then, and nobody is released."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(3)
        world.sandbox.faults.clear()
        world.advance(30)
        _end(world)


def refused_while_it_runs() -> None:
    """One member can't be bound until the others run: they are spared."""
    with _world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(20)
        world.fill()
        world.advance(40)
        _end(world)


def bare_refused() -> None:
    """One bare member is refused for good, in the rehearsal too: nobody is bound."""
    with _world() as world:
        world.fault(Fault("bind", "pods", "gang-1", times=FOR_EVER, status=403, message="denied", dry_run=None))
        world.add(GangSpec("gang", "bare", size=3, minimum=3))
        world.advance(10)
        _end(world)


def bare_lost() -> None:
    """A bare member's bind fails until its time is over: its fellows are kept."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=403))
        world.add(GangSpec("gang", "bare", size=3, minimum=3))
        world.advance(60)
        _end(world)


def job_lost() -> None:
    """The same of a Job whose policy counts every lost pod."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=403))
        world.add(GangSpec("gang", "job", size=3, minimum=3))
        world.advance(60)
        _end(world)


def changed_on_its_way() -> None:
    """A waiting member is replaced, and one is written to, while their binds are on their way."""
    with _world(startup_delay=_NEVER) as world:
        gang = GangSpec("gang", "recreated", size=4, minimum=4)
        world.act_at("bind", 2, lambda: world.replace_member(gang, 1), after=False, is_dry_run=False)
        world.add(gang)
        world.advance(20)
        _end(world)


def filled_while_searching() -> None:
    """Others take the room while the gang is searched for, and while it is tried without effect."""
    with _world(startup_delay=_NEVER, nodes=1) as world:
        world.act_at("bind", 1, world.fill, after=False, is_dry_run=True)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(20)
        _end(world)


def node_lost_in_rehearsal() -> None:
    """One of two nodes goes while the gang is tried without effect."""
    with _world(startup_delay=_NEVER, nodes=2) as world:
        world.act_at("bind", 1, lambda: world.delete_node(0), after=False, is_dry_run=True)
        world.add(GangSpec("gang", size=4, minimum=4, cpu=3))
        world.advance(20)
        _end(world)


def node_cordoned_before() -> None:
    """Nodes were cordoned long before; the gang goes to the others."""
    with _world(startup_delay=_NEVER) as world:
        for number in range(3):
            world.cordon(number, is_cordoned=True)
        world.advance(2)
        world.add(GangSpec("gang", size=4, minimum=4, cpu=2))
        world.add(GangSpec("other", size=4, minimum=4, cpu=2))
        world.advance(5)
        world.judge.check()
        _end(world)


def killed_in_a_commit() -> None:
    """The scheduler is killed when two of four are bound, and their room is gone when the next one comes."""
    with _world(startup_delay=_NEVER) as world:
        world.crash_at("bind", "pods", 3, after=False, down_seconds=5)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(1)
        world.fill()
        world.advance(30)
        _end(world)


def killed_while_it_heals() -> None:
    """A gang that was whole loses two, and the scheduler is killed when it has replaced one; another gang wants the seats."""
    with _world(nodes=1, crd="none") as world:
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
        _end(world)


def half_gangs() -> None:
    """Two gangs are cut off half way and run; one of them makes way for the other."""
    with _world(nodes=1) as world:
        first, second = GangSpec("first", size=4, minimum=4), GangSpec("second", size=4, minimum=4)
        holds = [
            world.sandbox.faults.pause("bind", "pods", name=f"{spec.name}-*", nth=3, times=FOR_EVER, dry_run=False)
            for spec in (first, second)
        ]
        world.add(first)
        world.add(second)
        world.advance(1)
        world.crash(1)
        world.sandbox.faults.clear()
        del holds
        world.bind_foreign(0, 4)
        world.advance(2)
        world.settle()
        _end(world)


def members_lost() -> None:
    """A gang that was whole loses a member: it is replaced, and nobody else is touched."""
    with _world() as world:
        gang = GangSpec("gang", size=4, minimum=4, cpu=2)
        world.add(gang)
        world.advance(3)
        world.delete_member(gang, 1)
        world.advance(5)
        world.fill()
        world.delete_member(gang, 2, grace=0)
        world.advance(60)
        _end(world)


def rejected_again_and_again() -> None:
    """A kubelet rejects whoever comes: the pauses grow."""
    with _world(startup_delay=_NEVER) as world:
        gang = GangSpec("gang", size=3, minimum=3)
        world.add(gang)
        for _ in range(200):
            world.advance(0.1)
            for number in range(3):
                world.reject(gang, number)
        _end(world)


def priorities() -> None:
    """There is room for one of two, and the one that came later goes before."""
    with _world(nodes=1) as world:
        world.fill()
        world.add(GangSpec("low", size=4, minimum=4, cpu=2))
        world.advance(3)
        world.add(GangSpec("high", size=4, minimum=4, cpu=2, priority=HIGH_PRIORITY))
        world.advance(3)
        world.remove_foreign()
        world.advance(30)
        _end(world)


def healing_below_a_priority() -> None:
    """A gang of a low priority that has lost a member isn't served before a high one that waits for the same seats."""
    with _world(nodes=1) as world:
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
        _end(world)


def two_kinds_of_room() -> None:
    """A gang of two roles that can't be placed is told why, node by node."""
    with _world() as world:
        world.cordon(3, is_cordoned=True)
        world.advance(_QUIET_SECONDS)
        world.add(GangSpec("gang", size=4, minimum=6, cpu=5, others=(Role("ps", 2, 1, 1),)))
        world.advance(40)
        world.judge.check()
        _end(world)


def leader_stands_still() -> None:
    """The leader stands still when it has sent its binds; what it has sent comes when another leads and has given the seats away."""
    with _world(startup_delay=_NEVER, replicas=2, nodes=1, cpu=4) as world:
        world.advance(3)
        world.stall_at("bind", "pods", 2, after=False, seconds=40)
        world.add(GangSpec("gang", "bare", size=4, minimum=4))
        world.advance(20)
        world.add(GangSpec("rival", "bare", size=2, minimum=2))
        world.advance(60)
        _end(world)


def two_replicas() -> None:
    """Of two replicas one decides."""
    with _world(replicas=2) as world:
        for number in range(4):
            world.add(GangSpec(f"gang-{number}", size=3, minimum=3))
            world.advance(3)
        _end(world)


def killed_with_a_follower() -> None:
    """The leader is killed in a commit, and the follower binds what was pending."""
    with _world(startup_delay=_NEVER, replicas=2) as world:
        world.advance(3)
        world.add(GangSpec("waiting", size=6, minimum=6, cpu=6))
        world.crash_at("bind", "pods", 2, after=False, down_seconds=30)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(60)
        _end(world)


def unanswered() -> None:
    """Binds come late, after their scheduler has given them up, and can't be told from what it writes; another gang wants the seats."""
    with _world(startup_delay=_NEVER, nodes=1, cpu=2) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=FOR_EVER, status=0, delay=70.0))
        world.fault(Fault("patch", "pods", "gang-*", times=FOR_EVER, status=503))
        world.add(GangSpec("gang", "bare", size=2, minimum=2))
        world.advance(10)
        world.add(GangSpec("rival", "bare", size=2, minimum=2))
        world.advance(150)
        _end(world)


def refused_after_a_lost_answer() -> None:
    """A bind is carried out, its answer lost, and when it is made again it is refused."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", nth=3, drop=True, after=True))
        world.fault(Fault("bind", "pods", nth=4, status=403))
        world.add(GangSpec("gang"))
        world.advance(20)
        _end(world)


def answers_lost() -> None:
    """Binds are carried out, and their answers lost."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", times=12, drop=True, after=True))
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(40)
        _end(world)


def taken_by_another() -> None:
    """Another scheduler binds a member, to another node, while it is being bound."""
    with _world(startup_delay=_NEVER) as world:
        gang = GangSpec("gang", "recreated", size=3, minimum=3, pool="left")

        def steal() -> None:
            waiting = next(pod for pod in world.judge.members(gang) if not pod["spec"].get("nodeName"))
            world.bind_by_hand(waiting, "node-1", {})

        world.act_at("bind", 2, steal, after=False, is_dry_run=False)
        world.add(gang)
        world.advance(10)
        _end(world)


def second_run() -> None:
    """A run of bare pods has succeeded; of the next only two have room."""
    with _world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", "bare", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.finish(gang)
        world.advance(1)
        world.bind_foreign(0, 2)
        world.run_again(gang)
        world.advance(10)
        _end(world)


def second_wave() -> None:
    """Three of four pods of a Job's first wave succeed, and of the next only two have room."""
    with _world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", "job", size=4, minimum=4, completions=8)
        world.add(gang)
        world.advance(3)
        for number in range(3):
            world.finish(gang, number)
        world.bind_foreign(0, 1)
        world.advance(10)
        _end(world)


def leaving() -> None:
    """Pods that are being deleted keep their seats until they have gone."""
    with _world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(3)
        world.hold(gang)
        world.lose_all_bound(gang)
        world.advance(10)
        world.judge.check()
        world.let_go("gang-")
        world.advance(10)
        _end(world)


def foreign_room() -> None:
    """What others have bound takes room."""
    with _world() as world:
        world.fill()
        world.advance(1)
        world.add(GangSpec("gang", size=2, minimum=2))
        world.advance(5)
        _end(world)


def room_comes_free() -> None:
    """A gang has waited longer than its time-out, and is placed when there is room."""
    with _world() as world:
        world.fill()
        world.add(GangSpec("gang", size=3, minimum=3))
        world.advance(60)
        world.remove_foreign()
        world.advance(40)
        world.judge.check()
        _end(world)


def relisted() -> None:
    """Pods go while no watch tells of it, and the list that follows must be heeded."""
    with _world(nodes=1, cpu=4) as world:
        world.fill()
        world.advance(1)
        world.compact()
        world.remove_foreign()
        world.compact()
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        _end(world)


def minimum_raised() -> None:
    """Raising the minimum, and deleting the PodGroup, release nobody."""
    with _world(startup_delay=_NEVER) as world:
        gang = GangSpec("gang", size=3, minimum=2, has_group=True, cpu=3)
        world.add(gang)
        world.advance(3)
        world.set_minimum(gang, 6)
        world.advance(40)
        world.delete_group(gang)
        world.advance(40)
        _end(world)


def kept_open() -> None:
    """A gang that can't be undone is kept open, and says so."""
    with _world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=FOR_EVER, status=500))
        world.add(GangSpec("gang", size=3, minimum=3, has_group=True))
        world.advance(20)
        world.fill()
        world.advance(20)
        _end(world)


def asked_to_wait() -> None:
    """A webhook asks one gang to wait for five minutes; nobody else does."""
    with _world(nodes=1, cpu=4) as world:
        world.sicken(GangSpec("gang"), "bind", 429, 300)
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(3)
        world.add(GangSpec("other", size=4, minimum=4))
        world.advance(60)
        world.judge.check()
        _end(world)


def suspended() -> None:
    """A Job is suspended and resumed, so that its gang gives its seats back."""
    with _world(startup_delay=_NEVER) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=3, times=30, status=403))
        gang = GangSpec("gang", "job", size=3, minimum=3, suspends=True)
        world.add(gang)
        world.advance(60)
        _end(world)


def no_faults() -> None:
    """Gangs of every kind come, and nothing goes wrong."""
    with _world() as world:
        world.add(GangSpec("made", size=4, minimum=4))
        world.add(GangSpec("bare", "bare", size=3, minimum=3))
        world.advance(3)
        world.add(GangSpec("job", "job", size=3, minimum=2, has_group=True))
        world.advance(5)
        _end(world)


def no_faults_spread() -> None:
    """A gang that needs several nodes."""
    with _world() as world:
        world.add(GangSpec("gang", size=4, minimum=4, cpu=6))
        world.advance(5)
        _end(world)


def pools() -> None:
    """A gang whose pods select some of the nodes."""
    with _world() as world:
        world.bind_foreign(1, 6)
        world.advance(1)
        for pool in ("left", "right"):
            world.add(GangSpec(pool, size=2, minimum=2, cpu=2, pool=pool))
        world.advance(5)
        _end(world)


def two_at_once() -> None:
    """Two gangs come together, with room for one, and the binds of the first take their time."""
    with _world(nodes=1) as world:
        world.fault(Fault("bind", "pods", "first-*", times=4, status=0, delay=1.0))
        world.add(GangSpec("first", size=4, minimum=4, cpu=2))
        world.add(GangSpec("second", size=4, minimum=4, cpu=2))
        world.advance(10)
        _end(world)


def gated() -> None:
    """One member waits behind a gate."""
    with _world(startup_delay=_NEVER) as world:
        world.add(GangSpec("gang", "recreated", size=3, minimum=3, is_gated=True))
        world.advance(10)
        world.judge.check()
        assert not world.judge.releases.released


def node_lost_meanwhile() -> None:
    """A bind fails for a while, and meanwhile its node is cordoned."""
    with _world(startup_delay=_NEVER, nodes=2) as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=4, times=2, status=503, delay=0.3))
        world.add(GangSpec("gang", size=4, minimum=4))
        world.advance(0.3)
        for number in range(2):
            world.cordon(number, is_cordoned=True)
        world.advance(20)
        _end(world)


def would_be_suspended() -> None:
    """A gang that isn't of Jobs says that it may be suspended, and one member is refused for long: it is looked for seats all the same."""
    with _world() as world:
        world.fault(Fault("bind", "pods", "gang-*", nth=2, times=FOR_EVER, status=503))
        world.add(GangSpec("gang", size=4, minimum=4, suspends=True))
        world.advance(60)
        world.sandbox.faults.clear()
        world.advance(60)
        world.judge.check()
        _end(world)
