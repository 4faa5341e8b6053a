"""How good the GPUs of a node are, from 0 to 1, after Genius: what they have (static), and how little is going on there (dynamic).

An attribute of a node is the mean over its cards: how many it has is for the objective to weigh. Over all nodes with GPUs it is put between
0, the worst, and 1, the best; where all are equal it is 1. Of power, utilization and temperature less is better. (Genius's code took
more power for better, and summed up what nodes have, so that large ones won; neither was meant.)
What isn't known of a node, or not any more, counts as the mean of the nodes of which it is known: that is neither for it nor against it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allaboard.model.arrays import Floats
from allaboard.model.gpus import Measure


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """What each attribute weighs among those of its half, and what each half weighs.

    The defaults are Genius's, which knew nothing of utilization and temperature.
    """

    static: float = 1.0
    dynamic: float = 2.0
    memory: float = 2.0
    multiprocessors: float = 2.0
    decoders: float = 1.0
    encoders: float = 1.0
    bandwidth: float = 2.0
    free_memory: float = 2.0
    power: float = 1.0
    encoder: float = 1.0
    decoder: float = 1.0
    utilization: float = 0.0
    temperature: float = 0.0


WEIGHTS = ScoreWeights()

_MOST_POINTS = 16
_PARTS = 4

_HAS = (Measure.MEMORY, Measure.MULTIPROCESSORS, Measure.DECODERS, Measure.ENCODERS, Measure.BANDWIDTH)
"""In the order of ``Attributes``."""


def scores(measured: Floats, has_memory: Floats, of_models: Floats, kind: NDArray[np.int32], weights: ScoreWeights) -> Floats:
    """float64[nodes], 1 where there are no cards.

    ``measured``: float64[measures, nodes, cards], ``has_memory``: float64[nodes, cards], MiB, both NaN where unknown; ``of_models``:
    float64[kinds, attributes]; ``kind``: int32[nodes, cards], -1 where there is no card.
    """
    is_here = kind >= 0
    has_cards = is_here.any(axis=1)

    def of_nodes(values: Floats, *, is_cost: bool = False) -> Floats:
        found = np.full(len(kind), np.nan)
        known = is_here & np.isfinite(values)
        number = np.count_nonzero(known, axis=1)
        np.divide(np.where(known, values, 0.0).sum(axis=1), number, out=found, where=number > 0)
        return normalised(-found if is_cost else found)

    def static() -> Iterator[tuple[float, Floats]]:
        each = (weights.memory, weights.multiprocessors, weights.decoders, weights.encoders, weights.bandwidth)
        for column, (weight, measure) in enumerate(zip(each, _HAS, strict=True)):
            values = has_memory if measure is Measure.MEMORY else measured[measure]
            if weight and len(of_models):
                yield weight, of_nodes(np.where(np.isnan(values), of_models[np.maximum(kind, 0), column], values))

    def dynamic() -> Iterator[tuple[float, Floats]]:
        if weights.free_memory:
            yield weights.free_memory, of_nodes(measured[Measure.FREE])
        for weight, measure in (
            (weights.power, Measure.POWER),
            (weights.encoder, Measure.ENCODER),
            (weights.decoder, Measure.DECODER),
            (weights.utilization, Measure.UTILIZATION),
            (weights.temperature, Measure.TEMPERATURE),
        ):
            if weight:
                yield weight, of_nodes(measured[measure], is_cost=True)

    halves: list[tuple[float, Floats]] = [(weights.static, _mean(static(), len(kind))), (weights.dynamic, _mean(dynamic(), len(kind)))]
    mean = _mean(iter(halves), len(kind))
    found: Floats = np.where(has_cards & np.isfinite(mean), mean, 1.0)
    return found


def graded(score: Floats) -> Floats:
    """``score``: float64[nodes] in whole points of a hundred, or the means of four equal parts of the nodes where these are too many.

    Of thousands of nodes that are all different the best are found no sooner than by looking at each; of a few kinds it takes no time.
    """
    points = score.round(2)
    if len(np.unique(points)) <= _MOST_POINTS:
        return points
    part = np.searchsorted(np.quantile(score, np.arange(1, _PARTS) / _PARTS), score, side="right")
    sums, sizes = np.bincount(part, weights=score, minlength=_PARTS), np.bincount(part, minlength=_PARTS)
    means: Floats = (sums / np.maximum(sizes, 1)).round(2)
    return means[part]


def normalised(values: Floats) -> Floats:
    """``values``: float64[nodes] between 0, the least, and 1, the most; all 1 where they are equal; the mean where they are NaN,
    unless all are.
    """
    known = np.isfinite(values)
    if not known.any():
        return values
    least, most = values[known].min(), values[known].max()
    if not most > least:
        return np.ones(len(values))
    found: Floats = (values - least) / (most - least)
    found[~known] = found[known].mean()
    return found


def _mean(weighted: Iterator[tuple[float, Floats]], nodes: int) -> Floats:
    """float64[nodes], NaN where nothing is known of any node; what isn't counts for nothing."""
    total, found = 0.0, np.zeros(nodes)
    for weight, values in weighted:
        if weight and np.isfinite(values).all():
            total += weight
            found += weight * values
    mean: Floats = found / total if total else np.full(nodes, np.nan)
    return mean
