"""A gang of one role is placed exactly, by the solver for one role and by that for few roles: no placement beats the result."""

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from allaboard.model.arrays import Integers
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.packing import PACKING
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Workload, workload_of
from allaboard.placement import Problem, SearchSettings, build_problem, greedy_seeds, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers import one_role as module
from allaboard.placement.solvers.exact import best_placement
from allaboard.placement.solvers.one_role import accepts, best_of_one_role
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

Solve = Callable[[Problem, Valuation], Integers | None]
Shape = tuple[int, int, int]  # cpu and GiB of a node, and its cpu in use


def by_patterns(problem: Problem, valuation: Valuation) -> Integers | None:
    return best_placement(problem, valuation).counts


with_each_solver = pytest.mark.parametrize("solve", [best_of_one_role, by_patterns])


def a_problem(
    shapes: list[Shape], count: int, cpu: int, memory: int, objective: Objective = Objective.BINPACK, gpus: int = 0, mix: Workload = ()
) -> Problem:
    nodes = [
        node(f"n{number}", {"cpu": cpu_ * 1000, "memory": memory_ * GI, GPU: memory_}) for number, (cpu_, memory_, _) in enumerate(shapes)
    ]
    used = {f"n{number}": {"cpu": min(taken, cpu_) * 1000} for number, (cpu_, _, taken) in enumerate(shapes)}
    gang = pods("worker", count, {"cpu": cpu * 1000, "memory": memory * GI, GPU: gpus})
    return build_problem(gang, 1, replace(snapshot(nodes, used), mix=mix), objective=objective)


def a_mix(*tasks: tuple[int, int, int]) -> Workload:
    """Return the workload of ``tasks``, each as (cpu, GPUs, number of such tasks)."""
    return workload_of(
        Counter({SchedulingSpec(requests=as_requests({"cpu": cpu * 1000, GPU: gpus})): number for cpu, gpus, number in tasks})
    )


def best_of_all(problem: Problem) -> float:
    """Return the best score of all placements that have as many pods as there are slots, by trying each placement."""
    pods_ = int(min(problem.count[0], problem.slots[0].sum()))
    ranges = [range(int(slots) + 1) for slots in np.minimum(problem.slots[0], pods_)]
    placements = [counts for counts in itertools.product(*ranges) if sum(counts) == pods_]
    return float(Valuation(problem).scores(np.array(placements, dtype=np.int64)[:, None, :]).max())


@with_each_solver
@given(
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8), st.integers(0, 6)), min_size=1, max_size=5),
    count=st.integers(2, 9),
    cpu=st.integers(1, 3),
    memory=st.integers(1, 2),
    gpus=st.integers(0, 2),
    objective=st.sampled_from(Objective),
    mix=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4), st.integers(1, 9)), max_size=4),
)
@example([(4, 8, 0), (3, 8, 0), (3, 8, 0)], 6, 1, 1, 0, Objective.BINPACK, [])  # filling the largest first is wrong
@example([(4, 8, 0)], 2, 1, 1, 0, Objective.BINPACK, [])
@example([(4, 4, 0), (4, 4, 0)], 5, 1, 1, 0, Objective.BINPACK, [])
def test_no_placement_beats_the_best_of_one_role(
    solve: Solve,
    shapes: list[Shape],
    count: int,
    cpu: int,
    memory: int,
    gpus: int,
    objective: Objective,
    mix: list[tuple[int, int, int]],
) -> None:
    problem = a_problem(shapes, count, cpu, memory, objective, gpus, a_mix(*mix))
    assume(problem.nodes)
    counts = solve(problem, Valuation(problem))
    assert counts is not None
    assert (counts <= problem.slots).all()
    assert counts.sum() == min(count, problem.slots.sum())
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(best_of_all(problem))


@given(
    shapes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 8), st.integers(0, 6)), min_size=1, max_size=30),
    count=st.integers(2, 40),
    objective=st.sampled_from(Objective),
)
def test_score_for_one_role_is_the_same_if_long_tables_are_joined_in_steps_and_unneeded_nodes_are_kept(
    shapes: list[Shape], count: int, objective: Objective
) -> None:
    problem = a_problem(shapes, count, 1, 1, objective)
    assume(problem.nodes)
    counts = best_of_one_role(problem, Valuation(problem))
    with patch.object(module, "_MOST_AT_ONCE", 0), patch.object(module, "_MOST_COMPARED", 0):
        others = best_of_one_role(problem, Valuation(problem))
    assert counts is not None
    assert others is not None
    assert counts.sum() == others.sum()
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(Valuation(problem).scores(others[None])[0], abs=1e-6)


def test_gang_of_one_role_needs_no_generations() -> None:
    plan = search(a_problem([(4, 8, 0), (3, 8, 0), (3, 8, 0)], 6, 1, 1), SearchSettings(), 1)
    assert (plan.search.best_seed, plan.search.stopped_by, plan.search.generations) == ("exact", "exact", 0)
    assert sorted(name for _, name in plan.assignments) == ["n1"] * 3 + ["n2"] * 3


@with_each_solver
def test_ties_go_to_nodes_that_are_in_use_and_then_by_name(solve: Solve) -> None:
    problem = a_problem([(4, 8, 0), (4, 8, 0), (4, 8, 2)], 2, 1, 1)
    counts = solve(problem, Valuation(problem))
    assert counts is not None
    assert counts.tolist() == [[0, 0, 2]]


@with_each_solver
def test_gang_on_hundreds_of_equal_nodes_is_placed_exactly(solve: Solve) -> None:
    problem = a_problem([(16, 64, 0)] * 400 + [(16, 64, 8)] * 100, 1500, 1, 1)
    valuation = Valuation(problem)
    counts = solve(problem, valuation)
    assert counts is not None
    assert counts.sum() == 1500
    assert ((counts > 0) & (counts < problem.slots)).sum() == 1  # the other nodes are full or empty
    # All but one of the nodes in use are full. That node takes 4 pods: if it were full, an idle node would take only 12.
    assert Counter(counts[counts > 0].tolist()) == {8: 99, 16: 44, 4: 1}
    assert valuation.scores(counts[None])[0] >= max(valuation.scores(seed[None])[0] for _, seed in greedy_seeds(problem))


def test_solver_for_one_role_accepts_no_problem_with_several_roles_or_without_nodes() -> None:
    empty = a_problem([], 2, 1, 1)
    assert not accepts(empty)
    two = build_problem(
        [*pods("a", 2, {"cpu": 1000}), *pods("b", 2, {"cpu": 2000})], 4, snapshot([node("n", {"cpu": 8000})]), objective=Objective.BINPACK
    )
    assert not accepts(two)


@with_each_solver
def test_first_of_equal_nodes_by_name_takes_the_most_pods(solve: Solve) -> None:
    counts = solve(problem := a_problem([(2, 8, 0), (2, 8, 0)], 3, 1, 1), Valuation(problem))
    assert counts is not None
    assert counts.tolist() == [[2, 1]]


@with_each_solver
def test_fuller_node_is_taken_if_nodes_cost_the_same(solve: Solve) -> None:
    """Where the shape of the packing is flat, a node costs the same however full it is."""
    cluster = snapshot([node(name, {"cpu": 8000}) for name in "ab"], {"b": {"cpu": 4000}})
    flat = replace(PACKING, shape=((0, 5), (100, 5)))
    problem = build_problem(pods("worker", 2, {"cpu": 1000}), 2, cluster, objective=Objective.BINPACK, packing=flat)
    counts = solve(problem, Valuation(problem))
    assert counts is not None
    assert counts.tolist() == [[0, 2]]


def test_solver_for_one_role_accepts_no_problem_in_which_racks_count() -> None:
    cluster = snapshot([node(f"n{number}", {"cpu": 4000}, labels={"rack": str(number)}) for number in range(3)])
    gang = pods("worker", 4, {"cpu": 1000})
    assert accepts(build_problem(gang, 4, cluster, objective=Objective.BINPACK))
    assert not accepts(build_problem(gang, 4, cluster, objective=Objective.BINPACK, topology="rack"))
