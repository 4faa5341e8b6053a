"""Scores how full a node is, by the shape and the resource weights of kube-scheduler's RequestedToCapacityRatio."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats
from allaboard.model.raw_fields import LABEL_KEY

_MOST_WEIGHT = 100
_LARGEST_SCORE = 10
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Packing:
    """Scores nodes by the utilization of their resources.

    ``shape``: pairs of a utilization in percent and its score from 0 to 10, by rising utilization; linear between the pairs and constant
    beyond them. ``resources``: the weight of each resource. A resource counts for pods that request it; cpu and memory count for every pod.
    If ``resources`` is empty, the weights are cpu 1, memory 1, and ``gpu`` for each kind of GPU. ``of_largest``: a node's utilization is
    computed as if the cluster's largest node had the same free amount. So a small idle node counts as fuller than a large idle node.
    """

    shape: tuple[tuple[int, int], ...] = ((0, 0), (100, _LARGEST_SCORE))
    resources: tuple[tuple[str, int], ...] = ()
    gpu: int = 5
    of_largest: bool = False

    @property
    def is_plain(self) -> bool:
        """Return whether the score is the utilization itself."""
        return self.shape == ((0, 0), (100, _LARGEST_SCORE))

    @property
    def best(self) -> float:
        """The largest possible score, from 0 to 1."""
        return max(score for _, score in self.shape) / _LARGEST_SCORE

    def score(self, utilization: Floats) -> Floats:
        """Return the scores, from 0 to 1, of utilizations of 0 to 1 or more."""
        places, scores = np.array(self.shape, dtype=np.float64).T
        found: Floats = np.interp(utilization * 100.0, places, scores) / _LARGEST_SCORE
        return found

    def mean(self, utilization: Floats, weight: Floats) -> Floats:
        """Return the mean score of each node over its resources, from 0 to 1: float64[..., nodes].

        ``utilization`` and ``weight``: float64[..., resources, nodes]. Weights sum to 1 over the resources, or to 0.
        """
        if self.is_plain:  # a pod uses some of each resource that counts, so no score is zero
            plain: Floats = np.einsum("...sn,...sn->...n", weight, np.minimum(utilization, 1.0))
            return plain
        return mean_of_scores(self.score(utilization), weight)


def mean_of_scores(scores: Floats, weight: Floats) -> Floats:
    """Return the weighted mean of each node's scores over its resources: float64[..., nodes].

    ``scores`` and ``weight``: float64[..., resources, nodes]. A resource that scores 0 is left out of the mean, as in kube-scheduler.
    """
    counted = weight * (scores > 0)
    total = counted.sum(axis=-2)
    mean: Floats = np.divide((counted * scores).sum(axis=-2), total, out=np.zeros_like(total), where=total > 0)
    return mean


PACKING = Packing()
"""The packing that prefers full nodes."""

BEST_FIT = Packing(gpu=1, of_largest=True)
"""The packing that prefers nodes with little capacity left, so that large nodes are kept for large members."""


def packing_from(shape: Mapping[str, str], resources: Mapping[str, str]) -> Packing:
    """Return the packing that options state: ``shape`` has a score by utilization, ``resources`` a weight by resource, all as texts.

    Raises ``ValueError``.
    """
    points = sorted((_number("utilization", place, 100), _number("score", score, _LARGEST_SCORE)) for place, score in shape.items())
    if len({place for place, _ in points}) < len(points):
        raise ValueError("each utilization may be given once only")
    for name in resources:
        if not (name in _NATIVE or name.startswith("hugepages-") or ("/" in name and re.fullmatch(LABEL_KEY, name))):
            raise ValueError(f"{name[:64]!r} is not the name of a resource, such as cpu, memory or nvidia.com/gpu")
    weights = tuple(sorted((name, _number(f"weight of {name}", weight, _MOST_WEIGHT, least=1)) for name, weight in resources.items()))
    return Packing(tuple(points) or PACKING.shape, weights)


def _number(what: str, text: str, most: int, least: int = 0) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and least <= int(text) <= most):
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {text!r:.40}")
    return int(text)
