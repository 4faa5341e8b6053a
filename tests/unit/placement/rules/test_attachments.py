"""Tests that no node gets more volumes than it can attach, and that members with one spec use all volumes that it can attach."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allaboard.model.gang import Objective
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind, Reason
from allaboard.model.snapshot import Snapshot
from allaboard.model.volumes import Attaches
from allaboard.placement import SearchSettings, build_problem, search, verify
from allaboard.report import messages
from tests.unit.placement.clusters import node, pods, snapshot

DISK = "disk.example.com"
NODES = ("a", "b")


def a_cluster(*free: int) -> Snapshot:
    """Return a cluster of nodes a, b and so on. Each can attach as many more disks as its number in ``free``."""
    found = snapshot([node(name, {"cpu": 64_000}) for name, _ in zip("abcd", free, strict=False)])
    return replace(found, attachable={DISK: np.array(free, dtype=np.int64)})


def using(name: str, own: int, *shared: str, on: tuple[str, ...] = (), number: int = 1) -> list[Pod]:
    attaches = (Attaches(DISK, own, tuple((handle, on) for handle in shared)),)
    return [replace(pod, spec=replace(pod.spec, attaches=attaches)) for pod in pods(name, number, {"cpu": 1000})]


def placed(members: list[Pod], cluster: Snapshot) -> int:
    """Return how many of ``members`` a search assigns; all assignments must be valid."""
    plan = search(build_problem(members, 0, cluster, objective=Objective.BINPACK), SearchSettings(generations=10), 1)
    assert verify(dict(plan.assignments), members, cluster) == ()
    return len(plan.assignments)


def test_node_takes_only_pods_whose_volumes_it_can_attach() -> None:
    assert placed(using("w", 1, number=5), a_cluster(2, 1)) == 3
    assert placed(using("w", 2, number=5), a_cluster(3, 4)) == 3


def test_claim_that_all_members_share_counts_once_per_node() -> None:
    assert placed(using("w", 0, "data", number=50), a_cluster(1, 0)) == 50
    assert placed(using("w", 1, "data", number=5), a_cluster(3, 1)) == 2


def test_shared_claim_takes_no_capacity_where_it_is_attached() -> None:
    assert placed(using("w", 0, "data", on=("b",), number=5), a_cluster(0, 0)) == 5
    assert placed(using("w", 1, "data", on=("b",), number=5), a_cluster(2, 2)) == 3


def test_shared_claim_of_one_role_and_own_claims_of_another_add_up() -> None:
    members = [*using("w", 0, "data", number=4), *using("ps", 1, number=2)]
    assert placed(members, a_cluster(1, 3)) == 6
    assert placed(members, a_cluster(3, 0)) == 6
    assert placed(members, a_cluster(2, 0)) == 5


def test_node_above_its_attach_limit_takes_no_volumes() -> None:
    assert placed(using("w", 1, number=2), a_cluster(-3, 1)) == 1


def test_pods_without_volumes_fit_on_nodes_at_the_attach_limit() -> None:
    assert placed([*using("w", 1, number=2), *pods("cpu", 3, {"cpu": 1000})], a_cluster(0, 0)) == 3


def test_refusal_for_volumes_has_the_words_of_kube_scheduler() -> None:
    problem = build_problem(using("w", 2), 1, a_cluster(1, 0), objective=Objective.BINPACK)
    assert problem.roles[0].refusals == ((Reason(Kind.ATTACHMENTS), 2),)
    assert messages.fit_error(2, problem.roles[0].refusals) == "0/2 nodes are available: 2 node(s) exceed max volume count."


def test_check_before_the_bind_finds_too_many_volumes() -> None:
    members = using("w", 1, "data", number=3)
    assignments = {pod.uid: "a" for pod in members}
    assert verify(assignments, members, a_cluster(4)) == ()
    found = verify(assignments, members, a_cluster(3))
    assert [messages.violation(each) for each in found] == ["default/w-2 on a: node(s) exceed max volume count"]


handles = st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True)
kinds = st.tuples(st.integers(0, 2), handles, st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(kinds, min_size=1, max_size=3), st.lists(st.integers(-1, 4), min_size=1, max_size=3), st.sampled_from([(), ("a",)]))
def test_no_plan_exceeds_the_attach_limit(of_kinds: list, free: list[int], on: tuple[str, ...]) -> None:
    members = [pod for kind, (own, shared, number) in enumerate(of_kinds) for pod in using(f"k{kind}", own, *shared, on=on, number=number)]
    placed(members, a_cluster(*free))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2), handles, st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.sampled_from([(), ("a",)]))
def test_members_of_one_kind_use_all_attachable_volumes(own: int, shared: list, number: int, free: list, on: tuple[str, ...]) -> None:
    most = 0
    for name, left in zip("abc", free, strict=False):
        left -= 0 if name in on else len(shared)
        most += 0 if left < 0 else number if not own else left // own
    assert placed(using("w", own, *shared, on=on, number=number), a_cluster(*free)) == min(number, most)
