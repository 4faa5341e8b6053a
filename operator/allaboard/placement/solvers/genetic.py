"""The genetic search: a grouping GA over how many pods of each role sit on each node.

A gene is a *node with everybody on it* (Falkenauer's grouping GA, 1996), so a child takes whole nodes from its parents and no node is
ever over-committed; only the number of pods per role can be off, and repair puts that right. A gene per pod would break capacity
with nearly every crossover. Mutation ruins a part and repair rebuilds it in another order (ruin and recreate, Schrimpf et al. 2000).
Roles rebuild in random order along several node orders, often leaving room at first: that makes the mixed nodes that greedy never
builds. DEAP supplies fitness, selection, survival, hall of fame and logbook; the populations are numpy arrays, int64[plans, roles, nodes].

Everything random comes from the seed: numpy's generator is local, and the global one that DEAP draws from is put back afterwards.
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
_FIRST_HELPING = (0.25, 0.75)
_MIXING = 0.5
_BY_LOAD = 0.5
_ROLE_ORDERS = 4
_LONGER = 10
_POLISHED = 2
_STEPS = 6
_SMOOTH = 5  # times less patience is due where small steps lead to the best
_ENDLESS = 100_000
_EPSILON = 1e-9
_AT_ONCE = 1e-9  # seconds; none are for no end
# A gang has a few roles. One with hundreds would keep a worker busy for minutes, and greedy has all the variety it needs.
_MOST_ROLES = 128
# Measured, in microseconds: 13 ms for 2 roles on 380 nodes, 60 ms for 30 on 100.
_COST_OF_ANY = 3_000
_COST_OF_ROLE = 1_400
_CELLS_PER_MICROSECOND = 7


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How long to search and how boldly.

    ``crossover_rate``: share of children that mix two parents; ``mutation_rate``: share that are partly ruined and rebuilt.
    After ``min_generations`` the search ends when ``patience`` generations brought nothing; while members that are needed have no
    seat there are a few generations before the solver is asked, and ``generations`` after that. ``branches`` bounds its work; with 0 it
    isn't asked, and there are ten times as many generations.

    ``effort`` is for those whom others wait for: about how many microseconds of a processor to search for, reckoned from sizes and not
    from the clock, so that the answer is the same everywhere. What no greedy rule seats is then a question to the solver, if it is a small
    one, and not to generations. 0 is for as long as it pays. After ``seconds`` by the ``clock`` the best so far is the answer whatever the
    search is at; 0 is for no end. ``wall`` is the clock of solvers that know no other.
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
        """The same with no more time than ``budget`` has left: for a search that is part of something."""
        return replace(self, seconds=max(budget.seconds, _AT_ONCE)) if budget.seconds < math.inf else self


@dataclass(frozen=True, slots=True)
class Target:
    """What can't be beaten: so many pods, and when all sit, this score."""

    placeable: int
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """How many ``generations`` there may be, of these ``unseated`` while somebody who is needed has no seat; and the end at any rate."""

    generations: int
    unseated: int
    is_over: Callable[[], bool] = lambda: False


NO_LIMITS = Limits(_ENDLESS, _ENDLESS)
"""But for those of the settings."""


@dataclass(frozen=True, slots=True, eq=False)
class Evolution:
    """The best placement, int64[roles, nodes], and how it came about; ``history`` is (placed, best score) by generation."""

    counts: Integers
    generations: int
    stopped_by: str
    history: tuple[tuple[int, float], ...]


class Individual:
    """One placement, int64[roles, nodes], and its fitness: members missing, surplus left out, soft score, in that order."""

    __slots__ = ("counts", "fitness", "is_polished")

    def __init__(self, counts: Integers, values: tuple[float, float, float]) -> None:
        self.counts = counts
        self.fitness = creator.GangFitness(values)
        self.is_polished = False


def generation_cost(problem: Problem, settings: SearchSettings) -> int:
    """About how many microseconds a generation takes while everybody needed sits."""
    roles, nodes = len(problem.roles), len(problem.nodes)
    return _COST_OF_ANY + roles * (_COST_OF_ROLE + settings.population_size * nodes // _CELLS_PER_MICROSECOND)


def accepts(problem: Problem) -> bool:
    """Whether it isn't too large."""
    return len(problem.roles) <= _MOST_ROLES


def evolve(
    problem: Problem, seeds: Sequence[Integers], settings: SearchSettings, seed: int, target: Target, limits: Limits = NO_LIMITS
) -> Evolution:
    """Improve on ``seeds``, each int64[roles, nodes], of which the first is the best."""
    with seeded(seed):
        return _Search(problem, settings, np.random.default_rng(seed)).run(seeds, target, limits)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


class _Search:
    def __init__(self, problem: Problem, settings: SearchSettings, rng: np.random.Generator) -> None:
        self._problem = problem
        self._settings = settings
        self._rng = rng
        self._roles = len(problem.roles)
        self._valuation = Valuation(problem)
        most = math.factorial(min(self._roles, _ROLE_ORDERS))
        self._role_orders = max(1, min(_ROLE_ORDERS, most, settings.population_size, _ROLE_ORDERS * FEW_ROLES // max(1, self._roles)))
        self._orders = RepairOrders(problem, self._valuation, rng)
        # Where nodes cost together what they don't cost alone, small steps lead nowhere near the best.
        self._is_rugged = problem.devices is not None or (problem.domains is not None and bool(problem.weights.domains))
        self._toolbox = base.Toolbox()
        self._toolbox.register("select", tools.selTournament, tournsize=_TOURNAMENT)
        self._toolbox.register("survive", tools.selBest)

    def run(self, seeds: Sequence[Integers], target: Target, limits: Limits) -> Evolution:
        settings = self._settings
        best = tools.HallOfFame(1)
        logbook = tools.Logbook()
        population = self._survivors([*self._individuals(np.stack(seeds)), *self._newcomers()])
        best.update(population)
        stopped_by, stale = "generations", 0
        for generation in range(1, limits.generations + 1):
            before = best[0].fitness.wvalues
            population = self._survivors([*population, *self._children(population, best[0].counts), *self._polished(population, limits)])
            best.update(population)
            placed, value = self._standing(best[0])
            logbook.record(generation=generation, placed=placed, score=value)
            stale = 0 if best[0].fitness.wvalues > before else stale + 1
            if placed == target.placeable == self._problem.total and value >= target.score - _EPSILON:
                stopped_by = "optimal"
                break
            if limits.is_over():
                stopped_by = "time"
                break
            is_seated = not best[0].fitness.values[0]
            if generation >= settings.min_generations and is_seated and stale >= self._patience:
                stopped_by = "patience"
                break
            # While somebody who is needed has no seat it is for others to say how long that is worth.
            if generation >= (settings.generations if is_seated else limits.unseated):
                break
        history = tuple((entry["placed"], entry["score"]) for entry in logbook)
        return Evolution(best[0].counts, len(logbook), stopped_by, history)

    @property
    def _patience(self) -> int:
        """After how many generations in vain another one doesn't pay."""
        return self._settings.patience if self._is_rugged else max(1, self._settings.patience // _SMOOTH)

    def _standing(self, individual: Individual) -> tuple[int, float]:
        return int(individual.counts.sum()), float(individual.fitness.values[2])

    def _individuals(self, counts: Integers) -> list[Individual]:
        worths = self._valuation.objective_values(counts)
        return [Individual(plan, (each.missing, each.surplus, each.score)) for plan, each in zip(counts, worths, strict=True)]

    def _survivors(self, individuals: Sequence[Individual]) -> list[Individual]:
        """The best of parents and children, one of each worth: (mu + lambda) truncation that stays diverse."""
        distinct: dict[tuple[float, float, float], Individual] = {}
        for individual in individuals:
            missing, surplus, value = individual.fitness.values
            distinct.setdefault((missing, surplus, round(value, 9)), individual)
        survivors: list[Individual] = self._toolbox.survive(list(distinct.values()), self._settings.population_size)
        return survivors

    def _newcomers(self) -> list[Individual]:
        """Built from nothing along every node order."""
        size = self._settings.population_size
        empty = np.zeros((size, self._roles, len(self._problem.nodes)), dtype=np.int64)
        return self._individuals(self._repaired(empty, empty[0]))

    def _children(self, population: Sequence[Individual], best: Integers) -> list[Individual]:
        size = self._settings.population_size
        parents = self._toolbox.select(population, 2 * size)
        children = self._crossed(np.stack([one.counts for one in parents[:size]]), np.stack([one.counts for one in parents[size:]]))
        self._ruin(children)
        return self._individuals(self._repaired(children, best))

    def _polished(self, population: Sequence[Individual], limits: Limits) -> list[Individual]:
        """The best of those that haven't been polished, with more seated where that can be, after some steps downhill."""
        number = _POLISHED * (_LONGER if population[0].fitness.values[0] else 1)
        chosen, plans = [one for one in population if not one.is_polished][:number], []
        for one in chosen:
            if limits.is_over():
                break
            one.is_polished = True
            plans.append(search_locally(self._problem, self._valuation, assign_more(self._problem, one.counts), _STEPS))
        return self._individuals(np.stack(plans)) if plans else []

    def _crossed(self, mothers: Integers, fathers: Integers) -> Integers:
        """Each node, with all who sit on it, from one parent or the other."""
        plans, _, nodes = mothers.shape
        crosses = self._rng.random(size=(plans,)) < self._settings.crossover_rate
        takes = self._rng.random(size=(plans, nodes), dtype=np.float32) < _MIXING
        return np.where((takes & crosses[:, None])[:, None, :], fathers, mothers)

    def _ruin(self, children: Integers) -> None:
        """Clear some nodes of some children, at least one that is used; of everybody, or of one role."""
        plans, roles, nodes = children.shape
        is_used = children.any(axis=1)
        dice = self._rng.random(size=(plans, nodes), dtype=np.float32)
        share = self._rng.uniform(*_RUIN, size=(plans,))
        share[self._rng.random(size=(plans,)) < _REBUILD] = 1.0
        hit = dice < share[:, None]
        domains = self._problem.domains
        if domains is not None and self._problem.weights.domains:
            # Some lose whole domains instead.
            lost = self._rng.random(size=(plans, int(domains.max(initial=0)) + 1)) < self._rng.uniform(*_DOMAIN_RUIN, size=(plans, 1))
            whole = self._rng.random(size=(plans,)) < _MIXING
            hit[whole] = lost[whole][:, domains]
        hit[np.arange(plans), np.argmax(dice * is_used, axis=1)] = True
        hit &= (self._rng.random(size=(plans,)) < self._settings.mutation_rate)[:, None]
        victims = self._rng.integers(0, 2 * roles, size=(plans,))
        spared = (victims[:, None] < roles) & (np.arange(roles) != victims[:, None])
        children *= ~(hit[:, None, :] & ~spared[:, :, None])

    def _repaired(self, children: Integers, best: Integers) -> Integers:
        """Exactly the pods there are, or as many as find a seat."""
        orders = self._orders.draw(best)
        for batch in np.array_split(np.arange(len(children)), self._role_orders):
            mine = orders[self._rng.integers(0, len(orders), size=len(batch))]
            by_load = np.flatnonzero(self._rng.random(size=(len(batch),)) < _BY_LOAD)
            mine[by_load] = self._orders.by_load(children[batch[by_load]])
            children[batch] = self._repaired_batch(children[batch], mine, self._rng.permutation(self._roles).tolist())
        return self._problem.trimmed(children)

    def _repaired_batch(self, plans: Integers, orders: Integers, role_order: Sequence[int]) -> Integers:
        """One order of the roles for all; ``orders``: int64[plans, roles, nodes], each plan's nodes in the order they are filled."""
        problem = self._problem
        lacking = problem.count - plans.sum(axis=2)
        for role in np.flatnonzero((lacking < 0).any(axis=0)).tolist():
            plans[:, role] = _fill(plans[:, role], np.full(len(plans), problem.count[role]), orders[:, role])
        np.maximum(lacking, 0, out=lacking)
        left = self._left(plans)
        helpings = self._rng.uniform(*_FIRST_HELPING, size=(len(plans),))
        helpings[self._rng.random(size=(len(plans),)) < _MIXING] = 1.0
        for share in (helpings, np.ones(len(plans))):
            for role in role_order:
                who = np.flatnonzero(lacking[:, role])
                if len(who):
                    taken = self._slots(left[:, who], lacking[who, role], orders[who, role], role, share[who])
                    plans[who, role] += taken
                    lacking[who, role] -= taken.sum(axis=1)
                    for column in np.flatnonzero(problem.demand[role]).tolist():
                        left[column, who] -= problem.demand[role, column] * taken
        return plans

    def _left(self, plans: Integers) -> Integers:
        """What ``plans`` leave free: int64[columns, plans, nodes]."""
        problem = self._problem
        left = np.repeat(problem.free[:, None, :], len(plans), axis=1)
        for role, column in np.argwhere(problem.demand).tolist():
            left[column] -= plans[:, role] * problem.demand[role, column]
        return left

    def _slots(self, left: Integers, wanted: Integers, orders: Integers, role: int, share: Floats) -> Integers:
        """Seats for ``wanted`` pods of ``role``, of each node at most ``share`` of its room, and at least one seat of that."""
        room = slots_for(self._problem.demand[role], left, self._problem.admits[role])
        np.minimum(room, wanted[:, None], out=room)
        if (share < 1.0).any():
            room = np.ceil(room * share[:, None]).astype(np.int64)
        return _fill(room, wanted, orders)


def _fill(room: Integers, wanted: Integers, orders: Integers) -> Integers:
    """Take ``wanted``: int64[plans] from ``room``: int64[plans, nodes] along ``orders``: int64[plans, nodes]."""
    plans, nodes = room.shape
    places = orders + np.arange(0, plans * nodes, nodes)[:, None]
    along = room.ravel().take(places)
    before = np.cumsum(along, axis=1)
    before -= along
    filled = np.empty(plans * nodes, dtype=np.int64)
    filled[places] = np.minimum(np.maximum(wanted[:, None] - before, 0), along)
    return filled.reshape(room.shape)
