"""A budget grants work only while effort and time are left."""

import math

import pytest

from allaboard.placement.solvers.budget import Budget
from tests.unit.scheduling.clocks import Clock


def test_work_is_refused_if_too_little_effort_is_left() -> None:
    budget = Budget(effort=100.0)
    assert budget.try_spend(60.0)
    assert not budget.try_spend(60.0)
    assert budget.left == 40.0
    budget.spend(1000.0)
    assert budget.left == 0.0
    assert not budget.is_over


def test_budget_without_limits_never_ends() -> None:
    budget = Budget()
    assert budget.try_spend(10.0**12)
    assert (budget.left, budget.seconds, budget.is_over) == (math.inf, math.inf, False)


def test_budget_refuses_work_after_its_end() -> None:
    clock = Clock(1000.0)
    budget = Budget(seconds=2.0, clock=clock)
    clock.now += 1.5
    assert (budget.seconds, budget.is_over, budget.try_spend(1.0)) == (0.5, False, True)
    clock.now += 0.5
    assert (budget.is_over, budget.try_spend(1.0)) == (True, False)


@pytest.mark.parametrize(("share", "wall_seconds"), [(0.05, 20.0), (1.0, 1.0), (2.0, 1.0)])
def test_more_wall_clock_time_is_left_on_a_busy_machine(share: float, wall_seconds: float) -> None:
    process, wall = Clock(1000.0), Clock(50.0)
    budget = Budget(seconds=2.0, clock=process, wall=wall)
    assert budget.wall_seconds == 2.0
    process.now, wall.now = process.now + 1.0, wall.now + 1.0 / share
    assert budget.wall_seconds == pytest.approx(wall_seconds)
    assert Budget().wall_seconds == math.inf
