"""Tests the quorum and the missing members of a gang, and its states: whole, partially bound and absent."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import Gang, GangKey, Objective
from allaboard.model.pod import STAMP, Pod, pod_from, read_stamp, stamp_of


def member(name: str, *, phase: str = "Pending", node: str = "", run: str = "a", terminating: bool = False, gated: bool = False) -> Pod:
    metadata: dict[str, Any] = {"name": name, "uid": name, "deletionTimestamp": "2026-01-01T00:00:00Z" if terminating else None}
    if run and node:
        metadata["annotations"] = {STAMP: f"{run}/1"}
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


def test_a_gang_without_bound_members_is_absent() -> None:
    found = gang(2, member("a"), member("b"))
    assert (found.quorum, len(found.bound), found.missing, found.is_whole, found.is_partially_bound) == (2, 0, 2, False, False)


def test_a_gang_with_some_members_bound_is_partially_bound() -> None:
    found = gang(2, member("a", node="n1"), member("b"))
    assert (found.missing, found.is_whole, found.is_partially_bound) == (1, False, True)


def test_a_gang_with_its_quorum_bound_is_whole_and_may_have_more_members() -> None:
    found = gang(2, member("a", node="n1"), member("b", node="n1", phase="Running"), member("c"))
    assert (found.missing, found.is_whole, found.is_partially_bound) == (0, True, False)
    assert [pod.name for pod in found.candidates] == ["c"]


def test_terminating_and_failed_members_are_not_bound() -> None:
    found = gang(2, member("a", node="n1", terminating=True), member("b", node="n1", phase="Failed"), member("c", node="n1"))
    assert [pod.name for pod in found.bound] == ["c"]
    assert found.is_partially_bound


def test_gated_terminating_and_ended_members_are_no_candidates() -> None:
    found = gang(1, member("a", gated=True), member("b", terminating=True), member("c", phase="Succeeded"))
    assert [pod.name for pod in found.alive] == ["a"]
    assert found.candidates == ()


def test_a_member_that_has_succeeded_in_the_run_lowers_the_quorum() -> None:
    found = gang(3, member("a", phase="Succeeded", node="n1"), member("b", node="n1"), member("c"))
    assert (found.succeeded, found.quorum, found.missing) == (1, 2, 1)


def test_a_pod_that_another_scheduler_bound_does_not_count_as_a_succeeded_member() -> None:
    assert gang(3, member("a", phase="Succeeded", node="n1", run=""), member("b", node="n1")).succeeded == 0


def test_the_quorum_is_never_negative() -> None:
    ended = [member(name, phase="Succeeded", node="n1") for name in "ab"]
    found = gang(1, *ended, member("c", node="n1"))
    assert (found.quorum, found.missing, found.is_whole) == (0, 0, True)


def test_pods_that_no_job_will_create_lower_the_quorum() -> None:
    found = replace(gang(4, member("a"), member("b")), gone=2)
    assert (found.quorum, found.missing, found.required) == (2, 2, 2)
    assert not found.awaits_pods


def test_successes_of_the_run_are_not_counted_again_as_pods_that_no_job_will_create() -> None:
    ended = [member(name, phase="Succeeded", node="n1") for name in "ab"]
    found = replace(gang(4, *ended, member("c", node="n1"), member("d")), gone=2)
    assert (found.quorum, found.missing, found.required) == (2, 1, 4)


@pytest.mark.parametrize(("candidates", "least", "missing"), [(1, 1, 0), (2, 2, 0), (4, 3, 0)])
def test_a_run_that_waits_for_no_more_pods_needs_only_the_replacements_that_exist(candidates: int, least: int, missing: int) -> None:
    pods = [member(f"c{number}") for number in range(candidates)]
    found = replace(gang(4, member("a", node="n1"), *pods), settles=True)
    assert not found.awaits_pods
    assert (found.least, found.missing) == (least, 3)
    assert found.missing_once_bound([pod.uid for pod in pods]) == missing


def test_pods_of_other_runs_of_a_gang_are_not_members_and_are_counted_only_in_sums_over_all_runs() -> None:
    others = (member("a", node="n1", run="b"), member("b", phase="Succeeded", node="n1", run="b"), member("c", node="n1", terminating=True))
    found = replace(gang(2, member("d"), member("e")), others=others)
    assert (len(found.bound), len(found.bound_in_all_runs), len(found.alive_in_all_runs), found.in_phase("Succeeded")) == (0, 1, 3, 1)
    assert len(found.all_pods) == 5


@pytest.mark.parametrize(
    ("stamp", "read"),
    [
        ("0123456789ab/4", ("0123456789ab", 4, False)),
        ("a/1", ("a", 1, False)),
        ("a/4/whole", ("a", 4, True)),
        ("a/4/", ("", 0, False)),
        ("a/4/hole", ("", 0, False)),
        ("a/4/whole\n", ("", 0, False)),
        ("a/0", ("", 0, False)),
        ("a/-1", ("", 0, False)),
        ("a/01", ("", 0, False)),
        ("a/1000000000", ("", 0, False)),
        ("/4", ("", 0, False)),
        ("a", ("", 0, False)),
        ("", ("", 0, False)),
        (None, ("", 0, False)),
        ("a/٣", ("", 0, False)),
    ],
)
def test_only_well_formed_stamps_are_read(stamp: str | None, read: tuple[str, int, bool]) -> None:
    assert read_stamp(stamp) == read


@given(st.text("0123456789abcdef", min_size=1, max_size=32), st.integers(1, 999_999_999), st.booleans())
def test_a_written_stamp_is_read_back(run: str, minimum: int, is_whole: bool) -> None:
    assert read_stamp(stamp_of(run, minimum, was_whole=is_whole)) == (run, minimum, is_whole)


def test_a_pod_and_a_pod_group_of_one_name_are_different_gangs() -> None:
    assert GangKey("ml", "g") != GangKey("ml", "g", "Pod")
    assert str(GangKey("ml", "g")) == "ml/g"


members = st.builds(
    member,
    st.text("abc", min_size=1, max_size=4),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    node=st.sampled_from(["", "n1"]),
    run=st.sampled_from(["", "a", "b"]),
    terminating=st.booleans(),
    gated=st.booleans(),
)


@given(st.integers(1, 6), st.lists(members, max_size=6))
def test_a_gang_is_exactly_one_of_whole_absent_and_partially_bound(minimum: int, pods: list[Pod]) -> None:
    found = gang(minimum, *pods)
    is_absent = not found.is_whole and not found.bound
    assert [found.is_whole, is_absent, found.is_partially_bound].count(True) == 1
    assert found.quorum + found.succeeded >= minimum
    assert not set(found.candidates) & set(found.bound)


@pytest.mark.parametrize(("minimum", "missing"), [(1, 0), (2, 0), (3, 1), (9, 1)])
def test_a_minimum_raised_after_a_bind_leaves_the_stamped_minimum_unchanged(minimum: int, missing: int) -> None:
    """Running pods may be released if members are missing of the stamped minimum, so a raised minimum must add no missing members."""
    bound = [replace(member(name, node="n1"), stamped_min_member=3) for name in ("a", "b")]
    assert gang(minimum, *bound, member("c")).missing_of_stamped == missing


def test_the_larger_of_two_stamped_minimums_counts() -> None:
    bound = [replace(member(name, node="n1"), stamped_min_member=stamped) for name, stamped in (("a", 2), ("b", 3))]
    assert gang(9, *bound, member("c")).missing_of_stamped == 1
