"""A gang of one role is placed exactly: no placement beats the result, and as many pods are placed as there are slots for."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.packing import PACKING
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Workload, workload_of
from allaboard.placement import Problem, SearchSettings, build_problem, greedy_seeds, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers.exact import best_placement
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

Shape = tuple[int, int, int]  # cpu and GiB of a node, and its cpu in use


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
    counts = best_placement(problem, Valuation(problem)).counts
    assert counts is not None
    assert (counts <= problem.slots).all()
    assert counts.sum() == min(count, problem.slots.sum())
    assert Valuation(problem).scores(counts[None])[0] == pytest.approx(best_of_all(problem))


def test_gang_of_one_role_needs_no_generations() -> None:
    plan = search(a_problem([(4, 8, 0), (3, 8, 0), (3, 8, 0)], 6, 1, 1), SearchSettings(), 1)
    assert (plan.search.best_seed, plan.search.stopped_by, plan.search.generations) == ("exact", "exact", 0)
    assert sorted(name for _, name in plan.assignments) == ["n1"] * 3 + ["n2"] * 3


def test_ties_go_to_nodes_that_are_in_use_and_then_by_name() -> None:
    problem = a_problem([(4, 8, 0), (4, 8, 0), (4, 8, 2)], 2, 1, 1)
    counts = best_placement(problem, Valuation(problem)).counts
    assert counts is not None
    assert counts.tolist() == [[0, 0, 2]]


def test_gang_on_hundreds_of_equal_nodes_is_placed_exactly() -> None:
    problem = a_problem([(16, 64, 0)] * 400 + [(16, 64, 8)] * 100, 1500, 1, 1)
    valuation = Valuation(problem)
    counts = best_placement(problem, valuation).counts
    assert counts is not None
    assert counts.sum() == 1500
    assert ((counts > 0) & (counts < problem.slots)).sum() == 1  # the other nodes are full or empty
    # All but one of the nodes in use are full. That node takes 4 pods: if it were full, an idle node would take only 12.
    assert Counter(counts[counts > 0].tolist()) == {8: 99, 16: 44, 4: 1}
    assert valuation.scores(counts[None])[0] >= max(valuation.scores(seed[None])[0] for _, seed in greedy_seeds(problem))


def test_first_of_equal_nodes_by_name_takes_the_most_pods() -> None:
    counts = best_placement(problem := a_problem([(2, 8, 0), (2, 8, 0)], 3, 1, 1), Valuation(problem)).counts
    assert counts is not None
    assert counts.tolist() == [[2, 1]]


def test_fuller_node_is_taken_if_nodes_cost_the_same() -> None:
    """Where the shape of the packing is flat, a node costs the same however full it is."""
    cluster = snapshot([node(name, {"cpu": 8000}) for name in "ab"], {"b": {"cpu": 4000}})
    flat = replace(PACKING, shape=((0, 5), (100, 5)))
    problem = build_problem(pods("worker", 2, {"cpu": 1000}), 2, cluster, objective=Objective.BINPACK, packing=flat)
    counts = best_placement(problem, Valuation(problem)).counts
    assert counts is not None
    assert counts.tolist() == [[0, 2]]
