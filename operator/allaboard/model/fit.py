"""Scores nodes by utilization exactly as kube-scheduler does: in whole points, with Go's integer arithmetic.

The formulas are those of pkg/scheduler/framework/plugins/noderesources: requested_to_capacity_ratio.go, least_allocated.go and
most_allocated.go, as of 1.18, 1.20 and 1.37. ``Era`` says how these versions differ.
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
    """A range of kube-scheduler versions that read the same version of kube-scheduler's configuration and score nodes alike.

    The ranges before ``TODAY`` score nodes in three other ways. Utilization is rounded up to whole percents. A node without a resource
    counts as full: the node gets 0 points by LeastAllocated and MostAllocated. Resources that the pod doesn't request count, too. In
    ``V1ALPHA`` the scores of a shape are from 0 to 100 instead of 0 to 10, and the range of scores isn't checked.
    """

    V1ALPHA = "v1alpha1"
    V1BETA1 = "v1beta1"
    TODAY = "v1"


class Strategy(StrEnum):
    """A rule of kube-scheduler that turns the utilization of a node into a score."""

    RATIO = "RequestedToCapacityRatio"
    LEAST = "LeastAllocated"
    MOST = "MostAllocated"


@dataclass(frozen=True, slots=True)
class FitScoring:
    """Scores nodes as one profile of kube-scheduler's configuration does.

    ``resources`` has the weight of each resource. ``shape`` has pairs of a utilization in percent and its score, as the configuration
    states them. ``weight`` is the weight of the plugin that scores utilization. ``affinity``, ``taints``, ``images``, ``pods``,
    ``spread`` and ``gpus`` are the weights of the plugins NodeAffinity, TaintToleration, ImageLocality, InterPodAffinity, PodTopologySpread
    and genius; 0 if the plugin is switched off.
    """

    strategy: Strategy = Strategy.LEAST
    era: Era = Era.TODAY
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))
    shape: tuple[tuple[int, int], ...] = ()
    weight: int = 1
    affinity: int = 2
    taints: int = 3
    images: int = 1
    pods: int = 2
    spread: int = 2
    gpus: int = 0

    @property
    def is_plain(self) -> bool:
        """Return False: the score is never the utilization itself, since scores are rounded to whole points."""
        return False

    @property
    def best(self) -> float:
        """The largest possible score, divided by 100 points; infinite if a weight is negative, which ``V1ALPHA`` allows."""
        if self.strategy is not Strategy.RATIO:
            return 1.0
        if any(weight < 0 for _, weight in self.resources):
            return float("inf")
        return max(0, *(score for _, score in self.points)) / _WHOLE

    @property
    def points(self) -> tuple[tuple[int, int], ...]:
        """The shape, with scores converted to 0..100."""
        scale = 1 if self.era is Era.V1ALPHA else 10
        return tuple((utilization, score * scale) for utilization, score in self.shape)

    def counts(self, resource: str, is_asked: bool) -> bool:
        """Return whether a resource counts in the score of a pod; ``is_asked``: whether the pod requests the resource."""
        return is_asked or self.era is not Era.TODAY or resource in _NATIVE

    def scores(self, requested: Integers, allocatable: Integers, counted: Mask | None = None) -> Integers:
        """Return the points that each node has with the pod on it: int64[..., nodes].

        ``requested``: int64[..., resources, nodes], the sum of requests with the pod; ``allocatable``: int64[resources, nodes]. Resources
        are in the order of ``self.resources``. ``counted``: bool[..., resources], the resources that count; all if None.
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
        """Return the points of each resource on each node: int64[..., resources, nodes].

        A ``requested`` amount that exceeds ``allocatable`` is cut to ``allocatable`` + 1.
        """
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
    """Return the score at each whole percent of utilization: int64[101].

    A percent is interpolated between two neighbouring points of the shape: the first point with at least that utilization, and the point
    before it. ``points`` may be in any order.
    """
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
    """Return ``total / weights`` truncated to an integer, as Go divides; 0 where the weights are 0."""
    whole = np.where(weights == 0, 1, weights)
    found = np.abs(total) // np.abs(whole) * np.sign(total) * np.sign(whole)
    return np.where(weights == 0, 0, found).astype(np.int64)


def _rounded(total: Integers, weights: Integers) -> Integers:
    """Return ``total / weights`` rounded to an integer, halves away from zero, as Go's ``math.Round`` does; 0 where the weights are 0."""
    mean = total / np.where(weights == 0, 1, weights)
    whole = np.trunc(mean)
    found = whole + np.sign(mean) * (np.abs(mean - whole) >= 0.5)
    return np.where(weights == 0, 0, found).astype(np.int64)
