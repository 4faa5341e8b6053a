"""What was read of GPUs last, and how old it is: what is older than it may be isn't there any more, but for what doesn't mend itself."""

import math
from collections.abc import Mapping

import numpy as np

from allaboard.gpu.gathering import MOST_NODES, Reading, joined
from allaboard.model.gpus import NO_CARDS, Cards, Measure

_FORGOTTEN = 10
"""A node of which nothing was heard for so many times the staleness is forgotten."""

_LASTING = [Measure.XID, Measure.REMAP_FAILURE]
"""A broken card may well be why its exporter has died: that it is broken stays known as long as the card is."""


class CardCache:
    """The newest of each node. Numbers older than ``stale_seconds`` are unknown; the cards, their models and which are broken, aren't."""

    def __init__(self, stale_seconds: float) -> None:
        self._stale_seconds = stale_seconds
        self._reading = joined(())
        self._seen = np.zeros(0)

    def take(self, reading: Reading, now: float) -> None:
        """What was read at ``now``. Of nodes that it doesn't tell of, what is known stays until it is too old."""
        told = set(reading.nodes)
        rows = [
            row
            for row, node in enumerate(self._reading.nodes)
            if node not in told and now - self._seen[row] < _FORGOTTEN * self._stale_seconds
        ]
        rows = rows[: max(0, MOST_NODES - len(told))]
        self._seen = np.concatenate([now - reading.ages, self._seen[rows]])
        self._reading = joined((reading, _only(self._reading, rows))) if rows else reading

    def cards(self, now: float) -> Cards:
        """All that is known at ``now``."""
        found = self._reading
        if not found.nodes:
            return NO_CARDS
        values = found.values.copy()
        values[:, self._is_stale(now)] = np.nan
        values[_LASTING] = found.values[_LASTING]
        return Cards({node: row for row, node in enumerate(found.nodes)}, found.names, found.models, found.model, values)

    def ages(self, now: float) -> Mapping[str, float]:
        """Seconds since each node's exporter was asked."""
        return dict(zip(self._reading.nodes, (now - self._seen).tolist(), strict=True))

    def expires(self, now: float) -> float:
        """Seconds until the next that is known at ``now`` will be too old; infinite when nothing is."""
        fresh = self._seen[~self._is_stale(now)]
        return float(fresh.min() + self._stale_seconds - now) if fresh.size else math.inf

    def counts(self, now: float) -> tuple[int, int]:
        """How many cards are known by fresh numbers, and of how many nodes the numbers are too old."""
        stale = self._is_stale(now)
        return sum(len(names) for names, is_stale in zip(self._reading.names, stale, strict=True) if not is_stale), int(stale.sum())

    def _is_stale(self, now: float) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        is_stale: np.ndarray[tuple[int], np.dtype[np.bool_]] = now - self._seen >= self._stale_seconds
        return is_stale


def _only(reading: Reading, rows: list[int]) -> Reading:
    """Some nodes of a reading, and no model that none of them has."""
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
