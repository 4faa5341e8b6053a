"""Minimums of roles, and roles that must sit within one domain: as trying every placement has it."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.rules import Rules
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Problem, SearchSettings, build_problem, search
from tests.unit.placement.clusters import GI, in_words, node, pods, snapshot

QUICK = SearchSettings(generations=3, min_generations=1, patience=2, population_size=8)


def racks(cpus: list[tuple[str, int]]) -> Snapshot:
    return snapshot([node(f"n{row}", {"cpu": cpu * 1000}, labels={"rack": rack} if rack else {}) for row, (rack, cpu) in enumerate(cpus)])


def fits(problem: Problem) -> bool:
    """Whether any placement seats who must sit, and together those who must be: by going through all there are, node after node.

    Placements that have seated as many of each role in the same domains are alike for the nodes that follow.
    """
    nowhere = (-1,) * len(problem.together)
    reached = {((0,) * len(problem.roles), nowhere)}
    for row in range(len(problem.nodes)):
        ranges = [range(int(min(slots, count)) + 1) for slots, count in zip(problem.slots[:, row], problem.count, strict=True)]
        patterns = [pattern for pattern in itertools.product(*ranges) if (np.array(pattern) @ problem.demand <= problem.free[:, row]).all()]
        reached = {
            (seated, domains)
            for (before, used), pattern in itertools.product(reached, patterns)
            if (np.array(seated := tuple(np.add(before, pattern).tolist())) <= problem.count).all()
            if (domains := domains_after(problem, row, pattern, used)) is not None
        }
    return any(problem.lacking(np.array(seated)) <= 0 for seated, _ in reached)


def domains_after(problem: Problem, row: int, pattern: tuple[int, ...], used: tuple[int, ...]) -> tuple[int, ...] | None:
    """The domains in use when ``pattern`` sits on a node too; ``None`` when a group would sit in two of them."""
    after = list(used)
    for number, group in enumerate(problem.together):
        if any(pattern[role] for role in group.roles):
            domain = int(group.domains[row])
            if domain == -1 or used[number] not in (-1, domain):
                return None
            after[number] = domain
    return tuple(after)


def test_groups_whose_turn_has_not_come_when_the_search_must_end_go_where_there_is_room() -> None:
    gang = [pod for number in range(4) for pod in pods(f"r{number}", 3, {"cpu": 1000})]
    together = [("rack", {pod.uid for pod in gang if pod.uid.startswith(f"r{number}-")}) for number in range(4)]
    problem = build_problem(gang, 12, racks([(rack, 3) for rack in "abcd"]), objective=Objective.BINPACK, rules=Rules([], together))
    late = SearchSettings(effort=1, seconds=0.5, clock=itertools.count().__next__)
    assert search(problem, late, 1).feasible is True


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
    problem = build_problem(gang, min(minimum, len(gang)), racks(cpus), objective=Objective.BINPACK, rules=Rules(parts, together))

    plan = search(problem, QUICK, 1)

    assert bool(plan.feasible) is fits(problem)
    if not plan.feasible:
        assert plan.feasible is False
    slots = dict(plan.assignments)
    if plan.feasible:
        for uids, number in parts:
            assert len(uids & slots.keys()) >= number
        rack_of = {f"n{row}": rack for row, (rack, _) in enumerate(cpus)}
        for _, uids in together:
            used = {rack_of[slots[uid]] for uid in uids & slots.keys()}
            assert len(used) <= 1
            assert "" not in used


def test_roles_that_must_each_sit_in_one_rack_do_so_in_any_order() -> None:
    # kueue#11953: trainers want eight in a rack, rollouts six; the rack that is left over for rollouts is the one they fill.
    cluster = racks([("a", 4), ("a", 4), ("b", 4), ("b", 2), ("c", 3)])
    for order in itertools.permutations([("trainer", 4, 2), ("rollout", 3, 2), ("driver", 1, 3)]):
        gang = [pod for name, count, cpu in order for pod in pods(name, count, {"cpu": cpu * 1000})]
        together = [("rack", {pod.uid for pod in gang if pod.uid.startswith(name)}) for name, _, _ in order]
        problem = build_problem(gang, len(gang), cluster, objective=Objective.FRAGMENTATION, rules=Rules(together=together))
        plan = search(problem, SearchSettings(), 1)
        assert plan.feasible
        assert len(plan.assignments) == len(gang)


@pytest.mark.parametrize("minimum", [1, 3])
def test_the_minimum_of_a_role_comes_before_more_of_the_others(minimum: int) -> None:
    gang = [*pods("worker", 6, {"cpu": 1000}), *pods("ps", 1, {"cpu": 4000})]
    ps = {"ps-0"}
    problem = build_problem(gang, minimum, racks([("", 6)]), objective=Objective.BINPACK, rules=Rules([(ps, 1)]))
    plan = search(problem, SearchSettings(), 1)
    assert plan.feasible
    assert "ps-0" in dict(plan.assignments)
    assert len(plan.assignments) == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 6))
def test_as_many_sit_together_as_any_domain_has_seats_for(cpus: list[tuple[str, int]], count: int, minimum: int) -> None:
    gang = pods("w", count, {"cpu": 1000})
    everybody = [("rack", {pod.uid for pod in gang})]
    problem = build_problem(gang, min(minimum, count), racks(cpus), objective=Objective.FRAGMENTATION, rules=Rules(together=everybody))
    plan = search(problem, QUICK, 1)
    most = min(count, max(sum(cpu for rack, cpu in cpus if rack == name) for name, _ in cpus))
    assert plan.feasible is (most >= min(minimum, count))
    assert not plan.feasible or len(plan.assignments) == most


def test_of_domains_that_seat_everybody_the_one_is_taken_that_costs_least() -> None:
    gang = pods("w", 2, {"cpu": 2000, "memory": GI})
    nodes = [node(f"{rack}{number}", {"cpu": 4000, "memory": 8 * GI}, labels={"rack": rack}) for rack in "abc" for number in (0, 1)]
    half_used = {name: {"cpu": 2000, "memory": 4 * GI} for name in ("b0", "b1")}
    for objective, racks_of in ((Objective.BINPACK, {"b"}), (Objective.SPREAD, {"a", "c"})):
        together = [("rack", {pod.uid for pod in gang})]
        problem = build_problem(gang, 2, snapshot(nodes, half_used), objective=objective, rules=Rules(together=together))
        assert {name[0] for _, name in search(problem, SearchSettings(), 1).assignments} <= racks_of


@pytest.mark.parametrize("row", [0, 20, 39])
def test_the_cheapest_of_many_domains_is_found(row: int) -> None:
    gang = pods("w", 2, {"cpu": 2000, "memory": GI})
    nodes = [node(f"n{number:03}", {"cpu": 8000, "memory": 16 * GI}, labels={"host": f"n{number}"}) for number in range(40)]
    cluster = snapshot(nodes, {f"n{row:03}": {"cpu": 4000, "memory": 8 * GI}})
    problem = build_problem(gang, 2, cluster, objective=Objective.BINPACK, rules=Rules(together=[("host", {pod.uid for pod in gang})]))
    assert {name for _, name in search(problem, SearchSettings(), 1).assignments} == {f"n{row:03}"}


def test_a_rack_is_found_for_more_roles_than_the_solver_takes() -> None:
    cluster = snapshot([node(f"n{row:03}", {"cpu": 8000}, labels={"rack": f"r{row % 10}"}) for row in range(1000)])
    gang = [pod for row in range(61) for pod in pods(f"p{row}", 1, {"cpu": 1000}, claims=(f"data-{row}",))]
    problem = build_problem(
        gang, len(gang), cluster, objective=Objective.BINPACK, rules=Rules(together=[("rack", {pod.uid for pod in gang})])
    )
    plan = search(problem, SearchSettings(), 0)
    assert plan.feasible
    assert len({int(name[1:]) % 10 for _, name in plan.assignments}) == 1


def test_what_fits_into_no_domain_is_counted_in_the_best_of_them_and_every_node_has_its_reason() -> None:
    cluster = racks([("a", 1), ("b", 1), ("b", 1), ("c", 0)])
    gang = pods("worker", 3, {"cpu": 1000})
    problem = build_problem(gang, 3, cluster, objective=Objective.BINPACK, rules=Rules(together=[("rack", {pod.uid for pod in gang})]))
    plan = search(problem, SearchSettings(), 0)
    (role,) = plan.explanation.roles
    assert (plan.feasible, plan.explanation.placeable) == (False, 2)
    assert sum(nodes for _, nodes in role.reasons) == 4


def test_nodes_without_the_label_that_must_be_shared_are_told_apart() -> None:
    cluster = racks([("a", 1), ("b", 1), ("", 8)])
    gang = pods("worker", 2, {"cpu": 1000})
    problem = build_problem(gang, 2, cluster, objective=Objective.BINPACK, rules=Rules(together=[("rack", {pod.uid for pod in gang})]))
    (role,) = search(problem, SearchSettings(), 0).explanation.roles
    assert dict(in_words(role.reasons)) == {
        "Insufficient cpu": 1,
        "node(s) had no label rack": 1,
        "node(s) were in no topology domain that fits all members that must share one": 1,
    }


def test_what_is_best_in_one_rack_is_not_said_to_be_the_best_of_one_role() -> None:
    gang = pods("worker", 2, {"cpu": 1000})
    rules = Rules([], [("rack", {pod.uid for pod in gang})])
    report = search(
        build_problem(gang, 2, racks([("a", 2), ("b", 2)]), objective=Objective.BINPACK, rules=rules), SearchSettings(), 1
    ).search
    assert report.stopped_by == "domain"
