"""Tests that gangs which contend for the same slots are placed together."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.constraints import HostPort
from allaboard.model.gang import Objective
from allaboard.model.node import Node
from allaboard.model.packing import PACKING
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search, verify
from allaboard.placement.contest.contest import Waiting, contest_of, may_contend
from allaboard.placement.contest.joint import Joint, place_together
from allaboard.placement.rules.devices import WHOLE
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from tests.unit.placement.clusters import GI, GPU, cases, node, pods, snapshot
from tests.unit.placement.solvers.test_search import demo
from tests.unit.placement.tight_gang import tight_cluster, tight_gang

QUICK = SearchSettings(generations=8, min_generations=2, patience=3, population_size=12)
BINPACK = Objective.BINPACK
HOST_PORT = (HostPort("", "TCP", 80),)


def waiting(gang: Sequence[Pod], minimum: int | None = None, *, seed: int = 0, **fields: object) -> Waiting:
    """Return a waiting gang. All its members are needed unless ``minimum`` is given."""
    return Waiting(gang, len(gang) if minimum is None else minimum, seed, **{"objective": BINPACK, **fields})  # type: ignore[arg-type]


def together(gangs: Sequence[Waiting], cluster: Snapshot, options: SearchSettings = QUICK) -> Joint:
    return place_together(contest_of(gangs, cluster), options)


def placed(joint: Joint) -> list[int]:
    return [position for position, plan in enumerate(joint.plans) if plan]


def gpu_nodes(number: int, gpus: int = 8) -> list[Node]:
    return [node(f"node-{index}", {"cpu": 64_000, "memory": 256 * GI, GPU: gpus}) for index in range(number)]


def gpus(name: str, number: int, each: int = 1) -> list[Pod]:
    return pods(name, number, {"cpu": 1000, GPU: each})


# Which gangs are placed


def test_gang_that_would_keep_out_two_larger_gangs_waits() -> None:
    queue = [waiting(gpus("small", 2)), waiting(gpus("a", 1, 8)), waiting(gpus("b", 1, 8))]

    joint = together(queue, snapshot(gpu_nodes(2)))

    assert placed(joint) == [1, 2]
    assert joint.gpus == (10 * WHOLE, 16 * WHOLE)


def test_no_other_order_is_tried_when_all_gangs_fit_in_queue_order() -> None:
    joint = together([waiting(gpus(f"gang-{index}", 4)) for index in range(4)], snapshot(gpu_nodes(2)))

    assert (placed(joint), joint.orders) == ([0, 1, 2, 3], 1)


def test_each_plan_of_a_joint_search_reports_the_generations_of_the_search_for_an_order_of_gangs() -> None:
    queue = [waiting(gpus("pair", 2, 3)), waiting(gpus("trio", 3, 3)), *(waiting(gpus(f"one-{index}", 1, 4)) for index in range(6))]

    joint = place_together(contest_of(queue, snapshot(gpu_nodes(3))), QUICK, use_solver=False)

    assert joint.generations
    for plan in joint.plans:
        if plan is not None:
            assert (plan.search.steps[0].name, plan.search.steps[0].generations) == ("joint", joint.generations)
            assert plan.search.generations == sum(step.generations for step in plan.search.steps)
            assert (plan.search.steps[-1].placed, plan.search.steps[-1].score) == (len(plan.assignments), plan.search.score)


@pytest.mark.parametrize("seed", range(3))
def test_sixteen_of_the_twenty_demo_pods_are_placed_as_single_pods(seed: int) -> None:
    gang, cluster = demo()
    gang = random.Random(seed).sample(gang, len(gang))

    joint = together([waiting([pod], seed=seed) for pod in gang], cluster, SearchSettings())

    assert len(placed(joint)) == 16


def test_gang_that_uses_more_free_cpu_is_placed_when_no_gang_requests_gpus() -> None:
    queue = [waiting(pods("small", 1, {"cpu": 2000})), waiting(pods("large", 1, {"cpu": 8000}))]

    assert placed(together(queue, snapshot([node("node", {"cpu": 8000, "memory": 8 * GI})]))) == [1]


def test_gang_with_more_members_is_placed_when_two_gangs_request_the_same_gpus() -> None:
    queue = [waiting(gpus("one", 1, 8)), waiting(gpus("eight", 8, 1))]

    assert placed(together(queue, snapshot(gpu_nodes(1)))) == [1]


def test_members_beyond_the_minimum_get_only_capacity_that_all_minima_leave() -> None:
    queue = [waiting(gpus("first", 8), 2), waiting(gpus("second", 4))]

    joint = together(queue, snapshot(gpu_nodes(1)))

    assert [len(plan.assignments) if plan else 0 for plan in joint.plans] == [4, 4]
    assert joint.plans[0] is not None
    assert joint.plans[0].unplaced == ("first-4", "first-5", "first-6", "first-7")


def test_each_role_gets_the_members_that_it_requires() -> None:
    server, workers = pods("ps", 2, {"cpu": 1000}), gpus("worker", 6)
    parts = [({pod.uid for pod in server}, 2), ({pod.uid for pod in workers}, 1)]
    queue = [waiting([*workers, *server], 3, rules=Rules(parts)), waiting(gpus("other", 7))]

    joint = together(queue, snapshot(gpu_nodes(1)))

    assert placed(joint) == [0, 1]
    assert joint.plans[0] is not None
    assert sorted(uid.split("-")[0] for uid, _ in joint.plans[0].assignments) == ["ps", "ps", "worker"]


def test_younger_gang_waits_that_older_gangs_leave_no_capacity() -> None:
    queue = [waiting(gpus("a", 1, 8)), waiting(gpus("b", 1, 8)), waiting(gpus("small", 2))]

    joint = together(queue, snapshot(gpu_nodes(2)))

    assert placed(joint) == [0, 1]


def test_gang_that_uses_all_gpus_is_placed_instead_of_two_that_use_fewer() -> None:
    queue = [waiting(gpus("small", 2)), waiting(gpus("large", 16)), waiting(gpus("young", 8))]

    joint = together(queue, snapshot(gpu_nodes(2)))

    assert joint.gpus == (10 * WHOLE, 16 * WHOLE)
    assert placed(joint) == [1]


def test_order_that_places_more_gangs_wins_if_equally_many_gpus_are_used() -> None:
    queue = [waiting(gpus("large", 8)), waiting(gpus("a", 4)), waiting(gpus("b", 4))]

    joint = together(queue, snapshot(gpu_nodes(1)))

    assert joint.gpus == (8 * WHOLE, 8 * WHOLE)
    assert placed(joint) == [1, 2]


def test_gangs_without_gpus_are_selected_by_their_cpu_when_all_gpus_are_in_use() -> None:
    queue = [waiting(gpus("gpu", 1)), waiting(pods("small", 1, {"cpu": 2000})), waiting(pods("large", 1, {"cpu": 7000}))]

    assert placed(together(queue, snapshot([node("n", {"cpu": 8000, "memory": 8 * GI, GPU: 1})]))) == [0, 2]


@pytest.mark.parametrize("objective", list(Objective))
def test_member_that_uses_a_gpu_is_not_replaced_by_a_member_that_uses_none(objective: Objective) -> None:
    gang = [*pods("gpu", 1, {"cpu": 2000, GPU: 1}), *pods("cpu", 2, {"cpu": 1000})]
    queue = [waiting(gang, 1, objective=objective), waiting(pods("other", 1, {"cpu": 2000}), objective=objective)]

    joint = together(queue, snapshot([node("n", {"cpu": 4000, GPU: 1})]))

    assert joint.gpus[1] == WHOLE
    assert "gpu-0" in {uid for plan in joint.plans if plan for uid, _ in plan.assignments}


@given(st.lists(st.integers(1, 8), min_size=2, max_size=9), st.integers(4, 20))
@settings(max_examples=60, deadline=None)
def test_no_other_selection_of_gangs_uses_more_gpus_or_as_many_gpus_for_more_gangs(sizes: list[int], free: int) -> None:
    """The cluster is one node, so the test can try all selections of the gangs."""
    queue = [waiting(gpus(f"g{number}", 1, each=size), seed=number) for number, size in enumerate(sizes)]
    every = itertools.chain.from_iterable(itertools.combinations(sizes, number) for number in range(len(sizes) + 1))
    best = max((sum(chosen), len(chosen)) for chosen in every if sum(chosen) <= free)
    for single in (True, False):
        if not single:
            queue = [waiting(gpus(f"g{number}", size), seed=number) for number, size in enumerate(sizes)]
        joint = together(queue, snapshot(gpu_nodes(1, free)))
        assert (joint.gpus[1] // WHOLE, len(joint.taken)) == best


def test_single_pods_take_the_fuller_of_two_nodes_that_cost_the_same() -> None:
    """With a flat packing shape, the cost of a node doesn't depend on how full the node is."""
    cluster = snapshot([node(name, {"cpu": 8000}) for name in "ab"], {"b": {"cpu": 4000}})
    queue = [waiting(pods(f"g{number}", 1, {"cpu": 1000})) for number in range(2)]
    flat = replace(PACKING, shape=((0, 5), (100, 5)))
    joint = place_together(contest_of(queue, cluster, NodeFilters(), flat), QUICK)
    assert [plan.assignments[0][1] for plan in joint.plans if plan] == ["b", "b"]


# Placements that gangs would get one after another


@pytest.mark.parametrize("first", [True, False])
def test_tight_gang_that_only_a_search_places_is_placed_beside_another_gang(first: bool) -> None:
    cluster, gang = tight_cluster(), list(tight_gang())
    hopeless = waiting(pods("hopeless", 1, {"cpu": 10**9}), seed=1)
    queue = [waiting(gang), hopeless] if first else [hopeless, waiting(gang)]

    assert placed(together(queue, cluster, SearchSettings())) == [0 if first else 1]


def test_joint_search_for_one_gang_gives_the_plan_of_a_plain_search() -> None:
    gang = [*pods("ps", 1, {"cpu": 1000}), *gpus("worker", 4)]
    cluster = snapshot(gpu_nodes(2))

    joint = together([waiting(gang, seed=7)], cluster)

    assert joint.plans == (search(build_problem(gang, 5, cluster, objective=BINPACK), QUICK, 7),)


def test_host_port_of_a_node_is_given_to_one_gang_only() -> None:
    queue = [waiting(pods(f"web-{index}", 1, {"cpu": 1000}, host_ports=HOST_PORT)) for index in range(3)]

    joint = together(queue, snapshot(gpu_nodes(2)))

    assert len({plan.assignments[0][1] for plan in joint.plans if plan}) == 2


def test_gang_with_a_topology_is_placed_in_one_domain_if_possible() -> None:
    nodes = [replace(one, labels={"rack": "ab"[index % 2]}) for index, one in enumerate(gpu_nodes(4, gpus=4))]
    queue = [waiting(gpus("gang", 8), topology="rack", objective=Objective.FRAGMENTATION), waiting(gpus("x", 9)), waiting(gpus("y", 8))]

    joint = together(queue, snapshot(nodes))

    assert joint.plans[0] is not None
    assert len({int(name[-1]) % 2 for _, name in joint.plans[0].assignments}) == 1


# Shared GPUs


def shared(name: str, part: int) -> list[Pod]:
    return pods(name, 1, {"cpu": 1000}, gpu_share=part)


def with_devices(devices: Sequence[Sequence[int]]) -> Snapshot:
    cluster = snapshot(gpu_nodes(len(devices), gpus=len(devices[0])))
    return replace(cluster, devices=np.array(devices, dtype=np.int64), mix=())


def test_parts_of_gpus_are_counted_on_each_device() -> None:
    queue = [waiting(shared("a", 600)), waiting(shared("b", 600)), waiting(shared("c", 400)), waiting(gpus("whole", 1))]

    joint = together(queue, with_devices([[1000, 1000]]))

    # 600 and 400 thousandths share one GPU, the whole GPU is the other. The second 600 would keep the whole GPU out.
    assert joint.gpus[1] == 2000
    assert len(placed(joint)) == 3


# Properties of any queue


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[Waiting], Snapshot]:
    first = draw(cases(most_roles=3, most_pods=3))
    gangs = []
    for index in range(draw(st.integers(1, 5))):
        case = first if index == 0 else draw(cases(most_nodes=0, most_roles=3, most_pods=3))
        gang = [replace(pod, uid=f"{index}/{pod.uid}", name=f"{index}-{pod.name}") for pod in case.gang]
        minimum = max(1, case.minimum)
        some = [pod.uid for pod in draw(st.lists(st.sampled_from(gang), max_size=3, unique_by=lambda pod: pod.uid))]
        parts = [(some, 1)] if some and draw(st.booleans()) else []
        group = [TogetherRule("zone", some)] if some and draw(st.booleans()) else []
        gangs.append(Waiting(gang, minimum, case.seed, case.objective, rules=Rules(parts, group)))
    return gangs, first.cluster


@given(queues())
@settings(max_examples=60, deadline=None)
def test_all_plans_of_a_queue_fit_on_the_cluster_together(drawn: tuple[list[Waiting], Snapshot]) -> None:
    queue, cluster = drawn

    joint = together(queue, cluster)

    all_pods = [pod for gang in queue for pod in gang.pods]
    assignments = dict(pair for plan in joint.plans if plan for pair in plan.assignments)
    assert verify(assignments, all_pods, cluster) == ()
    assert sorted(joint.taken) == placed(joint)
    for gang, plan in zip(queue, joint.plans, strict=True):
        if plan:
            placed_pods = [pod for pod in gang.pods if pod.uid in dict(plan.assignments)]
            assert len(placed_pods) >= gang.minimum
            assert sorted([*dict(plan.assignments), *plan.unplaced]) == sorted(pod.uid for pod in gang.pods)
            assert all(sum(pod.uid in part for pod in placed_pods) >= least for part, least in gang.rules.parts)
            zones = {one.name: one.labels["zone"] for one in cluster.nodes}
            node_of = dict(plan.assignments)
            assert all(len({zones[node_of[uid]] for uid in rule.members if uid in node_of}) <= 1 for rule in gang.rules.couplings)


@given(queues())
@settings(max_examples=40, deadline=None)
def test_equal_queues_get_equal_plans(drawn: tuple[list[Waiting], Snapshot]) -> None:
    queue, cluster = drawn
    before = random.getstate()

    assert together(queue, cluster) == together(queue, cluster)
    assert random.getstate() == before


@given(queues())
@settings(max_examples=60, deadline=None)
def test_plans_use_no_fewer_gpus_than_queue_order(drawn: tuple[list[Waiting], Snapshot]) -> None:
    queue, cluster = drawn

    joint = together(queue, cluster)

    assert joint.gpus[1] >= joint.gpus[0]
    asked = {pod.uid: pod.spec.amount(GPU) * WHOLE + pod.spec.gpu_share for gang in queue for pod in gang.pods}
    assert sum(asked[uid] for plan in joint.plans if plan for uid, _ in plan.assignments) >= joint.gpus[1]


@given(queues())
@settings(max_examples=60, deadline=None)
def test_gangs_that_cannot_contend_are_all_placed(drawn: tuple[list[Waiting], Snapshot]) -> None:
    queue, cluster = drawn
    contest = contest_of(queue, cluster)

    if not may_contend(contest):
        assert all(place_together(contest, QUICK).plans)


def test_gangs_cannot_contend_on_a_cluster_with_plenty_of_capacity() -> None:
    contest = contest_of([waiting(gpus(f"pod-{index}", 1)) for index in range(64)], snapshot(gpu_nodes(20)), NodeFilters())

    assert not may_contend(contest)
    assert may_contend(contest_of([waiting(gpus("a", 8)), waiting(gpus("b", 9))], snapshot(gpu_nodes(2))))


def test_gang_whose_members_must_share_a_rack_may_contend() -> None:
    racks = [node(f"n{row}", {"cpu": 8000, GPU: 1}, labels={"rack": rack}) for row, rack in enumerate("aabc")]
    pair = gpus("pair", 2)
    gangs = [waiting(gpus("one", 1)), waiting(pair, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in pair})]))]
    assert may_contend(contest_of(gangs, snapshot(racks)))
    assert placed(together(gangs, snapshot(racks))) == [0, 1]


def test_pod_that_requests_more_than_can_be_counted_keeps_no_gang_out() -> None:
    greedy = pods("greedy", 1, {f"nvidia.com/mig-{part}g": 2**50 for part in range(9)})
    joint = together([waiting(greedy), waiting(gpus("one", 1))], snapshot(gpu_nodes(1)))
    assert placed(joint) == [1]
