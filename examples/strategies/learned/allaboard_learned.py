"""A learned policy as a strategy: it assigns one pod after another to the node that the policy values most."""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from allaboard.placement import Budget, Explanation, Plan, Problem, answer_of

_UNTRAINED = (-1.0, 0.0, 0.0)


class Learned:
    """A policy with one weight for each feature, from the JSON file ``weights``; without a file the policy works like best fit."""

    def __init__(self, weights: str = "") -> None:
        self._weights = np.array(json.loads(Path(weights).read_text()) if weights else _UNTRAINED, dtype=np.float64)

    def accepts(self, problem: Problem) -> bool:
        """Refuse shared GPUs and members that must share a topology domain: the policy wasn't trained on them."""
        return problem.devices is None and not problem.together

    def place(self, problem: Problem, budget: Budget) -> Plan | Explanation:
        """Leave out the pods for which no node, or no time, is left."""
        counts = np.zeros_like(problem.slots)  # pods of each role on each node
        left = problem.free.copy()
        for role, pods in enumerate(problem.count.tolist()):
            for _ in range(pods):
                may = problem.admits[role] & (problem.demand[role][:, None] <= left).all(axis=0)
                if budget.is_over or not may.any():
                    break
                values = np.where(may, self._weights @ self._features(problem, role, left), -np.inf)
                node = values.argmax()
                counts[role, node] += 1
                left[:, node] -= problem.demand[role]
        return answer_of(problem, counts, "learned")

    def _features(self, problem: Problem, role: int, left: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what the policy sees of each node: float64[features, nodes]. Put the features of your model here."""
        most = np.maximum(problem.free.max(axis=1, initial=0), 1)[:, None]
        rest = (left - problem.demand[role][:, None]) / most
        in_use = problem.taken / np.maximum(problem.taken + problem.free, 1)
        return np.stack([rest.mean(axis=0), rest.max(axis=0), in_use.mean(axis=0)])
