"""A search with a limited effort or a time limit ends soon, whatever the gang."""

import time
from dataclasses import replace

import numpy as np
import pytest

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem, search, verify
from allaboard.placement.contest import joint as joint_module
from allaboard.placement.contest import selection
from allaboard.placement.contest.contest import Waiting, contest_of
from allaboard.placement.contest.joint import place_together
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers import genetic, milp
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.local_search import search_locally
from allaboard.planning.search_processes import JOINT_EFFORT
from tests.unit.placement.clusters import GPU, node, pods, random_counts, snapshot
from tests.unit.placement.three_partition import three_partition
from tests.unit.placement.tight_gang import GENETIC, tight_cluster, tight_gang
from tests.unit.scheduling.clocks import Clock

SHORT = SearchSettings(effort=600_000)


@pytest.mark.parametrize("nodes", [10, 40])
def test_short_search_gives_up_on_a_three_partition_problem_without_a_verdict(nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("this takes seconds")

    monkeypatch.setattr(milp, "optimize", never)
    monkeypatch.setattr(genetic, "_Search", never)
    gang, cluster = three_partition(nodes)
    plan = search(build_problem(gang, len(gang), cluster, objective=Objective.BINPACK), SHORT, 1)
    assert (plan.feasible, plan.search.stopped_by) == (None, "effort")
    assert len(plan.assignments) < len(gang)


@pytest.mark.parametrize("objective", list(Objective))
def test_short_search_places_a_tight_gang_of_few_roles(objective: Objective) -> None:
    gang, cluster = tight_gang(), tight_cluster()
    problem = build_problem(gang, len(gang), cluster, objective=objective)
    plan = search(problem, SHORT, 1, steps=GENETIC)
    assert (plan.feasible, plan.search.found_by) == (True, "evolution")
    assert verify(dict(plan.assignments), gang, cluster) == ()


def test_larger_problem_gets_fewer_generations_for_the_same_effort() -> None:
    generations = []
    for nodes in (20, 120):
        gang = [pod for number in range(12) for pod in pods(f"role-{number}", 3, {"cpu": 1000 + 37 * number})]
        cluster = snapshot([node(f"node-{number}", {"cpu": 6000 + 100 * (number % 7)}) for number in range(nodes)])
        problem = build_problem(gang, len(gang), cluster, objective=Objective.BINPACK)
        plan = search(problem, replace(SHORT, effort=200_000, min_generations=50), 1)
        assert plan.feasible
        generations.append(plan.search.generations)
    assert 1 <= generations[1] < generations[0] < SHORT.generations


def test_gang_that_greedy_rules_place_is_placed_even_if_time_is_up_at_once() -> None:
    gang = [pod for number in range(12) for pod in pods(f"role-{number}", 3, {"cpu": 1000 + 37 * number})]
    cluster = snapshot([node(f"node-{number}", {"cpu": 6000 + 100 * (number % 7)}) for number in range(40)])
    plan = search(
        build_problem(gang, len(gang), cluster, objective=Objective.BINPACK), SearchSettings(seconds=1e-9, clock=time.monotonic), 1
    )
    assert (plan.feasible, plan.search.found_by, plan.search.stopped_by) == (True, "greedy", "time")
    assert verify(dict(plan.assignments), gang, cluster) == ()


def test_search_that_runs_out_of_time_gives_no_verdict() -> None:
    gang, cluster = three_partition(8)
    plan = search(
        build_problem(gang, len(gang), cluster, objective=Objective.BINPACK), SearchSettings(seconds=1e-9, clock=time.monotonic), 1
    )
    assert (plan.feasible, plan.search.stopped_by) == (None, "time")


def hard_gangs(number: int, nodes: int) -> list[Waiting]:
    gangs = []
    for seed in range(number):
        gang, _ = three_partition(nodes, seed)
        gangs.append(Waiting([replace(pod, uid=f"{seed}/{pod.uid}") for pod in gang], len(gang), seed, Objective.BINPACK))
    return gangs


def test_easy_gang_is_placed_together_with_gangs_that_are_hard_to_place(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    evolve = genetic._Search.run

    def counted(self: genetic._Search, *arguments: object) -> object:
        searched.append(1)
        return evolve(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(genetic._Search, "run", counted)
    _, cluster = three_partition(8)
    small = Waiting(pods("small", 2, {"cpu": 1}), 2, 1, Objective.BINPACK)
    joint = place_together(contest_of([*hard_gangs(12, 8), small], cluster), replace(SHORT, effort=JOINT_EFFORT))
    assert joint.taken == (12,)
    assert len(searched) <= 1  # the search for the small gang


def test_joint_search_goes_on_without_the_solver_once_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    optimize = selection.optimize

    def counted(*arguments: object, seconds: float = float("inf"), **options: object) -> object:
        asked.append(seconds)
        return optimize(*arguments, seconds=seconds, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(selection, "optimize", counted)
    cluster = snapshot([node(f"node-{number}", {"cpu": 64_000, GPU: 8}) for number in range(3)])
    gangs = [
        Waiting(pods(f"gang-{number}", size, {GPU: each}), size, number, Objective.BINPACK)
        for number, (size, each) in enumerate(((3, 2), (2, 5), (4, 3), (5, 2), (1, 7), (2, 4)))
    ]
    joint = place_together(contest_of(gangs, cluster), replace(SHORT, seconds=1e-9, clock=time.monotonic))
    assert joint.gpus[1] >= joint.gpus[0] > 0
    assert min(asked) <= 0


def test_joint_search_with_little_effort_is_no_worse_than_queue_order() -> None:
    cluster = snapshot([node(f"node-{number}", {"cpu": 64_000, GPU: 8}) for number in range(3)])
    gangs = [Waiting(pods(f"gang-{number}", size, {GPU: 2}), size, number, Objective.BINPACK) for number, size in enumerate((3, 8, 4, 5))]
    joint = place_together(contest_of(gangs, cluster), replace(SHORT, effort=1))
    assert joint.gpus[1] >= joint.gpus[0] > 0


def test_joint_search_with_hardly_any_effort_searches_for_no_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    monkeypatch.setattr(joint_module, "search", lambda *arguments, **_: searched.append(arguments) or search(*arguments))
    _, cluster = three_partition(8)
    place_together(contest_of(hard_gangs(4, 8), cluster), replace(SHORT, effort=1))
    assert not searched


def test_searches_within_a_joint_search_get_only_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def noted(problem: Problem, settings: SearchSettings, *arguments: object, **options: object) -> object:
        given.append(settings.seconds)
        clock.now += 1.0
        return search(problem, settings, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(joint_module, "search", noted)
    clock, (_, cluster) = Clock(1.0), three_partition(8)
    place_together(contest_of(hard_gangs(6, 8), cluster), SearchSettings(generations=1, branches=0, seconds=2.5, clock=clock))
    assert given == [2.5, 1.5, 0.5]


def test_local_search_stops_within_a_round_once_time_is_up() -> None:
    gang = [pod for number in range(12) for pod in pods(f"role-{number}", 3, {"cpu": 1000 + 37 * number})]
    cluster = snapshot([node(f"node-{number}", {"cpu": 6000 + 100 * (number % 7)}) for number in range(40)])
    problem = build_problem(gang, len(gang), cluster, objective=Objective.BINPACK)
    counts, calls = random_counts(problem, 1), []

    def clock() -> float:
        calls.append(1)
        return len(calls) / 4  # time is up at the fourth call, in the middle of a round

    def moved(after: np.ndarray) -> int:
        return int(np.count_nonzero((after != counts).any(axis=1)))

    valuation = Valuation(problem)
    cut = search_locally(problem, valuation, counts, 100, Budget(seconds=0.8, clock=clock))
    assert 0 < moved(cut) < moved(search_locally(problem, valuation, counts, 1))


def test_exact_solver_is_not_asked_for_a_rack_if_the_setting_branches_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the solver is asked")

    monkeypatch.setattr(milp, "optimize", never)
    cluster = snapshot([node(f"n{number}", {"cpu": 8000}, labels={"rack": str(number // 2)}) for number in range(6)])
    gang = pods("worker", 3, {"cpu": 4000})
    rules = Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    problem = build_problem(gang, 3, cluster, objective=Objective.BINPACK, rules=rules)
    assert search(problem, SearchSettings(branches=0), 0).feasible
