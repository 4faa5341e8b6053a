"""A gang of few roles is placed exactly: no placement beats the result, and no gang that fits is called impossible."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.placement import Problem, SearchSettings, build_problem, search, search_quickly
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.solvers import exact as module
from allaboard.placement.solvers.exact import accepts, best_placement
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot
from tests.unit.placement.solvers.test_exact_of_one_role import a_mix, a_problem


def test_no_gang_without_nodes_and_no_gang_with_many_roles_is_placed_exactly() -> None:
    assert not accepts(a_problem([], 2, 1, 1))
    many = [pod for role in range(9) for pod in pods(f"r{role}", 1, {"cpu": 1000 + role})]
    assert not accepts(build_problem(many, 9, snapshot([node("n", {"cpu": 80_000})]), objective=Objective.BINPACK))


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


@given(problem=gangs())
def test_a_quick_search_gives_the_plan_of_the_search(problem: Problem) -> None:
    quick = search_quickly(problem, SearchSettings(), 1)
    plan = search(problem, SearchSettings(), 1)
    event(f"quick: {quick is not None}")
    assert quick is None or quick == plan


def test_a_quick_search_leaves_to_the_search_what_takes_long() -> None:
    free = snapshot([node(f"n{number}", {"cpu": 1000 * (3 + number % 40)}) for number in range(900)])

    def of_roles(*sizes: int, minimum: int = 0) -> Problem:
        gang = [pod for role, size in enumerate(sizes) for pod in pods(f"r{role}", size, {"cpu": 1000 + role})]
        return build_problem(gang, minimum or len(gang), free, objective=Objective.BINPACK)

    assert search_quickly(of_roles(4), SearchSettings(), 1) is not None
    for long in (of_roles(5500), of_roles(40, 40), of_roles(*[1] * 7), of_roles(2, 2, 2, 2)):
        assert search_quickly(long, SearchSettings(), 1) is None


def test_a_quick_search_refuses_a_gang_only_if_it_has_no_surplus_to_leave_out() -> None:
    cluster = snapshot([node("a", {"cpu": 3000, GPU: 1}), node("b", {"cpu": 3000, GPU: 1})])
    gang = [*pods("one", 2, {"cpu": 2000, GPU: 1}), *pods("other", 2, {"cpu": 1000}), *pods("third", 1, {"cpu": 100})]
    whole, surplus = (build_problem(gang, minimum, cluster, objective=Objective.BINPACK) for minimum in (5, 4))
    refused = search_quickly(whole, SearchSettings(), 1)
    assert refused is not None
    assert refused.feasible is False
    plan = search_quickly(surplus, SearchSettings(), 1) or search(surplus, SearchSettings(), 1)
    assert plan.feasible
    assert len(plan.assignments) == 4
