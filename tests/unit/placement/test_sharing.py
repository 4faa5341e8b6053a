"""Tests that drivers can hand out the GPU parts of every plan, for nodes with different drivers and GPUs of different sizes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import GpuRequest
from allaboard.model.gang import Objective
from allaboard.model.gpu_sharing import SHARES, Device, Share, Shared
from allaboard.model.node import Node
from allaboard.model.packing import PACKING
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.placement import NodeFilters, Plan, SearchSettings, build_problem, search, verify
from allaboard.placement.contest.contest import Waiting, contest_of
from allaboard.placement.contest.joint import place_together
from allaboard.placement.problem.draft import Draft, DraftPod, Packer
from allaboard.placement.remedies.causes import Repaired, cause_of
from allaboard.placement.rules.members import NO_RULES
from allaboard.placement.rules.verify import chosen_devices
from allaboard.report import reason_words
from tests.unit.placement.clusters import GI, GPU, node, pods

QUICK = SearchSettings(generations=6, min_generations=2, patience=3, population_size=12)
NUMBER = "volcano.sh/vgpu-number"
OF_ALL = (GPU, NUMBER)


def sharing(name: str, driver: str, memory_gib: Sequence[int]) -> Node:
    """Return a node whose GPUs are shared by ``driver``. ``memory_gib``: memory of each GPU."""
    devices = tuple(Device(f"GPU-{name}-{place}", gib * 1024, 10, True) for place, gib in enumerate(memory_gib))
    count = GPU if driver == "HAMi" else NUMBER
    return node(name, {"cpu": 64_000, "memory": 64 * GI, count: 10 * len(memory_gib)}, shared=Shared(driver, devices))


def part(name: str, number: int, share: Share) -> list[Pod]:
    count = GPU if share.driver == "HAMi" else NUMBER
    return pods(name, number, {"cpu": 1000, count: 1}, gpu_share=share.nominal, share=share)


def cluster(*nodes: Node) -> ClusterView:
    view = ClusterView()
    for each in nodes:
        view.upsert_node(each)
    return view


def planned(gang: Sequence[Pod], minimum: int, view: ClusterView, objective: Objective = Objective.BINPACK) -> Plan:
    return search(build_problem(gang, minimum, view.snapshot(), objective=objective), QUICK, 1)


def test_request_for_a_gpu_part_by_memory_is_a_different_fraction_of_each_nodes_gpus() -> None:
    view = cluster(sharing("large", "HAMi", [80]), sharing("small", "HAMi", [16]), sharing("tiny", "HAMi", [8]))
    problem = build_problem(part("p", 9, Share("HAMi", memory=10 * 1024)), 9, view.snapshot(), objective=Objective.BINPACK)
    assert dict(zip(problem.nodes, problem.slots[0].tolist(), strict=True)) == {"large": 8, "small": 1}
    plan = search(problem, QUICK, 1)
    assert plan.feasible
    assert verify(dict(plan.assignments), part("p", 9, Share("HAMi", memory=10 * 1024)), view.snapshot()) == ()
    assert planned(part("p", 10, Share("HAMi", memory=10 * 1024)), 10, view).feasible is not True


def test_node_without_the_driver_and_node_without_free_parts_are_refused_for_different_reasons() -> None:
    view = cluster(sharing("full", "HAMi", [16]), sharing("other", "Volcano", [16]), node("plain", {"cpu": 8000, GPU: 8}))
    half = Share("HAMi", thousandths=600)
    (one, two) = part("p", 2, half)
    view.upsert_pod(one)
    view.assume(one, "full", ["GPU-full-0"])
    (role,) = planned([two], 1, view).explanation.roles
    assert dict(role.reasons) == {Reason(Kind.SHARING, "HAMi"): 2, Reason(Kind.INSUFFICIENT, SHARES): 1}
    assert reason_words.reason(Reason(Kind.SHARING, "HAMi")) == "node(s) had no driver for this kind of GPU sharing (HAMi)"
    assert reason_words.reason(Reason(Kind.INSUFFICIENT, SHARES)) == "Insufficient parts of nvidia.com/gpu"


def test_gpus_that_are_too_small_and_a_missing_driver_are_different_reasons() -> None:
    view = cluster(sharing("small", "HAMi", [16]), sharing("other", "Volcano", [80]), node("plain", {"cpu": 8000, GPU: 8}))
    (pod,) = part("p", 1, Share("HAMi", memory=20 * 1024))
    (role,) = planned([pod], 1, view).explanation.roles
    assert dict(role.reasons) == {Reason(Kind.GPU_TOO_SMALL): 1, Reason(Kind.SHARING, "HAMi"): 2}
    assert reason_words.reason(Reason(Kind.GPU_TOO_SMALL)) == "node(s) had GPUs too small for the requested part"
    assert Reason(Kind.GPU_TOO_SMALL) in [found.reason for found in verify({pod.uid: "small"}, [pod], view.snapshot())]


def test_refusal_counts_a_node_whose_kubelet_has_no_gpu_left_once_and_as_insufficient_gpus() -> None:
    devices = (Device("GPU-a", 16 * 1024, 10, True), Device("GPU-b", 16 * 1024, 10, True))
    view = cluster(node("full", {"cpu": 8000, GPU: 1}, shared=Shared("HAMi", devices)))
    one, two = part("p", 2, Share("HAMi", thousandths=100))
    view.upsert_pod(one)
    view.assume(one, "full", ["GPU-a"])
    (role,) = planned([two], 1, view).explanation.roles
    assert dict(role.reasons) == {Reason(Kind.INSUFFICIENT, GPU): 1}


@pytest.mark.parametrize("shared", [Shared("HAMi"), Shared("HAMi", (Device("GPU-a", 0, 10, False),))])
def test_no_pod_is_placed_where_the_driver_lists_no_usable_gpu(shared: Shared) -> None:
    view = cluster(node("a", {"cpu": 8000, GPU: 10}, shared=shared))
    for gang in (part("p", 1, Share("HAMi", thousandths=100)), pods("w", 1, {GPU: 1})):
        assert planned(gang, 1, view).feasible is False
        assert verify({gang[0].uid: "a"}, gang, view.snapshot())


def test_pod_with_whole_gpus_in_two_containers_is_kept_off_nodes_that_share_gpus() -> None:
    view = cluster(sharing("a", "HAMi", [16]), node("plain", {"cpu": 8000, GPU: 1}))
    gang = pods("w", 1, {GPU: 1}, device_container=-1)
    assert dict(planned(gang, 1, view).assignments) == {"w-0": "plain"}
    assert [found.reason for found in verify({"w-0": "a"}, gang, view.snapshot())] == [Reason(Kind.GPU_CONTAINER)]


@pytest.mark.parametrize(("container", "most"), [(0, ("shared", 2)), (-1, ("plain", 1))])
def test_cause_names_the_node_with_the_most_free_gpus_also_among_nodes_that_share_gpus(container: int, most: tuple[str, int]) -> None:
    view = cluster(sharing("shared", "HAMi", [16, 16, 16]), node("plain", {"cpu": 8000, GPU: 1}))
    (one,) = part("p", 1, Share("HAMi", thousandths=100))
    view.upsert_pod(one)
    view.assume(one, "shared", ["GPU-shared-0"])
    gang = pods("w", 1, {GPU: 3}, device_container=container, gpus=GpuRequest(number=3))
    cause = cause_of(gang, 1, view.snapshot(), filters=NodeFilters(), repaired=Repaired())
    assert (cause.resource, cause.requested, cause.node, cause.most) == (GPU, 3, *most)


shares = st.builds(
    Share, st.sampled_from(["HAMi", "HAMi", "Volcano"]), st.just(1), st.sampled_from([0, 100, 334, 500]),
    st.sampled_from([0, 4096, 10_240]),
    st.sampled_from([0, 30, 70]),
)  # fmt: skip
nodes = st.one_of(
    st.tuples(st.sampled_from(["HAMi", "Volcano"]), st.lists(st.sampled_from([8, 16, 16, 80]), min_size=1, max_size=3)),
    st.tuples(st.just(""), st.lists(st.just(0), max_size=3)),
)


def drawn(kinds: Sequence[tuple[str, Sequence[int]]]) -> ClusterView:
    made = (
        sharing(f"n{index}", driver, memory_gib) if driver else node(f"n{index}", {"cpu": 8000, GPU: len(memory_gib)})
        for index, (driver, memory_gib) in enumerate(kinds)
    )
    return cluster(*made)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(nodes, min_size=1, max_size=4),
    st.lists(st.tuples(shares, st.integers(1, 4)), max_size=3),
    st.integers(0, 3),
    st.integers(0, 12),
    st.sampled_from(list(Objective)),
)
def test_gpu_parts_of_a_plan_can_be_handed_out(
    kinds: list[tuple[str, list[int]]], parts: list[tuple[Share, int]], whole: int, minimum: int, objective: Objective
) -> None:
    view = drawn(kinds)
    gang = [pod for kind, (share, number) in enumerate(parts) for pod in part(f"p{kind}", number, share)] + pods("w", whole, {GPU: 1})
    if not gang:
        return
    plan = planned(gang, min(minimum, len(gang)), view, objective)
    assert verify(dict(plan.assignments), gang, view.snapshot()) == ()
    given_to = chosen_devices(dict(plan.assignments), gang, view.snapshot())
    assert all(len(devices) == 1 for devices in given_to.values())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(nodes, min_size=1, max_size=3),
    st.lists(st.lists(st.tuples(shares, st.integers(1, 3)), min_size=1, max_size=2), min_size=2, max_size=3),
    st.integers(0, 2),
)
def test_gpu_parts_of_several_gangs_placed_together_can_be_handed_out(
    kinds: list[tuple[str, list[int]]], gangs: list[list[tuple[Share, int]]], whole: int
) -> None:
    view = drawn(kinds)
    members = [
        [pod for kind, (share, number) in enumerate(gang) for pod in part(f"g{index}p{kind}", number, share)]
        for index, gang in enumerate(gangs)
    ]
    if whole:
        members.append(pods("w", whole, {GPU: 1}))
    waiting = [Waiting(gang, len(gang), 0, objective=Objective.BINPACK) for gang in members]
    joint = place_together(contest_of(waiting, view.snapshot()), QUICK)
    for gang, plan in zip(members, joint.plans, strict=True):
        assert plan is None or verify(dict(plan.assignments), gang, view.snapshot()) == ()


def test_problem_built_from_a_draft_equals_the_problem_built_directly() -> None:
    view = cluster(sharing("a", "HAMi", [16, 80]), sharing("b", "Volcano", [16]), node("c", {"cpu": 8000, GPU: 2}))
    gang = part("p", 2, Share("HAMi", memory=9000))
    snapshot = view.snapshot()
    here = build_problem(gang, 2, snapshot, objective=Objective.BINPACK)
    asking = [DraftPod(pod.uid, pod.spec) for pod in gang]
    packed = Packer().packed(snapshot.nodes)
    there = Draft(asking, 2, replace(snapshot, nodes=()), packed, Objective.BINPACK, PACKING, "", NO_RULES).built()
    assert (here.nodes, here.shares.tolist(), here.slots.tolist()) == (there.nodes, there.shares.tolist(), there.slots.tolist())
    assert here.roles[0].refusals == there.roles[0].refusals
