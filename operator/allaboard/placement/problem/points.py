"""Scores as people read them, in points: 100 where a placement costs nothing, 0 where each member costs as much as it can.

The search compares costs, whose size depends on the weights of the objective or of a kube-scheduler's profile, on preferences, and on how
many GPUs a node has. Only reports are in points: a cost divided by a number of the problem's compares as the cost does.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.devices import WHOLE

_BEST = 100.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How the scores of one problem become points. ``worst`` is what a member may cost at most."""

    worst: float

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the scale of a problem: the sum of what each term may cost a member.

        Of the GPU terms that is what all free GPUs of a node are worth, for a node on which one member sits.
        """
        weights = problem.weights
        worst = weights.packing + weights.spreading + (weights.domains if problem.domains is not None else 0.0)
        if problem.dislike is not None:
            worst += float(problem.dislike.max(initial=0.0, where=problem.slots > 0))
        if (found := problem.fragmentation) is not None:
            gpus = found.gpus_free if found.devices is None else found.devices.sum(axis=1) / WHOLE
            worst += (weights.fragmentation + weights.worth) * float(np.max(gpus, initial=0.0))
        return cls(worst)

    def points(self, score: float, placed: int) -> float:
        """Return ``score``, 100 less the hundredfold cost of a member, in points; 0 where no member is placed."""
        if not placed:
            return 0.0
        return _BEST - (_BEST - score) / self.worst if self.worst else _BEST
