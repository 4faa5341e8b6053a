"""Combines samples of metrics into arrays of measurements by node and GPU. Malformed and absurd samples are left out.

A sample is the label set of a series with a value. Several series may measure one GPU. This is so if two exporters run on a node, if each
pod that shares the GPU has a series, or if each MIG instance has a series. Series of one GPU count together.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import orjson
from numpy.typing import NDArray

from allaboard.gpu.dialects import QUANTITIES, RESERVED, USED, Dialect, Metric
from allaboard.model.gpus import Measure
from allaboard.model.raw_fields import OBJECT_NAME

MOST_NODES = 10_000
"""The most nodes of which measurements are kept: twice as many as Kubernetes supports."""

MOST_CARDS = 32
"""The most GPUs of one node; further GPUs are ignored."""

_MOST_MODELS = 256
_LONGEST_NAME = 128
_MOST_KNOWN, _LONGEST_LABELS = 100_000, 512  # most label sets that are cached, and bytes of one
_HIGHEST = {
    Measure.MEMORY: 2.0**24,
    Measure.FREE: 2.0**24,
    USED: 2.0**24,
    RESERVED: 2.0**24,
    Measure.POWER: 1e5,
    Measure.TEMPERATURE: 1e3,
    Measure.UTILIZATION: 1.0,
    Measure.ENCODER: 1.0,
    Measure.DECODER: 1.0,
}
"""Greatest plausible value by quantity. A greater value counts as unknown: NVML and DCGM write huge numbers for unknown values."""

_HIGHEST_NUMBER = 1e6
_is_node = re.compile(OBJECT_NAME, re.ASCII).fullmatch

Sample = tuple[bytes, bytes, bytes]
"""One sample: its labels as the text inside a JSON object's braces, the time of evaluation (Unix seconds), and the value.

All three are unchecked bytes as they were read.
"""

Locate = Callable[[str, str], str | None]
"""A function that returns the name of the node that a label and its value stand for; None if they stand for no node."""


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Measurements that were read at one time: node ``nodes[i]`` has the GPUs ``names[i]``.

    ``model``: int32[nodes, gpus], indices into ``models``, -1 if unknown. ``values``: float32[measures, nodes, gpus], NaN if unknown.
    ``ages``: float64[nodes], seconds between the exporter's measurement and the reading. ``left_out``: the number of series that were too
    long, and of answers that were cut off.
    """

    nodes: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    models: tuple[str, ...]
    model: NDArray[np.int32]
    values: NDArray[np.float32]
    ages: NDArray[np.float64]
    left_out: int = 0


@dataclass(slots=True)
class Gathering:
    """Collects the samples that are read at one time; ``reading()`` returns the measurements.

    ``locate`` returns the node that a label's value stands for. GPUs and nodes beyond the limits are left out.
    """

    locate: Locate
    unlocated: int = 0
    """Number of series whose labels name no known node."""

    left_out: int = 0
    """Number of series that were too long, and of answers that were cut off."""

    _rows: dict[str, int] = field(default_factory=dict)
    _columns: list[dict[str, int]] = field(default_factory=list)
    _models: dict[str, int] = field(default_factory=dict)
    _model: dict[int, int] = field(default_factory=dict)
    _ages: dict[int, float] = field(default_factory=dict)
    _known: dict[str, dict[bytes, int]] = field(default_factory=dict)  # by dialect: the cell of each cached label set
    _found: dict[Metric, list[tuple[NDArray[np.int32], NDArray[np.float32]]]] = field(default_factory=dict)  # by metric: cells and values

    def take(self, dialect: Dialect, metric: Metric, samples: Sequence[Sample]) -> frozenset[str]:
        """Add the samples of a metric. Return the names of the labels that name nodes and GPUs in these samples.

        Later queries need to ask for these labels only. Label sets that were seen before are cached, so their labels aren't returned again.
        """
        used: set[str] = set()
        known, parts = self._known.setdefault(dialect.name, {}), dialect.parts.encode()
        cells = [known.get(labels, -2) for labels, _, _ in samples]
        if -2 in cells:
            for position, cell in enumerate(cells):
                if cell == -2:
                    labels = samples[position][0]
                    cells[position] = self._cell(_labels(labels), dialect, metric, used)
                    if len(labels) <= _LONGEST_LABELS and len(known) < _MOST_KNOWN and not (parts and parts in labels):
                        known[labels] = cells[position]
        indices = np.array(cells, dtype=np.int32)
        numbers = _numbers([value for _, _, value in samples]) * metric.scale
        is_valid = (indices >= 0) & (numbers >= 0.0) & (numbers <= _HIGHEST.get(metric.quantity, _HIGHEST_NUMBER))  # False for NaN
        if metric.zero_is_unknown:
            is_valid &= numbers > 0.0
        self._found.setdefault(metric, []).append((indices[is_valid], numbers[is_valid].astype(np.float32)))
        return frozenset(used)

    def forget_labels(self) -> None:
        """Clear the cache of label sets, since later series have other labels. Samples that were added stay."""
        self._known.clear()

    def leave_out(self) -> None:
        """Count one series or answer as left out, since it is beyond the limits."""
        self.left_out += 1

    def lacks(self, dialect: Dialect, metric: Metric) -> bool:
        """Return whether ``metric`` is needed, since better metrics of ``dialect`` for the same quantity don't cover all GPUs."""
        better = [other for other in dialect.metrics if other.quantity == metric.quantity and other in self._found]
        return not better or len(self._cells_with(better)) < len(self._cells_with(dialect.metrics))

    def _cells_with(self, metrics: Iterable[Metric]) -> NDArray[np.int32]:
        """Return the GPUs for which any of ``metrics`` has a value, each as ``row * MOST_CARDS + column`` (a cell)."""
        return np.unique(np.concatenate([cells for metric in metrics for cells, _ in self._found.get(metric, ())]))

    def take_times(self, dialect: Dialect, samples: Sequence[Sample]) -> None:
        """Record the age of each node's measurements. If a node has several samples, the greatest age counts.

        The age is the time of evaluation minus the sample's value, which is the time of the scrape.
        """
        ages = _numbers([at for _, at, _ in samples]) - _numbers([value for _, _, value in samples])
        for (labels, _, _), age in zip(samples, ages.tolist(), strict=True):
            node = self._node(_labels(labels), dialect, set())
            row = None if node is None else self._rows.get(node)
            if row is not None and age > 0.0:  # not for a clock that is ahead, nor for NaN
                self._ages[row] = max(age, self._ages.get(row, 0.0))

    def reading(self) -> Reading:
        """Return the measurements that all added samples make together."""
        rows = len(self._rows)
        columns = max((len(each) for each in self._columns), default=0)
        values = np.full((QUANTITIES, rows * columns), np.nan, dtype=np.float32)
        model = np.full(rows * columns, -1, dtype=np.int32)
        for metric, parts in self._found.items():
            of_metric = np.full(rows * columns, np.nan, dtype=np.float32)
            for cells, numbers in parts:
                (np.fmin if metric.takes_least else np.fmax).at(of_metric, _narrow(cells, columns), numbers)
            of_quantity = values[metric.quantity]
            np.copyto(of_quantity, of_metric, where=np.isnan(of_quantity))
        _derive(values)
        model[_narrow(np.array(list(self._model), dtype=np.int32), columns)] = list(self._model.values())
        return Reading(
            tuple(self._rows),
            tuple(map(tuple, self._columns)),
            tuple(self._models),
            model.reshape(rows, columns),
            values[: len(Measure)].reshape(len(Measure), rows, columns).copy(),
            np.array([self._ages.get(row, 0.0) for row in range(rows)], dtype=np.float64),
            self.left_out,
        )

    def _cell(self, labels: Mapping[str, object], dialect: Dialect, metric: Metric, used: set[str]) -> int:
        """Return the position of a GPU as one number (a cell): ``row * MOST_CARDS + column``.

        The result is -1 if the series names no GPU or is beyond the limits. The names of the labels that named the node and the GPU are
        added to ``used``.
        """
        if dialect.parts and labels.get(dialect.parts) and not metric.of_parts:
            return -1
        card = next((label for label in dialect.cards if labels.get(label)), None)
        name = labels[card] if card else None
        if not isinstance(name, str) or len(name) > _LONGEST_NAME:
            return -1
        row = self._row(self._node(labels, dialect, used))
        if row is None:
            return -1
        used.add(card or "")
        columns = self._columns[row]
        column = columns.get(name)
        if column is None:
            if len(columns) >= MOST_CARDS:
                return -1
            column = columns[name] = len(columns)
        cell = row * MOST_CARDS + column
        for label in dialect.models:
            if label in labels and cell not in self._model:
                self._name_model(cell, labels[label])
        return cell

    def _node(self, labels: Mapping[str, object], dialect: Dialect, used: set[str]) -> str | None:
        """Return the node of a series, by the first label that stands for a node; None if no label stands for a node."""
        for label in dialect.nodes:
            stated = labels.get(label)
            if isinstance(stated, str) and stated and (node := self.locate(label, stated)) is not None:
                used.add(label)
                return node
        self.unlocated += 1
        return None

    def _row(self, node: str | None) -> int | None:
        if node is None:
            return None
        if (row := self._rows.get(node)) is not None:
            return row
        if len(self._rows) >= MOST_NODES or not _is_node(node):
            return None
        self._columns.append({})
        self._rows[node] = len(self._rows)
        return self._rows[node]

    def _name_model(self, cell: int, name: object) -> None:
        if isinstance(name, str) and name and len(name) <= _LONGEST_NAME and (name in self._models or len(self._models) < _MOST_MODELS):
            self._model[cell] = self._models.setdefault(name, len(self._models))


def joined(readings: Iterable[Reading]) -> Reading:
    """Return one reading with the nodes of all ``readings``. No node may be in two readings."""
    each = list(readings)
    numbers: dict[str, int] = {}
    indices = [np.array([numbers.setdefault(name, len(numbers)) for name in one.models] + [-1], dtype=np.int32) for one in each]
    columns = max((one.model.shape[1] for one in each), default=0)
    wide = [((0, 0), (0, columns - one.model.shape[1])) for one in each]
    return Reading(
        tuple(chain.from_iterable(one.nodes for one in each)),
        tuple(chain.from_iterable(one.names for one in each)),
        tuple(numbers),
        _stacked([np.pad(index[one.model], by, constant_values=-1) for index, one, by in zip(indices, each, wide, strict=True)], columns),
        np.concatenate(
            [np.pad(one.values, ((0, 0), *by), constant_values=np.nan) for one, by in zip(each, wide, strict=True)]
            or [np.zeros((len(Measure), 0, 0), dtype=np.float32)],
            axis=1,
        ),
        np.concatenate([one.ages for one in each] or [np.zeros(0)]),
    )


def _stacked(models: list[NDArray[np.int32]], columns: int) -> NDArray[np.int32]:
    return np.concatenate(models) if models else np.zeros((0, columns), dtype=np.int32)


def _labels(text: bytes) -> Mapping[str, object]:
    """Return the labels of a sample; no labels if they are malformed."""
    try:
        found: Mapping[str, object] = orjson.loads(b"{%b}" % text)
    except ValueError:
        return {}
    return found


def _numbers(values: Sequence[bytes]) -> NDArray[np.float64]:
    """Return the values as numbers, NaN for a value that is no number."""
    try:
        return np.array(list(map(float, values)), dtype=np.float64)
    except ValueError:
        return np.array(list(map(_number, values)), dtype=np.float64)


def _number(value: bytes) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _narrow(cells: NDArray[np.int32], columns: int) -> NDArray[np.int32]:
    """Return ``cells``, numbers of GPUs for ``MOST_CARDS`` GPUs to a node, renumbered for ``columns`` GPUs to a node."""
    return cells // MOST_CARDS * columns + cells % MOST_CARDS


def _derive(values: NDArray[np.float32]) -> None:
    """Compute total and free memory from other quantities if the exporter doesn't state them; set a REMAP_FAILURE above 1 to 1."""
    memory, free, used = values[Measure.MEMORY], values[Measure.FREE], values[USED]
    np.copyto(memory, free + used + np.nan_to_num(values[RESERVED]), where=np.isnan(memory))
    left = memory - used - np.nan_to_num(values[RESERVED])
    np.copyto(free, left, where=np.isnan(free) & (left >= 0))
    np.copyto(values[Measure.REMAP_FAILURE], 1.0, where=values[Measure.REMAP_FAILURE] > 1.0)
