"""Tests that partially bound gangs are released after their time-out if they block others, and otherwise kept."""

import pytest

from . import standoff
from .gangs import GangSpec
from .standoff import TIMEOUT_SECONDS, halve
from .world import World


@pytest.mark.parametrize("seed", range(6))
def test_of_two_half_started_gangs_that_need_each_others_seats_the_older_is_whole_within_two_time_outs(seed: int) -> None:
    seconds, is_younger_right = standoff.play(seed)
    assert seconds is not None
    assert is_younger_right


def test_a_half_started_gang_that_is_in_nobodys_way_keeps_its_seats() -> None:
    with World(nodes=2, cpu=4) as world:
        gang = GangSpec("gang", size=6, minimum=6)
        world.cordon(1, is_cordoned=True)
        world.fell()
        halve(world, gang, "node-0", 3)
        kept = {pod["metadata"]["uid"] for pod in world.judge.bound(gang)}
        world.rise()
        world.advance(5 * TIMEOUT_SECONDS)
        assert {pod["metadata"]["uid"] for pod in world.judge.bound(gang)} == kept
        assert world.judge.unseated() == []
