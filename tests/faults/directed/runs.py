"""Schedules on the runs of a job: waves, resubmissions, rollouts, and lost members."""

from tests.faults.gangs import HIGH, GangSpec, Role
from tests.faults.world import World, demand
from tests.stories import MINIMUM

from .ground import end, quiet_world


def _take_capacity(world: World, spec: GangSpec, number: int, cpu: int) -> None:
    """Let all running members of a run succeed, and let another scheduler take ``cpu`` of the node ``number`` before other gangs can."""
    for node in range(4):
        world.cordon(node, is_cordoned=True)
    world.finish(spec, None)
    world.advance(0.5)
    world.bind_foreign(number, cpu)
    world.advance(0.3)
    for node in range(4):
        world.cordon(node, is_cordoned=False)


def wave_beside_a_straggler() -> None:
    """One member of a Job's first wave runs on when the others have succeeded; when it ends, another scheduler takes its capacity."""
    with quiet_world(nodes=1, cpu=4) as world:
        gang = GangSpec("gang", "job", size=4, minimum=4, completions=8)
        world.add(gang)
        world.advance(5)
        for _ in range(3):
            world.finish(gang, 0)
        world.advance(10)
        _take_capacity(world, gang, 0, 1)
        world.advance(30)
        world.remove_foreign()
        end(world)


def small_wave_beside_a_straggler() -> None:
    """The next wave has its minimum beside the last member of the first wave: it may start, and then loses a member."""
    with quiet_world(nodes=1) as world:
        gang = GangSpec("gang", "job", size=4, minimum=2, completions=12)
        world.add(gang)
        world.advance(5)
        for _ in range(3):
            world.finish(gang, 0)
        world.advance(10)
        world.delete_member(gang, 3, grace=0)
        world.advance(30)
        world.finish(gang, None)
        world.advance(10)
        end(world)


def last_wave_is_smaller() -> None:
    """The completions of a Job are no multiple of its parallelism: the last wave is smaller than the minimum, and starts."""
    with quiet_world() as world:
        gang = GangSpec("gang", "job", size=4, minimum=4, completions=6)
        world.add(gang)
        world.advance(5)
        world.finish(gang, None)
        world.advance(60)
        world.judge.check()
        end(world)


def last_pod_is_lost() -> None:
    """All completions of a Job but one have succeeded when the last pod is lost: its replacement is the only pod that will ever exist."""
    with quiet_world() as world:
        gang = GangSpec("gang", "job", size=3, minimum=3)
        world.add(gang)
        world.advance(5)
        for _ in range(2):
            world.finish(gang, 0)
        world.advance(2)
        world.delete_member(gang, 0, grace=0)
        world.advance(60)
        world.judge.check()
        end(world)


def submitted_again() -> None:
    """A job is submitted again while its first run goes on, and part of the second run fits; then another scheduler takes capacity."""
    for kind in ("job", "operated"):
        with quiet_world(nodes=1, cpu=6) as world:
            gang = world.add(GangSpec("gang", kind, size=4, minimum=4))
            world.advance(5)
            world.submit_again(gang)
            world.advance(20)
            _take_capacity(world, gang, 0, 3)
            world.advance(30)
            world.remove_foreign()
            end(world)


def lost_beside_another_run() -> None:
    """A member of the first run is lost while the second run waits for capacity: no pod of the second run takes its place."""
    with quiet_world(nodes=1, cpu=5) as world:
        gang = world.add(GangSpec("gang", "job", size=4, minimum=4))
        world.advance(5)
        again = world.submit_again(gang)
        assert again is not None
        world.advance(5)
        world.delete_member(gang, 0, grace=0)
        world.advance(30)
        world.judge.check()
        world.delete_member(gang, 0, grace=0)
        world.bind_foreign(0, 1)
        world.advance(30)
        world.remove_foreign()
        end(world)


def two_controllers() -> None:
    """Two Jobs that are created together are one gang, and so are the next two: neither Job starts without the other."""
    with quiet_world(nodes=1) as world:
        gang = GangSpec("gang", "job", size=3, minimum=4, others=(Role("ps", 1),))
        world.bind_foreign(0, 5)
        world.add(gang)
        world.advance(20)
        world.remove_foreign()
        world.advance(20)
        world.bind_foreign(0, 1)
        world.submit_again(gang)
        world.advance(30)
        world.finish(gang, None)
        world.advance(30)
        end(world)


def second_controller_of_a_small_gang() -> None:
    """Two Jobs that are created together are one gang, also if one of them has enough pods for its minimum."""
    for least in (0, 1):
        with quiet_world(nodes=1) as world:
            world.bind_foreign(0, 5)
            world.add(GangSpec("gang", "job", size=4, minimum=2, cpu=1 if least else 4, others=(Role("ps", 2),), least=least))
            world.advance(60)
            world.judge.check()
            world.remove_foreign()
            end(world)


def bare_run_beside_a_straggler() -> None:
    """Three of four bare pods have succeeded when the next four are created; another scheduler takes the freed capacity of the fourth."""
    with quiet_world(nodes=1, cpu=4) as world:
        gang = world.add(GangSpec("gang", "bare", size=4, minimum=4))
        world.advance(5)
        for _ in range(3):
            world.finish(gang, 0)
        world.advance(2)
        world.submit_again(gang)
        world.advance(10)
        _take_capacity(world, gang, 0, 1)
        world.advance(30)
        world.remove_foreign()
        end(world)


def rolled_out() -> None:
    """A Deployment's template gets another annotation, a lower minimum or another priority: the new pods replace the old ones."""
    changes = (
        {"metadata": {"annotations": {"allaboard.dev/objective": "spread"}}},
        {"metadata": {"labels": {MINIMUM: "3"}}},
        {"spec": {"priorityClassName": HIGH}},
    )
    for change in changes:
        with quiet_world() as world:
            gang = GangSpec("gang", "deployed", size=4, minimum=4)
            world.add(gang)
            world.advance(5)
            world.roll_out(gang, change)
            world.advance(60)
            world.settle()
            old = {pod["metadata"]["labels"]["pod-template-hash"] for pod in world.judge.bound(gang)}
            demand([] if len(old) == 1 and len(world.judge.bound(gang)) == 4 else ["[idle] the rollout of gang doesn't end"])
            end(world)


def replaced_at_another_priority() -> None:
    """The template of a ReplicaSet gets another priority before a member is lost: the replacement is bound all the same."""
    with quiet_world() as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(5)
        world.raise_priority(gang)
        world.delete_member(gang, 0, grace=0)
        world.advance(60)
        world.judge.check()
        end(world)


def lost_after_scaling_down() -> None:
    """A gang that was whole is scaled to half of its minimum, and then loses a member: the replacement is bound."""
    with quiet_world() as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.add(gang)
        world.advance(5)
        world.scale(gang, 2)
        world.advance(3)
        world.delete_member(gang, 0, grace=0)
        world.advance(60)
        world.judge.check()
        end(world)
