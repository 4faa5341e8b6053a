"""Tests that the genetic search and the exact solver place a tight gang that no greedy rule places."""

from itertools import permutations

import pytest

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings, build_problem, greedy_seeds, search, verify
from tests.unit.placement.clusters import GI, pods
from tests.unit.placement.tight_gang import GENETIC, MOST_GREEDY_SLOTS, ROLES, tight_cluster, tight_gang

ALONE = SearchSettings(branches=0)
"""Settings without the exact solver."""


@pytest.mark.parametrize("roles", list(permutations(ROLES)), ids=lambda roles: "-".join(role[0] for role in roles))
def test_no_greedy_rule_places_the_tight_gang(roles: tuple[tuple[str, int, int, int], ...]) -> None:
    gang = tight_gang(roles)
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)

    placed = {name: int(counts.sum()) for name, counts in greedy_seeds(problem)}

    assert len(placed) >= 10
    assert max(placed.values()) <= MOST_GREEDY_SLOTS < len(gang)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(15))
def test_genetic_search_places_the_tight_gang(objective: Objective, seed: int) -> None:
    gang = tight_gang()
    cluster = tight_cluster()

    plan = search(build_problem(gang, len(gang), cluster, objective=objective), ALONE, seed, steps=GENETIC)

    assert (plan.feasible, plan.search.found_by) == (True, "evolution")
    assert verify(dict(plan.assignments), gang, cluster) == ()
    assert len(plan.assignments) == len(gang)


@pytest.mark.parametrize("objective", list(Objective))
def test_few_generations_place_the_tight_gang_before_the_solver_is_asked(objective: Objective) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=objective)

    plan = search(problem, SearchSettings(), 1, steps=GENETIC)

    assert (plan.feasible, plan.search.found_by) == (True, "evolution")
    assert "solver" not in [step.name for step in plan.search.steps]


@pytest.mark.parametrize("objective", list(Objective))
def test_solver_places_the_tight_gang_without_generations(objective: Objective) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=objective)

    plan = search(problem, SearchSettings(), 1, steps=["polish", "solver"])

    assert (plan.feasible, plan.search.found_by, plan.search.generations) == (True, "solver", 0)


@pytest.mark.parametrize("objective", list(Objective))
def test_the_best_placement_of_the_tight_gang_is_proved_without_generations(objective: Objective) -> None:
    gang = tight_gang()
    cluster = tight_cluster()

    plan = search(build_problem(gang, len(gang), cluster, objective=objective), SearchSettings(), 1)

    assert (plan.feasible, plan.search.stopped_by, plan.search.generations) == (True, "exact", 0)
    assert verify(dict(plan.assignments), gang, cluster) == ()


def test_tight_gang_with_one_more_member_is_proved_impossible() -> None:
    gang = tight_gang()
    name, _, cpu, memory = ROLES[0]
    more = pods(f"more-{name}", 1, {"cpu": cpu * 1000, "memory": memory * GI})

    problem = build_problem([*gang, *more], len(gang) + 1, tight_cluster(), objective=Objective.BINPACK)
    plan = search(problem, SearchSettings(), 1)

    assert (plan.feasible, plan.search.generations) == (False, 0)
    assert plan.search.stopped_by in ("proof", "bound")


def test_greedy_rules_alone_give_no_verdict_on_the_tight_gang() -> None:
    gang = tight_gang()

    plan = search(build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK), ALONE, 0, steps=[])

    assert (plan.feasible, plan.search.stopped_by) == (None, "greedy-only")
    assert plan.explanation.placeable == len(plan.assignments) <= MOST_GREEDY_SLOTS
    assert len(plan.assignments) + len(plan.unplaced) == len(gang)
