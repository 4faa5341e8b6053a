"""What the genetic search is for: a gang that every greedy rule leaves outside."""

from itertools import permutations

import pytest

from allaboard.model.gang import Objective
from allaboard.placement import SearchSettings, build_problem, greedy_seeds, search, verify

from .tight_gang import MOST_GREEDY_SEATS, ROLES, tight_cluster, tight_gang


@pytest.mark.parametrize("roles", list(permutations(ROLES)), ids=lambda roles: "-".join(role[0] for role in roles))
def test_no_greedy_rule_seats_the_tight_gang(roles: tuple[tuple[str, int, int, int], ...]) -> None:
    gang = tight_gang(roles)
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)

    seated = {name: int(counts.sum()) for name, counts in greedy_seeds(problem)}

    assert len(seated) >= 10
    assert max(seated.values()) <= MOST_GREEDY_SEATS < len(gang)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(15))
def test_the_genetic_search_seats_the_tight_gang(objective: Objective, seed: int) -> None:
    gang = tight_gang()
    cluster = tight_cluster()

    plan = search(build_problem(gang, len(gang), cluster, objective=objective), SearchSettings(), seed)

    assert (plan.feasible, plan.proof) == (True, "genetic")
    assert verify(dict(plan.assignments), gang, cluster) == ()
    assert len(plan.assignments) == len(gang)


def test_without_the_genetic_search_the_tight_gang_is_not_placed_and_nothing_is_claimed_about_it() -> None:
    gang = tight_gang()

    plan = search(build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK), SearchSettings(), 0, use_genetic=False)

    assert (plan.feasible, plan.proof, plan.search.stopped_by) == (None, "none", "greedy-only")
    assert plan.explanation.placeable == len(plan.assignments) <= MOST_GREEDY_SEATS
    assert len(plan.assignments) + len(plan.unplaced) == len(gang)
