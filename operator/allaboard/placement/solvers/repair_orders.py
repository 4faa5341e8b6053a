"""Orders in which the genetic search's repair fills the nodes. Through these orders the search uses what is known of the problem.

Good orders matter more than any rate of the genetic search. Ties and noise make two repairs of the same plan differ, even on equal nodes.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.gang import Objective
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation

FEW_ROLES = 16
"""Up to this number of roles, each role gets orders of its own."""

# Never zero: noise breaks ties, and it does so in the same way however a processor sorts.
_NOISE = (1e-6, 0.05, 0.3)
_BY_DOMAIN = 8
_FROM_BEST = 0.7


class RepairOrders:
    """Draws the orders in which repair fills the nodes, with new noise each time.

    Some orders are the same for all roles: by name, at random, fullest nodes first, emptiest nodes first, and first the nodes that the best
    placement uses most. If there are few roles, each role also has orders of its own. One begins with the nodes whose free amounts are in
    proportions most like the role's requests. Others begin with the nodes with the fewest slots, with the most slots, or with the least
    cost. If a placement should use few topology domains, some orders go domain by domain. In most of these orders, all domains but one that
    the best placement uses come first. ``by_load`` orders the nodes by what a plan has assigned to them so far.
    """

    def __init__(self, problem: Problem, valuation: Valuation, rng: np.random.Generator) -> None:
        self._problem = problem
        self._rng = rng
        self._shape = (len(problem.roles), len(problem.nodes))
        used = problem.scoring.used.mean(axis=0)
        random = np.zeros(self._shape[1])
        keys = [np.linspace(0.0, 1.0, self._shape[1]), random, random, -used, used]
        if self._shape[0] <= FEW_ROLES:
            slots = problem.slots / np.maximum(problem.slots.max(axis=1, initial=1), 1)[:, None]
            keys += [-_alignment(problem), slots, -slots, *([_prices(problem, valuation)] * 2)]
        self._keys = [np.atleast_2d(key) for key in keys]
        self._domains = problem.domains if problem.weights.domains else None
        self._by_domain = 0 if self._domains is None else _BY_DOMAIN

    def draw(self, best: Integers) -> Integers:
        """Return new orders: int64[orders, roles, nodes]. ``best``: int64[roles, nodes], the best placement so far."""
        own = -best.sum(axis=0, keepdims=True, dtype=np.float64)
        drawn = np.empty((len(self._keys) + 1 + self._by_domain, *self._shape), dtype=np.int64)
        for position, key in enumerate([*self._keys, own]):
            drawn[position] = np.argsort(self._noisy(key), axis=1)
        for position in range(len(self._keys) + 1, len(drawn)):
            key = self._noisy(self._keys[int(self._rng.integers(len(self._keys)))])
            drawn[position] = np.argsort(key if self._domains is None else self._ranks(self._domains, best) + key, axis=1)
        return drawn

    def _noisy(self, key: Floats) -> Floats:
        """Return ``key`` scaled to 0..1, plus random noise. If all values of ``key`` are equal, the noise alone is returned."""
        low = key.min(initial=0)
        span = float(key.max(initial=0) - low)
        noise: Floats = self._rng.choice(_NOISE) * self._rng.random(self._shape[1])
        return (key - low) / span + noise if span else np.atleast_2d(noise + self._rng.random(self._shape[1]))

    def _ranks(self, domains: Integers, best: Integers) -> Floats:
        """Return twice the rank of each node's domain in a random order of the domains: float64[nodes].

        Often the domains that ``best`` uses come first, except for one of them, which comes last.
        """
        slots = np.bincount(domains, weights=best.sum(axis=0))
        key = self._rng.random(len(slots))
        if self._rng.random() < _FROM_BEST:
            used = np.flatnonzero(slots)
            key[used] -= 1.0
            if len(used):
                key[self._rng.choice(used)] += 2.0
        return 2.0 * np.argsort(np.argsort(key))[domains].astype(np.float64)

    def by_load(self, plans: Integers) -> Integers:
        """Return an order of the nodes for each of ``plans``: int64[plans, roles, nodes], by how full the plan makes the nodes.

        The result is int64[plans, 1, nodes], fullest node first to pack, else emptiest node first.
        """
        scoring = self._problem.scoring
        load = scoring.used.mean(axis=0) + np.einsum("prn,rn->pn", plans, scoring.step.mean(axis=1))
        key = -load if self._problem.objective is Objective.BINPACK else load
        key += self._rng.choice(_NOISE) * self._rng.random(size=load.shape)
        return np.argsort(key, axis=1)[:, None, :]


def _prices(problem: Problem, valuation: Valuation) -> Floats:
    """Return what one pod of each role costs on each node if the node takes as many pods of the role as it can: float64[roles, nodes]."""
    prices = np.zeros(problem.slots.shape)
    for role, slots in enumerate(np.minimum(problem.slots, problem.count[:, None])):
        rows = np.flatnonzero(slots)
        patterns = np.zeros((len(rows), len(prices)), dtype=np.int64)
        patterns[:, role] = slots[rows]
        prices[role, rows] = valuation.node_costs(rows, patterns) / slots[rows]
    return prices


def _alignment(problem: Problem) -> Floats:
    """Return the cosine between what a node has free and what a role requests: float64[roles, nodes]; 1 for equal proportions."""
    scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
    free = problem.free * scale[:, None]
    demand = problem.demand * scale
    length = np.sqrt((free * free).sum(axis=0)) * np.sqrt((demand * demand).sum(axis=1))[:, None]
    cosine: Floats = np.divide(np.einsum("rc,cn->rn", demand, free), length, out=np.zeros_like(length), where=length > 0)
    return cosine
