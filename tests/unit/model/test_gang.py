"""The words of a gang: quorum, bound, missing, whole, open."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import Pod, pod_from


def member(name: str, *, phase: str = "Pending", node: str = "", run: str = "run-1", terminating: bool = False, gated: bool = False) -> Pod:
    metadata: dict[str, Any] = {"name": name, "uid": name, "deletionTimestamp": "2026-01-01T00:00:00Z" if terminating else None}
    if run:
        metadata["ownerReferences"] = [{"kind": "Job", "name": "job", "uid": run, "controller": True}]
    gates = [{"name": "quota"}] if gated else None
    return pod_from({"metadata": metadata, "spec": {"nodeName": node, "schedulingGates": gates}, "status": {"phase": phase}})


def gang(min_member: int, *members: Pod) -> Gang:
    return Gang(
        key=GangKey("ml", "g"),
        min_member=min_member,
        members=members,
        priority=0,
        created=0.0,
        objective=Objective.BINPACK,
        timeout_seconds=60,
    )


def test_a_gang_with_nobody_bound_is_absent() -> None:
    found = gang(2, member("a"), member("b"))
    assert (found.quorum, len(found.bound), found.missing, found.is_whole, found.is_open) == (2, 0, 2, False, False)


def test_a_gang_with_some_bound_is_open() -> None:
    found = gang(2, member("a", node="n1"), member("b"))
    assert (found.missing, found.is_whole, found.is_open) == (1, False, True)


def test_a_gang_with_its_quorum_bound_is_whole_and_may_have_more_members() -> None:
    found = gang(2, member("a", node="n1"), member("b", node="n1", phase="Running"), member("c"))
    assert (found.missing, found.is_whole, found.is_open) == (0, True, False)
    assert [pod.name for pod in found.candidates] == ["c"]


def test_terminating_and_failed_members_are_not_bound() -> None:
    found = gang(2, member("a", node="n1", terminating=True), member("b", node="n1", phase="Failed"), member("c", node="n1"))
    assert [pod.name for pod in found.bound] == ["c"]
    assert found.is_open


def test_gated_and_terminating_members_are_alive_or_not_but_no_candidates() -> None:
    found = gang(1, member("a", gated=True), member("b", terminating=True), member("c", phase="Succeeded"))
    assert [pod.name for pod in found.alive] == ["a"]
    assert found.candidates == ()


def test_a_succeeded_member_of_the_run_that_goes_on_lowers_the_quorum() -> None:
    found = gang(3, member("a", phase="Succeeded", node="n1"), member("b", node="n1"), member("c"))
    assert (found.succeeded, found.quorum, found.missing) == (1, 2, 1)


def test_succeeded_members_of_an_earlier_run_do_not_count() -> None:
    found = gang(2, member("a", phase="Succeeded", run="run-0"), member("b", phase="Succeeded", run="run-0"), member("c"), member("d"))
    assert (found.succeeded, found.quorum, found.missing) == (0, 2, 2)


def test_succeeded_bare_pods_count_while_other_bare_members_live() -> None:
    assert gang(2, member("a", phase="Succeeded", run=""), member("b", run="")).quorum == 1


def test_a_terminating_member_does_not_keep_its_run_alive() -> None:
    assert gang(2, member("a", phase="Succeeded"), member("b", terminating=True)).succeeded == 0


def test_the_quorum_is_never_negative() -> None:
    found = gang(1, member("a", phase="Succeeded"), member("b", phase="Succeeded"), member("c"))
    assert (found.quorum, found.missing, found.is_whole) == (0, 0, True)


def test_a_pod_and_a_pod_group_of_one_name_are_different_gangs() -> None:
    assert GangKey("ml", "g") != GangKey("ml", "g", "Pod")
    assert str(GangKey("ml", "g")) == "ml/g"


members = st.builds(
    member,
    st.text("abc", min_size=1, max_size=4),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    node=st.sampled_from(["", "n1"]),
    run=st.sampled_from(["", "run-0", "run-1"]),
    terminating=st.booleans(),
    gated=st.booleans(),
)


@given(st.integers(1, 6), st.lists(members, max_size=6))
def test_a_gang_is_exactly_one_of_whole_absent_and_open(minimum: int, pods: list[Pod]) -> None:
    found = gang(minimum, *pods)
    is_absent = not found.is_whole and not found.bound
    assert [found.is_whole, is_absent, found.is_open].count(True) == 1
    assert found.quorum + found.succeeded >= minimum
    assert not set(found.candidates) & set(found.bound)
