"""Scores the GPUs of each node from 0 to 1, as Genius did: by what the GPUs have (static), and by how idle they are (dynamic).

An attribute of a node is the mean over its GPUs. The number of GPUs doesn't count here, since the objective of the placement weighs it.
Over all nodes with GPUs an attribute is scaled to 0 for the worst node and 1 for the best; if all are equal, it is 1. Less is better for
all dynamic attributes but free memory. (Genius's code preferred more power, and added up the attributes of a node's GPUs, so that large
nodes won. Neither was intended.) An attribute that is unknown or stale counts as the mean of the nodes whose attribute is known, which is
neutral.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allaboard.model.arrays import Floats
from allaboard.model.gpus import Measure


@dataclass(frozen=True, slots=True)
class ScoreWeights:
    """The weight of each attribute within its half of the score, and the weights of the two halves, ``static`` and ``dynamic``.

    The defaults are those of Genius, which didn't use utilization and temperature.
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
"""The measures of static attributes, in the order of ``Attributes``."""


def scores(measured: Floats, has_memory: Floats, of_models: Floats, kind: NDArray[np.int32], weights: ScoreWeights) -> Floats:
    """Return the score of each node: float64[nodes]; 1 for nodes without GPUs.

    ``measured``: float64[measures, nodes, gpus], NaN if unknown. ``has_memory``: float64[nodes, gpus], MiB, NaN if unknown.
    ``of_models``: float64[kinds, attributes]. ``kind``: int32[nodes, gpus], -1 where there is no GPU.
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
    """Return the scores of nodes rounded to few distinct values. ``score`` and the result: float64[nodes].

    Few values make the search fast: it finds the best of a few kinds of nodes at once, but has to examine each of thousands of different
    nodes. Scores are rounded to hundredths. If more than 16 different hundredths occur, each score becomes the mean of its quarter of the
    nodes.
    """
    points = score.round(2)
    if len(np.unique(points)) <= _MOST_POINTS:
        return points
    part = np.searchsorted(np.quantile(score, np.arange(1, _PARTS) / _PARTS), score, side="right")
    sums, sizes = np.bincount(part, weights=score, minlength=_PARTS), np.bincount(part, minlength=_PARTS)
    means: Floats = (sums / np.maximum(sizes, 1)).round(2)
    return means[part]


def normalised(values: Floats) -> Floats:
    """Return ``values`` scaled to 0 for the least and 1 for the most; all 1 if they are equal. ``values`` and the result: float64[nodes].

    NaN becomes the mean of the known values, unless all values are NaN.
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
    """Return the weighted mean of each node's attributes: float64[nodes]; NaN if no attribute counts.

    An attribute counts only if its value is known for all nodes.
    """
    total, found = 0.0, np.zeros(nodes)
    for weight, values in weighted:
        if weight and np.isfinite(values).all():
            total += weight
            found += weight * values
    mean: Floats = found / total if total else np.full(nodes, np.nan)
    return mean
