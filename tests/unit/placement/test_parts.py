"""Minimums of roles, and roles that must sit within one domain: as trying every placement has it."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.search import holds

from .clusters import node, pods, snapshot

QUICK = SearchSettings(generations=3, min_generations=1, patience=2, population_size=8)


def racks(cpus: list[tuple[str, int]]) -> Snapshot:
    return snapshot([node(f"n{row}", {"cpu": cpu * 1000}, labels={"rack": rack} if rack else {}) for row, (rack, cpu) in enumerate(cpus)])


def placements(problem: Problem) -> Iterator[np.ndarray]:
    """All that hold."""
    ranges = [range(int(min(seats, count)) + 1) for row, count in zip(problem.seats, problem.count, strict=True) for seats in row]
    for flat in itertools.product(*ranges):
        counts = np.array(flat, dtype=np.int64).reshape(problem.seats.shape)
        if holds(problem, counts):
            yield counts


def fits(problem: Problem) -> bool:
    """Whether any placement seats who must sit, and together those who must be."""
    return any(
        problem.lacking(counts.sum(axis=1)) <= 0
        and all(
            len(domains := set(group.domains[counts[list(group.roles)].any(axis=0)].tolist())) <= 1 and -1 not in domains
            for group in problem.together
        )
        for counts in placements(problem)
    )


@settings(max_examples=80)
@given(
    cpus=st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(1, 4)), min_size=1, max_size=4),
    roles=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2), st.booleans()), min_size=1, max_size=3),
    least=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    minimum=st.integers(0, 4),
)
def test_a_gang_is_placed_exactly_when_there_is_a_way(
    cpus: list[tuple[str, int]], roles: list[tuple[int, int, bool]], least: list[int], minimum: int
) -> None:
    gang: list[Pod] = []
    parts, together = [], []
    for number, (count, cpu, is_together) in enumerate(roles):
        # The last pod of a role asks for a little more: one role of several specs.
        members = [*pods(f"r{number}", count - 1, {"cpu": cpu * 1000}), *pods(f"r{number}-last", 1, {"cpu": cpu * 1000 + 1})]
        gang += members
        parts.append(({pod.uid for pod in members}, min(count, least[number])))
        if is_together:
            together.append(("rack", {pod.uid for pod in members}))
    problem = build_problem(gang, min(minimum, len(gang)), racks(cpus), objective=Objective.BINPACK, parts=parts, together=together)

    plan = search(problem, QUICK, 1)

    assert bool(plan.feasible) is fits(problem)
    if not plan.feasible:
        assert plan.feasible is False
    seats = dict(plan.assignments)
    if plan.feasible:
        for uids, number in parts:
            assert len(uids & seats.keys()) >= number
        rack_of = {f"n{row}": rack for row, (rack, _) in enumerate(cpus)}
        for _, uids in together:
            used = {rack_of[seats[uid]] for uid in uids & seats.keys()}
            assert len(used) <= 1
            assert "" not in used


def test_roles_that_must_each_sit_in_one_rack_do_so_in_any_order() -> None:
    # kueue#11953: trainers want eight in a rack, rollouts six; the rack that is left over for rollouts is the one they fill.
    cluster = racks([("a", 4), ("a", 4), ("b", 4), ("b", 2), ("c", 3)])
    for order in itertools.permutations([("trainer", 4, 2), ("rollout", 3, 2), ("driver", 1, 3)]):
        gang = [pod for name, count, cpu in order for pod in pods(name, count, {"cpu": cpu * 1000})]
        together = [("rack", {pod.uid for pod in gang if pod.uid.startswith(name)}) for name, _, _ in order]
        problem = build_problem(gang, len(gang), cluster, objective=Objective.FRAGMENTATION, together=together)
        plan = search(problem, SearchSettings(), 1)
        assert plan.feasible
        assert len(plan.assignments) == len(gang)


@pytest.mark.parametrize("minimum", [1, 3])
def test_the_minimum_of_a_role_comes_before_more_of_the_others(minimum: int) -> None:
    gang = [*pods("worker", 6, {"cpu": 1000}), *pods("ps", 1, {"cpu": 4000})]
    ps = {"ps-0"}
    problem = build_problem(gang, minimum, racks([("", 6)]), objective=Objective.BINPACK, parts=[(ps, 1)])
    plan = search(problem, SearchSettings(), 1)
    assert plan.feasible
    assert "ps-0" in dict(plan.assignments)
    assert len(plan.assignments) == 3
