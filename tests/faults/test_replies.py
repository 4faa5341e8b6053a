"""Tests that misleading replies don't count: the scheduler decides by the state of the pod."""

import pytest

from allaboard_sandbox import Fault
from allaboard_sandbox.faults import FOR_EVER

from .gangs import GangSpec
from .world import World


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_refusal_after_a_lost_reply_does_not_release_a_whole_gang(status: int) -> None:
    with World(startup_delay=3600) as world:
        gang = GangSpec("gang")
        world.fault(Fault("bind", "pods", nth=3, drop=True, after=True))
        world.fault(Fault("bind", "pods", nth=4, status=status))
        world.add(gang)
        world.advance(20)
        assert not world.judge.missing(gang)
        assert world.judge.released == 0


def test_partially_bound_gang_is_reported_although_earlier_writes_of_its_status_were_refused() -> None:
    with World() as world:
        gang = GangSpec("gang", size=2, minimum=1, has_group=True)
        world.add(gang)
        world.advance(0.4)
        world.set_minimum(gang, 3)
        # Every report on the edit is refused; afterwards nothing more happens to the gang.
        world.fault(Fault("patch", "*", status=403, times=3))
        world.advance(0.5)
        world.settle()
        assert world.judge.kept_open() == [gang]
        assert world.judge.unexcused() == []


def test_gang_whose_binds_fail_for_long_is_released_and_attempted_with_pauses() -> None:
    with World(startup_delay=3600) as world:
        gang = GangSpec("gang", size=4, minimum=4)
        world.fault(Fault("bind", "pods", nth=2, times=FOR_EVER, status=503))
        world.add(gang)
        world.advance(15)
        assert not world.judge.bound(gang)
        before = len(world.judge.books.requests)
        world.advance(60)
        assert len(world.judge.books.requests) - before < 200
        world.settle()
        assert not world.judge.missing(gang)
