"""Plays two partially bound gangs that need each other's capacity, as a scheduler that died may leave them."""

from .gangs import STAMP, GangSpec, manifests
from .world import World

TIMEOUT_SECONDS = 30


def bind_in_part(world: World, spec: GangSpec, node: str, count: int) -> None:
    """Create a gang of which ``count`` members are bound and run."""
    for manifest in manifests(spec):
        world.sandbox.create(manifest)
    world.gangs.append(spec)
    world.advance(0.001)
    for pod in world.judge.members(spec)[:count]:
        world.bind_by_hand(pod, node, {STAMP: f"0123456789ab/{spec.minimum}"})
    world.advance(2)


def play(seed: int = 0) -> tuple[float | None, bool]:
    """Return the seconds until the older gang is whole, and whether the younger gang ends whole or absent.

    The seconds are None if the older gang isn't whole within two time-outs.
    """
    with World(seed, nodes=2, cpu=4) as world:
        older, younger = GangSpec("older", size=6, minimum=6), GangSpec("younger", size=6, minimum=6)
        world.kill_all()
        bind_in_part(world, older, "node-0", 3)
        bind_in_part(world, younger, "node-1", 3)
        world.start_all()
        seconds = None
        for second in range(1, 2 * TIMEOUT_SECONDS + 1):
            world.advance(1)
            if seconds is None and not world.judge.missing(older):
                seconds = float(second)
        is_right = not world.judge.bound(younger) or not world.judge.missing(younger)
        world.add_capacity()
        world.settle()
        return seconds, is_right and world.judge.incomplete() == []
