"""The order in which gangs are seated, and by which rule each: what the joint search searches.

An order is worth what seating the gangs one after another comes to; whoever finds no seat is passed over. Sorted orders first, then a
genetic search on DEAP: order crossover (Davis 1985), gangs that were left out moved forward, rules changed.
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
"""Thousandths of GPUs, percent of cpu or memory, gangs, members, members beyond the minimum, cost: what an order comes to."""

_POPULATION = 24
_CHILDREN = 12
_PATIENCE = 12
_TOURNAMENT = 3
_MOST_MOVES = 3
_CROSSOVER = 0.4
_GUIDED = 0.5
_CHANGED_RULE = 0.15
_WORK = 10_000_000  # of all orders, in tenths of a microsecond about
_LEAST_ORDERS = 24
_DIGITS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What an order comes to: ``slots`` by position, in the order they are taken; beyond the minimum in later entries of their own."""

    worth: ObjectiveValue
    slots: Sequence[tuple[int, Slots]]
    table: Table

    @property
    def placed(self) -> frozenset[int]:
        """Positions of the gangs that sit."""
        return frozenset(position for position, _ in self.slots)

    @property
    def minima(self) -> Sequence[tuple[int, Slots]]:
        """The seats without those of members beyond the minimum."""
        return self.slots[: len(self.placed)]


class _Individual:
    """An order of gangs, and a rule for each gang of the contest."""

    __slots__ = ("fitness", "order", "outcome", "rules")

    def __init__(self, order: Sequence[int], rules: Sequence[int], outcome: Outcome) -> None:
        self.order = order
        self.rules = rules
        self.outcome = outcome
        self.fitness = creator.QueueFitness(outcome.worth)


@dataclass(slots=True)
class PermutationSearch:
    """Orders of ``gangs``, positions in queue order, after those of ``first`` have been seated. It remembers what it has tried.

    ``effort`` is about how many microseconds all orders may take; 0 for as long as it pays.
    """

    contest: Contest
    decoder: Decoder
    gangs: Sequence[int]
    first: Outcome
    effort: int = 0
    tried: dict[tuple[tuple[int, ...], tuple[int, ...]], Outcome] = field(default_factory=dict)
    generations: int = 0

    def outcome(self, order: Sequence[int], rules: Sequence[int] | None = None) -> Outcome:
        """Seat the gangs one after another, and then members beyond their minimum, in queue order."""
        key = (tuple(order), tuple(rules or [0] * len(self.contest.gangs)))
        known = self.tried.get(key)
        if known is None:
            chosen = key[1]
            known = self._seated(order, lambda table, position: self.decoder.find(table, position, chosen[position]))
            self.tried[key] = known
        return known

    def start(self, find: Callable[[Table, int], Slots | None]) -> Outcome:
        """Seat the gangs in queue order, wherever ``find`` has it."""
        seated = self._seated(self.gangs, find)
        self.tried[tuple(self.gangs), (0,) * len(self.contest.gangs)] = seated
        return seated

    def _seated(self, order: Sequence[int], find: Callable[[Table, int], Slots | None]) -> Outcome:
        table, slots = self.first.table.copy(), list(self.first.slots)
        for position in order:
            found = find(table, position)
            if found is not None:
                self.decoder.take(table, self.contest.gangs[position], found)
                slots.append((position, found))
        return outcome_of(self.contest, self.decoder, table, slots)

    def sorted(self) -> Iterator[Outcome]:
        """What orders come to that anybody would try: by size, by what gangs ask of which resource, by how scarce their seats are."""
        for order in self._sorted_orders():
            if len(self.tried) >= self._affordable():
                return
            yield self.outcome(order)

    def evolved(self, seed: int, is_best: Callable[[Outcome], bool], generations: int) -> Outcome:
        """The best that evolves from all orders tried so far."""
        budget = self._affordable()
        population = [_Individual(order, rules, outcome) for (order, rules), outcome in self.tried.items()]
        best, stale = max(population, key=_fitness), 0
        with seeded(seed):
            while self.generations < generations and stale < _PATIENCE and len(self.tried) < budget and not is_best(best.outcome):
                self.generations += 1
                children = [self._child(population) for _ in range(_CHILDREN)]
                distinct = {(one.fitness.values, one.outcome.placed): one for one in [*children, *population]}
                population = tools.selBest(list(distinct.values()), _POPULATION)
                stale = 0 if population[0].fitness > best.fitness else stale + 1
                best = max(best, population[0], key=_fitness)  # of what is as good, what came first: the queue's own order
        return best.outcome

    def _child(self, population: Sequence[_Individual]) -> _Individual:
        mother, father = tools.selTournament(population, 2, tournsize=_TOURNAMENT)
        order, rules = list(mother.order), list(mother.rules)
        if random.random() < _CROSSOVER:
            order = _crossed(order, father.order)
            rules = [random.choice(pair) for pair in zip(rules, father.rules, strict=True)]
        missed = [position for position in order if position not in mother.outcome.placed]
        for _ in range(random.randint(1, _MOST_MOVES)):
            # One that was left out goes before others, or anybody goes anywhere.
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
        room = problem.slots.sum(axis=1)
        scarcity = {position: float((gangs[position].count / np.maximum(room[gangs[position].roles], 1)).max()) for position in self.gangs}
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

    def _affordable(self) -> int:
        """How many orders may be tried."""
        each = max(1, sum(map(self._work, self.gangs)))
        return 10 * self.effort // each if self.effort else max(_LEAST_ORDERS, _WORK // each)

    def _work(self, position: int) -> int:
        """About what it takes to seat a gang, in tenths of a microsecond."""
        gang, nodes = self.contest.gangs[position], len(self.contest.problem.nodes)
        return 1000 + 3 * nodes if gang.is_single else len(gang.roles) * (1500 + 3 * nodes)


def outcome_of(contest: Contest, decoder: Decoder, table: Table, slots: list[tuple[int, Slots]]) -> Outcome:
    """What ``slots`` come to once members beyond the minimum sit on what ``table`` has left, which they take."""
    gangs = contest.gangs
    gpus = sum(int(gangs[position].gpus @ found.taken.sum(axis=1)) for position, found in slots)
    members = sum(int(found.taken.sum()) for _, found in slots)
    share = round(100 * sum(gangs[position].share for position, _ in slots))
    cost = round(sum(found.cost for _, found in slots), _DIGITS)
    surplus, number = 0, len(slots)
    for position, found in sorted(slots, key=lambda seat: seat[0]):
        if gangs[position].minimum < gangs[position].total:
            more = decoder.more(table, position, found.taken.sum(axis=1))
            slots += [(position, part) for part in more]
            surplus += sum(int(part.taken.sum()) for part in more)
    return Outcome((gpus, share, number, members, surplus, cost), slots, table)


def _fitness(one: _Individual) -> base.Fitness:
    return one.fitness


def _crossed(mother: Sequence[int], father: Sequence[int]) -> list[int]:
    """Order crossover: a stretch of the one, the others in the order of the other."""
    first, last = sorted(random.sample(range(len(mother) + 1), 2))
    stretch = mother[first:last]
    kept = set(stretch)
    others = [position for position in father if position not in kept]
    return [*others[:first], *stretch, *others[first:]]
