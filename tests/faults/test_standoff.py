"""Tests that partially bound gangs are released after their time-out if they block others, and otherwise kept."""

import pytest

from . import standoff
from .gangs import GangSpec
from .standoff import TIMEOUT_SECONDS, bind_in_part
from .world import World


@pytest.mark.parametrize("seed", range(6))
def test_older_of_two_partially_bound_gangs_that_need_each_others_capacity_is_whole_within_two_time_outs(seed: int) -> None:
    seconds, is_younger_right = standoff.play(seed)
    assert seconds is not None
    assert is_younger_right


def test_partially_bound_gang_that_blocks_no_other_gang_keeps_its_members() -> None:
    with World(nodes=2, cpu=4) as world:
        gang = GangSpec("gang", size=6, minimum=6)
        world.cordon(1, is_cordoned=True)
        world.kill_all()
        bind_in_part(world, gang, "node-0", 3)
        kept = {pod["metadata"]["uid"] for pod in world.judge.bound(gang)}
        world.start_all()
        world.advance(5 * TIMEOUT_SECONDS)
        assert {pod["metadata"]["uid"] for pod in world.judge.bound(gang)} == kept
        assert world.judge.unexcused() == []
