"""A gang of few roles is placed exactly: no placement beats the result, and no gang that fits is called impossible."""

import itertools
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.packing import PACKING
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Workload, workload_of
from allaboard.placement import Problem, SearchSettings, build_problem, greedy_seeds, search
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers import exact as module
from allaboard.placement.solvers.exact import accepts, best_placement
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
    shapes: list[Shape], count: int, cpu: int, memory: int, gpus: int, objective: Objective, mix: list[tuple[int, int, int]]
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


def test_no_gang_without_nodes_and_no_gang_with_many_roles_is_placed_exactly() -> None:
    assert not accepts(a_problem([], 2, 1, 1))
    many = [pod for role in range(9) for pod in pods(f"r{role}", 1, {"cpu": 1000 + role})]
    assert not accepts(build_problem(many, 9, snapshot([node("n", {"cpu": 80_000})]), objective=Objective.BINPACK))


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


@st.composite
def gangs(draw: st.DrawFn) -> Problem:
    """Draw a gang of up to three roles, and a few nodes: some equal, some in use, perhaps in racks of which few should be used."""
    sizes = st.tuples(st.integers(1, 4), st.integers(2, 6), st.integers(0, 3))
    shapes = [shape for shape in draw(st.lists(sizes, min_size=1, max_size=3)) for _ in range(draw(st.integers(1, 3)))][:5]
    nodes = [
        node(f"n{at}", {"cpu": cpu * 1000, "memory": memory * GI, GPU: gpus}, labels={"rack": str(draw(st.integers(0, 2)))})
        for at, (cpu, memory, gpus) in enumerate(shapes)
    ]
    used = {f"n{at}": {"cpu": draw(st.integers(0, cpu)) * 500} for at, (cpu, _, _) in enumerate(shapes)}
    gang = [
        pod
        for role in range(draw(st.integers(1, 3)))
        for asked in [draw(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1)))]
        for pod in pods(f"r{role}", draw(st.integers(1, 3)), {"cpu": asked[0] * 500, "memory": asked[1] * GI, GPU: asked[2]})
    ]
    mix = a_mix(*draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3), st.integers(1, 9)), max_size=3)))
    minimum = draw(st.sampled_from((len(gang), 1)))
    topology, objective = draw(st.sampled_from(("", "rack"))), draw(st.sampled_from(Objective))
    return build_problem(gang, minimum, replace(snapshot(nodes, used), mix=mix), objective=objective, topology=topology)


def all_placements(problem: Problem) -> np.ndarray:
    """Return every placement of all pods: int64[placements, roles, nodes]."""
    found = [np.zeros_like(problem.slots)]
    for role, count in enumerate(problem.count.tolist()):
        for number in range(len(problem.nodes)):
            found = [
                placement + taken * (np.indices(placement.shape) == np.array([role, number])[:, None, None]).all(axis=0)
                for placement in found
                for taken in range(min(int(problem.slots[role, number]), count - int(placement[role].sum())) + 1)
            ]
        found = [placement for placement in found if placement[role].sum() == count]
        found = [placement for placement in found if (problem.demand.T @ placement <= problem.free).all()]
    return np.array(found, dtype=np.int64).reshape(len(found), *problem.slots.shape)


@settings(max_examples=300, deadline=None)
@given(problem=gangs(), slack=st.sampled_from((1e-4, 1e-9, 100.0)), steps=st.sampled_from((30, 1)))
def test_no_placement_of_several_roles_beats_the_best_one(problem: Problem, slack: float, steps: int) -> None:
    """The result doesn't depend on how good the lower bound is, or on how many patterns are kept at first."""
    assume(len(problem.nodes) and accepts(problem) and problem.total <= 6)
    valuation, placements = Valuation(problem), all_placements(problem)
    with patch.object(module, "_FIRST_SLACK", slack), patch.object(module, "_PRICE_STEPS", steps):
        found = best_placement(problem, valuation)
    event(f"{len(problem.roles)} roles, {'possible' if len(placements) else 'impossible'}")
    if not len(placements) and len(problem.roles) > 1:
        assert found.is_impossible
        return
    if not len(placements):
        return  # of one role as many pods are placed as there are slots for, which another test checks
    assert found.counts is not None
    assert (found.counts.sum(axis=1) == problem.count).all()
    assert (problem.demand.T @ found.counts <= problem.free).all()
    assert (found.counts <= problem.slots).all()
    assert valuation.costs(found.counts[None])[0] == pytest.approx(valuation.costs(placements).min(), abs=1e-7)


def test_a_gang_of_two_roles_that_does_not_fit_is_refused_with_a_proof() -> None:
    """By their sums and role by role the members fit: only together they don't."""
    gang = [*pods("a", 2, {"cpu": 3000, "memory": GI}), *pods("b", 2, {"cpu": 1000, "memory": 5 * GI})]
    cluster = snapshot([node("x", {"cpu": 6000, "memory": 8 * GI}), node("y", {"cpu": 2000, "memory": 9 * GI})])
    plan = search(build_problem(gang, 4, cluster, objective=Objective.BINPACK), SearchSettings(), 0)
    assert plan.feasible is False


@settings(max_examples=50, deadline=None)
@given(problem=gangs(), data=st.data())
def test_the_order_of_the_pods_in_the_manifest_changes_nothing(problem: Problem, data: st.DataObject) -> None:
    assume(len(problem.nodes) and accepts(problem))
    roles = np.array(data.draw(st.permutations(range(len(problem.roles)))))
    other = replace(
        problem,
        roles=tuple(problem.roles[role] for role in roles.tolist()),
        least=problem.least[roles],
        count=problem.count[roles],
        demand=problem.demand[roles],
        admits=problem.admits[roles],
        slots=problem.slots[roles],
        scoring=problem.scoring.of_roles(roles),
        fragmentation=problem.fragmentation.of_roles(roles) if problem.fragmentation else None,
    )
    found, again = best_placement(problem, Valuation(problem)).counts, best_placement(other, Valuation(other)).counts
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert found[roles].tolist() == again.tolist()


def test_few_racks_are_used_if_they_should_be() -> None:
    nodes = [node(f"n{number}", {"cpu": 4000}, labels={"rack": "ab"[number % 2]}) for number in range(4)]
    gang = [*pods("ps", 2, {"cpu": 1000}), *pods("worker", 2, {"cpu": 3000})]
    problem = build_problem(gang, 4, snapshot(nodes), objective=Objective.BINPACK, topology="rack")
    counts = best_placement(problem, Valuation(problem)).counts
    assert counts is not None
    assert {number % 2 for number in np.flatnonzero(counts.any(axis=0)).tolist()} in ({0}, {1})


def test_parts_of_gpus_that_no_device_can_take_are_no_pattern() -> None:
    """Two devices have 400 thousandths free each: together enough for one part of 600, but no device is."""
    nodes = [node(f"n{row}", {"cpu": 8000, GPU: 2}) for row in range(3)]
    cluster = replace(snapshot(nodes), devices=np.array([[400, 400], [700, 650], [900, 300]], dtype=np.int64))
    problem = build_problem(pods("w", 3, {"cpu": 1000}, gpu_share=600), 3, cluster, objective=Objective.FRAGMENTATION)
    counts = best_placement(problem, Valuation(problem)).counts
    assert counts is not None
    placed = dict(zip(problem.nodes, counts[0].tolist(), strict=True))
    assert (placed.get("n0", 0), placed["n1"], placed["n2"]) == (0, 2, 1)
