"""In which order repair fills the nodes: the knowledge of the problem that the genetic search has.

Good orders matter more than any of its rates. Ties and noise make two repairs of the same plan differ, even on equal nodes.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.gang import Objective
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation

FEW_ROLES = 16
"""Up to this many roles each is given orders of its own."""

# Never none at all: it breaks ties, and does so alike whatever way a processor sorts.
_NOISE = (1e-6, 0.05, 0.3)
_BY_DOMAIN = 8
_FROM_BEST = 0.7


class RepairOrders:
    """Orders in which repair fills nodes. Good orders matter more than any rate of the search.

    By name, at random, fullest or emptiest first, most alike to what the role asks first, fewest or most seats first, cheapest first, and
    the nodes of the best placement first, each with fresh noise; where there are topology domains, domain by domain too, those first
    that the best placement uses, but for one; and by what the plan to repair has put on the nodes so far. With many roles only the
    orders that all roles share are drawn.
    """

    def __init__(self, problem: Problem, valuation: Valuation, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng
        self._shape = (len(problem.roles), len(problem.nodes))
        used = problem.scoring.used.mean(axis=0)
        chance = np.zeros(self._shape[1])
        keys = [np.linspace(0.0, 1.0, self._shape[1]), chance, chance, -used, used]
        if self._shape[0] <= FEW_ROLES:
            slots = problem.slots / np.maximum(problem.slots.max(axis=1, initial=1), 1)[:, None]
            keys += [-_likeness(problem), slots, -slots, *([_prices(problem, valuation)] * 2)]
        self._keys = [np.atleast_2d(key) for key in keys]
        self._domains = problem.domains if problem.weights.domains else None
        self._by_domain = 0 if self._domains is None else _BY_DOMAIN

    def draw(self, best: Integers) -> Integers:
        """int64[orders, roles, nodes], new ones at each call; ``best``: int64[roles, nodes]."""
        own = -best.sum(axis=0, keepdims=True, dtype=np.float64)
        drawn = np.empty((len(self._keys) + 1 + self._by_domain, *self._shape), dtype=np.int64)
        for position, key in enumerate([*self._keys, own]):
            drawn[position] = np.argsort(self._noisy(key), axis=1)
        for position in range(len(self._keys) + 1, len(drawn)):
            key = self._noisy(self._keys[int(self._rng.integers(len(self._keys)))])
            drawn[position] = np.argsort(key if self._domains is None else self._ranks(self._domains, best) + key, axis=1)
        return drawn

    def _noisy(self, key: Floats) -> Floats:
        """The key, from 0 to less than 2, with some noise."""
        low = key.min(initial=0)
        span = float(key.max(initial=0) - low)
        noise: Floats = self._rng.choice(_NOISE) * self._rng.random(self._shape[1])
        return (key - low) / span + noise if span else np.atleast_2d(noise + self._rng.random(self._shape[1]))

    def _ranks(self, domains: Integers, best: Integers) -> Floats:
        """Twice the rank of each node's domain: float64[nodes], at random, but often those first that ``best`` uses, save one."""
        slots = np.bincount(domains, weights=best.sum(axis=0))
        key = self._rng.random(len(slots))
        if self._rng.random() < _FROM_BEST:
            used = np.flatnonzero(slots)
            key[used] -= 1.0
            if len(used):
                key[self._rng.choice(used)] += 2.0
        return 2.0 * np.argsort(np.argsort(key))[domains].astype(np.float64)

    def by_load(self, plans: Integers) -> Integers:
        """An order for each of ``plans``: int64[plans, roles, nodes], by how full it has made the nodes: int64[plans, 1, nodes]."""
        scoring = self._problem.scoring
        load = scoring.used.mean(axis=0) + np.einsum("prn,rn->pn", plans, scoring.step.mean(axis=1))
        key = -load if self._problem.objective is Objective.BINPACK else load
        key += self._rng.choice(_NOISE) * self._rng.random(size=load.shape)
        return np.argsort(key, axis=1)[:, None, :]


def _prices(problem: Problem, valuation: Valuation) -> Floats:
    """What one pod of each role costs on each node when as many sit there as can: float64[roles, nodes]."""
    prices = np.zeros(problem.slots.shape)
    for role, slots in enumerate(np.minimum(problem.slots, problem.count[:, None])):
        rows = np.flatnonzero(slots)
        patterns = np.zeros((len(rows), len(prices)), dtype=np.int64)
        patterns[:, role] = slots[rows]
        prices[role, rows] = valuation.node_costs(rows, patterns) / slots[rows]
    return prices


def _likeness(problem: Problem) -> Floats:
    """How alike in proportions what a node has free and what a role asks are: float64[roles, nodes], the cosine of the two."""
    scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
    free = problem.free * scale[:, None]
    demand = problem.demand * scale
    length = np.sqrt((free * free).sum(axis=0)) * np.sqrt((demand * demand).sum(axis=1))[:, None]
    cosine: Floats = np.divide(np.einsum("rc,cn->rn", demand, free), length, out=np.zeros_like(length), where=length > 0)
    return cosine
