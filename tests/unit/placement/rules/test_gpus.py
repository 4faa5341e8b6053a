"""Tests GPU rules by labels: the arrays, the last check and a plain count agree, and no plan over-commits GPUs."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.gang import Objective
from allaboard.model.gpu_inventory import GpuInventory, GpuPolicy, gpus_of
from allaboard.model.gpu_request import with_gpus
from allaboard.model.gpunames import canonical
from allaboard.model.gpus import Measure
from allaboard.model.pod import Pod
from allaboard.model.requests import as_requests
from allaboard.model.snapshot import Snapshot
from allaboard.placement import NodeFilters, SearchSettings, build_problem, search, verify
from allaboard.placement.rules.gpus import gpu_rules, refusals_by_gpus
from allaboard.report.reason_words import reason
from tests.unit.model.gpus import MODELS, Known, cards_of, nodes
from tests.unit.placement.clusters import GPU, in_words, pods

ASKS = st.builds(
    GpuRequest,
    number=st.integers(0, 3),
    memory_each=st.none() | st.sampled_from((0, 4096, 15359, 15360)),
    memory_total=st.none() | st.sampled_from((0, 15360, 30720, 50000)),
    model=st.sampled_from(("", "T4", "a100.sxm4", "tesla|odd")),
    is_charged=st.booleans(),
)
WANTED = {"T4": ("t4",), "a100.sxm4": ("a100 sxm4",), "tesla|odd": ("tesla", "odd")}


def view_of(found: Sequence[Known], policy: GpuPolicy | None = None) -> ClusterView:
    view = ClusterView(policy=policy or GpuPolicy())
    for known in found:
        view.upsert_node(known.node)
    view.observe_cards(cards_of(found))
    return view


def plain_refusals(asked: GpuRequest, known: Known, policy: GpuPolicy) -> set[str]:
    """Return why a node is refused, counted with plain lists."""
    label, memory = known.labels.get("nvidia.com/gpu.product", ""), known.labels.get("nvidia.com/gpu.memory", "")
    cards = []
    for kind, measured in known.cards or [(-1, {})] * known.gpus:
        if measured.get(Measure.XID, 0) in (0, 13) and not measured.get(Measure.REMAP_FAILURE, 0):
            has = measured.get(Measure.FREE, measured.get(Measure.MEMORY, float(memory) if memory.isdigit() else math.nan))
            cards.append(([MODELS[kind] if kind >= 0 else "", label], has))
    needed, found = max(1, asked.number), set()
    if asked.model:
        names = [[canonical(name).lower() for name in each] for each, _ in cards]
        good = sum(any(word in name for name in each for word in WANTED[asked.model]) for each in names)
        nameless = sum(not any(each) for each in names)
        if good < needed:
            found.add("node(s) had GPUs of unknown model" if good + nameless >= needed else "node(s) didn't match gpu-model")
    if asked.number and not asked.is_charged and len(cards) < asked.number:
        found.add("node(s) didn't match gpu-number")
    each = asked.memory_each
    unread = 0 if policy.unknown_fits else sum(math.isnan(free) for _, free in cards)
    if each is not None:
        good = sum(policy.unknown_fits if math.isnan(free) else free > each for _, free in cards)
        if good < needed:
            found.add(
                "node(s) had GPUs of unknown memory" if unread and good + unread >= needed else "node(s) didn't match gpu-memory-each"
            )
    if asked.memory_total is not None:
        is_unknown = any(math.isnan(free) for _, free in cards)
        enough = sum(free for _, free in cards if not math.isnan(free)) >= asked.memory_total
        if not cards or not (enough or (is_unknown and policy.unknown_fits)):
            found.add("node(s) had GPUs of unknown memory" if is_unknown else "node(s) didn't match gpu-memory-total")
    return found


@settings(max_examples=300)
@given(nodes(), ASKS, st.booleans())
def test_gpu_arrays_and_the_check_before_the_bind_agree_with_a_plain_count(
    found: list[Known], asked: GpuRequest, unknown_fits: bool
) -> None:
    policy = GpuPolicy(unknown_fits=unknown_fits)
    table = gpus_of([known.node for known in found], cards_of(found), policy)
    rules = list(gpu_rules(asked, table, len(found)))
    for row, known in enumerate(found):
        expected = plain_refusals(asked, known, policy)
        assert {reason(why) for why, mask in rules if not mask[row]} == expected
        assert {reason(why) for why in refusals_by_gpus(asked, table, row)} == expected


@given(nodes(), ASKS)
def test_gpu_filters_count_a_node_under_each_reason_and_notice_changed_metrics(found: list[Known], asked: GpuRequest) -> None:
    view, filters = view_of(found), NodeFilters()
    spec = SchedulingSpec((("pods", 1),), gpus=asked)
    snapshot = view.snapshot()
    expected = [plain_refusals(asked, known, GpuPolicy()) for known in sorted(found, key=lambda known: known.name)]
    for _ in range(2):
        usable = filters.usable(spec, snapshot.nodes, snapshot.gpus)
        assert usable.admitted.tolist() == [not refusals for refusals in expected]
        assert dict(in_words(usable.reasons)) == Counter(why for refusals in expected for why in refusals)
    view.observe_cards(cards_of([]))
    silent = [Known(known.name, known.gpus, known.labels) for known in sorted(found, key=lambda known: known.name)]
    now = view.snapshot()
    assert filters.usable(spec, now.nodes, now.gpus).admitted.tolist() == [
        not plain_refusals(asked, known, GpuPolicy()) for known in silent
    ]


def pods_asking(name: str, number: int, asked: GpuRequest, requested: int = 0) -> list[Pod]:
    spec = with_gpus(SchedulingSpec(as_requests({"pods": 1, "cpu": 100, GPU: requested})), asked)
    return [Pod("default", f"{name}-{row}", f"{name}-{row}", "1", 0.0, "allaboard", "", "Pending", 0, spec) for row in range(number)]


@settings(max_examples=100, deadline=None)
@given(nodes(), st.lists(st.tuples(ASKS, st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=3), st.sampled_from(Objective))
def test_no_plan_uses_more_gpus_than_are_healthy(
    found: list[Known], roles: list[tuple[GpuRequest, int, int]], objective: Objective
) -> None:
    view = view_of(found)
    gang = [pod for row, (asked, number, requested) in enumerate(roles) for pod in pods_asking(f"r{row}", number, asked, requested)]
    snapshot = view.snapshot()
    plan = search(build_problem(gang, 1, snapshot, objective=objective), SearchSettings(generations=3), seed=1)
    assert not verify(dict(plan.assignments), gang, snapshot)
    taken: Counter[str] = Counter()
    by_uid = {pod.uid: pod for pod in gang}
    for uid, name in plan.assignments:
        pod = by_uid[uid]
        view.upsert_pod(pod)
        view.assume(pod, name)
        asked = pod.spec.gpus or GpuRequest()
        taken[name] += max(pod.spec.amount(GPU), asked.number)
        known = next(each for each in found if each.name == name)
        assert not plain_refusals(asked, known, GpuPolicy())
    for known in found:
        good = (0, 13)
        bad = sum(measured.get(Measure.XID, 0) not in good or measured.get(Measure.REMAP_FAILURE, 0) > 0 for _, measured in known.cards)
        left_out = max(0, len(known.cards) - known.gpus)
        assert taken[known.name] <= known.gpus - max(0, min(bad, known.gpus) - left_out)
    now = view.snapshot()
    if (column := now.column_of(GPU)) is not None:
        assert {node.name: int(now.used[row, column]) for row, node in enumerate(now.nodes) if now.used[row, column]} == +taken


def test_all_gpu_rules_that_a_node_fails_are_reported() -> None:
    snapshot = view_of([Known("n", 2, {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"})]).snapshot()
    gang = pods_asking("p", 1, GpuRequest(3, 20000, 90000, "A100"))
    plan = search(build_problem(gang, 1, snapshot, objective=Objective.BINPACK), SearchSettings(), seed=1)
    assert in_words(plan.explanation.roles[0].reasons) == (
        ("Insufficient nvidia.com/gpu", 1),
        ("node(s) didn't match gpu-memory-each", 1),
        ("node(s) didn't match gpu-memory-total", 1),
        ("node(s) didn't match gpu-model", 1),
    )


def on_two_nodes(first: dict[Measure, float], second: dict[Measure, float], used: Sequence[int] = (0, 0)) -> Snapshot:
    found = [Known("n0", 8, {}, [(0, first)] * 8), Known("n1", 8, {}, [(0, second)] * 8)]
    view = view_of(found)
    for node, number in enumerate(used):
        for pod in pods_asking(f"there-{node}", number, GpuRequest(), 1):
            view.upsert_pod(pod)
            view.assume(pod, f"n{node}")
    return view.snapshot()


IDLE, BUSY = {Measure.POWER: 40.0, Measure.ENCODER: 0.0}, {Measure.POWER: 300.0, Measure.ENCODER: 1.0}


def chosen(snapshot: Snapshot, objective: Objective, number: int = 1) -> set[str]:
    plan = search(build_problem(pods_asking("p", number, GpuRequest(), 1), number, snapshot, objective=objective), SearchSettings(), seed=1)
    return set(dict(plan.assignments).values())


@pytest.mark.parametrize("objective", Objective)
def test_node_with_better_gpus_is_preferred_among_equal_nodes(objective: Objective) -> None:
    assert chosen(on_two_nodes(BUSY, IDLE), objective) == {"n1"}
    assert chosen(on_two_nodes(IDLE, BUSY), objective) == {"n0"}


@pytest.mark.parametrize("objective", [Objective.BINPACK, Objective.FRAGMENTATION])
def test_packing_outweighs_better_gpus(objective: Objective) -> None:
    assert chosen(on_two_nodes(BUSY, IDLE, used=(1, 0)), objective) == {"n0"}
    assert chosen(on_two_nodes(BUSY, IDLE, used=(1, 0)), objective, 7) == {"n0"}


def test_pod_without_gpus_ignores_the_score_of_gpus() -> None:
    snapshot = on_two_nodes(BUSY, IDLE)
    problem = build_problem(pods("p", 2, {"cpu": 1000}), 2, snapshot, objective=Objective.BINPACK)
    assert problem.dislike is None


def test_equal_gpus_without_metrics_have_equal_scores() -> None:
    table = gpus_of([Known(f"n{row}", 2).node for row in range(3)], cards_of([]))
    assert isinstance(table, GpuInventory)
    np.testing.assert_array_equal(table.score, 1.0)


@pytest.mark.parametrize("asked", [GpuRequest(model="T4"), GpuRequest(memory_each=100), GpuRequest(is_charged=False)])
def test_shared_gpu_counts_as_often_as_it_has_replicas(asked: GpuRequest) -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.replicas": "4"}
    table = gpus_of([Known("n", 8, labels).node], cards_of([]))
    for number, fits in ((8, True), (9, False)):
        wanted = replace(asked, number=number)
        assert [bool(mask[0]) for _, mask in gpu_rules(wanted, table, 1)] == [fits]
        assert list(refusals_by_gpus(wanted, table, 0)) is not fits
