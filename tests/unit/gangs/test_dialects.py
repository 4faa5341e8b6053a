"""How pods say which gang they belong to."""

from dataclasses import replace

import pytest

from allaboard.gangs.dialects import membership_of, min_available, object_name
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import GangKey
from allaboard.model.marks import MARKS
from allaboard.model.pod import ROLE_LABELS, Pod, Reading, pod_from

PAIR = "pod-group.scheduling.sigs.k8s.io"
POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec(requests=(("pods", 1),)))


def labelled(**labels: str) -> Pod:
    return replace(POD, labels=tuple(sorted(labels.items())))


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"])
def test_a_pod_group_label_names_the_gang(label: str) -> None:
    membership = membership_of(labelled(**{label: "train"}))
    assert membership.key == GangKey("ns", "train")
    assert membership.min_member is None


@pytest.mark.parametrize("prefix", [PAIR, "pod-group.scheduling.x-k8s.io"])
def test_the_label_pair_names_the_gang_and_its_minimum(prefix: str) -> None:
    membership = membership_of(labelled(**{f"{prefix}/name": "train", f"{prefix}/min-available": "5"}))
    assert membership.key == GangKey("ns", "train")
    assert membership.min_member == 5
    assert not membership.error


def test_the_pod_group_label_wins_over_the_pair() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "a", f"{PAIR}/name": "b", f"{PAIR}/min-available": "2"}
    assert membership_of(labelled(**labels)).key.name == "a"


def test_a_pod_without_any_group_is_a_gang_of_one() -> None:
    membership = membership_of(POD)
    assert membership.key == GangKey("ns", "p", kind="Pod")
    assert membership.min_member == 1


@pytest.mark.parametrize("value", ["0", "five", "", "-1", "1.5", "0x5", " 5", "٥x", "99999999999"])
def test_a_malformed_minimum_is_an_error_and_names_the_label(value: str) -> None:
    membership = membership_of(labelled(**{f"{PAIR}/name": "train", f"{PAIR}/min-available": value}))
    assert f"{PAIR}/min-available" in membership.error
    assert membership.key == GangKey("ns", "train")


@pytest.mark.parametrize(("present", "missing"), [("name", "min-available"), ("min-available", "name")])
def test_half_a_pair_is_an_error_that_names_the_other_half(present: str, missing: str) -> None:
    assert f"{PAIR}/{missing} is missing" in membership_of(labelled(**{f"{PAIR}/{present}": "3"})).error


def test_the_native_group_is_refused_by_name() -> None:
    assert "'native'" in membership_of(replace(POD, group_name="native")).error


def marked(kind: str, *names: str, scheduler: str = "allaboard") -> Pod:
    metadata = {"name": "p", "namespace": "ns", kind: dict.fromkeys(names, "x" * 60)}
    return pod_from({"metadata": metadata, "spec": {"schedulerName": scheduler}}, reading=Reading(ours={"allaboard"}))


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_that_another_scheduler_reads_holds_its_pod_and_says_what_to_write_instead(mark: str, kind: str) -> None:
    membership = membership_of(marked(kind, mark))
    assert (membership.key, membership.reason) == (GangKey("ns", "p", kind="Pod"), "Unsupported")
    assert membership.error.startswith(f"{kind.removesuffix('s')} {mark} asks {MARKS[mark]} for a gang, ")
    assert f"{PAIR}/name and {PAIR}/min-available" in membership.error
    assert membership.field == f"metadata.{kind}[{mark}]"
    assert len(membership.error) < 400


def test_of_several_marks_the_first_of_the_table_is_told() -> None:
    assert marked("annotations", *reversed(MARKS)).mark == next(iter(MARKS))


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"])
def test_a_pod_that_names_its_gang_as_we_read_it_may_have_marks_beside(label: str) -> None:
    membership = membership_of(replace(marked("annotations", *MARKS), labels=((label, "train"),)))
    assert (membership.key, membership.error) == (GangKey("ns", "train"), "")


@pytest.mark.parametrize("label", ROLE_LABELS)
def test_a_label_that_names_a_role_is_no_mark(label: str) -> None:
    assert not membership_of(marked("labels", label)).error


@pytest.mark.parametrize("mark", MARKS)
def test_marks_of_other_schedulers_pods_are_theirs(mark: str) -> None:
    assert marked("annotations", mark, scheduler="volcano").mark == ""


def test_a_mark_without_a_value_is_none_if_it_is_null_and_one_if_it_is_empty() -> None:
    found = {value: pod_from({"metadata": {"name": "p", "annotations": {"pod-group-name": value}}}).mark for value in (None, "")}
    assert found == {None: "", "": "pod-group-name"}


def test_a_label_value_that_is_no_object_name_is_cleaned_without_collisions() -> None:
    assert object_name("train-1") == "train-1"
    assert object_name("My_Job").startswith("my-job-")
    assert object_name("My_Job") != object_name("My-Job")
    assert object_name("___").startswith("gang-")


def test_min_available_reads_whole_numbers() -> None:
    assert min_available("256") == 256
