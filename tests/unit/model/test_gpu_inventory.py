"""The inventory and the scores of GPUs equal a plain computation, GPU by GPU."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gpu_inventory import GpuPolicy, gpus_of
from allaboard.model.gpu_sharing import Device, Shared
from allaboard.model.gpumodels import MODELS as ATTRIBUTES
from allaboard.model.gpumodels import Attributes
from allaboard.model.gpunames import canonical, expression
from allaboard.model.gpus import NO_CARDS, Measure
from allaboard.model.gpuscore import ScoreWeights, graded
from allaboard.model.node import Node
from tests.unit.model.gpus import MODELS, Known, cards_of, nodes

KNOWN = {0: Attributes(16384, 40, 2, 1, 320), 1: Attributes(40960, 108, 5, 0, 1555), 2: Attributes()}
PRODUCT_KINDS = {"Tesla-T4": 0, "NVIDIA-A100-SXM4-40GB": 1, "Odd_Card": 2}
Card = tuple[int | None, dict[Measure, float]]


def plain_cards(known: Known) -> list[Card]:
    """Return the kind and the measurements of each healthy GPU; the kind is ``None`` if neither label nor exporter names it."""
    label = known.labels.get("nvidia.com/gpu.product")
    cards: list[Card] = [(kind, dict(measured)) for kind, measured in known.cards]
    cards = cards or [(PRODUCT_KINDS[label] if label else None, {}) for _ in range(known.gpus)]
    memory = known.labels.get("nvidia.com/gpu.memory", "")
    for _, measured in cards:
        if memory.isdigit():
            measured.setdefault(Measure.MEMORY, float(memory))
    return [
        (kind, measured)
        for kind, measured in cards
        if measured.get(Measure.XID, 0) in (0, 13) and not measured.get(Measure.REMAP_FAILURE, 0)
    ]


def plain_score(found: Sequence[Known], weights: ScoreWeights) -> list[float]:
    cards = [plain_cards(known) for known in found]

    def attribute(of: Callable[[Card], float | None], sign: int = 1) -> list[float | None]:
        means = []
        for each in cards:
            values = [value for card in each if (value := of(card)) is not None and not math.isnan(value)]
            means.append(sign * fmean(values) if values else None)
        there = [mean for mean in means if mean is not None]
        if not there:
            return [None] * len(means)
        if max(there) == min(there):
            return [1.0] * len(means)
        scaled = [None if mean is None else (mean - min(there)) / (max(there) - min(there)) for mean in means]
        neutral = fmean(value for value in scaled if value is not None)
        return [neutral if value is None else value for value in scaled]

    def has(name: str, measure: Measure) -> list[float | None]:
        def of(card: Card) -> float | None:
            # A value that isn't measured is that of the model, as the exporter or the label names it.
            return card[1].get(measure, getattr(KNOWN[card[0]], name) if card[0] is not None else None)

        return attribute(of)

    static = [
        (weights.memory, has("memory", Measure.MEMORY)),
        (weights.multiprocessors, has("multiprocessors", Measure.MULTIPROCESSORS)),
        (weights.decoders, has("decoders", Measure.DECODERS)),
        (weights.encoders, has("encoders", Measure.ENCODERS)),
        (weights.bandwidth, has("bandwidth", Measure.BANDWIDTH)),
    ]
    dynamic = [
        (weights.free_memory, attribute(lambda card: card[1].get(Measure.FREE))),
        (weights.power, attribute(lambda card: card[1].get(Measure.POWER), -1)),
        (weights.encoder, attribute(lambda card: card[1].get(Measure.ENCODER), -1)),
        (weights.decoder, attribute(lambda card: card[1].get(Measure.DECODER), -1)),
    ]

    def mean(parts: Sequence[tuple[float, float | None]]) -> float | None:
        known = [(weight, value) for weight, value in parts if value is not None]
        total = sum(weight for weight, _ in known)
        return sum(weight * value for weight, value in known) / total if total else None

    scores = []
    for row, each in enumerate(cards):
        halves = [mean([(weight, values[row]) for weight, values in half]) for half in (static, dynamic)]
        both = mean([(weights.static, halves[0]), (weights.dynamic, halves[1])])
        scores.append(both if each and both is not None else 1.0)
    return scores


def agreeing(found: Sequence[Known]) -> list[Known]:
    """Return ``found`` without the product label on nodes whose exporter names the model, since label and exporter may differ."""
    return [
        replace(known, labels={key: value for key, value in known.labels.items() if "product" not in key}) if known.cards else known
        for known in found
    ]


WEIGHTS = st.builds(ScoreWeights, *(st.sampled_from((0.0, 1.0, 2.0)) for _ in range(11)))


@settings(max_examples=300)
@given(nodes(), WEIGHTS)
def test_scores_equal_a_plain_computation_node_by_node(found: list[Known], weights: ScoreWeights) -> None:
    found = agreeing(found)
    table = gpus_of([known.node for known in found], cards_of(found), GpuPolicy(weights=weights))
    if table is None:
        assert not any(known.gpus or known.cards for known in found)
        return
    np.testing.assert_allclose(table.score, plain_score(found, weights), atol=1e-6)


def unwell_devices(known: Known) -> int:
    """Return how many of the node's devices belong to unhealthy GPUs, not counting devices that the node no longer offers."""
    unwell = len(known.cards) - len(plain_cards(known)) if known.cards else 0
    return max(0, min(unwell, known.gpus) - max(0, len(known.cards) - known.gpus))


@pytest.mark.parametrize(
    ("gpus", "labels", "xids", "unwell"),
    [
        (8, {}, [79], 1),  # the exporter reports only one of eight GPUs
        (8, {}, [79] * 20, 0),
        (8, {}, [79] * 8, 8),
        (8, {}, [0] * 6 + [79] * 2, 2),
        (7, {"nvidia.com/gpu.count": "8"}, [0] * 7 + [79], 0),  # the kubelet has left it out
        (8, {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}, [0, 79], 4),
        (8, {"nvidia.com/gpu.replicas": "4"}, [0, 79], 4),
    ],
)
def test_an_unhealthy_gpu_takes_only_its_own_devices_from_a_node(gpus: int, labels: dict[str, str], xids: list[int], unwell: int) -> None:
    known = Known("n", gpus, labels, [(0, {Measure.XID: float(xid)}) for xid in xids])
    table = gpus_of([known.node], cards_of([known]))
    assert table is not None
    assert table.unwell.tolist() == [unwell]


@given(nodes())
def test_the_inventory_has_the_healthy_gpus_that_exporters_or_labels_report(found: list[Known]) -> None:
    table = gpus_of([known.node for known in found], cards_of(found))
    for row, known in enumerate(found if table is not None else ()):
        assert table is not None
        well = plain_cards(known)
        here = [card for card, kind in enumerate(table.kind[row].tolist()) if kind >= 0]
        assert len(here) == len(well)
        expected = [measured.get(Measure.FREE, measured.get(Measure.MEMORY, math.nan)) for _, measured in well]
        np.testing.assert_array_equal(table.free[row, here], expected)
        assert table.unwell[row] == unwell_devices(known)


def test_memory_that_is_not_measured_is_read_from_labels_or_else_unknown() -> None:
    def memory(**labels: str) -> float:
        stated = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        table = gpus_of([Known("n", 1, stated).node], NO_CARDS)
        assert table is not None
        return float(table.free[0, 0])

    assert memory(**{"nvidia.com__gpu_memory": "15360"}) == 15360
    assert memory(**{"amd.com__gpu_vram": "64G"}) == 65536
    assert memory(**{"gpu.intel.com__memory_max": str(16 * 2**30)}) == 16384
    assert math.isnan(memory(**{"amd.com__gpu_vram": "lots"}))
    assert math.isnan(memory())


@pytest.mark.parametrize(
    ("labels", "cards"),
    [({}, 8), ({"nvidia.com/gpu.replicas": "4"}, 2), ({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}, 2)],
)
def test_time_sliced_gpus_are_counted_once(labels: dict[str, str], cards: int) -> None:
    table = gpus_of([Known("n", 8, labels).node], NO_CARDS)
    assert table is not None
    assert int(table.is_here.sum()) == cards
    assert cards * int(table.replicas[0]) == 8


def test_a_cluster_without_gpus_has_no_inventory() -> None:
    assert gpus_of([Node("n", "n", (("cpu", 1000),))], NO_CARDS) is None
    assert gpus_of([], NO_CARDS) is None


def test_settings_decide_which_gpus_count_as_unhealthy() -> None:
    known = Known("n", 2, {}, [(0, {Measure.XID: 79.0}), (0, {Measure.XID: 31.0})])
    for policy, well in ((GpuPolicy(), 1), (GpuPolicy(excludes_unhealthy=False), 2), (GpuPolicy(application_errors=(79, 31)), 2)):
        table = gpus_of([known.node], cards_of([known]), policy)
        assert table is not None
        assert int(table.is_here.sum()) == well


def test_unhealthy_gpus_take_no_devices_from_a_node_whose_driver_shares_gpus() -> None:
    known = Known("n", 20, {}, [(0, {Measure.XID: 79.0}), (0, {})])
    for shared, unwell in ((None, 1), (Shared("HAMi", (Device("GPU-a", 16_000, 10, True),)), 0)):
        table = gpus_of([replace(known.node, shared=shared)], cards_of([known]))
        assert table is not None
        assert table.unwell.tolist() == [unwell]


def test_an_alias_is_an_additional_name_of_the_gpus_that_its_expression_matches() -> None:
    found = [Known("n", 1, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"})]
    table = gpus_of([found[0].node], NO_CARDS, GpuPolicy(aliases={"big-one": "a100.sxm4"}))
    assert table is not None
    assert table.names == (("NVIDIA A100 SXM4 40GB", "big one"),)


class CountedExpression:
    """An expression that counts the searches made with it."""

    searches = 0

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def search(self, text: str) -> object:
        type(self).searches += 1
        return True if self._pattern in text else None


def test_each_gpu_name_is_matched_with_an_expression_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.model.gpu_inventory.expression", CountedExpression)
    found = [Known(f"n{row}", 1, {"nvidia.com/gpu.product": f"once {row % 5}"}, [(row % 3, {})]) for row in range(60)]
    policy = GpuPolicy(models={"once 3": Attributes(memory=7.0)}, aliases={"third": "once 2"})
    CountedExpression.searches = 0
    for _ in range(2):
        table = gpus_of([known.node for known in found], cards_of(found), policy)
        assert table is not None
        assert sum("third" in names for names in table.names) == 3
        searches, CountedExpression.searches = CountedExpression.searches, 0
        names = 5 + len(MODELS)
        assert searches <= names * (len(ATTRIBUTES) + 2)
    assert searches == 0


def test_labels_replace_the_gpu_names_of_exporters_if_there_are_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allaboard.model.gpu_inventory._MOST_NAMES", 3)
    found = [Known(f"n{row}", 1, {"nvidia.com/gpu.product": "own"} if row < 6 else {}, [(row % 3, {})]) for row in range(9)]
    table = gpus_of([known.node for known in found], cards_of(found))
    assert table is not None
    said = [table.names[kind] for kind in table.kind[:, 0].tolist()]
    assert said == [("own",)] * 6 + [(canonical(model),) for model in MODELS]


@pytest.mark.parametrize("pattern", ATTRIBUTES)
def test_every_known_model_has_a_valid_expression_and_attributes(pattern: str) -> None:
    expression(pattern)
    attributes = ATTRIBUTES[pattern]
    assert attributes.memory > 0
    assert attributes.multiprocessors > 0
    assert attributes.bandwidth > 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_graded_scores_have_few_values_and_keep_the_order_of_the_scores(values: list[float]) -> None:
    score = np.array(values)
    grade = graded(score)
    assert len(np.unique(grade)) <= 16
    order = np.argsort(score, kind="stable")
    assert (np.diff(grade[order]) >= 0).all()
