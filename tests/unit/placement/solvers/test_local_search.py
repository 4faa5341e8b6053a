"""The local search lowers the cost, keeps placements valid, and leaves no better move."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from allaboard.model.gang import Objective
from allaboard.placement import Problem, build_problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.local_search import search_locally
from allaboard.placement.solvers.milp import holds
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, random_counts, snapshot


def moves(problem: Problem, counts: np.ndarray) -> list[np.ndarray]:
    """Return all placements after one move: of one pod, or of all pods of a node, to another node."""
    found = []
    roles, nodes = counts.shape
    for source in range(nodes):
        for target in range(nodes):
            for moving in [np.eye(roles, dtype=np.int64)[role] for role in range(roles)] + [counts[:, source]]:
                after = counts.copy()
                after[:, source] -= moving
                after[:, target] += moving
                if source != target and moving.any() and holds(problem, after):
                    found.append(after)
    return found


@given(cases(most_nodes=4, most_roles=2, most_pods=4))
def test_no_move_that_lowers_the_cost_is_left(case: Case) -> None:
    problem = case.problem()
    valuation = Valuation(problem)
    counts = random_counts(problem, case.seed)
    best = search_locally(problem, valuation, counts, 100)
    assert holds(problem, best)
    assert best.sum(axis=1).tolist() == counts.sum(axis=1).tolist()
    cost = valuation.costs(best[None])[0]
    assert cost <= valuation.costs(counts[None])[0] + 1e-9
    if options := moves(problem, best):
        assert valuation.costs(np.stack(options)).min() >= cost - 1e-8


@pytest.mark.parametrize("zones", ["ab", "aabb", "abcabc"])
def test_gang_leaves_a_domain_that_it_need_not_use(zones: str) -> None:
    nodes = [node(f"n{row}", {"cpu": 8000, GPU: 4}, labels={"zone": zone}) for row, zone in enumerate(zones)]
    gang = [*pods("ps", 1, {"cpu": 1000}), *pods("worker", 2, {"cpu": 1000, GPU: 1})]
    problem = build_problem(gang, 3, snapshot(nodes), objective=Objective.SPREAD, topology="zone")
    problem = replace(problem, weights=replace(problem.weights, domains=2.0))
    counts = np.zeros_like(problem.slots)
    counts[0, 0], counts[1, 1], counts[1, -1] = 1, 1, 1
    best = search_locally(problem, Valuation(problem), counts, 100)
    assert len({zones[row] for row in np.flatnonzero(best.any(axis=0)).tolist()}) == 1


@pytest.mark.parametrize("topology", ["", "rack"])
def test_move_that_gains_nothing_is_not_made(topology: str) -> None:
    cluster = snapshot([node(name, {"cpu": 4000}, labels={"rack": "r"}) for name in "ab"])
    problem = build_problem(pods("w", 1, {"cpu": 1000}), 1, cluster, objective=Objective.FRAGMENTATION, topology=topology)
    counts = np.array([[0, 1]])
    assert search_locally(problem, Valuation(problem), counts, 3) is counts
