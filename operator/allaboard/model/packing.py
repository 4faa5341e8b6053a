"""How full a node is to be taken for: kube-scheduler's RequestedToCapacityRatio, by its shape and the weights of resources."""

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
    """``shape``: utilization in percent and its score 0..10, by rising utilization, straight between the points and flat beyond them.

    ``resources``: the weight of each resource that counts, of a pod that asks for it; cpu and memory every pod asks for. Without any they
    are cpu 1, memory 1, and ``gpu`` for each kind of GPU. ``of_largest``: utilization is not the share of a node that is taken, but what
    would be of the cluster's largest node if it had as little left: so a small node that is idle is fuller than a large one.
    """

    shape: tuple[tuple[int, int], ...] = ((0, 0), (100, _LARGEST_SCORE))
    resources: tuple[tuple[str, int], ...] = ()
    gpu: int = 5
    of_largest: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the score is the utilization itself."""
        return self.shape == ((0, 0), (100, _LARGEST_SCORE))

    @property
    def best(self) -> float:
        """The largest score there is, of 0..1."""
        return max(score for _, score in self.shape) / _LARGEST_SCORE

    def score(self, utilization: Floats) -> Floats:
        """Scores 0..1 of utilizations 0..1 or more."""
        places, scores = np.array(self.shape, dtype=np.float64).T
        found: Floats = np.interp(utilization * 100.0, places, scores) / _LARGEST_SCORE
        return found

    def mean(self, utilization: Floats, weight: Floats) -> Floats:
        """Scores 0..1 of nodes: float64[..., nodes] of ``utilization`` and ``weight``, float64[..., resources, nodes].

        Weights sum to 1 over the resources, or to 0.
        """
        if self.is_plain:  # a pod adds to whatever counts of it, so that nothing scores zero
            plain: Floats = np.einsum("...sn,...sn->...n", weight, np.minimum(utilization, 1.0))
            return plain
        return mean_of_scores(self.score(utilization), weight)


def mean_of_scores(scores: Floats, weight: Floats) -> Floats:
    """float64[..., nodes] of float64[..., resources, nodes]. What scores nothing is left out of the mean: that is upstream's rule."""
    counted = weight * (scores > 0)
    total = counted.sum(axis=-2)
    mean: Floats = np.divide((counted * scores).sum(axis=-2), total, out=np.zeros_like(total), where=total > 0)
    return mean


PACKING = Packing()
"""The fuller the better."""

BEST_FIT = Packing(gpu=1, of_largest=True)
"""The less is left the better, so that large nodes are kept for large members."""


def packing_from(shape: Mapping[str, str], resources: Mapping[str, str]) -> Packing:
    """From texts, as options have them: utilization and score, resource and weight. Raises ``ValueError`` that says what is wrong."""
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
