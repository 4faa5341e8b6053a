"""In which order repair fills the nodes: the knowledge of the problem that the genetic search has.

Good orders matter more than any of its rates. Ties and noise make two repairs of the same plan differ, even on equal nodes.
"""

import numpy as np

from allaboard.model.gang import Objective
from allaboard.placement.objectives import Floats
from allaboard.placement.problem import Integers, Problem

FEW_ROLES = 16
"""Up to this many roles each is given orders of its own."""

# Never none at all: it breaks ties, and does so alike whatever way a processor sorts.
_NOISE = (1e-6, 0.05, 0.3)


class NodeOrders:
    """Orders in which repair fills nodes. Good orders matter more than any rate of the search.

    By name, at random, fullest or emptiest first, most alike to what the role asks first, fewest or most seats first, and the nodes of
    the best placement first, each with fresh noise; and by what the plan to repair has put on the nodes so far. With many roles only
    the orders that all roles share are drawn.
    """

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng
        self._shape = (len(problem.roles), len(problem.nodes))
        used = problem.scoring.used.mean(axis=0)
        chance = np.zeros(self._shape[1])
        keys = [np.linspace(0.0, 1.0, self._shape[1]), chance, chance, -used, used]
        if self._shape[0] <= FEW_ROLES:
            seats = problem.seats / np.maximum(problem.seats.max(axis=1, initial=1), 1)[:, None]
            keys += [-_likeness(problem), seats, -seats]
        self._keys = [np.atleast_2d(key) for key in keys]

    def draw(self, best: Integers) -> Integers:
        """int64[orders, roles, nodes], new ones at each call; ``best``: int64[roles, nodes]."""
        own = -best.sum(axis=0, keepdims=True, dtype=np.float64)
        drawn = np.empty((len(self._keys) + 1, *self._shape), dtype=np.int64)
        for position, key in enumerate([*self._keys, own]):
            span = float(key.max(initial=0) - key.min(initial=0))
            noise = self._rng.choice(_NOISE) * span if span else 1.0
            drawn[position] = np.argsort(key + noise * self._rng.random(self._shape[1]), axis=1)
        return drawn

    def by_load(self, plans: Integers) -> Integers:
        """An order for each of ``plans``: int64[plans, roles, nodes], by how full it has made the nodes: int64[plans, 1, nodes]."""
        scoring = self._problem.scoring
        load = scoring.used.mean(axis=0) + np.einsum("prn,rn->pn", plans, scoring.step.mean(axis=1))
        key = -load if self._problem.objective is Objective.BINPACK else load
        key += self._rng.choice(_NOISE) * self._rng.random(size=load.shape)
        return np.argsort(key, axis=1)[:, None, :]


def _likeness(problem: Problem) -> Floats:
    """How alike in proportions what a node has free and what a role asks are: float64[roles, nodes], the cosine of the two."""
    scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
    free = problem.free * scale[:, None]
    demand = problem.demand * scale
    length = np.sqrt((free * free).sum(axis=0)) * np.sqrt((demand * demand).sum(axis=1))[:, None]
    cosine: Floats = np.divide(np.einsum("rc,cn->rn", demand, free), length, out=np.zeros_like(length), where=length > 0)
    return cosine
