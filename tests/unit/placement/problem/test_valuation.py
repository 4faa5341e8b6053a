"""Costs of placements equal costs that are counted in plain Python, term by term."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import NodeSelectorTerm, Requirement, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.node import Taint
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot, Workload, workload_of
from allaboard.placement import build_problem
from allaboard.placement.problem.objectives import Weights
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.devices import WHOLE, assign_devices
from tests.unit.placement.clusters import GPU, Case, cases, node, pods, random_counts, snapshot

Task = tuple[int, int, int, int]  # cpu, whole GPUs, thousandths of one, how many

tasks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from((0, 0, 300, 500)), st.integers(1, 9)), max_size=5)


def a_mix(listed: list[Task]) -> Workload:
    return workload_of(
        Counter(
            {
                SchedulingSpec(as_requests({"cpu": cpu * 1000, GPU: gpus}), gpu_share=0 if gpus else part): number
                for cpu, gpus, part, number in listed
            }
        )
    )


def fragmentation(cpu: int, devices: list[int], mix: Workload) -> float:
    """Return the fragmentation F_n(M) of Weng et al. (USENIX ATC 2023), in GPUs, for a node with ``cpu`` and ``devices`` free.

    Of the task classes that ask for GPUs, only the most frequent count: those that together make up 95 % of the tasks that ask for GPUs.
    """
    wanting = [(spec, number) for spec, number in mix if spec.amount(GPU) or spec.gpu_share]
    popular = [(spec, number) for spec, number in mix if not (spec.amount(GPU) or spec.gpu_share)]
    total, cut, seen = sum(number for _, number in wanting), 0, sum(number for _, number in popular)
    for spec, number in wanting:
        if cut < 0.95 * total:
            popular.append((spec, number))
            cut += number
            seen += number
    lost = 0.0
    for spec, number in popular:
        part, wanted = spec.gpu_share or WHOLE, spec.amount(GPU) or int(spec.gpu_share > 0)
        runs = wanted > 0 and cpu >= spec.amount("cpu") and sum(free >= part for free in devices) >= wanted
        lost += number / seen * (sum(free for free in devices if free < part) if runs else sum(devices))
    return lost / WHOLE


@given(cases(plain=True), tasks)
def test_fragmentation_agrees_with_the_formula_of_weng_et_al(case: Case, listed: list[Task]) -> None:
    mix = a_mix([task for task in listed if not task[2]])
    problem = replace(case, objective=Objective.FRAGMENTATION, cluster=replace(case.cluster, mix=mix)).problem()
    counts = random_counts(problem, case.seed)
    column, cores = case.cluster.column_of(GPU), case.cluster.column_of("cpu")
    rows = {one.name: row for row, one in enumerate(case.cluster.nodes)}
    expected = 0.0
    for position, name in enumerate(problem.nodes):
        free = np.maximum(case.cluster.free[rows[name]], 0)
        pattern = counts[:, position]
        taken = {
            what: sum(dict(role.requests).get(what, 0) * int(n) for role, n in zip(problem.roles, pattern, strict=True))
            for what in ("cpu", GPU)
        }
        if pattern.any() and column is not None and any(spec.amount(GPU) for spec, _ in mix):
            before = fragmentation(int(free[cores]), [WHOLE] * int(free[column]), mix)
            expected += fragmentation(int(free[cores]) - taken["cpu"], [WHOLE] * (int(free[column]) - taken[GPU]), mix) - before
    problem = replace(problem, weights=Weights(fragmentation=1.0))
    assert Valuation(problem).costs(counts[None])[0] == pytest.approx(expected)


@given(
    st.lists(st.lists(st.integers(0, 1000), min_size=4, max_size=4), min_size=1, max_size=4),
    st.sampled_from((250, 400, 700)),
    st.integers(1, 6),
    tasks,
)
def test_fragmentation_counts_the_free_parts_of_devices(devices: list[list[int]], part: int, count: int, listed: list[Task]) -> None:
    mix = a_mix(listed)
    nodes = [node(f"n{row}", {"cpu": 8000, GPU: 4}) for row in range(len(devices))]
    cluster = replace(snapshot(nodes), devices=np.array(devices, dtype=np.int64), mix=mix)
    problem = build_problem(pods("w", count, {"cpu": 1000}, gpu_share=part), 1, cluster, objective=Objective.FRAGMENTATION)
    counts = problem.trimmed(np.minimum(problem.slots, problem.count[:, None])[None])
    expected = 0.0
    for position, name in enumerate(problem.nodes):
        free, slots = sorted(devices[int(name[1:])]), int(counts[0, 0, position])
        before = fragmentation(8000, free, mix)
        for _ in range(slots):
            best = min(device for device in free if device >= part)
            free[free.index(best)] -= part
        expected += fragmentation(8000 - 1000 * slots, free, mix) - before
    problem = replace(problem, weights=Weights(fragmentation=1.0))
    assert Valuation(problem).costs(counts)[0] == pytest.approx(expected if problem.fragmentation else 0.0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5), st.integers(0, 3), st.lists(st.integers(0, 3), min_size=2, max_size=2))
def test_pods_take_exactly_what_they_ask_for_from_devices(devices: list[int], whole: int, parts: list[int]) -> None:
    sizes = np.array([600, 250])
    left, fits = assign_devices(np.array([devices], dtype=np.int64), np.array([whole]), np.array([parts]), sizes[None])
    assert (left >= 0).all()
    taken = sum(devices) - int(left.sum())
    asked = WHOLE * whole + int(np.dot(parts, sizes))
    assert taken == asked if fits[0] else taken < asked


def test_cached_costs_equal_computed_costs() -> None:
    mix = a_mix([(1, 1, 0, 5), (1, 4, 0, 5)])
    cluster = replace(snapshot([node(f"n{row}", {"cpu": 8000, GPU: 4}) for row in range(3)]), mix=mix)
    gang = [*pods("a", 3, {"cpu": 1000, GPU: 1}), *pods("b", 3, {"cpu": 1000})]
    problem = build_problem(gang, 6, cluster, objective=Objective.FRAGMENTATION)
    valuation = Valuation(problem)
    rng = np.random.default_rng(1)
    plans = rng.integers(0, 3, size=(40, 2, 3))
    first = valuation.costs(plans)
    assert valuation.costs(plans[::-1]).tolist() == first[::-1].tolist()
    assert Valuation(problem).costs(plans[:1]).tolist() == first[:1].tolist()


IN_ZONE_A = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))


def zoned(*, slow: str = "") -> Snapshot:
    return snapshot(
        [
            node(f"n{row}", {"cpu": 8000}, labels={"zone": zone}, taints=(Taint("slow", "", "PreferNoSchedule"),) if zone == slow else ())
            for row, zone in enumerate("abab")
        ]
    )


@pytest.mark.parametrize("objective", list(Objective))
def test_preferred_zone_outweighs_how_full_nodes_are(objective: Objective) -> None:
    gang = pods("w", 1, {"cpu": 1000}, preferred=((10, IN_ZONE_A),))
    cluster = snapshot(zoned().nodes, {"n1": {"cpu": 5000}, "n0": {"cpu": 1000}, "n2": {"cpu": 1000}})
    problem = build_problem(gang, 1, cluster, objective=objective)
    costs = Valuation(problem).costs(np.eye(4, dtype=np.int64)[:, None, :])
    assert sorted(np.argsort(costs)[:2].tolist()) == [0, 2]


@pytest.mark.parametrize("objective", list(Objective))
def test_node_with_a_prefer_no_schedule_taint_comes_last(objective: Objective) -> None:
    problem = build_problem(pods("w", 1, {"cpu": 1000}), 1, zoned(slow="a"), objective=objective)
    costs = Valuation(problem).costs(np.eye(4, dtype=np.int64)[:, None, :])
    assert sorted(np.argsort(costs, kind="stable")[2:].tolist()) == [0, 2]


@pytest.mark.parametrize("objective", [Objective.FRAGMENTATION, Objective.BINPACK])
def test_placement_in_few_domains_costs_less_than_a_placement_in_many(objective: Objective) -> None:
    problem = build_problem(pods("w", 2, {"cpu": 8000}), 2, zoned(), objective=objective, topology="zone")
    together, apart = np.array([[[1, 0, 1, 0]], [[1, 1, 0, 0]]], dtype=np.int64)
    valuation = Valuation(problem)
    assert valuation.costs(apart[None])[0] - valuation.costs(together[None])[0] == pytest.approx(problem.weights.domains)


@pytest.mark.parametrize("objective", list(Objective))
def test_node_that_has_the_image_comes_first(objective: Objective) -> None:
    nodes = [
        node(f"n{row}", {"cpu": 8000}, images=images)
        for row, images in enumerate(((), (("small:1", 30), ("train:1", 9000)), (("small:1", 30),)))
    ]
    problem = build_problem(
        pods("w", 1, {"cpu": 1000}, images=("small:1", "train:1", "unknown:1")), 1, snapshot(nodes), objective=objective
    )
    costs = Valuation(problem).costs(np.eye(3, dtype=np.int64)[:, None, :])
    assert np.argsort(costs).tolist() == [1, 2, 0]


def test_cached_cost_of_the_pods_on_a_node_is_not_used_for_other_pods() -> None:
    cluster = snapshot([node(name, {"cpu": 16_000, GPU: 8}) for name in "abc"])
    gang = [*pods("ps", 2, {"cpu": 1000}), *pods("worker", 2, {"cpu": 2000, GPU: 1})]
    problem = build_problem(gang, 4, replace(cluster, mix=a_mix([(2, 1, 0, 4)])), objective=Objective.FRAGMENTATION)
    cached = Valuation(problem)
    # One pod more than the role has: a move is valued before the pod has left its old node.
    patterns = np.array([(ps, workers) for ps in range(4) for workers in range(4)])
    for row in range(3):
        rows = np.full(len(patterns), row)
        costs = [float(Valuation(problem).node_costs(rows[:1], pattern[None])[0]) for pattern in patterns]
        assert cached.node_costs(rows, patterns).tolist() == pytest.approx(costs)
