"""Tests minimums of roles, and roles that must share one domain: the search agrees with trying every placement."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Problem, SearchSettings, build_problem, search
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from tests.unit.placement.clusters import GI, in_words, node, pods, snapshot

QUICK = SearchSettings(generations=3, min_generations=1, patience=2, population_size=8)


def racks(cpus: list[tuple[str, int]]) -> Snapshot:
    return snapshot([node(f"n{row}", {"cpu": cpu * 1000}, labels={"rack": rack} if rack else {}) for row, (rack, cpu) in enumerate(cpus)])


def fits(problem: Problem) -> bool:
    """Return whether a placement has all needed members, and each set of roles of ``together`` within one domain.

    The test tries all placements, one node after another. Two placements on the nodes tried so far count as one if they have the same
    number of pods of each role, in the same domains.
    """
    nowhere = (-1,) * len(problem.together)
    reached = {((0,) * len(problem.roles), nowhere)}
    for row in range(len(problem.nodes)):
        ranges = [range(int(min(slots, count)) + 1) for slots, count in zip(problem.slots[:, row], problem.count, strict=True)]
        patterns = [pattern for pattern in itertools.product(*ranges) if (np.array(pattern) @ problem.demand <= problem.free[:, row]).all()]
        reached = {
            (placed, domains)
            for (before, used), pattern in itertools.product(reached, patterns)
            if (np.array(placed := tuple(np.add(before, pattern).tolist())) <= problem.count).all()
            if (domains := domains_after(problem, row, pattern, used)) is not None
        }
    return any(problem.lacking(np.array(placed)) <= 0 for placed, _ in reached)


def domains_after(problem: Problem, row: int, pattern: tuple[int, ...], used: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the domain of each set of roles in ``together`` after node ``row`` takes the pods ``pattern``; None if that is forbidden.

    ``pattern``: the number of pods of each role. ``used``: the domain of each set of roles before, -1 if it has none yet. It is forbidden
    that the roles of a set are in two domains, or on a node without a domain.
    """
    after = list(used)
    for number, group in enumerate(problem.together):
        if any(pattern[role] for role in group.roles):
            domain = int(group.domains[row])
            if domain == -1 or used[number] not in (-1, domain):
                return None
            after[number] = domain
    return tuple(after)


def test_roles_that_must_share_a_domain_get_the_one_with_most_capacity_if_time_is_up() -> None:
    gang = [pod for number in range(4) for pod in pods(f"r{number}", 3, {"cpu": 1000})]
    together = [TogetherRule("rack", {pod.uid for pod in gang if pod.uid.startswith(f"r{number}-")}) for number in range(4)]
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
def test_gang_is_placed_if_and_only_if_a_placement_exists(
    cpus: list[tuple[str, int]], roles: list[tuple[int, int, bool]], least: list[int], minimum: int
) -> None:
    gang: list[Pod] = []
    parts, together = [], []
    for number, (count, cpu, is_together) in enumerate(roles):
        # The last pod of a role requests a little more: a role may have several specs.
        members = [*pods(f"r{number}", count - 1, {"cpu": cpu * 1000}), *pods(f"r{number}-last", 1, {"cpu": cpu * 1000 + 1})]
        gang += members
        parts.append(({pod.uid for pod in members}, min(count, least[number])))
        if is_together:
            together.append(TogetherRule("rack", {pod.uid for pod in members}))
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
        for rule in together:
            used = {rack_of[slots[uid]] for uid in slots.keys() & rule.members}
            assert len(used) <= 1
            assert "" not in used


def test_roles_are_placed_in_one_rack_each_in_any_order_of_roles() -> None:
    # kueue#11953: trainers need 8 cpu in a rack, rollouts 6, and the driver 3. Each fits only if it gets the rack of that size.
    cluster = racks([("a", 4), ("a", 4), ("b", 4), ("b", 2), ("c", 3)])
    for order in itertools.permutations([("trainer", 4, 2), ("rollout", 3, 2), ("driver", 1, 3)]):
        gang = [pod for name, count, cpu in order for pod in pods(name, count, {"cpu": cpu * 1000})]
        together = [TogetherRule("rack", {pod.uid for pod in gang if pod.uid.startswith(name)}) for name, _, _ in order]
        problem = build_problem(gang, len(gang), cluster, objective=Objective.FRAGMENTATION, rules=Rules(couplings=together))
        plan = search(problem, SearchSettings(), 1)
        assert plan.feasible
        assert len(plan.assignments) == len(gang)


@pytest.mark.parametrize("minimum", [1, 3])
def test_minimum_of_a_role_comes_before_more_pods_of_other_roles(minimum: int) -> None:
    gang = [*pods("worker", 6, {"cpu": 1000}), *pods("ps", 1, {"cpu": 4000})]
    ps = {"ps-0"}
    problem = build_problem(gang, minimum, racks([("", 6)]), objective=Objective.BINPACK, rules=Rules([(ps, 1)]))
    plan = search(problem, SearchSettings(), 1)
    assert plan.feasible
    assert "ps-0" in dict(plan.assignments)
    assert len(plan.assignments) == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), min_size=1, max_size=6), st.integers(1, 6), st.integers(1, 6))
def test_as_many_members_share_a_domain_as_the_largest_domain_takes(cpus: list[tuple[str, int]], count: int, minimum: int) -> None:
    gang = pods("w", count, {"cpu": 1000})
    all_members = [TogetherRule("rack", {pod.uid for pod in gang})]
    problem = build_problem(gang, min(minimum, count), racks(cpus), objective=Objective.FRAGMENTATION, rules=Rules(couplings=all_members))
    plan = search(problem, QUICK, 1)
    most = min(count, max(sum(cpu for rack, cpu in cpus if rack == name) for name, _ in cpus))
    assert plan.feasible is (most >= min(minimum, count))
    assert not plan.feasible or len(plan.assignments) == most


def test_cheapest_domain_that_takes_all_members_is_chosen() -> None:
    gang = pods("w", 2, {"cpu": 2000, "memory": GI})
    nodes = [node(f"{rack}{number}", {"cpu": 4000, "memory": 8 * GI}, labels={"rack": rack}) for rack in "abc" for number in (0, 1)]
    half_used = {name: {"cpu": 2000, "memory": 4 * GI} for name in ("b0", "b1")}
    for objective, racks_of in ((Objective.BINPACK, {"b"}), (Objective.SPREAD, {"a", "c"})):
        together = [TogetherRule("rack", {pod.uid for pod in gang})]
        problem = build_problem(gang, 2, snapshot(nodes, half_used), objective=objective, rules=Rules(couplings=together))
        assert {name[0] for _, name in search(problem, SearchSettings(), 1).assignments} <= racks_of


@pytest.mark.parametrize("row", [0, 20, 39])
def test_cheapest_of_many_domains_is_chosen(row: int) -> None:
    gang = pods("w", 2, {"cpu": 2000, "memory": GI})
    nodes = [node(f"n{number:03}", {"cpu": 8000, "memory": 16 * GI}, labels={"host": f"n{number}"}) for number in range(40)]
    cluster = snapshot(nodes, {f"n{row:03}": {"cpu": 4000, "memory": 8 * GI}})
    problem = build_problem(
        gang, 2, cluster, objective=Objective.BINPACK, rules=Rules(couplings=[TogetherRule("host", {pod.uid for pod in gang})])
    )
    assert {name for _, name in search(problem, SearchSettings(), 1).assignments} == {f"n{row:03}"}


def test_rack_is_found_for_more_roles_than_the_solver_takes() -> None:
    cluster = snapshot([node(f"n{row:03}", {"cpu": 8000}, labels={"rack": f"r{row % 10}"}) for row in range(1000)])
    gang = [pod for row in range(61) for pod in pods(f"p{row}", 1, {"cpu": 1000}, claims=(f"data-{row}",))]
    problem = build_problem(
        gang, len(gang), cluster, objective=Objective.BINPACK, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    )
    plan = search(problem, SearchSettings(), 0)
    assert plan.feasible
    assert len({int(name[1:]) % 10 for _, name in plan.assignments}) == 1


def test_gang_that_fits_in_no_domain_reports_how_many_members_the_best_one_takes() -> None:
    cluster = racks([("a", 1), ("b", 1), ("b", 1), ("c", 0)])
    gang = pods("worker", 3, {"cpu": 1000})
    problem = build_problem(
        gang, 3, cluster, objective=Objective.BINPACK, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    )
    plan = search(problem, SearchSettings(), 0)
    (role,) = plan.explanation.roles
    assert (plan.feasible, plan.explanation.placeable) == (False, 2)
    assert sum(nodes for _, nodes in role.reasons) == 4


def test_nodes_without_the_domain_label_have_a_reason_of_their_own() -> None:
    cluster = racks([("a", 1), ("b", 1), ("", 8)])
    gang = pods("worker", 2, {"cpu": 1000})
    problem = build_problem(
        gang, 2, cluster, objective=Objective.BINPACK, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    )
    (role,) = search(problem, SearchSettings(), 0).explanation.roles
    assert dict(in_words(role.reasons)) == {
        "Insufficient cpu": 1,
        "node(s) had no label rack": 1,
        "node(s) were in no topology domain that fits all members that must share one": 1,
    }


def test_search_that_stops_at_the_best_placement_in_one_rack_reports_stopped_by_domain() -> None:
    gang = pods("worker", 2, {"cpu": 1000})
    rules = Rules([], [TogetherRule("rack", {pod.uid for pod in gang})])
    report = search(
        build_problem(gang, 2, racks([("a", 2), ("b", 2)]), objective=Objective.BINPACK, rules=rules), SearchSettings(), 1
    ).search
    assert report.stopped_by == "domain"
