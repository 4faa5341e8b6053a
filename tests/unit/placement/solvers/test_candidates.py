"""Nodes that no search needs are left out, and all other nodes are kept."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.node import Taint
from allaboard.model.snapshot import Snapshot, workload_of
from allaboard.placement import build_problem
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from allaboard.placement.solvers.candidates import needed_rows
from tests.unit.placement.clusters import GI, GPU, Case, cases, node, pods, snapshot

_COPIES = 4
_PLAIN = {"cpu": 8000, "memory": 32 * GI, GPU: 4}


def repeated(cluster: Snapshot, times: int) -> Snapshot:
    """Return the cluster with each node repeated ``times``, the copies next to each other."""
    return Snapshot(
        nodes=tuple(replace(one, name=f"{one.name}.{copy}", uid=f"{one.uid}.{copy}") for one in cluster.nodes for copy in range(times)),
        resources=cluster.resources,
        allocatable=np.repeat(cluster.allocatable, times, axis=0),
        used=np.repeat(cluster.used, times, axis=0),
        host_ports={row * times + copy: ports for row, ports in cluster.host_ports.items() for copy in range(times)},
    )


@settings(max_examples=60)
@given(cases(most_nodes=4, most_roles=2, most_pods=2))
def test_node_is_left_out_of_the_candidates_only_if_it_has_no_slots_or_if_enough_equal_nodes_are_kept(case: Case) -> None:
    problem = build_problem(case.gang, case.minimum, repeated(case.cluster, _COPIES), objective=case.objective)
    kept = [problem.nodes[row] for row in needed_rows(problem)]
    for row, name in enumerate(problem.nodes):
        copies = [other for other in kept if other.rpartition(".")[0] == name.rpartition(".")[0]]
        assert name in kept or not problem.slots[:, row].any() or len(copies) >= problem.total


def test_as_many_equal_candidate_nodes_are_kept_as_there_are_pods() -> None:
    cluster = snapshot([node(f"n{number:03}", _PLAIN) for number in range(300)])
    problem = build_problem([*pods("ps", 1, {"cpu": 1000}), *pods("worker", 4, {GPU: 1})], 5, cluster, objective=Objective.BINPACK)
    assert needed_rows(problem).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("objective", "other", "used"),
    [
        (Objective.BINPACK, node("zz", _PLAIN | {"cpu": 8001}), {}),
        (Objective.BINPACK, node("zz", _PLAIN), {"cpu": 1}),
        (Objective.FRAGMENTATION, node("zz", _PLAIN), {GPU: 1}),
    ],
)
def test_node_that_differs_from_all_others_is_kept_as_a_candidate(objective: Objective, other: object, used: dict[str, int]) -> None:
    cluster = snapshot([*(node(f"n{number:03}", _PLAIN) for number in range(9)), other], {"zz": used})  # type: ignore[list-item]
    problem = build_problem([*pods("ps", 1, {"cpu": 1000}), *pods("worker", 2, {GPU: 1})], 3, cluster, objective=objective)
    assert [problem.nodes[row] for row in needed_rows(problem)] == ["n000", "n001", "n002", "zz"]


def test_every_array_over_nodes_is_compared_to_find_equal_nodes() -> None:
    cluster = snapshot([node(f"n{number:03}", _PLAIN, labels={"rack": str(number)}) for number in range(13)])
    gang = [*pods("ps", 1, {"cpu": 1000}), *pods("worker", 2, {GPU: 1})]
    rules = Rules(couplings=[TogetherRule("rack", {"worker-0", "worker-1"})])
    problem = build_problem(
        gang,
        3,
        replace(cluster, mix=workload_of(Counter(pod.spec.demand for pod in gang))),
        objective=Objective.FRAGMENTATION,
        topology="rack",
        rules=rules,
    )
    compared = list(problem.node_arrays)
    for holder in (problem, problem.scoring, problem.fragmentation, *problem.together):
        kept = {name: getattr(holder, name) for name in holder.__dataclass_fields__}
        arrays = {name: values for name, values in kept.items() if isinstance(values, np.ndarray) and 13 in values.shape}
        for name, values in arrays.items():
            # A node that isn't admitted has no slots, and no search reads ``taken``.
            if holder is not problem or name not in ("admits", "taken"):
                assert any(values.shape == other.shape and (values == other).all() for other in compared), name


def test_cheapest_nodes_are_kept_if_nodes_differ_only_in_what_a_pod_costs() -> None:
    avoided = {"taints": (Taint("slow", "", "PreferNoSchedule"),)}
    cluster = snapshot([node(f"n{number:03}", _PLAIN, **({} if number in (5, 7) else avoided)) for number in range(9)])
    problem = build_problem([*pods("ps", 1, {"cpu": 1000}), *pods("worker", 2, {GPU: 1})], 3, cluster, objective=Objective.SPREAD)
    assert needed_rows(problem).tolist() == [0, 5, 7]


@settings(max_examples=100, deadline=None)
@given(cases(most_nodes=3, most_roles=2, most_pods=2), st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_node_that_is_left_out_is_no_cheaper_than_the_equal_nodes_that_are_kept(case: Case, costs: list[int]) -> None:
    problem = build_problem(case.gang, case.minimum, repeated(case.cluster, _COPIES), objective=Objective.SPREAD)
    shape = (len(problem.roles), len(problem.nodes))
    dislike = np.array(costs * 4, dtype=np.float64)[: shape[0] * shape[1]].reshape(shape)
    problem = replace(problem, dislike=dislike, fragmentation=None)
    rows = set(needed_rows(problem).tolist())
    for row, name in enumerate(problem.nodes):
        if row not in rows and problem.slots[:, row].any():
            copies = [other for other in rows if problem.nodes[other].rpartition(".")[0] == name.rpartition(".")[0]]
            no_worse = [other for other in copies if (dislike[:, other] <= dislike[:, row]).all()]
            assert len(no_worse) >= problem.total
