"""What a search may take."""

import math

import pytest

from allaboard.placement.solvers.budget import Budget
from tests.unit.scheduling.clocks import Clock


def test_effort_is_spent_and_what_it_does_not_pay_for_is_not_done() -> None:
    budget = Budget(effort=100.0)
    assert budget.pays(60.0)
    assert not budget.pays(60.0)
    assert budget.left == 40.0
    budget.spend(1000.0)
    assert budget.left == 0.0
    assert not budget.is_over


def test_without_limits_nothing_ends() -> None:
    budget = Budget()
    assert budget.pays(10.0**12)
    assert (budget.left, budget.seconds, budget.is_over) == (math.inf, math.inf, False)


def test_after_its_end_a_search_pays_for_nothing() -> None:
    clock = Clock(1000.0)
    budget = Budget(seconds=2.0, clock=clock)
    clock.now += 1.5
    assert (budget.seconds, budget.is_over, budget.pays(1.0)) == (0.5, False, True)
    clock.now += 0.5
    assert (budget.is_over, budget.pays(1.0)) == (True, False)


@pytest.mark.parametrize(("share", "wall_seconds"), [(0.05, 20.0), (1.0, 1.0), (2.0, 1.0)])
def test_by_the_walls_clock_there_is_more_time_on_a_busy_machine(share: float, wall_seconds: float) -> None:
    process, wall = Clock(1000.0), Clock(50.0)
    budget = Budget(seconds=2.0, clock=process, wall=wall)
    assert budget.wall_seconds == 2.0
    process.now, wall.now = process.now + 1.0, wall.now + 1.0 / share
    assert budget.wall_seconds == pytest.approx(wall_seconds)
    assert Budget().wall_seconds == math.inf
