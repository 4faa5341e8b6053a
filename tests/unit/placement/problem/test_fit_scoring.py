"""With a kube-scheduler profile, pods go to the nodes with the most points of that profile."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.fit import Era, FitScoring, Strategy
from allaboard.model.gang import Objective
from allaboard.model.requests import Requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import SearchSettings, build_problem, search
from allaboard.placement.contest.contest import Waiting, contest_of
from allaboard.placement.contest.joint import place_together
from allaboard.placement.problem.valuation import Valuation
from tests.unit.placement.clusters import GI, GPU, node, pods, snapshot

FULLER = ((0, 0), (100, 10))
OBJECTIVES = {Strategy.RATIO: Objective.BINPACK, Strategy.MOST: Objective.BINPACK, Strategy.LEAST: Objective.SPREAD}


def chosen_nodes(
    fit: FitScoring, cluster: Snapshot, number: int = 1, asks: dict[str, int] | None = None, unstated: Requests = ()
) -> list[str]:
    asks = {"cpu": 1000, "memory": GI} if asks is None else asks
    gang = [replace(pod, spec=replace(pod.spec, unstated=unstated)) for pod in pods("a", number, asks)]
    problem = build_problem(gang, number, cluster, objective=OBJECTIVES[fit.strategy], packing=fit)
    return sorted(name for _, name in search(problem, SearchSettings(), 1).assignments)


@given(
    st.sampled_from(Strategy), st.sampled_from(Era), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 8)), min_size=1, max_size=8)
)
def test_pod_goes_to_the_node_with_the_most_points(strategy: Strategy, era: Era, taken: list[tuple[int, int]]) -> None:
    offered = {"cpu": 7000, "memory": 11 * GI}
    nodes = [node(f"n{number}", offered) for number in range(len(taken))]
    used = {f"n{number}": {"cpu": cpu, "memory": memory * GI} for number, (cpu, memory) in enumerate(taken)}
    fit = FitScoring(strategy, era, (("cpu", 2), ("memory", 1)), ((0, 1), (30, 9), (60, 2), (100, 8)))

    (chosen,) = chosen_nodes(fit, snapshot(nodes, used), asks={"cpu": 900, "memory": 2 * GI})

    requested = np.array([[cpu + 900 for cpu, _ in taken], [(memory + 2) * GI for _, memory in taken]])
    points = fit.scores(requested, np.array([[7000], [11 * GI]]))
    assert points[int(chosen[1:])] == points.max()


def test_node_without_gpus_counts_as_full_only_in_old_profiles() -> None:
    cluster = snapshot([node("gpu", {"cpu": 4000, "memory": 8 * GI, GPU: 4}), node("plain", {"cpu": 5000, "memory": 8 * GI})])
    resources = (("cpu", 1), (GPU, 1))
    assert chosen_nodes(FitScoring(Strategy.RATIO, Era.V1ALPHA, resources, ((0, 0), (100, 100))), cluster) == ["plain"]
    assert chosen_nodes(FitScoring(Strategy.RATIO, Era.TODAY, resources, FULLER), cluster) == ["gpu"]


@pytest.mark.parametrize(("strategy", "nodes"), [(Strategy.MOST, 1), (Strategy.RATIO, 1), (Strategy.LEAST, 4)])
def test_gang_is_packed_or_spread_by_its_profile(strategy: Strategy, nodes: int) -> None:
    cluster = snapshot([node(f"n{number}", {"cpu": 8000, "memory": 16 * GI}) for number in range(4)])
    assert len(set(chosen_nodes(FitScoring(strategy, Era.TODAY, shape=FULLER), cluster, 4))) == nodes


def test_each_member_is_scored_with_the_earlier_members_in_place() -> None:
    cluster = snapshot([node("n", {"cpu": 8000, "memory": 16 * GI})])
    fit = FitScoring(Strategy.RATIO, Era.TODAY, (("cpu", 1),), ((0, 0), (60, 10), (100, 0)))
    problem = build_problem(pods("a", 4, {"cpu": 1500, "memory": GI}), 4, cluster, objective=Objective.BINPACK, packing=fit)
    # The members fill 18, 37, 56 and 75 percent of the cpu, which is 30, 61, 93 and 63 points.
    assert Valuation(problem).scores(np.array([[[4]]]))[0] == pytest.approx((30 + 61 + 93 + 63) / 4)


def test_assumed_requests_count_for_the_pod_and_for_pods_on_the_node() -> None:
    nodes = [node("bare", {"cpu": 1000, "memory": 8 * GI}), node("idle", {"cpu": 1000, "memory": 8 * GI})]
    cluster = snapshot(nodes, {"bare": {"cpu": 100}, "idle": {"cpu": 200}})
    unstated = np.array([[200, 0], [0, 0]])  # two containers without a request are on the first node
    fit = FitScoring(Strategy.MOST, Era.TODAY, (("cpu", 1),))
    assert chosen_nodes(fit, cluster, asks={}, unstated=(("cpu", 100),)) == ["idle"]
    assert chosen_nodes(fit, replace(cluster, unstated=unstated), asks={}, unstated=(("cpu", 100),)) == ["bare"]


def test_disabled_plugin_has_weight_zero() -> None:
    fit = FitScoring(Strategy.MOST, Era.TODAY, weight=7, affinity=0, taints=0, images=5)
    weights = build_problem(
        pods("a", 1, {"cpu": 1}), 1, snapshot([node("n", {"cpu": 10})]), objective=Objective.BINPACK, packing=fit
    ).weights
    assert (weights.packing, weights.affinity, weights.taints, weights.images, weights.spreading) == (7, 0, 0, 5, 0)


@given(st.sampled_from([Strategy.MOST, Strategy.LEAST]), st.lists(st.integers(0, 6000), min_size=2, max_size=5), st.integers(2, 8))
def test_pods_that_are_placed_together_go_where_each_would_go_alone(strategy: Strategy, taken: list[int], number: int) -> None:
    used = {f"n{row}": {"cpu": cpu} for row, cpu in enumerate(taken)}
    cluster = snapshot([node(name, {"cpu": 8000}) for name in used], used)
    fit = FitScoring(strategy, Era.TODAY, (("cpu", 1),))
    alone = [pods(f"p{each}", 1, {"cpu": 700}) for each in range(number)]
    gangs = [Waiting(pod, 1, 0, OBJECTIVES[strategy]) for pod in alone]

    joint = place_together(contest_of(gangs, cluster, packing=fit), SearchSettings(generations=2), use_genetic=False)

    load = np.array(taken)
    for position in joint.taken:
        plan = joint.plans[position]
        assert plan is not None
        row = int(plan.assignments[0][1][1:])
        points = np.where(load + 700 <= 8000, fit.scores((load + 700)[None], np.full((1, len(load)), 8000)), -1)
        assert points[row] == points.max()
        load[row] += 700
