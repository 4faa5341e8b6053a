"""How kube-scheduler scores what is taken of a node, exactly as each of its eras did it: whole points, by Go's integers.

The formulas are those of pkg/scheduler/framework/plugins/noderesources: requested_to_capacity_ratio.go, least_allocated.go and
most_allocated.go, of 1.18, 1.20 and 1.37. What differs between the eras is said at ``Era``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np

from allaboard.model.arrays import Integers, Mask

_WHOLE = 100
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


class Era(StrEnum):
    """A time of kube-scheduler's, by the version of its configuration.

    Before today's era what is requested was rounded up to whole percents, a node without a resource counted as full of it (it scores 0 by
    LeastAllocated and MostAllocated), and so did a resource that the pod doesn't ask for. In the first one the scores of a shape are
    points of a hundred instead of ten, and aren't checked.
    """

    V1ALPHA = "v1alpha1"
    V1BETA1 = "v1beta1"
    TODAY = "v1"


class Strategy(StrEnum):
    """What is wanted of the part of a node that is taken."""

    RATIO = "RequestedToCapacityRatio"
    LEAST = "LeastAllocated"
    MOST = "MostAllocated"


@dataclass(frozen=True, slots=True)
class FitScoring:
    """One profile's scoring of nodes; ``resources`` by weight, ``shape`` as stated: utilization in percent and its score.

    ``weight`` is that of the plugin that does this, ``affinity``, ``taints`` and ``images`` are those of NodeAffinity, TaintToleration and
    ImageLocality beside it, ``gpus`` that of genius: zero for one that is switched off.
    """

    strategy: Strategy = Strategy.LEAST
    era: Era = Era.TODAY
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()
    weight: int = 1
    affinity: int = 2
    taints: int = 3
    images: int = 1
    gpus: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the score is the utilization itself; it is whole points of it at best."""
        return False

    @property
    def best(self) -> float:
        """The largest score there is, in hundreds of points; without end where weights of the first era are negative."""
        if self.strategy is not Strategy.RATIO:
            return 1.0
        if any(weight < 0 for _, weight in self.resources):
            return float("inf")
        return max(0, *(score for _, score in self.points)) / _WHOLE

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """The shape in points of a hundred."""
        scale = 1 if self.era is Era.V1ALPHA else 10
        return tuple((utilization, score * scale) for utilization, score in self.shape)

    def counts(self, resource: str, is_asked: bool) -> bool:
        """Whether a resource counts for a pod that asks for it or doesn't."""
        return is_asked or self.era is not Era.TODAY or resource in _NATIVE

    def scores(self, requested: Integers, allocatable: Integers, counted: Mask | None = None) -> Integers:
        """Points, int64[..., nodes], of nodes of whose resources so much is taken once the pod sits there.

        ``requested``: int64[..., resources, nodes], ``allocatable``: int64[resources, nodes], by ``resources``; ``counted``:
        bool[..., resources], those that count, all if not given.
        """
        requested = np.clip(requested, 0, allocatable + 1)
        is_there = np.broadcast_to(allocatable > 0, requested.shape)
        if counted is None:
            counted = np.ones(requested.shape[:-1], dtype=np.bool_)
        weights = np.array([weight for _, weight in self.resources], dtype=np.int64)[:, None] * counted[..., None]
        if self.era is Era.TODAY:
            weights = weights * is_there
        points = self._points(requested, np.broadcast_to(allocatable, requested.shape), is_there)
        if self.strategy is Strategy.RATIO:
            weights = weights * (points > 0)
            return _rounded((points * weights).sum(axis=-2), np.broadcast_to(weights, points.shape).sum(axis=-2))
        total = np.broadcast_to(weights, points.shape).sum(axis=-2)
        return _quotient((points * weights).sum(axis=-2), total)

    def _points(self, requested: Integers, allocatable: Integers, is_there: Mask) -> Integers:
        """Of each resource by itself; ``requested`` is one more than there is at most."""
        whole = np.where(is_there, allocatable, 1)
        is_over = requested > allocatable
        if self.strategy is Strategy.RATIO:
            if self.era is Era.TODAY:
                utilization = requested * _WHOLE // whole
            else:
                utilization = _WHOLE - (whole - np.minimum(requested, whole)) * _WHOLE // whole
            found: Integers = _broken_line(self.points)[np.where(is_over | ~is_there, _WHOLE, utilization)]
            return found
        if self.strategy is Strategy.LEAST:
            return np.where(is_over | ~is_there, 0, (whole - np.minimum(requested, whole)) * _WHOLE // whole)
        if self.era is Era.TODAY:
            return np.where(is_there, np.minimum(requested, allocatable) * _WHOLE // whole, 0)
        return np.where(is_over | ~is_there, 0, requested * _WHOLE // whole)


@lru_cache(maxsize=64)
def _broken_line(points: Sequence[tuple[int, int]]) -> Integers:
    """The score at each percent: int64[101]. Whatever the order of the points is: the first that isn't passed is taken."""
    found = np.array([_at(points, percent) for percent in range(_WHOLE + 1)], dtype=np.int64)
    found.setflags(write=False)
    return found


def _at(points: Sequence[tuple[int, int]], percent: int) -> int:
    for position, (utilization, score) in enumerate(points):
        if percent <= utilization:
            if position == 0:
                return score
            before, low = points[position - 1]
            rise = (score - low) * (percent - before)
            part = abs(rise) // (utilization - before)  # Go truncates, where Python rounds down
            return low + (part if rise >= 0 else -part)
    return points[-1][1]


def _quotient(total: Integers, weights: Integers) -> Integers:
    """``total / weights`` without its fraction, 0 of nothing."""
    whole = np.where(weights == 0, 1, weights)
    found = np.abs(total) // np.abs(whole) * np.sign(total) * np.sign(whole)
    return np.where(weights == 0, 0, found).astype(np.int64)


def _rounded(total: Integers, weights: Integers) -> Integers:
    """``total / weights`` rounded, halves away from zero, as Go's ``math.Round`` does; 0 of nothing."""
    mean = total / np.where(weights == 0, 1, weights)
    whole = np.trunc(mean)
    found = whole + np.sign(mean) * (np.abs(mean - whole) >= 0.5)
    return np.where(weights == 0, 0, found).astype(np.int64)
