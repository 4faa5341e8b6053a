"""What is done about a gang beyond greed: each step begins with the best so far, and tells what it reached."""

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings

from allaboard.model.gang import Objective
from allaboard.placement import Plan, SearchSettings, build_problem, search
from allaboard.placement.solvers.feasibility import satisfies
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.pursuit import STEPS
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, snapshot
from tests.unit.placement.three_partition import three_partition
from tests.unit.placement.tight_gang import tight_cluster, tight_gang


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan.search.steps]


@settings(max_examples=60)
@given(cases())
def test_no_step_makes_it_worse_and_the_last_is_what_is_told(case: Case) -> None:
    problem = case.problem()
    plan = search(problem, SearchSettings(generations=6), case.seed)
    placed = [(min(step.placed, problem.minimum), step.placed, step.score) for step in plan.search.steps]
    assert all(later >= earlier for earlier, later in pairwise(placed) if later[:2] == earlier[:2])
    assert all(later[0] >= earlier[0] for earlier, later in pairwise(placed))
    assert (plan.search.steps[-1].placed, plan.search.steps[-1].score) == (len(plan.assignments), plan.search.score)
    assert plan.search.generations == sum(step.generations for step in plan.search.steps)
    assert bool(plan.search.found_by) is (plan.feasible is True)


@settings(max_examples=60)
@given(cases())
def test_what_greed_seats_is_seated_with_whatever_steps_and_however_soon_it_must_end(case: Case) -> None:
    problem = case.problem()
    is_seated = any(satisfies(problem, counts) for _, counts in greedy_seeds(problem)[:1])
    for allowed, seconds in ((STEPS, 0.0), ((), 0.0), (STEPS, 1e-9)):
        plan = search(problem, SearchSettings(generations=3, seconds=seconds, clock=time.monotonic), case.seed, steps=allowed)
        assert plan.feasible or not is_seated


def test_everyday_gangs_go_downhill_and_one_generation_shows_that_another_does_not_pay() -> None:
    gang = [*pods("ps", 8, {"cpu": 3000}), *pods("worker", 24, {"cpu": 2000, GPU: 1})]
    cluster = snapshot(
        [node(f"node-{index}", {"cpu": 32_000, GPU: 8}) for index in range(30)],
        {f"node-{index}": {"cpu": 500 * index, GPU: index % 3} for index in range(30)},
    )
    plan = search(build_problem(gang, len(gang), cluster, objective=Objective.FRAGMENTATION), SearchSettings(), 1)
    assert (plan.search.stopped_by, plan.search.found_by) == ("patience", "greedy")
    assert plan.search.generations < 10


def test_where_a_few_generations_leave_somebody_without_a_seat_the_solver_is_asked_for_the_proof() -> None:
    gang, cluster = three_partition(6)
    plan = search(build_problem(gang, len(gang), cluster, objective=Objective.BINPACK), SearchSettings(), 1)
    assert names(plan) == ["greedy", "evolution"]
    assert (plan.feasible, plan.proof, plan.search.stopped_by, plan.search.generations) == (False, "solver", "proof", 5)


LAME = SearchSettings(population_size=4, mutation_rate=0.0, crossover_rate=0.0)
"""A search whose evolution finds nothing."""


def test_the_solver_s_answer_is_where_the_next_evolution_begins() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.SPREAD)
    plans = [search(problem, LAME, seed, steps=("evolution", "solver")) for seed in range(12)]
    found = [plan for plan in plans if plan.search.found_by == "solver"]
    assert found
    for plan in found:
        assert (plan.feasible, plan.proof) == (True, "solver")
        assert names(plan) == ["greedy", "evolution", "solver", "evolution"]
        assert plan.search.steps[-1].generations >= 1


def test_an_answer_that_can_not_be_beaten_needs_no_evolution() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)
    plan = search(problem, LAME, 1, steps=("evolution", "solver"))
    assert (names(plan), plan.search.stopped_by) == (["greedy", "evolution", "solver"], "optimal")


@pytest.mark.parametrize("missing", STEPS)
def test_a_step_that_is_left_out_is_not_taken(missing: str) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.FRAGMENTATION)
    assert missing not in names(search(problem, SearchSettings(), 1, steps=[step for step in STEPS if step != missing]))
