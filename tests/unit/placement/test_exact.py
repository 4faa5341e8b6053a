"""Of interchangeable pods the best packing is known, and nothing beats it."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.exact import best_packing
from allaboard.placement.objectives import score

from .clusters import GI, node, pods, snapshot

Shape = tuple[int, int, int]  # cpu and GiB of a node, and how much cpu is taken


def a_problem(shapes: list[Shape], count: int, cpu: int, memory: int, objective: Objective = Objective.BINPACK) -> Problem:
    nodes = [node(f"n{number}", {"cpu": cpu_ * 1000, "memory": memory_ * GI}) for number, (cpu_, memory_, _) in enumerate(shapes)]
    used = {f"n{number}": {"cpu": min(taken, cpu_) * 1000} for number, (cpu_, _, taken) in enumerate(shapes)}
    gang = pods("worker", count, {"cpu": cpu * 1000, "memory": memory * GI})
    return build_problem(gang, 1, snapshot(nodes, used), objective=objective)


def best_of_all(problem: Problem) -> float:
    """The best score of any placement of as many pods as there are seats, by trying each."""
    pods_ = int(min(problem.count[0], problem.seats[0].sum()))
    ranges = [range(int(seats) + 1) for seats in np.minimum(problem.seats[0], pods_)]
    placements = [counts for counts in itertools.product(*ranges) if sum(counts) == pods_]
    return max(float(score(problem.scoring, problem.objective, np.array([[counts]], dtype=np.int64))[0]) for counts in placements)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 8), st.integers(0, 6)), min_size=1, max_size=5),
    count=st.integers(2, 9),
    cpu=st.integers(1, 3),
    memory=st.integers(1, 2),
)
@example([(4, 8, 0), (3, 8, 0), (3, 8, 0)], 6, 1, 1)  # filling the largest first is wrong
@example([(4, 8, 0)], 2, 1, 1)
@example([(4, 4, 0), (4, 4, 0)], 5, 1, 1)
def test_nothing_beats_the_best_packing(shapes: list[Shape], count: int, cpu: int, memory: int) -> None:
    problem = a_problem(shapes, count, cpu, memory)
    assume(problem.nodes)
    counts = best_packing(problem)
    assert counts is not None
    assert (counts <= problem.seats).all()
    assert counts.sum() == min(count, problem.seats.sum())
    assert score(problem.scoring, problem.objective, counts[None])[0] == pytest.approx(best_of_all(problem))


def test_a_gang_of_one_role_needs_no_generations() -> None:
    plan = search(a_problem([(4, 8, 0), (3, 8, 0), (3, 8, 0)], 6, 1, 1), SearchSettings(), 1)
    assert (plan.search.best_seed, plan.search.stopped_by, plan.search.generations) == ("exact", "optimal", 0)
    assert sorted(name for _, name in plan.assignments) == ["n1"] * 3 + ["n2"] * 3


def test_ties_go_to_nodes_that_are_in_use_and_then_by_name() -> None:
    counts = best_packing(a_problem([(4, 8, 0), (4, 8, 0), (4, 8, 2)], 2, 1, 1))
    assert counts is not None
    assert counts.tolist() == [[0, 0, 2]]


def test_several_roles_another_objective_and_no_nodes_are_left_to_the_search() -> None:
    assert best_packing(a_problem([(4, 8, 0)], 2, 1, 1, Objective.SPREAD)) is None
    assert best_packing(a_problem([], 2, 1, 1)) is None
    two = build_problem(
        [*pods("a", 2, {"cpu": 1000}), *pods("b", 2, {"cpu": 2000})], 4, snapshot([node("n", {"cpu": 8000})]), objective=Objective.BINPACK
    )
    assert best_packing(two) is None
