"""Tests that random schedules of faults end with every gang whole, absent, or kept partially bound by a rule."""

import pytest

from . import schedules
from .replay import SHARES, play
from .schedules import SAMPLE

pytestmark = pytest.mark.usefixtures("silence")


@pytest.mark.parametrize(("machine", "share"), SHARES.items())
def test_every_gang_ends_whole_or_absent_or_is_kept_partially_bound_by_a_rule(machine: str, share: float) -> None:
    before, wanted = schedules.TALLY.schedules, round(share * SAMPLE)
    # The same schedules each time, so that a failure is due to the change; `make faults` plays others.
    play(machine, wanted, is_fixed=True)
    assert schedules.TALLY.schedules - before >= wanted
