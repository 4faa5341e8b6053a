"""Tests steps from one set of racks to a better set, which moves of single pods don't find."""

import math

import numpy as np
from hypothesis import given

from allaboard.model.gang import Objective
from allaboard.placement import Problem, build_problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.domain_subsets import in_better_domains
from allaboard.placement.solvers.local_search import search_locally
from allaboard.placement.solvers.milp import holds
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, random_counts, snapshot


def racked(racks: str, free: str) -> Problem:
    """Return the problem of placing four workers. ``racks`` and ``free`` have one character for each node: its rack and its free GPUs."""
    nodes = [
        node(f"n{row}", {"cpu": 8000, GPU: int(gpus)}, labels={"rack": rack})
        for row, (rack, gpus) in enumerate(zip(racks, free, strict=True))
    ]
    return build_problem(pods("worker", 4, {"cpu": 1000, GPU: 1}), 4, snapshot(nodes), objective=Objective.FRAGMENTATION, topology="rack")


def racks_of(problem: Problem, counts: np.ndarray) -> set[int]:
    assert problem.domains is not None
    return set(problem.domains[counts.any(axis=0)].tolist())


@given(cases(most_nodes=6, most_roles=2, most_pods=6))
def test_search_for_better_domains_changes_a_placement_only_if_the_new_placement_costs_less(case: Case) -> None:
    problem = build_problem(case.gang, case.minimum, case.cluster, objective=case.objective, topology="zone")
    valuation, budget = Valuation(problem), Budget(1_000_000)
    counts = random_counts(problem, case.seed)
    best = in_better_domains(problem, valuation, counts, budget)
    assert holds(problem, best) or not holds(problem, counts)
    assert best is counts or valuation.objective_value(best) < valuation.objective_value(counts)


def test_gang_leaves_two_racks_for_one_that_takes_all_members() -> None:
    problem = racked("aabbcc", "111122")
    counts = np.array([[1, 1, 1, 1, 0, 0]])
    valuation = Valuation(problem)
    local = search_locally(problem, valuation, counts, 100)
    best = in_better_domains(problem, valuation, counts, Budget())
    assert len(racks_of(problem, local)) == 2
    assert best.tolist() == [[0, 0, 0, 0, 2, 2]]


def test_search_for_better_domains_spends_effort_and_tries_nothing_if_too_little_is_left() -> None:
    problem = racked("aabbcc", "111122")
    counts = np.array([[1, 1, 1, 1, 0, 0]])
    budget = Budget(1_000_000)
    in_better_domains(problem, Valuation(problem), counts, budget)
    assert 0 < budget.left < 1_000_000
    assert in_better_domains(problem, Valuation(problem), counts, Budget(1)) is counts
    assert Budget().left == math.inf


def test_search_for_better_domains_tries_nothing_once_time_is_up() -> None:
    problem = racked("aabbcc", "111122")
    counts = np.array([[1, 1, 1, 1, 0, 0]])
    now = iter([0.0, *[2.0] * 1000])
    assert in_better_domains(problem, Valuation(problem), counts, Budget(seconds=1.0, clock=lambda: next(now))) is counts
