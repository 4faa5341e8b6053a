"""The genetic search: a grouping genetic algorithm over the number of pods of each role on each node.

A gene is a *node with all pods on it* (Falkenauer's grouping GA, 1996). A child takes whole nodes from its parents, so no node is ever
over-committed. Only the number of pods of a role can be wrong, and repair corrects it. With a gene for each pod, nearly every crossover
would exceed a node's capacity.

Mutation clears some nodes, and repair fills them in another order (ruin and recreate, Schrimpf et al. 2000). Repair takes the roles in
random order, along several orders of the nodes, and often leaves capacity free at first. That makes nodes with mixed roles, which greedy
rules never make.

DEAP supplies fitness, selection, survival, hall of fame and logbook. The populations are numpy arrays, int64[plans, roles, nodes]. All
randomness comes from the seed: numpy's generator is local, and the state of the global one, from which DEAP draws, is restored afterwards.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from deap import base, creator, tools

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import slots_for
from allaboard.placement.solvers.budget import Budget, Clock, no_clock
from allaboard.placement.solvers.ejection_chains import assign_more
from allaboard.placement.solvers.local_search import search_locally
from allaboard.placement.solvers.repair_orders import FEW_ROLES, RepairOrders

creator.create("GangFitness", base.Fitness, weights=(-1.0, -1.0, 1.0))

_TOURNAMENT = 3
_RUIN = (0.02, 0.35)
_DOMAIN_RUIN = (0.05, 0.3)
_REBUILD = 0.1
_FIRST_SHARE = (0.25, 0.75)
_MIXING = 0.5
_BY_LOAD = 0.5
_ROLE_ORDERS = 4
_SEARCHED_LOCALLY = 2  # Plans of each generation that get a local search.
_INCOMPLETE_FACTOR = 10  # Times as many plans while needed members are unassigned.
_LOCAL_ROUNDS = 6
_SMOOTH = 5  # Divides the patience where small steps lead to the best placement.
_ENDLESS = 100_000
_EPSILON = 1e-9
_AT_ONCE = 1e-9  # Seconds until an end that has come; 0 would be no end.
# Most gangs have a few roles. Hundreds of roles would keep a worker busy for minutes, and greedy rules vary enough for them.
_MOST_ROLES = 128
# Microseconds. Measured were 13 ms for 2 roles on 380 nodes, and 60 ms for 30 roles on 100 nodes.
_COST_OF_ANY = 3_000
_COST_OF_ROLE = 1_400
_CELLS_PER_MICROSECOND = 7


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Limits and rates of a search.

    ``crossover_rate``: share of children that mix two parents. ``mutation_rate``: share of children that are partly cleared and filled
    again. The search ends after ``patience`` generations that found nothing better, but not before ``min_generations``. A fifth of
    ``patience`` is enough if no GPU is shared and the placement needn't use few topology domains.

    If needed members are unassigned, a few generations run first, then the exact solver, and then up to ``generations`` more. ``branches``:
    the most branches of the solver. With 0 branches the solver isn't run, and there are ten times as many generations.

    ``effort``: about how many microseconds of a processor the search may take; 0 for as long as it pays. An effort is set if other gangs
    wait for the search. It is compared with estimates from sizes and not with the clock, so the answer is the same everywhere. With an
    effort the solver is run only if the problem is small, and no generations follow if the solver has no answer.

    ``seconds``: time by ``clock`` after which the best placement so far is the answer; 0 for no end. ``wall``: the wall clock, by which
    solvers outside of this project are stopped.
    """

    generations: int = 60
    min_generations: int = 1
    population_size: int = 48
    mutation_rate: float = 0.5
    crossover_rate: float = 0.8
    patience: int = 5
    branches: int = 200
    effort: int = 0
    seconds: float = 0.0
    clock: Clock = no_clock
    wall: Clock = no_clock

    def within(self, budget: Budget) -> Self:
        """Return these settings with no more time than ``budget`` has left, for a search that is part of another search."""
        return replace(self, seconds=max(budget.seconds, _AT_ONCE)) if budget.seconds < math.inf else self


@dataclass(frozen=True, slots=True)
class Target:
    """A result that can't be beaten: the most pods that can be placed and, if all pods are placed, the best score."""

    placeable: int
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Limits of one genetic search, besides its settings.

    ``generations``: the most generations. ``while_incomplete``: the most generations while needed members are unassigned. ``is_over``:
    returns whether the time limit is reached.
    """

    generations: int
    while_incomplete: int
    is_over: Callable[[], bool] = lambda: False


NO_LIMITS = Limits(_ENDLESS, _ENDLESS)
"""The limits of a genetic search that only its settings limit."""


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """The result of a genetic search: the best placement, int64[roles, nodes], and how the search went.

    ``history``: (members placed, best score) of each generation.
    """

    counts: Integers
    generations: int
    stopped_by: str
    history: tuple[tuple[int, float], ...]


class Individual:
    """A placement, int64[roles, nodes], and its fitness: needed members missing, surplus left out, and score, in that order."""

    __slots__ = ("counts", "fitness", "is_searched_locally")

    def __init__(self, counts: Integers, values: tuple[float, float, float]) -> None:
        self.counts = counts
        self.fitness = creator.GangFitness(values)
        self.is_searched_locally = False


def generation_cost(problem: Problem, settings: SearchSettings) -> int:
    """Return about how many microseconds a generation takes if all needed members are placed."""
    roles, nodes = len(problem.roles), len(problem.nodes)
    return _COST_OF_ANY + roles * (_COST_OF_ROLE + settings.population_size * nodes // _CELLS_PER_MICROSECOND)


def accepts(problem: Problem) -> bool:
    """Return whether ``problem`` has few enough roles for the genetic search."""
    return len(problem.roles) <= _MOST_ROLES


def evolve(
    problem: Problem, seeds: Sequence[Integers], settings: SearchSettings, seed: int, target: Target, limits: Limits = NO_LIMITS
) -> Evolution:
    """Return the best placement that evolves from ``seeds``, of which the best is the first. ``seeds``: int64[roles, nodes] each."""
    with seeded(seed):
        return _Search(problem, settings, np.random.default_rng(seed)).run(seeds, target, limits)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's global random generator within the block, and restore its state afterwards."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


class _Search:
    """One run of the genetic search."""

    def __init__(self, problem: Problem, settings: SearchSettings, rng: np.random.Generator) -> None:
        self._problem = problem
        self._settings = settings
        self._rng = rng
        self._roles = len(problem.roles)
        self._valuation = Valuation(problem)
        most = math.factorial(min(self._roles, _ROLE_ORDERS))
        self._role_orders = max(1, min(_ROLE_ORDERS, most, settings.population_size, _ROLE_ORDERS * FEW_ROLES // max(1, self._roles)))
        self._orders = RepairOrders(problem, self._valuation, rng)
        # Where topology domains, shared GPUs or preferences between members count, small steps gain nothing even far from the best
        # placement.
        uses_domains = problem.domains is not None and bool(problem.weights.domains)
        self._is_rugged = problem.devices is not None or uses_domains or bool(problem.attractions)
        self._toolbox = base.Toolbox()
        self._toolbox.register("select", tools.selTournament, tournsize=_TOURNAMENT)
        self._toolbox.register("survive", tools.selBest)

    def run(self, seeds: Sequence[Integers], target: Target, limits: Limits) -> Evolution:
        settings = self._settings
        best = tools.HallOfFame(1)
        logbook = tools.Logbook()
        population = self._survivors([*self._individuals(np.stack(seeds)), *self._built_from_empty()])
        best.update(population)
        stopped_by, stale = "generations", 0
        for generation in range(1, limits.generations + 1):
            before = best[0].fitness.wvalues
            population = self._survivors([*population, *self._children(population, best[0].counts), *self._improved(population, limits)])
            best.update(population)
            placed, value = self._placed_and_score(best[0])
            logbook.record(generation=generation, placed=placed, score=value)
            stale = 0 if best[0].fitness.wvalues > before else stale + 1
            if placed == target.placeable == self._problem.total and value >= target.score - _EPSILON:
                stopped_by = "optimal"
                break
            if limits.is_over():
                stopped_by = "time"
                break
            is_complete = not best[0].fitness.values[0]
            if generation >= settings.min_generations and is_complete and stale >= self._patience:
                stopped_by = "patience"
                break
            # While needed members are unassigned, the caller limits the generations.
            if generation >= (settings.generations if is_complete else limits.while_incomplete):
                break
        history = tuple((entry["placed"], entry["score"]) for entry in logbook)
        return Evolution(best[0].counts, len(logbook), stopped_by, history)

    @property
    def _patience(self) -> int:
        """Number of generations without a better placement after which the search ends."""
        return self._settings.patience if self._is_rugged else max(1, self._settings.patience // _SMOOTH)

    def _placed_and_score(self, individual: Individual) -> tuple[int, float]:
        return int(individual.counts.sum()), float(individual.fitness.values[2])

    def _individuals(self, counts: Integers) -> list[Individual]:
        worths = self._valuation.objective_values(counts)
        return [Individual(plan, (each.missing, each.surplus, each.score)) for plan, each in zip(counts, worths, strict=True)]

    def _survivors(self, individuals: Sequence[Individual]) -> list[Individual]:
        """Return the best of parents and children, at most one of each fitness: (mu + lambda) truncation that stays diverse."""
        distinct: dict[tuple[float, float, float], Individual] = {}
        for individual in individuals:
            missing, surplus, value = individual.fitness.values
            distinct.setdefault((missing, surplus, round(value, 9)), individual)
        survivors: list[Individual] = self._toolbox.survive(list(distinct.values()), self._settings.population_size)
        return survivors

    def _built_from_empty(self) -> list[Individual]:
        """Return individuals whose nodes were all empty before repair filled them."""
        size = self._settings.population_size
        empty = np.zeros((size, self._roles, len(self._problem.nodes)), dtype=np.int64)
        return self._individuals(self._repaired(empty, empty[0]))

    def _children(self, population: Sequence[Individual], best: Integers) -> list[Individual]:
        size = self._settings.population_size
        parents = self._toolbox.select(population, 2 * size)
        children = self._crossed(np.stack([one.counts for one in parents[:size]]), np.stack([one.counts for one in parents[size:]]))
        self._ruin(children)
        return self._individuals(self._repaired(children, best))

    def _improved(self, population: Sequence[Individual], limits: Limits) -> list[Individual]:
        """Return the best individuals that had no local search yet, improved by ejection chains and a short local search."""
        number = _SEARCHED_LOCALLY * (_INCOMPLETE_FACTOR if population[0].fitness.values[0] else 1)
        chosen, plans = [one for one in population if not one.is_searched_locally][:number], []
        for one in chosen:
            if limits.is_over():
                break
            one.is_searched_locally = True
            plans.append(search_locally(self._problem, self._valuation, assign_more(self._problem, one.counts), _LOCAL_ROUNDS))
        return self._individuals(np.stack(plans)) if plans else []

    def _crossed(self, mothers: Integers, fathers: Integers) -> Integers:
        """Return children that take each node, with all its pods, from one of their two parents."""
        plans, _, nodes = mothers.shape
        crosses = self._rng.random(size=(plans,)) < self._settings.crossover_rate
        takes = self._rng.random(size=(plans, nodes), dtype=np.float32) < _MIXING
        return np.where((takes & crosses[:, None])[:, None, :], fathers, mothers)

    def _ruin(self, children: Integers) -> None:
        """Remove pods from some nodes of some children: all pods of these nodes, or only the pods of one role.

        In each of these children, at least one of the nodes has pods.
        """
        plans, roles, nodes = children.shape
        is_used = children.any(axis=1)
        draws = self._rng.random(size=(plans, nodes), dtype=np.float32)
        share = self._rng.uniform(*_RUIN, size=(plans,))
        share[self._rng.random(size=(plans,)) < _REBUILD] = 1.0
        is_cleared = draws < share[:, None]
        domains = self._problem.domains
        if domains is not None and self._problem.weights.domains:
            # Some children lose whole domains instead of single nodes.
            lost = self._rng.random(size=(plans, int(domains.max(initial=0)) + 1)) < self._rng.uniform(*_DOMAIN_RUIN, size=(plans, 1))
            whole = self._rng.random(size=(plans,)) < _MIXING
            is_cleared[whole] = lost[whole][:, domains]
        is_cleared[np.arange(plans), np.argmax(draws * is_used, axis=1)] = True
        is_cleared &= (self._rng.random(size=(plans,)) < self._settings.mutation_rate)[:, None]
        cleared_role = self._rng.integers(0, 2 * roles, size=(plans,))
        spared = (cleared_role[:, None] < roles) & (np.arange(roles) != cleared_role[:, None])
        children *= ~(is_cleared[:, None, :] & ~spared[:, :, None])

    def _repaired(self, children: Integers, best: Integers) -> Integers:
        """Return the children with exactly the gang's pods, or with as many as can be assigned."""
        orders = self._orders.draw(best)
        for batch in np.array_split(np.arange(len(children)), self._role_orders):
            mine = orders[self._rng.integers(0, len(orders), size=len(batch))]
            by_load = np.flatnonzero(self._rng.random(size=(len(batch),)) < _BY_LOAD)
            mine[by_load] = self._orders.by_load(children[batch[by_load]])
            children[batch] = self._repaired_batch(children[batch], mine, self._rng.permutation(self._roles).tolist())
        return self._problem.trimmed(children)

    def _repaired_batch(self, plans: Integers, orders: Integers, role_order: Sequence[int]) -> Integers:
        """Repair ``plans`` with one order of the roles. ``orders``: int64[plans, roles, nodes], the nodes in the order they are filled."""
        problem = self._problem
        unassigned = problem.count - plans.sum(axis=2)
        for role in np.flatnonzero((unassigned < 0).any(axis=0)).tolist():
            plans[:, role] = _fill(plans[:, role], np.full(len(plans), problem.count[role]), orders[:, role])
        np.maximum(unassigned, 0, out=unassigned)
        left = self._left(plans)
        first_shares = self._rng.uniform(*_FIRST_SHARE, size=(len(plans),))
        first_shares[self._rng.random(size=(len(plans),)) < _MIXING] = 1.0
        for share in (first_shares, np.ones(len(plans))):
            for role in role_order:
                short = np.flatnonzero(unassigned[:, role])
                if len(short):
                    taken = self._assigned(left[:, short], unassigned[short, role], orders[short, role], role, share[short])
                    plans[short, role] += taken
                    unassigned[short, role] -= taken.sum(axis=1)
                    for column in np.flatnonzero(problem.demand[role]).tolist():
                        left[column, short] -= problem.demand[role, column] * taken
        return plans

    def _left(self, plans: Integers) -> Integers:
        """Return what ``plans`` leave free: int64[capacities, plans, nodes]."""
        problem = self._problem
        left = np.repeat(problem.free[:, None, :], len(plans), axis=1)
        for role, column in np.argwhere(problem.demand).tolist():
            left[column] -= plans[:, role] * problem.demand[role, column]
        return left

    def _assigned(self, left: Integers, wanted: Integers, orders: Integers, role: int, share: Floats) -> Integers:
        """Assign ``wanted`` pods of ``role``, and return how many each node takes: int64[plans, nodes].

        A node takes at most ``share`` of its slots, rounded up.
        """
        slots = slots_for(self._problem.demand[role], left, self._problem.admits[role])
        np.minimum(slots, wanted[:, None], out=slots)
        if (share < 1.0).any():
            slots = np.ceil(slots * share[:, None]).astype(np.int64)
        return _fill(slots, wanted, orders)


def _fill(slots: Integers, wanted: Integers, orders: Integers) -> Integers:
    """Take up to ``wanted`` slots in each plan, filling the nodes in its order; return how many slots of each node are taken.

    ``wanted``: int64[plans]. ``slots``, ``orders`` and the result: int64[plans, nodes].
    """
    plans, nodes = slots.shape
    positions = orders + np.arange(0, plans * nodes, nodes)[:, None]
    along = slots.ravel().take(positions)
    before = np.cumsum(along, axis=1)
    before -= along
    filled = np.empty(plans * nodes, dtype=np.int64)
    filled[positions] = np.minimum(np.maximum(wanted[:, None] - before, 0), along)
    return filled.reshape(slots.shape)
