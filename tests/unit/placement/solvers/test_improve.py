"""Tests the steps after the greedy rules: each begins with the best placement so far, and reports the placement that it reached."""

import importlib
import time
from collections.abc import Collection
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from allaboard.model.gang import Objective
from allaboard.placement import Plan, Problem, SearchSettings, build_problem, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.genetic import Target, generation_cost
from allaboard.placement.solvers.greedy import greedy_seeds
from allaboard.placement.solvers.improve import EVOLUTION, STEPS, Improvement
from allaboard.placement.solvers.milp import Answer, Finding, satisfies
from allaboard.placement.solvers.progress import Progress
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, snapshot
from tests.unit.placement.three_partition import three_partition
from tests.unit.placement.tight_gang import GENETIC, tight_cluster, tight_gang


def names(plan: Plan) -> list[str]:
    return [step.name for step in plan.search.steps]


@settings(max_examples=60)
@given(cases())
def test_no_step_of_a_search_makes_the_placement_worse_and_the_last_step_is_reported(case: Case) -> None:
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
def test_gang_that_a_greedy_rule_places_is_placed_with_any_steps_and_time_limit(case: Case) -> None:
    problem = case.problem()
    is_placed = any(satisfies(problem, counts) for _, counts in greedy_seeds(problem)[:1])
    for allowed, seconds in ((STEPS, 0.0), ((), 0.0), (STEPS, 1e-9)):
        plan = search(problem, SearchSettings(generations=3, seconds=seconds, clock=time.monotonic), case.seed, steps=allowed)
        assert plan.feasible or not is_placed


def test_usual_gang_needs_only_a_few_generations() -> None:
    gang = [*pods("ps", 8, {"cpu": 3000}), *pods("worker", 24, {"cpu": 2000, GPU: 1})]
    cluster = snapshot(
        [node(f"node-{index}", {"cpu": 32_000, GPU: 8}) for index in range(30)],
        {f"node-{index}": {"cpu": 500 * index, GPU: index % 3} for index in range(30)},
    )
    plan = search(build_problem(gang, len(gang), cluster, objective=Objective.FRAGMENTATION), SearchSettings(), 1, steps=GENETIC)
    assert (plan.search.stopped_by, plan.search.found_by) == ("patience", "greedy")
    assert plan.search.generations < 10


def test_solver_is_asked_if_a_few_generations_leave_a_member_unassigned() -> None:
    gang, cluster = three_partition(6)
    plan = search(build_problem(gang, len(gang), cluster, objective=Objective.BINPACK), SearchSettings(), 1)
    assert names(plan) == ["greedy", "evolution", "solver"]
    assert (plan.feasible, plan.search.stopped_by, plan.search.generations) == (False, "proof", 5)


LAME = SearchSettings(population_size=4, mutation_rate=0.0, crossover_rate=0.0)
"""Settings with which the genetic search finds nothing."""


def test_second_genetic_search_begins_with_the_solvers_placement() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.SPREAD)
    plans = [search(problem, LAME, seed, steps=("evolution", "solver")) for seed in range(12)]
    found = [plan for plan in plans if plan.search.found_by == "solver"]
    assert found
    for plan in found:
        assert (plan.feasible, plan.search.found_by) == (True, "solver")
        assert names(plan) == ["greedy", "evolution", "solver", "evolution"]
        assert plan.search.steps[-1].generations >= 1


def test_no_genetic_search_follows_a_placement_that_cannot_be_beaten() -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.BINPACK)
    plan = search(problem, LAME, 1, steps=("evolution", "solver"))
    assert (names(plan), plan.search.stopped_by) == (["greedy", "evolution", "solver"], "optimal")


@pytest.mark.parametrize("missing", STEPS)
def test_search_leaves_out_a_step_that_is_not_in_its_list_of_steps(missing: str) -> None:
    gang = tight_gang()
    problem = build_problem(gang, len(gang), tight_cluster(), objective=Objective.FRAGMENTATION)
    assert missing not in names(search(problem, SearchSettings(), 1, steps=[step for step in STEPS if step != missing]))


def a_progress(problem: Problem, *found: np.ndarray) -> Progress:
    """Return the progress of a search in which greedy rules have found ``found``, and no other step was taken."""
    progress = Progress(problem, Valuation(problem))
    progress.add("greedy", [("greedy", counts) for counts in found])
    return progress


def stopped_by(progress: Progress, budget: Budget, steps: Collection[str], target: Target) -> str:
    return Improvement(progress, SearchSettings(), 1, target, budget, steps).run()


def test_gang_that_cannot_fit_in_the_rack_that_greedy_rules_chose_is_not_proved_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the solver finds no placement within the rack that greedy rules chose, the gang may still fit in another rack."""
    nodes = [node(f"{rack}{number}", {"cpu": 10_000}, labels={"rack": rack}) for rack in "ab" for number in range(2)]
    gang = [*pods("small", 3, {"cpu": 4000}), *pods("large", 1, {"cpu": 8000})]
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    problem = build_problem(gang, 4, snapshot(nodes), objective=Objective.BINPACK, rules=rules)
    assert search(problem, SearchSettings(), 1).search.stopped_by == "proof"
    # In the package, the function ``search`` hides the module.
    module = importlib.import_module("allaboard.placement.solvers.search")
    monkeypatch.setattr(module, "solve", lambda *_, **__: Answer(Finding.NOT_FOUND))
    plan = search(problem, SearchSettings(), 1)
    assert (plan.feasible, plan.search.found_by) == (None, "")
    assert plan.search.stopped_by != "proof"


def test_search_goes_on_while_surplus_members_are_unassigned() -> None:
    """The search goes on even if the score can't get better."""
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000})]
    problem = build_problem(gang, 2, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    some, all_ = np.array([[1, 1], [0, 1]]), np.array([[1, 1], [1, 1]])
    for counts, expected in ((some, "greedy-only"), (all_, "optimal")):
        assert stopped_by(a_progress(problem, counts), Budget(), (), Target(4, 0.0)) == expected


@pytest.mark.parametrize("is_placed", [True, False])
def test_generations_and_the_first_population_spend_effort(is_placed: bool) -> None:
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000 if is_placed else 2500})]
    problem = build_problem(gang, 4, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    progress, budget = a_progress(problem, np.array([[1, 1], [1, 1]] if is_placed else [[1, 1], [0, 0]])), Budget(9_000_000)
    stopped_by(progress, budget, (EVOLUTION,), Target(4, float("inf")))
    generations = len(progress.history)
    assert generations
    each = generation_cost(problem, SearchSettings()) * (1 if is_placed else 4)
    assert 9_000_000 - budget.left == pytest.approx(each * (generations + 1))


def test_no_generation_runs_if_the_effort_is_too_small_for_it_and_the_first_population() -> None:
    gang = [*pods("a", 2, {"cpu": 3000}), *pods("b", 2, {"cpu": 2000})]
    problem = build_problem(gang, 4, snapshot([node(name, {"cpu": 5000}) for name in "xy"]), objective=Objective.BINPACK)
    cost = generation_cost(problem, SearchSettings())
    for effort, *expected in ((2 * cost - 1, "effort", 0), (2 * cost, "patience", 1)):
        progress = a_progress(problem, np.array([[1, 1], [1, 1]]))
        assert [stopped_by(progress, Budget(effort), (EVOLUTION,), Target(4, float("inf"))), len(progress.history)] == expected
