"""Keeps the last measurements of each node's GPUs.

Measurements that are too old count as unknown, except for GPU errors, which don't go away by themselves.
"""

import math
from collections.abc import Mapping

import numpy as np

from allaboard.gpu.gathering import MOST_NODES, Reading, joined
from allaboard.model.gpus import NO_CARDS, Cards, Measure

_FORGOTTEN = 10
"""A node is forgotten if it wasn't measured for this many times ``stale_seconds``."""

_LASTING = [Measure.XID, Measure.REMAP_FAILURE]
"""Measures that stay known as long as the GPU itself. An error is among them: a broken GPU may be the reason why its exporter has stopped.
"""


class CardCache:
    """Keeps the last measurements of each node.

    Numbers older than ``stale_seconds`` count as unknown; GPUs, models and errors stay known.
    """

    def __init__(self, stale_seconds: float) -> None:
        self._stale_seconds = stale_seconds
        self._reading = joined(())
        self._seen = np.zeros(0)

    def take(self, reading: Reading, now: float) -> None:
        """Record measurements that were read at ``now``. Nodes that are missing in ``reading`` keep their last measurements."""
        measured = set(reading.nodes)
        rows = [
            row
            for row, node in enumerate(self._reading.nodes)
            if node not in measured and now - self._seen[row] < _FORGOTTEN * self._stale_seconds
        ]
        rows = rows[: max(0, MOST_NODES - len(measured))]
        self._seen = np.concatenate([now - reading.ages, self._seen[rows]])
        self._reading = joined((reading, _only(self._reading, rows))) if rows else reading

    def cards(self, now: float) -> Cards:
        """Return what is known of all GPUs at the time ``now``."""
        found = self._reading
        if not found.nodes:
            return NO_CARDS
        values = found.values.copy()
        values[:, self._is_stale(now)] = np.nan
        values[_LASTING] = found.values[_LASTING]
        return Cards({node: row for row, node in enumerate(found.nodes)}, found.names, found.models, found.model, values)

    def ages(self, now: float) -> Mapping[str, float]:
        """Return the age in seconds of each node's last measurements, by node name."""
        return dict(zip(self._reading.nodes, (now - self._seen).tolist(), strict=True))

    def expires(self, now: float) -> float:
        """Return the seconds from ``now`` until the oldest fresh measurements are too old; infinite if none are fresh."""
        fresh = self._seen[~self._is_stale(now)]
        return float(fresh.min() + self._stale_seconds - now) if fresh.size else math.inf

    def counts(self, now: float) -> tuple[int, int]:
        """Return the number of GPUs with fresh measurements, and the number of nodes whose measurements are too old."""
        stale = self._is_stale(now)
        return sum(len(names) for names, is_stale in zip(self._reading.names, stale, strict=True) if not is_stale), int(stale.sum())

    def _is_stale(self, now: float) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        is_stale: np.ndarray[tuple[int], np.dtype[np.bool_]] = now - self._seen >= self._stale_seconds
        return is_stale


def _only(reading: Reading, rows: list[int]) -> Reading:
    """Return a reading of the nodes in ``rows``, without the models that none of these nodes has."""
    model = reading.model[rows]
    used = np.unique(model[model >= 0])
    return Reading(
        tuple(reading.nodes[row] for row in rows),
        tuple(reading.names[row] for row in rows),
        tuple(reading.models[number] for number in used),
        np.where(model < 0, -1, np.searchsorted(used, model)).astype(np.int32),
        reading.values[:, rows],
        reading.ages[rows],
    )
