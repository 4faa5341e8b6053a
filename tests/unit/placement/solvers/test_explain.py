"""Nodes that refuse a member are counted by the first filter that fails, in kube-scheduler's words."""

import pytest

from allaboard.model.constraints import HostPort, NodeSelectorTerm, Requirement, Toleration
from allaboard.model.gang import Objective
from allaboard.model.node import Node, Taint
from allaboard.model.pod import Pod
from allaboard.model.snapshot import Snapshot
from allaboard.placement import Plan, SearchSettings, build_problem, search
from allaboard.placement.rules.members import Rules
from allaboard.placement.rules.together import TogetherRule
from tests.unit.placement.clusters import GI, GPU, in_words, node, pods, snapshot

CPU = {"cpu": 1000}
CAPACITY = {"cpu": 8000, "memory": 8 * GI}
NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
NOT_READY_EVICTS = Taint("node.kubernetes.io/not-ready", "", "NoExecute")
TOLERATES_ALL = (Toleration("", "Exists"),)
ZONE_B = ((NodeSelectorTerm((Requirement("zone", "In", ("b",)),)),),)
PORT = HostPort("0.0.0.0", "TCP", 80)  # noqa: S104


def plan_for(gang: list[Pod], cluster: Snapshot, minimum: int | None = None) -> Plan:
    """Return the plan of a search with default settings."""
    problem = build_problem(gang, len(gang) if minimum is None else minimum, cluster, objective=Objective.BINPACK)
    return search(problem, SearchSettings(), 0)


def refusals(one: Node, gang: list[Pod], **cluster: object) -> list[str]:
    """Return why the only node can't take a pod."""
    (role,) = plan_for(gang, snapshot([one], **cluster)).explanation.roles  # type: ignore[arg-type]
    assert all(nodes == 1 for _, nodes in role.reasons)
    return [reason for reason, _ in in_words(role.reasons)]


@pytest.mark.parametrize(
    ("one", "wants", "expected"),
    [
        (node("n", CAPACITY, is_unschedulable=True), {}, ["node(s) were unschedulable"]),
        (node("n", CAPACITY, is_unschedulable=True), {"tolerations": TOLERATES_ALL}, []),
        (node("n", CAPACITY, taints=(Taint("dedicated", "ml", "NoSchedule"),)), {}, ["node(s) had untolerated taint {dedicated: ml}"]),
        (node("n", CAPACITY, taints=(Taint("dedicated", "ml", "PreferNoSchedule"),)), {}, []),
        (node("n", CAPACITY, taints=(NOT_READY,), is_ready=False), {}, ["node(s) had untolerated taint {node.kubernetes.io/not-ready: }"]),
        (node("n", CAPACITY, taints=(NOT_READY,), is_ready=False), {"tolerations": TOLERATES_ALL}, []),
        (node("n", CAPACITY, is_ready=False), {"tolerations": TOLERATES_ALL}, ["node(s) were not ready"]),
        (node("n", CAPACITY, taints=(NOT_READY_EVICTS,), is_ready=False), {"tolerations": TOLERATES_ALL}, ["node(s) were not ready"]),
        (node("n", CAPACITY), {"node_selector": (("zone", "b"),)}, ["node(s) didn't match Pod's node affinity/selector"]),
        (node("n", CAPACITY), {"affinity": ()}, ["node(s) didn't match Pod's node affinity/selector"]),
        (node("n", CAPACITY), {"volumes": ZONE_B}, ["node(s) didn't match PersistentVolume's node affinity"]),
        (node("n", CAPACITY), {"forbidden_domains": ZONE_B}, ["node(s) didn't satisfy existing pods anti-affinity rules"]),
        (node("n", CAPACITY), {"required_domains": ZONE_B}, ["node(s) weren't in the domain of the members that are bound"]),
        (node("n", {"cpu": 100, "memory": 1}), {}, ["Insufficient cpu", "Insufficient memory"]),
        (node("n", {**CAPACITY, "pods": 0}), {}, ["Too many pods"]),
        (node("n", {"cpu": 100}, is_unschedulable=True, taints=(Taint("a", "b", "NoSchedule"),)), {}, ["node(s) were unschedulable"]),
        (
            node("n", {"cpu": 100}),
            {"node_selector": (("a", "b"),), "volumes": ZONE_B},
            ["node(s) didn't match Pod's node affinity/selector"],
        ),
    ],
)
def test_node_is_counted_under_the_first_filter_that_refuses(one: Node, wants: dict, expected: list[str]) -> None:
    assert refusals(one, pods("w", 1, {"cpu": 1000, "memory": GI}, **wants)) == expected


def test_taken_ports_are_counted_before_resources() -> None:
    one = node("n", {"cpu": 100})

    assert refusals(one, pods("w", 1, CPU, host_ports=(PORT,)), host_ports={"n": [PORT]}) == [
        "node(s) didn't have free ports for the requested pod ports"
    ]


def test_reasons_count_the_capacity_left_beside_the_placed_members() -> None:
    cluster = snapshot([node("a", {**CAPACITY, GPU: 2}), node("b", {**CAPACITY, GPU: 2}), node("c", CAPACITY, is_unschedulable=True)])

    plan = plan_for(pods("worker", 5, {GPU: 1}), cluster)

    (role,) = plan.explanation.roles
    assert (plan.feasible, plan.explanation.placeable, role.unplaced, role.most) == (False, 4, 1, 4)
    assert in_words(role.reasons) == ((f"Insufficient {GPU}", 2), ("node(s) were unschedulable", 1))


def test_members_of_one_role_exclude_each_other_by_port() -> None:
    plan = plan_for(pods("w", 3, CPU, host_ports=(PORT,)), snapshot([node("a", CAPACITY), node("b", CAPACITY)]))

    (role,) = plan.explanation.roles
    assert len(plan.assignments) == 2
    assert in_words(role.reasons) == (("node(s) didn't have free ports for the requested pod ports", 2),)


def test_role_that_is_placed_has_no_reasons() -> None:
    plan = plan_for([*pods("fits", 1, CPU), *pods("large", 1, {"cpu": 9000})], snapshot([node("a", CAPACITY)]))

    assert [(role.unplaced, in_words(role.reasons)) for role in plan.explanation.roles] == [(0, ()), (1, (("Insufficient cpu", 1),))]


@pytest.mark.parametrize(("minimum", "is_spare"), [(3, True), (4, False)])
def test_role_that_fits_nowhere_counts_as_not_needed_if_the_other_roles_reach_the_minimum(minimum: int, is_spare: bool) -> None:
    gang = [*pods("w", 3, {"cpu": 700}), *pods("large", 1, {"cpu": 9000})]
    plan = plan_for(gang, snapshot([node("a", CAPACITY)]), minimum=minimum)

    assert {len(role.pods): role.is_spare for role in plan.explanation.roles} == {3: False, 1: is_spare}


@pytest.mark.parametrize("taken", [0, 8000])
def test_node_without_the_domain_label_is_counted_for_the_label_even_if_full(taken: int) -> None:
    gang = pods("w", 2, CPU)
    cluster = snapshot([node("a", CAPACITY), node("b", CAPACITY)], used={"a": {"cpu": taken}})
    problem = build_problem(
        gang, 2, cluster, objective=Objective.BINPACK, rules=Rules(couplings=[TogetherRule("rack", {pod.uid for pod in gang})])
    )

    (role,) = search(problem, SearchSettings(), 0).explanation.roles
    assert in_words(role.reasons) == (("node(s) had no label rack", 2),)
