"""The words of a gang: quorum, bound, missing, whole, open."""

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


@pytest.mark.parametrize(
    "others",
    [
        (member("b"), member("c")),  # nobody is bound: the next run needs its whole minimum
        (member("b", node="n1", run="b"), member("c")),  # another run goes on
        (member("b", node="n1", run=""), member("c")),  # bound by somebody else
        (member("b", node="n1", terminating=True), member("c")),
    ],
)
def test_succeeded_members_of_an_earlier_run_do_not_count(others: tuple[Pod, ...]) -> None:
    assert gang(2, member("a", phase="Succeeded", node="n1"), *others).succeeded == 0


def test_a_pod_that_others_have_bound_counts_for_nothing_when_it_has_succeeded() -> None:
    assert gang(3, member("a", phase="Succeeded", node="n1", run=""), member("b", node="n1")).succeeded == 0


def test_the_quorum_is_never_negative() -> None:
    ended = [member(name, phase="Succeeded", node="n1") for name in "ab"]
    found = gang(1, *ended, member("c", node="n1"))
    assert (found.quorum, found.missing, found.is_whole) == (0, 0, True)


FIRST, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def worker(name: str, phase: str = "Pending", *, created: str = FIRST, is_bound: bool = False, run: str = "a", minimum: int = 4) -> Pod:
    """A member that was made when the run began, or ``LATER``; bound at ``FIRST``, if it is."""
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}
    metadata = {"name": name, "uid": name, "creationTimestamp": created, "annotations": {STAMP: f"{run}/{minimum}"} if is_bound else {}}
    status = {"phase": phase, "conditions": [bound] if is_bound else []}
    return pod_from({"metadata": metadata, "spec": {"nodeName": "n1" if is_bound else ""}, "status": status})


def wave(succeeded: int, running: int, leftovers: int = 0, new: int = 0) -> Gang:
    """A Job's gang of at least four."""
    return gang(
        4,
        *(worker(f"s{number}", "Succeeded", is_bound=True) for number in range(succeeded)),
        *(worker(f"r{number}", "Running", is_bound=True) for number in range(running)),
        *(worker(f"l{number}") for number in range(leftovers)),
        *(worker(f"n{number}", created=LATER) for number in range(new)),
    )


@pytest.mark.parametrize(
    ("found", "least"),
    [
        (wave(0, 0, leftovers=4), 4),
        (wave(4, 0, new=4), 4),  # the second wave, when all of the first have ended together
        (wave(1, 3, new=1), 1),  # one of the second, with three of the first: four are alive
        (wave(3, 1, new=3), 3),
        (wave(3, 1, new=2), 3),  # which must wait for a third
        (wave(0, 4, new=2), 1),  # nobody has ended: the gang has grown
        (wave(1, 3, leftovers=2), 1),  # those that the first wave left over ride along
        (wave(2, 1, new=3), 1),  # one is lost, and replaced as ever
        (wave(2, 1, leftovers=1, new=3), 1),
    ],
)
def test_a_next_wave_starts_with_a_whole_minimum_alive_or_not_at_all(found: Gang, least: int) -> None:
    assert found.least == least
    assert found.awaits_pods is (len(found.candidates) < least)


@pytest.mark.parametrize(
    ("found", "chosen", "startable"),
    [
        (wave(3, 1, new=3), "n0 n1 n2", "n0 n1 n2"),
        (wave(3, 1, new=3), "n0 n1", ""),
        (wave(3, 1, leftovers=1, new=3), "l0 n0", "l0"),
        (wave(3, 1, leftovers=1, new=3), "l0 n0 n1", "l0 n0 n1"),
        (wave(2, 1, new=3), "n0 n1", "n1"),  # one heals, the other would be part of a wave
        (wave(0, 4, new=3), "n0 n1", "n0 n1"),
    ],
)
def test_of_a_next_wave_nobody_starts_who_replaces_nobody_unless_all_can(found: Gang, chosen: str, startable: str) -> None:
    assert found.startable(chosen.split()) == set(startable.split())


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 3), st.integers(0, 6), st.data())
def test_whoever_is_started_makes_the_gang_whole_or_rides_along_with_the_run(
    succeeded: int, running: int, leftovers: int, new: int, data: st.DataObject
) -> None:
    found = wave(succeeded, running, leftovers, new)
    chosen = data.draw(
        st.sets(st.sampled_from([pod.uid for pod in found.candidates] or ["nobody"])).filter(lambda uids: "nobody" not in uids)
    )
    if found.missing_once_bound(chosen):
        return  # no plan
    started = found.startable(chosen)
    assert not found.missing_once_bound(started)
    if found.next_wave & started and running + len(started) < 4:
        assert len(started) == found.missing


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3), st.integers(0, 6), st.integers(0, 4), st.data())
def test_of_a_next_wave_as_few_start_as_the_gang_and_its_roles_need(
    succeeded: int, running: int, leftovers: int, new: int, least: int, data: st.DataObject
) -> None:
    plain = wave(succeeded, running, leftovers, new)
    roles = {pod.uid: data.draw(st.sampled_from(["ps", "worker"])) for pod in plain.members}
    members = tuple(replace(pod, options=(("role", roles[pod.uid]),)) for pod in plain.members)
    found = replace(plain, members=members, role_minimums=(("ps", least),) if least else ())
    chosen = frozenset(pod.uid for pod in found.candidates if data.draw(st.booleans()))
    expected = chosen
    if len(found.bound) + len(chosen) < found.required:
        for uid in sorted(found.next_wave & chosen):
            if not found.missing_once_bound(expected - {uid}):
                expected -= {uid}
    assert found.startable(chosen) == expected


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
def test_only_a_stamp_of_ours_says_anything(stamp: str | None, read: tuple[str, int, bool]) -> None:
    assert read_stamp(stamp) == read


@given(st.text("0123456789abcdef", min_size=1, max_size=32), st.integers(1, 999_999_999), st.booleans())
def test_what_a_stamp_says_is_read_from_it(run: str, promise: int, is_whole: bool) -> None:
    assert read_stamp(stamp_of(run, promise, was_whole=is_whole)) == (run, promise, is_whole)


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
def test_a_gang_is_exactly_one_of_whole_absent_and_open(minimum: int, pods: list[Pod]) -> None:
    found = gang(minimum, *pods)
    is_absent = not found.is_whole and not found.bound
    assert [found.is_whole, is_absent, found.is_open].count(True) == 1
    assert found.quorum + found.succeeded >= minimum
    assert not set(found.candidates) & set(found.bound)


@pytest.mark.parametrize(("minimum", "owed"), [(1, 0), (2, 0), (3, 1), (9, 1)])
def test_a_minimum_that_was_raised_or_lowered_owes_no_more_than_was_promised_to_those_that_are_bound(minimum: int, owed: int) -> None:
    """What is owed is what running pods are released for."""
    bound = [replace(member(name, node="n1"), promise=3) for name in ("a", "b")]
    assert gang(minimum, *bound, member("c")).owed == owed


def test_of_two_promises_to_those_that_are_bound_the_larger_is_owed() -> None:
    bound = [replace(member(name, node="n1"), promise=promise) for name, promise in (("a", 2), ("b", 3))]
    assert gang(9, *bound, member("c")).owed == 1
