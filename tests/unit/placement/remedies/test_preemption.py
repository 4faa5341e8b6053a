"""Tests that the pods chosen for eviction are enough, that none is chosen in vain, and that no choice costs less, by trying all choices."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allaboard.placement.remedies.preemption import Evictable, choose_victims
from tests.unit.placement.clusters import GPU, node, pods, snapshot
from tests.unit.placement.remedies.test_remedies import emptied_for

GPUS = 4


@dataclass(frozen=True)
class Running:
    """A running gang: its priority, its surplus, the work that is lost with each pod, and its pods as (node number, GPUs)."""

    priority: int
    surplus: int
    lost: int
    pods: tuple[tuple[int, int], ...]
    budget: int | None = None


@dataclass(frozen=True)
class Case:
    """A cluster of nodes with four GPUs each, and a waiting gang: its pods as GPUs, and its minimum."""

    nodes: int
    running: tuple[Running, ...]
    waiting: tuple[int, ...]
    minimum: int
    allowed: tuple[int, ...] = ()
    may_exceed: bool = False

    def free(self, gone: Sequence[Sequence[int]] = ()) -> list[int]:
        """Return the free GPUs of each node once the pods ``gone`` have left, by position in their gangs."""
        free = [GPUS] * self.nodes
        for number, gang in enumerate(self.running):
            for position, (where, gpus) in enumerate(gang.pods):
                if not gone or position not in gone[number]:
                    free[where] -= gpus
        return free


def fits(waiting: Sequence[int], minimum: int, free: Sequence[int]) -> bool:
    """Return whether ``minimum`` pods of ``waiting`` fit at once, by trying all placements."""
    if minimum <= 0:
        return True
    if len(waiting) < minimum:
        return False
    first, rest = waiting[0], waiting[1:]
    for where in sorted({amount: place for place, amount in enumerate(free) if amount >= first}.values()):
        left = [*free[:where], free[where] - first, *free[where + 1 :]]
        if fits(rest, minimum - 1, left):
            return True
    return fits(rest, minimum, free)


def choices_of(gang: Running) -> Iterator[tuple[int, ...]]:
    """Yield all sets of pods that ``gang`` may lose: up to its surplus, or all."""
    positions = range(len(gang.pods))
    for number in range(min(gang.surplus, len(gang.pods)) + 1):
        yield from itertools.combinations(positions, number)
    if gang.surplus < len(gang.pods):
        yield tuple(positions)


def cost_of_choice(case: Case, gone: Sequence[Sequence[int]]) -> tuple[int, int, int, int, int]:
    victims = [(gang, taken) for gang, taken in zip(case.running, gone, strict=True) if taken]
    evicted = [sum(len(taken) for gang, taken in victims if gang.budget == number) for number in range(len(case.allowed))]
    return (
        max((gang.priority for gang, _ in victims), default=0),
        sum(max(0, number - allowed) for number, allowed in zip(evicted, case.allowed, strict=True)),
        sum(len(taken) > gang.surplus for gang, taken in victims),
        sum(len(taken) for _, taken in victims),
        sum(gang.lost * len(taken) for gang, taken in victims),
    )


def least_cost(case: Case) -> tuple[int, int, int, int, int] | None:
    """Return the least cost of all choices with which the gang fits; None if there is none."""
    found = []
    for gone in itertools.product(*map(choices_of, case.running)):
        cost = cost_of_choice(case, gone)
        if (case.may_exceed or not cost[1]) and fits(case.waiting, case.minimum, case.free(gone)):
            found.append(cost)
    return min(found, default=None)


def evictable_of(case: Case, columns: Sequence[str], names: Sequence[str]) -> Evictable:
    batches = [
        (number, names.index(f"n{where}") if f"n{where}" in names else -1, gpus, gang.lost, gang.budget)
        for number, gang in enumerate(case.running)
        for where, gpus in gang.pods
    ]
    frees = np.array([[{GPU: gpus, "pods": 1}.get(column, 0) for _, _, gpus, _, _ in batches] for column in columns], dtype=np.int64)
    return Evictable(
        priority=np.array([gang.priority for gang in case.running], dtype=np.int64),
        surplus=np.array([gang.surplus for gang in case.running], dtype=np.int64),
        gang=np.array([number for number, *_ in batches], dtype=np.int64),
        node=np.array([where for _, where, *_ in batches], dtype=np.int64),
        pods=np.ones(len(batches), dtype=np.int64),
        frees=frees.reshape(len(columns), len(batches)),
        lost=np.array([lost for *_, lost, _ in batches], dtype=np.int64),
        allowed=np.array(case.allowed, dtype=np.int64),
        budgeted=np.array([[budget == number for *_, budget in batches] for number in range(len(case.allowed))], dtype=bool).reshape(
            len(case.allowed), len(batches)
        ),
        may_exceed=case.may_exceed,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    nodes = draw(st.integers(1, 3))
    free = [GPUS] * nodes
    budgets = draw(st.lists(st.integers(0, 3), max_size=1))
    running = []
    for _ in range(draw(st.integers(1, 4))):
        members: list[tuple[int, int]] = []
        for where, gpus in draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(1, 4)), min_size=1, max_size=3)):
            if free[where] >= gpus:
                free[where] -= gpus
                members.append((where, gpus))
        if members:
            running.append(
                Running(
                    priority=draw(st.integers(1, 3)),
                    surplus=draw(st.sampled_from([0, 0, 1, 3])),
                    lost=draw(st.integers(0, 5)),
                    pods=tuple(members),
                    budget=draw(st.sampled_from([None, 0])) if budgets else None,
                )
            )
    waiting = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    return Case(
        nodes=nodes,
        running=tuple(running),
        waiting=tuple(waiting),
        minimum=draw(st.integers(1, len(waiting))),
        allowed=tuple(budgets),
        may_exceed=draw(st.booleans()),
    )


@settings(max_examples=500, deadline=None)
@given(cases())
def test_the_choice_costs_least_of_all_choices_with_which_the_gang_fits(case: Case) -> None:
    least = least_cost(case)
    nodes = [node(f"n{number}", {GPU: GPUS}) for number in range(case.nodes)]
    used = {f"n{number}": {GPU: GPUS - left} for number, left in enumerate(case.free())}
    gang = [pod for number, gpus in enumerate(case.waiting) for pod in pods(f"w{number}", 1, {GPU: gpus})]
    emptied = emptied_for(gang, snapshot(nodes, used), case.minimum)
    evictable = evictable_of(case, emptied.problem.columns, emptied.problem.nodes)
    choice = choose_victims(emptied, evictable)
    if least is None:
        assert choice is None
        event("nothing helps")
        return
    assert choice is not None
    positions = iter(choice.taken.tolist())
    gone = [[position for position, taken in zip(range(len(each.pods)), positions, strict=False) if taken] for each in case.running]
    assert fits(case.waiting, case.minimum, case.free(gone)), "the chosen pods aren't enough"
    assert tuple(choice.cost) == cost_of_choice(case, gone)
    assert tuple(choice.cost) == least
    assert choice.is_least
    event(f"{least[2]} gangs are broken, {least[1]} evictions beyond the budget")
