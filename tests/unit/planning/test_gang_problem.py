"""Tests of the problem of placing a gang, which a search solves."""

from dataclasses import replace

import pytest

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.packing import PACKING
from allaboard.model.pod import Pod
from allaboard.placement import NodeFilters, Plan, SearchSettings, search
from allaboard.placement.problem.draft import Packer
from allaboard.placement.rules.members import rules_of
from allaboard.placement.rules.together import TogetherRule
from allaboard.planning.gang_problem import draft_of, problem_of, size_of, waiting_of
from tests.unit.placement.clusters import node, pods, snapshot

ZONES = snapshot([node(name, {"cpu": 2000}, labels={"zone": zone}) for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))])


def of_role(role: str, number: int, cpu: int = 1000, *, bound: int = 0) -> list[Pod]:
    """Return ``number`` members of a role, the first ``bound`` of them bound."""
    members = [replace(pod, options=(("role", role),)) for pod in pods(role, number, {"cpu": cpu})]
    return [
        replace(pod, node_name="a1", stamped_min_member=1, transaction="a") if index < bound else pod for index, pod in enumerate(members)
    ]


def a_gang(*members: Pod, minimum: int, **fields: object) -> Gang:
    return Gang(GangKey("default", "g"), minimum, members, 0, 0.0, Objective.BINPACK, 60, **fields)  # type: ignore[arg-type]


def plans(gang: Gang, minimum: int) -> tuple[Plan, Plan]:
    """Return the plan for a gang's problem that is built directly, and the plan for a problem that is built from a draft."""
    direct = problem_of(gang, minimum, ZONES, NodeFilters(), PACKING)
    from_draft = draft_of(gang, minimum, ZONES, Packer(), PACKING).built()
    return search(direct, SearchSettings(), 0), search(from_draft, SearchSettings(), 0)


def test_only_members_that_may_be_bound_now_are_placed() -> None:
    gang = a_gang(*of_role("w", 4, bound=2), minimum=4)
    for plan in plans(gang, 2):
        assert plan.feasible
        assert {uid for uid, _ in plan.assignments} == {"w-2", "w-3"}


@pytest.mark.parametrize(("minimum", "is_feasible"), [(6, True), (7, False)])
def test_a_problem_is_feasible_only_if_its_minimum_of_members_fits(minimum: int, is_feasible: bool) -> None:
    assert [plan.feasible for plan in plans(a_gang(*of_role("w", 7), minimum=1), minimum)] == [is_feasible] * 2


@pytest.mark.parametrize(("members", "is_feasible"), [(4, True), (5, False)])
def test_members_that_must_share_a_zone_fit_only_if_one_zone_has_capacity_for_all(members: int, is_feasible: bool) -> None:
    gang = a_gang(*of_role("w", members), minimum=members, required_topology="zone")
    assert [plan.feasible for plan in plans(gang, members)] == [is_feasible] * 2


def test_a_role_gets_its_minimum_even_if_other_roles_cover_the_minimum_of_the_gang() -> None:
    gang = a_gang(*of_role("w", 6), *of_role("chief", 1, 2000), minimum=1, role_minimums=(("chief", 1),))
    for plan in plans(gang, 5):
        assert plan.feasible
        assert "chief-0" in {uid for uid, _ in plan.assignments}


def test_the_members_that_a_role_lacks_come_from_its_unbound_members() -> None:
    members = (*of_role("w", 4, bound=1), *of_role("ps", 2, bound=2))
    gang = a_gang(*members, minimum=3, role_minimums=(("w", 3), ("ps", 2), ("chief", 1)))
    assert rules_of(gang).parts == [({"w-1", "w-2", "w-3"}, 2), (set(), 1)]
    assert rules_of(replace(gang, role_minimums=())).is_plain


def test_a_draft_contains_packed_nodes_and_no_node_objects() -> None:
    packer = Packer()
    draft = draft_of(a_gang(*of_role("w", 3, bound=1), minimum=3), 2, ZONES, packer, PACKING)
    assert not draft.snapshot.nodes
    assert draft.nodes is packer.packed(ZONES.nodes)
    assert [pod.uid for pod in draft.pods] == ["w-1", "w-2"]


def test_the_size_of_a_problem_is_nodes_times_kinds_of_pods_and_their_rules() -> None:
    plain, picky = pods("p", 9, {"cpu": 1000}), pods("s", 2, {"cpu": 1000}, node_selector=(("zone", "a"), ("disk", "ssd")))
    assert size_of(a_gang(*plain, minimum=9), 50) == 50
    assert size_of(a_gang(*plain, *picky, minimum=11), 50) == 50 + 50 * 3
    assert size_of(a_gang(*(replace(pod, node_name="a1") for pod in plain), *picky, minimum=11), 50) == 50 * 3


def test_a_partially_bound_gang_needs_only_its_missing_members_in_a_contest() -> None:
    members = of_role("w", 5, bound=2)
    gang = a_gang(*members, minimum=4, topology="zone", required_topology="rack", role_minimums=(("w", 3),))
    waiting = waiting_of(gang, 7)
    assert (waiting.pods, waiting.minimum, waiting.seed) == (tuple(members[2:]), 2, 7)
    assert (waiting.objective, waiting.topology, waiting.rules.parts) == (Objective.BINPACK, "zone", [({"w-2", "w-3", "w-4"}, 1)])
    assert waiting.rules.couplings == [TogetherRule("rack", {pod.uid for pod in members})]
