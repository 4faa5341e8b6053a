"""Searches for the order in which the gangs of a contest are placed, and for the filling rule by which the decoder places each gang.

The objective value of an order is the value of placing the gangs one after another in this order. A gang that finds no slots is left out.
Sorted orders are tried first, then a genetic search on DEAP. The genetic search uses order crossover (Davis 1985), moves gangs in the order
(most often gangs that were left out), and changes filling rules.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from deap import base, creator, tools

from allaboard.placement.contest.contest import Contest
from allaboard.placement.contest.decoder import RULES, Decoder, Slots, Table
from allaboard.placement.rules.devices import WHOLE
from allaboard.placement.solvers.genetic import seeded

creator.create("QueueFitness", base.Fitness, weights=(1.0, 1.0, 1.0, 1.0, 1.0, -1.0))

ObjectiveValue = tuple[int, int, int, int, int, float]
"""Objective value of an order: thousandths of GPUs, percent of cpu or memory, gangs, members, members beyond the minimum, cost."""

_POPULATION = 24
_CHILDREN = 12
_PATIENCE = 12
_TOURNAMENT = 3
_MOST_MOVES = 3
_CROSSOVER = 0.4
_GUIDED = 0.5
_CHANGED_RULE = 0.15
_WORK = 10_000_000  # of all orders together, in tenths of a microsecond, as ``_work`` estimates
_LEAST_ORDERS = 24
_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of placing gangs in one order.

    ``slots``: (position of a gang, its slots), in the order in which the slots are taken. Members beyond the minimum have entries of their
    own, which follow the entries of all minima. ``table`` is the state with all of ``slots`` taken.
    """

    value: ObjectiveValue
    slots: Sequence[tuple[int, Slots]]
    table: Table

    @property
    def placed(self) -> frozenset[int]:
        """Positions of the gangs that are placed."""
        return frozenset(position for position, _ in self.slots)

    @property
    def minima(self) -> Sequence[tuple[int, Slots]]:
        """The entries of ``slots`` for the minima of gangs, without the entries for members beyond the minimum."""
        return self.slots[: len(self.placed)]


class _Individual:
    """One individual of the genetic search: an order in which gangs are placed, and for each gang the rule by which it fills nodes."""

    __slots__ = ("fitness", "order", "outcome", "rules")

    def __init__(self, order: Sequence[int], rules: Sequence[int], outcome: Outcome) -> None:
        self.order = order
        self.rules = rules
        self.outcome = outcome
        self.fitness = creator.QueueFitness(outcome.value)


@dataclass(slots=True)
class PermutationSearch:
    """Searches for the best order of ``gangs``.

    ``gangs``: positions in queue order. ``effort``: microseconds that all orders together may take, as estimated from sizes. If it is 0,
    orders are tried for about a second, and at least 24 are tried. ``tried`` caches the outcome of each (order, filling rules).
    """

    contest: Contest
    decoder: Decoder
    gangs: Sequence[int]
    effort: int = 0
    tried: dict[tuple[tuple[int, ...], tuple[int, ...]], Outcome] = field(default_factory=dict)
    generations: int = 0

    def outcome(self, order: Sequence[int], rules: Sequence[int] | None = None) -> Outcome:
        """Return the outcome of placing the gangs in ``order``, and then members beyond the minimum in queue order.

        ``rules``: the filling rule of each gang; None for the first rule.
        """
        key = (tuple(order), tuple(rules or [0] * len(self.contest.gangs)))
        outcome = self.tried.get(key)
        if outcome is None:
            rule_of = key[1]
            outcome = self._placed(order, lambda table, position: self.decoder.find(table, position, rule_of[position]))
            self.tried[key] = outcome
        return outcome

    def start(self, find: Callable[[Table, int], Slots | None]) -> Outcome:
        """Return the outcome of placing the gangs in queue order on the slots that ``find`` returns."""
        outcome = self._placed(self.gangs, find)
        self.tried[tuple(self.gangs), (0,) * len(self.contest.gangs)] = outcome
        return outcome

    def _placed(self, order: Sequence[int], find: Callable[[Table, int], Slots | None]) -> Outcome:
        table, slots = self.decoder.start.copy(), list[tuple[int, Slots]]()
        for position in order:
            found = find(table, position)
            if found is not None:
                self.decoder.take(table, self.contest.gangs[position], found)
                slots.append((position, found))
        return outcome_of(self.contest, self.decoder, table, slots)

    def try_sorted_orders(self) -> Iterator[Outcome]:
        """Yield the outcomes of orders sorted by the gangs' GPUs, share of the free capacity, scarcity of slots, or size of pods."""
        for order in self._sorted_orders():
            if len(self.tried) >= self._most_orders():
                return
            yield self.outcome(order)

    def evolve(self, seed: int, is_best: Callable[[Outcome], bool], generations: int) -> Outcome:
        """Return the best outcome of a genetic search that starts with all orders tried so far.

        The search ends once ``is_best`` holds for its best outcome.
        """
        most_orders = self._most_orders()
        population = [_Individual(order, rules, outcome) for (order, rules), outcome in self.tried.items()]
        best, stale = max(population, key=_fitness), 0
        with seeded(seed):
            while self.generations < generations and stale < _PATIENCE and len(self.tried) < most_orders and not is_best(best.outcome):
                self.generations += 1
                children = [self._child(population) for _ in range(_CHILDREN)]
                distinct = {(individual.fitness.values, individual.outcome.placed): individual for individual in [*children, *population]}
                population = tools.selBest(list(distinct.values()), _POPULATION)
                stale = 0 if population[0].fitness > best.fitness else stale + 1
                best = max(best, population[0], key=_fitness)  # the earlier of two equals: the queue's own order came first
        return best.outcome

    def _child(self, population: Sequence[_Individual]) -> _Individual:
        mother, father = tools.selTournament(population, 2, tournsize=_TOURNAMENT)
        order, rules = list(mother.order), list(mother.rules)
        if random.random() < _CROSSOVER:
            order = _crossed(order, father.order)
            rules = [random.choice(pair) for pair in zip(rules, father.rules, strict=True)]
        missed = [position for position in order if position not in mother.outcome.placed]
        for _ in range(random.randint(1, _MOST_MOVES)):
            # Most often a gang that was left out moves: it may then be placed before others.
            moved = random.choice(missed) if missed and random.random() < _GUIDED else random.choice(order)
            order.remove(moved)
            order.insert(random.randint(0, len(order)), moved)
        for position in self.gangs:
            if not self.contest.gangs[position].is_single and random.random() < _CHANGED_RULE:
                rules[position] = random.randrange(RULES)
        return _Individual(order, rules, self.outcome(order, rules))

    def _sorted_orders(self) -> Iterator[list[int]]:
        gangs, problem = self.contest.gangs, self.contest.problem
        free = np.maximum(problem.free.sum(axis=1, dtype=np.float64), 1.0)
        gpus = {position: gangs[position].most_gpus for position in self.gangs}
        load = {position: gangs[position].count @ problem.demand[gangs[position].roles] / free for position in self.gangs}
        slots = problem.slots.sum(axis=1)
        scarcity = {position: float((gangs[position].count / np.maximum(slots[gangs[position].roles], 1)).max()) for position in self.gangs}
        pod = {position: int(gangs[position].gpus.max()) for position in self.gangs}
        keys: tuple[Callable[[int], object], ...] = (
            lambda position: -gpus[position],
            lambda position: gpus[position],
            lambda position: -float(load[position].max(initial=0.0)),
            lambda position: -float(load[position].sum()),
            lambda position: float(load[position].max(initial=0.0)),
            lambda position: -scarcity[position],
            lambda position: (-pod[position], -gpus[position]),
            lambda position: (pod[position] % WHOLE == 0, -gpus[position]),
            lambda position: gangs[position].total,
        )
        for key in keys:
            yield sorted(self.gangs, key=key)  # type: ignore[arg-type]  # numbers, or pairs of them

    def _most_orders(self) -> int:
        """Return how many orders may be tried."""
        each = max(1, sum(map(self._work, self.gangs)))
        return 10 * self.effort // each if self.effort else max(_LEAST_ORDERS, _WORK // each)

    def _work(self, position: int) -> int:
        """Return the estimated time to place a gang once, in tenths of a microsecond."""
        gang, nodes = self.contest.gangs[position], len(self.contest.problem.nodes)
        return 1000 + 3 * nodes if gang.is_single else len(gang.roles) * (1500 + 3 * nodes)


def outcome_of(contest: Contest, decoder: Decoder, table: Table, slots: list[tuple[int, Slots]]) -> Outcome:
    """Return the outcome of placing gangs on ``slots``.

    Adds slots for members beyond the minimum to ``slots``, and takes the added slots from ``table``.
    """
    gangs = contest.gangs
    gpus = sum(int(gangs[position].gpus @ found.taken.sum(axis=1)) for position, found in slots)
    members = sum(int(found.taken.sum()) for _, found in slots)
    share = round(100 * sum(gangs[position].share for position, _ in slots))
    cost = round(sum(found.cost for _, found in slots), _DIGITS)
    surplus, number = 0, len(slots)
    for position, found in sorted(slots, key=lambda entry: entry[0]):
        if gangs[position].minimum < gangs[position].total:
            surplus_slots = decoder.take_surplus(table, position, found.taken.sum(axis=1))
            slots += [(position, part) for part in surplus_slots]
            surplus += sum(int(part.taken.sum()) for part in surplus_slots)
    return Outcome((gpus, share, number, members, surplus, cost), slots, table)


def _fitness(individual: _Individual) -> base.Fitness:
    return individual.fitness


def _crossed(mother: Sequence[int], father: Sequence[int]) -> list[int]:
    """Return the order crossover of two orders: a stretch of ``mother``, and around it the other gangs in the order of ``father``."""
    first, last = sorted(random.sample(range(len(mother) + 1), 2))
    stretch = mother[first:last]
    kept = set(stretch)
    others = [position for position in father if position not in kept]
    return [*others[:first], *stretch, *others[first:]]
