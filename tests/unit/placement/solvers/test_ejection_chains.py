"""One more pod is assigned if it fits, or if it would fit once pods of one other role moved."""

import numpy as np
from hypothesis import given

from allaboard.model.gang import Objective
from allaboard.placement import build_problem
from allaboard.placement.solvers.ejection_chains import assign_more
from allaboard.placement.solvers.milp import holds
from tests.unit.placement.clusters import Case, cases, node, pods, random_counts, snapshot


@given(cases())
def test_ejection_chains_leave_no_role_with_fewer_pods(case: Case) -> None:
    problem = case.problem()
    counts = random_counts(problem, case.seed)
    after = assign_more(problem, counts)
    assert holds(problem, after)
    assert (after.sum(axis=1) >= counts.sum(axis=1)).all()


def test_ejection_chain_moves_pods_that_fit_elsewhere_off_the_node_for_a_larger_pod() -> None:
    # The large pod needs the only large node. Two small pods are there, which also fit on the small nodes.
    cluster = snapshot([node("large", {"cpu": 4000}), node("small-1", {"cpu": 1000}), node("small-2", {"cpu": 1000})])
    problem = build_problem([*pods("s", 2, {"cpu": 1000}), *pods("l", 1, {"cpu": 4000})], 3, cluster, objective=Objective.BINPACK)
    counts = np.array([[2, 0, 0], [0, 0, 0]], dtype=np.int64)
    assert assign_more(problem, counts).tolist() == [[0, 1, 1], [1, 0, 0]]


def test_placement_is_unchanged_if_no_pod_can_move() -> None:
    cluster = snapshot([node("only", {"cpu": 4000})])
    problem = build_problem([*pods("s", 2, {"cpu": 1000}), *pods("l", 1, {"cpu": 4000})], 3, cluster, objective=Objective.BINPACK)
    counts = np.array([[2], [0]], dtype=np.int64)
    assert assign_more(problem, counts) is counts
