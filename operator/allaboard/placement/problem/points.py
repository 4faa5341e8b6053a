"""Scores in points, for reports: 100 where a placement costs nothing, 0 where each member costs as much as it can.

The size of a cost depends on the weights of the objective or of a kube-scheduler profile, on preferences, and on how many GPUs a node has.
Searches compare costs. Reports show points: a cost divided by a constant of the problem, which doesn't change the order of placements.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.devices import WHOLE

_BEST = 100.0


@dataclass(frozen=True, slots=True)
class Scale:
    """Converts the scores of one problem's placements to points. ``worst`` is the most that a member can cost."""

    worst: float

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the scale of ``problem``, whose ``worst`` is the sum of the most that each term can cost a member.

        The GPU terms cost at most what all free GPUs of a node are worth. A member that is alone on its node can cost that much.
        """
        weights = problem.weights
        attraction = sum(float(np.abs(each.pairs).max(initial=0.0)) * problem.total for each in problem.attractions)
        worst = attraction + weights.packing + weights.spreading + (weights.domains if problem.domains is not None else 0.0)
        if problem.dislike is not None:
            worst += float(problem.dislike.max(initial=0.0, where=problem.slots > 0))
        if (found := problem.fragmentation) is not None:
            gpus = found.gpus_free if found.devices is None else found.devices.sum(axis=1) / WHOLE
            worst += (weights.fragmentation + weights.worth) * float(np.max(gpus, initial=0.0))
        return cls(worst)

    def points(self, score: float, placed: int) -> float:
        """Return ``score`` converted to points; 0 if no member is placed. ``score`` is 100 less 100 times the mean cost of a member."""
        if not placed:
            return 0.0
        return _BEST - (_BEST - score) / self.worst if self.worst else _BEST
