"""No placement exceeds a bound, and a gang that a bound excludes can't be placed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from allaboard.model.constraints import HostPort
from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.bounds import bounds_of, score_bound
from tests.unit.placement.clusters import GI, GPU, Case, cases, node, pods, snapshot

QUICK = SearchSettings(generations=3, min_generations=1, patience=1, population_size=8)
TINY = cases(most_nodes=3, most_roles=3, most_pods=3)


def every_placement(problem: Problem) -> np.ndarray:
    """Return all valid placements, int64[placements, roles, nodes], as combinations of what each node can take."""
    patterns = []
    for row in range(len(problem.nodes)):
        choices = product(
            *(range(min(int(slots), int(count)) + 1) for slots, count in zip(problem.slots[:, row], problem.count, strict=True))
        )
        patterns.append([c for c in choices if (np.array(c) @ problem.demand <= problem.free[:, row]).all()])
    chosen = list(product(*patterns))
    placements = np.array(chosen, dtype=np.int64).reshape(len(chosen), len(problem.nodes), len(problem.roles)).transpose(0, 2, 1)
    return placements[(placements.sum(axis=2) <= problem.count).all(axis=1)]


@settings(max_examples=60)
@given(TINY)
def test_no_placement_exceeds_the_bounds_on_pods_and_score(case: Case) -> None:
    problem = case.problem()
    placements = every_placement(problem)
    placed = placements.sum(axis=(1, 2))

    assert int(placed.max()) <= bounds_of(problem).placeable
    whole = placements[placed == problem.total]
    if len(whole) and problem.nodes:
        assert Valuation(problem).scores(whole).max() <= score_bound(problem) + 1e-9


@settings(max_examples=60)
@given(TINY)
def test_verdict_on_whether_a_gang_fits_agrees_with_brute_force(case: Case) -> None:
    problem = case.problem()

    plan = search(problem, QUICK, case.seed)

    possible = int(every_placement(problem).sum(axis=(1, 2)).max()) >= problem.minimum
    if plan.feasible is False:
        assert plan.search.stopped_by in ("bound", "no-nodes", "proof")
        assert not possible
    if plan.feasible:
        assert possible


@settings(max_examples=60)
@given(cases(most_roles=1, most_pods=8))
def test_gang_of_one_role_is_placed_if_and_only_if_the_nodes_have_enough_slots(case: Case) -> None:
    problem = case.problem()
    slots = int(problem.slots.sum())

    plan = search(problem, QUICK, case.seed)

    assert plan.feasible is (slots >= case.minimum)
    assert len(plan.assignments) == min(slots, len(case.gang))


def test_shortage_names_the_scarcest_resource() -> None:
    cluster = snapshot([node(name, {"cpu": 4000, "memory": 8 * GI, GPU: 2}) for name in ("a", "b")])
    gang = pods("worker", 5, {"cpu": 1000, "memory": 2 * GI, GPU: 1})

    shortage = bounds_of(build_problem(gang, 5, cluster, objective=Objective.BINPACK)).shortage

    assert shortage is not None
    assert (shortage.resource, shortage.requested, shortage.free) == (GPU, 5, 4)


@pytest.mark.parametrize("minimum", [3, 4])
def test_gpus_left_over_on_different_nodes_are_not_added_up(minimum: int) -> None:
    cluster = snapshot([node(name, {"cpu": 1000, GPU: 3}) for name in ("a", "b")])

    plan = search(build_problem(pods("worker", 4, {GPU: 2}), minimum, cluster, objective=Objective.BINPACK), QUICK, 0)

    assert (plan.feasible, plan.search.stopped_by, len(plan.assignments)) == (False, "bound", 2)


def test_bounds_exclude_a_gang_that_fits_in_total_but_not_node_by_node() -> None:
    cluster = snapshot([node(name, {GPU: 4}) for name in ("a", "b")])
    gang = [*pods("three", 2, {GPU: 3}), *pods("two", 1, {GPU: 2})]

    bounds = bounds_of(build_problem(gang, 3, cluster, objective=Objective.BINPACK))

    assert (bounds.most, bounds.placeable, bounds.shortage) == ((2, 1), 2, None)


def test_there_is_no_shortage_if_constraints_exclude_every_node() -> None:
    cluster = snapshot([node("a", {"cpu": 4000}, labels={"zone": "a"})])
    gang = pods("worker", 2, {"cpu": 1000}, node_selector=(("zone", "b"),))

    assert bounds_of(build_problem(gang, 2, cluster, objective=Objective.BINPACK)).shortage is None


def test_score_bound_of_a_single_pod_assumes_that_it_uses_one_rack() -> None:
    cluster = snapshot([node(f"n{number}", {"cpu": 1000}, labels={"rack": str(number)}) for number in range(2)])
    problem = build_problem(pods("worker", 1, {"cpu": 1000}), 1, cluster, objective=Objective.BINPACK, topology="rack")
    assert Valuation(problem).scores(np.array([[[1, 0]]]))[0] == pytest.approx(score_bound(problem))


def test_node_takes_one_pod_of_roles_that_exclude_each_other_by_port() -> None:
    cluster = snapshot([node(f"n{number}", {"cpu": 8000}) for number in range(40)])
    pairs = {"a": (1, 3), "b": (1, 2), "c": (2, 3)}

    def gang(number: int) -> list[Pod]:
        ports = {role: tuple(HostPort("0.0.0.0", "TCP", port) for port in wanted) for role, wanted in pairs.items()}  # noqa: S104
        return [pod for role in pairs for pod in pods(role, number, {"cpu": 100}, host_ports=ports[role])]

    fits, too_many = (build_problem(gang(number), 3 * number, cluster, objective=Objective.BINPACK) for number in (13, 14))
    assert bounds_of(fits).placeable == 39
    assert bounds_of(too_many).placeable == 40
    assert search(too_many, QUICK, 0).search.stopped_by == "bound"
