"""Two half-started gangs that need each other's seats: the deadlock that gang scheduling is there to prevent."""

from .gangs import STAMP, GangSpec, manifests
from .world import World

TIMEOUT_SECONDS = 30


def halve(world: World, spec: GangSpec, node: str, count: int) -> None:
    """Have a gang be half bound and running, as a scheduler that died has left it."""
    for manifest in manifests(spec):
        world.sandbox.create(manifest)
    world.gangs.append(spec)
    world.advance(0.001)
    for pod in world.judge.members(spec)[:count]:
        world.bind_by_hand(pod, node, {STAMP: f"0123456789ab/{spec.minimum}"})


def test_of_two_half_started_gangs_that_need_each_others_seats_the_older_is_whole_within_two_time_outs() -> None:
    with World(nodes=2, cpu=4) as world:
        older, younger = GangSpec("older", size=6, minimum=6), GangSpec("younger", size=6, minimum=6)
        world.fell()
        halve(world, older, "node-0", 3)
        world.advance(2)
        halve(world, younger, "node-1", 3)
        world.advance(2)
        world.rise()
        world.advance(2 * TIMEOUT_SECONDS)
        assert not world.judge.missing(older)
        assert not world.judge.bound(younger) or not world.judge.missing(younger)
        world.make_room()
        world.settle()
        assert world.judge.incomplete() == []


def test_a_half_started_gang_that_is_in_nobodys_way_keeps_its_seats() -> None:
    with World(nodes=2, cpu=4) as world:
        gang = GangSpec("gang", size=6, minimum=6)
        world.cordon(1, is_cordoned=True)
        world.fell()
        halve(world, gang, "node-0", 3)
        world.advance(2)
        kept = {pod["metadata"]["uid"] for pod in world.judge.bound(gang)}
        world.rise()
        world.advance(5 * TIMEOUT_SECONDS)
        assert {pod["metadata"]["uid"] for pod in world.judge.bound(gang)} == kept
        assert world.judge.unseated() == []
