"""Random schedules of faults: at the end every gang is whole or absent, or kept open by a rule that says so."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from . import schedules
from .schedules import SCHEDULES, Schedules, SchedulesWithRestarts, options
from .world import quiet


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> None:
    quiet()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("machine", [Schedules, SchedulesWithRestarts])
def test_whatever_happens_every_gang_ends_whole_or_absent_or_is_kept_open_by_a_rule(machine: type[Schedules]) -> None:
    before = schedules.TALLY.schedules
    run_state_machine_as_test(machine, settings=options(SCHEDULES // 2))  # type: ignore[no-untyped-call]  # hypothesis isn't typed there
    assert schedules.TALLY.schedules - before >= SCHEDULES // 2
