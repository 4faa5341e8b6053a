"""The greedy seeds equal the placements that placing pods one by one would give."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from allaboard.model.gang import Objective
from allaboard.placement import Problem, build_problem, greedy_seeds
from allaboard.placement.problem.objectives import fullness_with_one
from allaboard.placement.solvers.milp import holds
from tests.unit.placement.clusters import GI, GPU, Case, cases, node, pods, snapshot


@given(cases())
def test_every_seed_is_valid_and_no_unassigned_pod_fits(case: Case) -> None:
    problem = case.problem()

    for _, counts in greedy_seeds(problem):
        assert holds(problem, counts)
        left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
        for role in np.flatnonzero(counts.sum(axis=1) < problem.count):
            fits = problem.admits[role] & (problem.demand[role][:, None] <= left).all(axis=0)
            assert not fits.any()


Preference = Callable[[Problem, int, np.ndarray, np.ndarray], np.ndarray]


def fullest(problem: Problem, role: int, free: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return how much MostAllocated prefers each node."""
    return fullness_with_one(problem.scoring, role, used)


def emptiest(problem: Problem, role: int, free: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return how much LeastAllocated prefers each node."""
    return -fullness_with_one(problem.scoring, role, used)


def most_aligned(problem: Problem, role: int, free: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the dot product of what a pod of the role requests and what each node has free.

    Both are shares of the free amount of the node with the most.
    """
    largest = problem.free.max(axis=1)[:, None]
    return (problem.demand[role][:, None] / largest * free / largest).sum(axis=0)


def one_by_one(problem: Problem, prefer: Preference) -> np.ndarray:
    """Place pods in the order of their roles, each on the node that ``prefer`` prefers most at that moment."""
    counts = np.zeros_like(problem.slots)
    free, used = problem.free.copy(), problem.scoring.used.copy()
    for role, count in enumerate(problem.count.tolist()):
        for _ in range(count):
            fits = problem.admits[role] & (problem.demand[role][:, None] <= free).all(axis=0)
            if not fits.any():
                break
            value = np.where(fits, prefer(problem, role, free, used).round(9), -np.inf)
            best = max(np.flatnonzero(fits), key=lambda row: (value[row], used[:, row].sum().round(9), -row))
            counts[role, best] += 1
            free[:, best] -= problem.demand[role]
            used[:, best] += problem.scoring.step[role, :, best]
    return counts


def quality(problem: Problem, counts: np.ndarray) -> list[tuple[float, int]]:
    """Return how full each node gets. Placements that differ only by how ties are resolved are equally full."""
    used = problem.scoring.used + np.einsum("rn,rsn->sn", counts, problem.scoring.step)
    return sorted((float(row.sum().round(6)), int(slots)) for row, slots in zip(used.T, counts.sum(axis=0), strict=True))


@settings(max_examples=50)
@given(cases(plain=True, most_roles=1, most_pods=9))
def test_filling_nodes_equals_choosing_the_fullest_node_for_each_pod(case: Case) -> None:
    problem = case.problem()

    assert dict(greedy_seeds(problem))["binpack/given"].tolist() == one_by_one(problem, fullest).tolist()


@pytest.mark.parametrize(("rule", "prefer"), [("spread", emptiest), ("dot-product", most_aligned)])
def test_levelling_nodes_equals_choosing_the_best_node_for_each_pod(rule: str, prefer: Preference) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        cluster = snapshot(
            [node(f"n{index}", {"cpu": int(rng.integers(8, 65)) * 1000, "memory": 256 * GI, GPU: 8}) for index in range(6)],
            {f"n{index}": {"cpu": int(rng.integers(0, 8)) * 1000, GPU: int(rng.integers(0, 5))} for index in range(6)},
        )
        gang = pods("worker", int(rng.integers(2, 25)), {"cpu": 1000, "memory": GI, GPU: 1})
        problem = build_problem(gang, 1, cluster, objective=Objective.SPREAD)

        seed = dict(greedy_seeds(problem))[f"{rule}/given"]

        assert quality(problem, seed) == quality(problem, one_by_one(problem, prefer))


def test_seeds_come_in_every_distinct_order_of_the_roles() -> None:
    cluster = snapshot([node("a", {"cpu": 16000, GPU: 4})])
    same = build_problem(pods("worker", 4, {GPU: 1}), 4, cluster, objective=Objective.BINPACK)
    two = build_problem([*pods("small", 1, {"cpu": 100}), *pods("large", 1, {"cpu": 9000})], 2, cluster, objective=Objective.BINPACK)

    rules = {"thrifty", "binpack", "spread", "dot-product", "best-fit", "first-fit"}
    assert {name for name, _ in greedy_seeds(same)} == {f"{rule}/given" for rule in rules}
    assert {name for name, _ in greedy_seeds(two)} == {f"{rule}/{order}" for rule in rules for order in ("given", "large-first")}


def test_only_the_first_greedy_rule_is_followed_if_time_is_up() -> None:
    problem = build_problem(pods("worker", 2, {"cpu": 1000}), 2, snapshot([node("a", {"cpu": 16000})]), objective=Objective.BINPACK)
    assert len(greedy_seeds(problem, goes_on=lambda: False)) == 1


@pytest.mark.parametrize("memory", [1, 1000, GI])
def test_greedy_seeds_assign_all_pods_however_small_the_amounts_of_a_node_are(memory: int) -> None:
    cluster = snapshot([node(f"n{number}", {"cpu": 64_000, "memory": memory}) for number in range(7)])
    problem = build_problem(pods("worker", 30, {"cpu": 100}), 30, cluster, objective=Objective.SPREAD)
    assert {int(slots.sum()) for _, slots in greedy_seeds(problem)} == {30}
