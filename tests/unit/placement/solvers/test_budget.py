"""What a search may take."""

import math

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
