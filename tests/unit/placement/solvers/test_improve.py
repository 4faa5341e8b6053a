"""What is done about a gang beyond greed: each step begins with the best so far, and tells what it reached."""

import importlib
import time
from collections.abc import Collection
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from allaboard.model.gang import Objective
from allaboard.model.rules import Rules
from allaboard.placement import Plan, Problem, SearchSettings, build_problem, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.genetic import Target, generation_cost
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.improve import EVOLUTION, STEPS, Improvement
from allaboard.placement.solvers.milp import Answer, Finding, satisfies
from allaboard.placement.solvers.progress import Progress
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
    assert names(plan) == ["greedy", "evolution", "solver"]
    assert (plan.feasible, plan.search.stopped_by, plan.search.generations) == (False, "proof", 5)


LAME = SearchSettings(population_size=4, mutation_rate=0.0, crossover_rate=0.0)
"""A search whose evolution finds nothing."""


def test_the_solver_s_answer_is_where_the_next_evolution_begins() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.SPREAD)
    plans = [search(problem, LAME, seed, steps=("evolution", "solver")) for seed in range(12)]
    found = [plan for plan in plans if plan.search.found_by == "solver"]
    assert found
    for plan in found:
        assert (plan.feasible, plan.search.found_by) == (True, "solver")
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


def a_course(problem: Problem, *found: np.ndarray) -> Progress:
    """A search that has found these, and nothing else, by greed."""
    progress = Progress(problem, Valuation(problem))
    progress.add("greedy", [("greedy", counts) for counts in found])
    return progress


def pursued(progress: Progress, budget: Budget, steps: Collection[str], target: Target) -> str:
    return Improvement(progress, SearchSettings(), 1, target, budget, steps).run()


def test_what_has_no_room_in_the_rack_that_greed_chose_may_have_it_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the solver couldn't say which rack will do, what it refutes inside of one is no proof."""
    nodes = [node(f"{rack}{number}", {"cpu": 10_000}, labels={"rack": rack}) for rack in "ab" for number in range(2)]
    gang = [*pods("small", 3, {"cpu": 4000}), *pods("large", 1, {"cpu": 8000})]
    rules = Rules(together=[("rack", {pod.uid for pod in gang})])
    problem = build_problem(gang, 4, snapshot(nodes), objective=Objective.BINPACK, rules=rules)
    assert search(problem, SearchSettings(), 1).search.stopped_by == "proof"
    # The function of the package's name hides the module.
    module = importlib.import_module("allaboard.placement.solvers.search")
    monkeypatch.setattr(module, "solve", lambda *_, **__: Answer(Finding.NOT_FOUND))
    plan = search(problem, SearchSettings(), 1)
    assert (plan.feasible, plan.search.found_by) == (None, "")
    assert plan.search.stopped_by != "proof"


def test_members_beyond_the_minimum_who_are_left_out_are_worth_another_look() -> None:
    """However well the others sit."""
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000})]
    problem = build_problem(gang, 2, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    some, all_ = np.array([[1, 1], [0, 1]]), np.array([[1, 1], [1, 1]])
    for counts, expected in ((some, "greedy-only"), (all_, "optimal")):
        assert pursued(a_course(problem, counts), Budget(), (), Target(4, 0.0)) == expected


@pytest.mark.parametrize("is_seated", [True, False])
def test_generations_and_the_first_population_are_spent_from_the_effort(is_seated: bool) -> None:
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000 if is_seated else 2500})]
    problem = build_problem(gang, 4, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    progress, budget = a_course(problem, np.array([[1, 1], [1, 1]] if is_seated else [[1, 1], [0, 0]])), Budget(9_000_000)
    pursued(progress, budget, (EVOLUTION,), Target(4, float("inf")))
    generations = len(progress.history)
    assert generations
    each = generation_cost(problem, SearchSettings()) * (1 if is_seated else 4)
    assert 9_000_000 - budget.left == pytest.approx(each * (generations + 1))


def test_a_generation_that_is_not_affordable_with_its_first_population_is_none() -> None:
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000})]
    problem = build_problem(gang, 4, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    cost = generation_cost(problem, SearchSettings())
    for effort, *expected in ((2 * cost - 1, "effort", 0), (2 * cost, "patience", 1)):
        progress = a_course(problem, np.array([[1, 1], [1, 1]]))
        assert [pursued(progress, Budget(effort), (EVOLUTION,), Target(4, float("inf"))), len(progress.history)] == expected
