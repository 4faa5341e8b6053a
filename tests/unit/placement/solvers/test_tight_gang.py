"""What the genetic search is for: a gang that every greedy rule leaves outside."""

from itertools import permutations

import pytest

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings, build_problem, greedy_seeds, search, verify
from tests.unit.placement.clusters import GI, pods
from tests.unit.placement.tight_gang import MOST_GREEDY_SLOTS, ROLES, tight_cluster, tight_gang

ALONE = SearchSettings(branches=0)
"""Without the solver."""


@pytest.mark.parametrize("roles", list(permutations(ROLES)), ids=lambda roles: "-".join(role[0] for role in roles))
def test_no_greedy_rule_seats_the_tight_gang(roles: tuple[tuple[str, int, int, int], ...]) -> None:
    gang = tight_gang(roles)
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)

    seated = {name: int(counts.sum()) for name, counts in greedy_seeds(problem)}

    assert len(seated) >= 10
    assert max(seated.values()) <= MOST_GREEDY_SLOTS < len(gang)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(15))
def test_the_genetic_search_seats_the_tight_gang(objective: Objective, seed: int) -> None:
    gang = tight_gang()
    cluster = tight_cluster()

    plan = search(build_problem(gang, len(gang), cluster, objective=objective), ALONE, seed)

    assert (plan.feasible, plan.search.found_by) == (True, "evolution")
    assert verify(dict(plan.assignments), gang, cluster) == ()
    assert len(plan.assignments) == len(gang)


@pytest.mark.parametrize("objective", list(Objective))
def test_a_few_generations_seat_the_tight_gang_before_the_solver_is_asked(objective: Objective) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=objective)

    plan = search(problem, SearchSettings(), 1)

    assert (plan.feasible, plan.search.found_by) == (True, "evolution")
    assert "solver" not in [step.name for step in plan.search.steps]


@pytest.mark.parametrize("objective", list(Objective))
def test_without_generations_the_solver_seats_it(objective: Objective) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=objective)

    plan = search(problem, SearchSettings(), 1, steps=["polish", "solver"])

    assert (plan.feasible, plan.search.found_by, plan.search.generations) == (True, "solver", 0)


def test_one_member_more_than_the_tight_gang_has_is_proved_impossible() -> None:
    gang = tight_gang()
    name, _, cpu, memory = ROLES[0]
    more = pods(f"more-{name}", 1, {"cpu": cpu * 1000, "memory": memory * GI})

    problem = build_problem([*gang, *more], len(gang) + 1, tight_cluster(), objective=Objective.BINPACK)
    plan = search(problem, SearchSettings(), 1)

    assert (plan.feasible, plan.search.generations) == (False, 0)
    assert plan.search.stopped_by in ("proof", "bound")


def test_without_the_genetic_search_the_tight_gang_is_not_placed_and_nothing_is_claimed_about_it() -> None:
    gang = tight_gang()

    plan = search(build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK), ALONE, 0, steps=[])

    assert (plan.feasible, plan.search.stopped_by) == (None, "greedy-only")
    assert plan.explanation.placeable == len(plan.assignments) <= MOST_GREEDY_SLOTS
    assert len(plan.assignments) + len(plan.unplaced) == len(gang)
