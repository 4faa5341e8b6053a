"""Volumes as capacity: never more than a node attaches, and all of it where pods share what they share."""

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
    """Nodes a, b … that can attach so many more disks."""
    found = snapshot([node(name, {"cpu": 64_000}) for name, _ in zip("abcd", free, strict=False)])
    return replace(found, attachable={DISK: np.array(free, dtype=np.int64)})


def using(name: str, own: int, *shared: str, on: tuple[str, ...] = (), number: int = 1) -> list[Pod]:
    attaches = (Attaches(DISK, own, tuple((handle, on) for handle in shared)),)
    return [replace(pod, spec=replace(pod.spec, attaches=attaches)) for pod in pods(name, number, {"cpu": 1000})]


def placed(members: list[Pod], cluster: Snapshot) -> int:
    """How many of ``members`` are given seats, all of which are good."""
    plan = search(build_problem(members, 0, cluster, objective=Objective.BINPACK), SearchSettings(generations=10), 1)
    assert verify(dict(plan.assignments), members, cluster) == ()
    return len(plan.assignments)


def test_a_node_takes_as_many_pods_as_it_attaches_volumes() -> None:
    assert placed(using("w", 1, number=5), a_cluster(2, 1)) == 3
    assert placed(using("w", 2, number=5), a_cluster(3, 4)) == 3


def test_one_claim_that_all_members_share_counts_once_a_node() -> None:
    assert placed(using("w", 0, "data", number=50), a_cluster(1, 0)) == 50
    assert placed(using("w", 1, "data", number=5), a_cluster(3, 1)) == 2


def test_a_shared_claim_costs_nothing_where_it_is_attached() -> None:
    assert placed(using("w", 0, "data", on=("b",), number=5), a_cluster(0, 0)) == 5
    assert placed(using("w", 1, "data", on=("b",), number=5), a_cluster(2, 2)) == 3


def test_members_that_share_nothing_with_each_other_are_counted_one_by_one() -> None:
    members = [*using("w", 0, "data", number=4), *using("ps", 1, number=2)]
    assert placed(members, a_cluster(1, 3)) == 6
    assert placed(members, a_cluster(3, 0)) == 6
    assert placed(members, a_cluster(2, 0)) == 5


def test_a_node_that_has_more_attached_than_it_may_takes_no_more() -> None:
    assert placed(using("w", 1, number=2), a_cluster(-3, 1)) == 1


def test_pods_without_volumes_go_where_no_more_can_be_attached() -> None:
    assert placed([*using("w", 1, number=2), *pods("cpu", 3, {"cpu": 1000})], a_cluster(0, 0)) == 3


def test_the_refusal_is_kube_schedulers() -> None:
    problem = build_problem(using("w", 2), 1, a_cluster(1, 0), objective=Objective.BINPACK)
    assert problem.roles[0].refusals == ((Reason(Kind.ATTACHMENTS), 2),)
    assert messages.fit_error(2, problem.roles[0].refusals) == "0/2 nodes are available: 2 node(s) exceed max volume count."


def test_the_last_look_counts_for_itself() -> None:
    members = using("w", 1, "data", number=3)
    slots = {pod.uid: "a" for pod in members}
    assert verify(slots, members, a_cluster(4)) == ()
    found = verify(slots, members, a_cluster(3))
    assert [messages.violation(each) for each in found] == ["default/w-2 on a: node(s) exceed max volume count"]


handles = st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True)
kinds = st.tuples(st.integers(0, 2), handles, st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(kinds, min_size=1, max_size=3), st.lists(st.integers(-1, 4), min_size=1, max_size=3), st.sampled_from([(), ("a",)]))
def test_no_search_asks_a_node_for_more_volumes_than_it_attaches(of_kinds: list, free: list[int], on: tuple[str, ...]) -> None:
    members = [pod for kind, (own, shared, number) in enumerate(of_kinds) for pod in using(f"k{kind}", own, *shared, on=on, number=number)]
    placed(members, a_cluster(*free))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2), handles, st.integers(1, 4), st.lists(st.integers(0, 4), min_size=1, max_size=3), st.sampled_from([(), ("a",)]))
def test_members_of_one_kind_are_given_all_the_seats_there_are(
    own: int, shared: list, number: int, free: list, on: tuple[str, ...]
) -> None:
    most = 0
    for name, left in zip("abc", free, strict=False):
        left -= 0 if name in on else len(shared)
        most += 0 if left < 0 else number if not own else left // own
    assert placed(using("w", own, *shared, on=on, number=number), a_cluster(*free)) == min(number, most)
