"""The gang that a pod belongs to, as read from the pod's labels, annotations and spec."""

from dataclasses import replace
from typing import Any

import pytest

from allaboard.gangs.membership import Membership, membership_of, min_available, object_name
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.foreign_gang_labels import FOREIGN_GANG_LABELS, NONE
from allaboard.model.gang import GangKey
from allaboard.model.pod import ROLE_LABELS, Pod, Reading, pod_from

PAIR = "pod-group.scheduling.sigs.k8s.io"
KUEUE = "kueue.x-k8s.io"
POD = Pod("ns", "p", "uid", "1", 0.0, "allaboard", "", "Pending", 0, SchedulingSpec(requests=(("pods", 1),)))


def labelled(**labels: str) -> Pod:
    return replace(POD, labels=tuple(sorted(labels.items())))


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"])
def test_a_pod_group_label_names_the_gang(label: str) -> None:
    membership = membership_of(labelled(**{label: "train"}))
    assert membership.key == GangKey("ns", "train")
    assert membership.min_member is None


@pytest.mark.parametrize("prefix", [PAIR, "pod-group.scheduling.x-k8s.io"])
def test_labels_name_and_min_available_name_the_gang_and_its_minimum(prefix: str) -> None:
    membership = membership_of(labelled(**{f"{prefix}/name": "train", f"{prefix}/min-available": "5"}))
    assert membership.key == GangKey("ns", "train")
    assert membership.min_member == 5
    assert not membership.error


def test_the_label_pod_group_wins_over_the_labels_name_and_min_available() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "a", f"{PAIR}/name": "b", f"{PAIR}/min-available": "2"}
    assert membership_of(labelled(**labels)).key.name == "a"


def test_a_pod_without_gang_labels_is_a_gang_of_one() -> None:
    membership = membership_of(POD)
    assert membership.key == GangKey("ns", "p", kind="Pod")
    assert membership.min_member == 1


@pytest.mark.parametrize("value", ["0", "five", "", "-1", "1.5", "0x5", " 5", "٥x", "99999999999"])
def test_a_malformed_minimum_is_an_error_and_names_the_label(value: str) -> None:
    membership = membership_of(labelled(**{f"{PAIR}/name": "train", f"{PAIR}/min-available": value}))
    assert f"{PAIR}/min-available" in membership.error
    assert membership.key == GangKey("ns", "train")


@pytest.mark.parametrize(("present", "missing"), [("name", "min-available"), ("min-available", "name")])
def test_label_name_or_min_available_alone_is_an_error_that_names_the_missing_label(present: str, missing: str) -> None:
    assert f"{PAIR}/{missing} is missing" in membership_of(labelled(**{f"{PAIR}/{present}": "3"})).error


def test_pod_group_of_kubernetes_own_gang_api_is_an_error_that_names_the_group() -> None:
    assert "'native'" in membership_of(replace(POD, group_name="native")).error


def with_foreign_label(kind: str, *names: str, scheduler: str = "allaboard", **labels: str) -> Pod:
    metadata: dict[str, Any] = {"name": "p", "namespace": "ns", "labels": labels}
    metadata[kind] = {**metadata.get(kind, {}), **dict.fromkeys(names, "x" * 60)}
    return pod_from({"metadata": metadata, "spec": {"schedulerName": scheduler}}, reading=Reading(ours={"allaboard"}))


def annotated(value: str, *names: str, **labels: str) -> Pod:
    annotations = dict.fromkeys(names, value)
    return pod_from({"metadata": {"name": "p", "namespace": "ns", "labels": labels, "annotations": annotations}, "spec": {}})


GANG = {f"{PAIR}/name": "train", f"{PAIR}/min-available": "2"}
NAMES = [name for name, label in FOREIGN_GANG_LABELS.items() if label.asks_for_gang]
DEMANDS = [name for name, label in FOREIGN_GANG_LABELS.items() if label.demand and not label.same_as]
MINIMUMS = [name for name, label in FOREIGN_GANG_LABELS.items() if label.same_as]
BY_LATER_VERSIONS = [
    "gang.scheduling.koordinator.sh/another",
    "pod-group.scheduling.sigs.k8s.io/another",
    "scheduling.volcano.sh/group-another",
    "volcano.sh/network-topology-another",
    "volcano.sh/task-topology-another",
    "kai.scheduler/topology-another",
    "kai.scheduler/segment-another",
    "yunikorn.apache.org/task-groups-another",
    "kueue.x-k8s.io/podset-slice-required-topology-1",
]


@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("label", NAMES)
def test_foreign_gang_label_holds_the_pod_and_the_message_names_the_labels_to_use(label: str, kind: str) -> None:
    membership = membership_of(with_foreign_label(kind, label))
    assert (membership.key, membership.reason) == (GangKey("ns", "p", kind="Pod"), "Unsupported")
    assert membership.error.startswith(f"{kind.removesuffix('s')} {label} asks {FOREIGN_GANG_LABELS[label].scheduler} for a gang, ")
    assert f"{PAIR}/name and {PAIR}/min-available" in membership.error
    assert membership.field == f"metadata.{kind}[{label}]"
    assert len(membership.error) < 400


@pytest.mark.parametrize("labels", [{}, {"scheduling.x-k8s.io/pod-group": "train"}, GANG], ids=["alone", "pod-group", "pair"])
@pytest.mark.parametrize("kind", ["labels", "annotations"])
@pytest.mark.parametrize("label", [*DEMANDS, *BY_LATER_VERSIONS])
def test_label_that_asks_another_scheduler_for_more_than_a_gang_holds_the_pod_however_the_pod_names_its_gang(
    label: str, kind: str, labels: dict[str, str]
) -> None:
    membership = membership_of(with_foreign_label(kind, label, **labels))
    assert membership.key == (GangKey("ns", "train") if labels else GangKey("ns", "p", kind="Pod"))
    assert membership.reason == "Unsupported"
    assert membership.error.startswith(f"{kind.removesuffix('s')} {label} asks ")
    assert membership.field == f"metadata.{kind}[{label}]"
    assert len(membership.error) < 400


@pytest.mark.parametrize(
    ("label", "instead"),
    [
        ("gang.scheduling.koordinator.sh/groups", "allaboard.dev/min-members"),
        ("yunikorn.apache.org/task-groups", "allaboard.dev/min-members: ps=1,worker=3"),
        ("kai.scheduler/topology-preferred-placement", "allaboard.dev/topology"),
        ("scheduling.volcano.sh/group-min-resources", "spec.minResources"),
    ],
)
def test_message_about_a_demand_on_another_scheduler_names_the_equivalent_option(label: str, instead: str) -> None:
    assert instead in membership_of(annotated("x", label, **GANG)).error


@pytest.mark.parametrize("labels", [{"scheduling.x-k8s.io/pod-group": "train"}, {"pod-group.scheduling.sigs.k8s.io": "train"}, GANG])
def test_foreign_labels_that_only_name_a_gang_are_ignored_if_a_supported_label_names_one(labels: dict[str, str]) -> None:
    names = (name for name in NAMES if not FOREIGN_GANG_LABELS[name].demand)
    membership = membership_of(with_foreign_label("annotations", *names, **labels))
    assert (membership.key, membership.error) == (GangKey("ns", "train"), "")


@pytest.mark.parametrize("label", MINIMUMS)
def test_foreign_minimum_is_an_error_only_if_it_differs_from_the_pods_own_minimum(label: str) -> None:
    assert membership_of(annotated("2", label, **GANG)).error == ""
    assert f"annotation {label} asks " in membership_of(annotated("3", label, **GANG)).error
    assert membership_of(annotated("3", label, **{"scheduling.x-k8s.io/pod-group": "train"})).error == ""  # the PodGroup decides


def test_koordinators_strict_mode_is_accepted_and_its_other_mode_is_an_error() -> None:
    mode = "gang.scheduling.koordinator.sh/mode"
    assert membership_of(annotated("Strict", mode, **GANG)).error == ""
    assert f"annotation {mode} asks Koordinator" in membership_of(annotated("NonStrict", mode, **GANG)).error


@pytest.mark.parametrize("by", ["kueue.x-k8s.io/workload", "kueue.x-k8s.io/podset", "kueue.x-k8s.io/managed"])
@pytest.mark.parametrize("labels", [{}, GANG], ids=["alone", "pair"])
def test_kueue_topology_of_a_pod_that_kueue_manages_is_left_to_kueue(labels: dict[str, str], by: str) -> None:
    pod = annotated("rack", "kueue.x-k8s.io/podset-required-topology", by, **labels)
    assert membership_of(pod).error == ""
    assert pod.option("topology") is None


def test_topology_that_a_pod_asks_of_kueue_counts_as_the_option() -> None:
    asked = {"podset-required-topology": "block", "podset-slice-required-topology": "example.com/rack", "podset-slice-size": "4"}
    pod = of_kueue(asked, **GANG)
    assert membership_of(pod).error == ""
    assert pod.option("topology") == "required=block, segment=4@example.com/rack"
    stated = {**{f"{KUEUE}/{name}": value for name, value in asked.items()}, "allaboard.dev/topology": "rack"}
    assert pod_from({"metadata": {"name": "p", "namespace": "ns", "annotations": stated}, "spec": {}}).option("topology") == "rack"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"podset-slice-required-topology": "rack"}, "podset-slice-required-topology]: needs kueue.x-k8s.io/podset-slice-size as well"),
        ({"podset-slice-size": "4"}, "podset-slice-size]: needs kueue.x-k8s.io/podset-slice-required-topology as well"),
        ({"podset-required-topology": "a b"}, "podset-required-topology]: 'a b' is not the key of a label"),
        (
            {"podset-slice-required-topology": "rack", "podset-slice-size": "0"},
            "podset-slice-size]: '0' is not a whole number from 1 to 9999",
        ),
    ],
)
def test_a_malformed_topology_of_kueue_is_an_error_in_kueues_annotation(asked: dict[str, str], message: str) -> None:
    pod = of_kueue(asked, **GANG)
    assert pod.malformed == f"metadata.annotations[kueue.x-k8s.io/{message}"
    assert pod.option("topology") is None


def of_kueue(annotations: dict[str, str], **labels: str) -> Pod:
    """Return a pod with annotations and labels of Kueue, named without the prefix."""
    prefixed = {f"{KUEUE}/{name}": value for name, value in annotations.items()}
    return pod_from({"metadata": {"name": "p", "namespace": "ns", "labels": labels, "annotations": prefixed}, "spec": {}})


@pytest.mark.parametrize(
    "pod",
    [
        of_kueue({"pod-group-name": "train", "pod-group-total-count": "3"}),
        of_kueue({"pod-group-total-count": "3"}, **{f"{KUEUE}/pod-group-name": "train"}),
    ],
    ids=["annotation", "label"],
)
def test_group_of_plain_pods_of_kueue_is_a_gang_whose_minimum_is_the_total_count(pod: Pod) -> None:
    assert membership_of(pod) == Membership(GangKey("ns", "train"), min_member=3)


def test_labels_of_a_gang_win_over_a_group_of_kueue() -> None:
    pod = of_kueue({"pod-group-name": "group", "pod-group-total-count": "3"}, **GANG)
    assert membership_of(pod) == Membership(GangKey("ns", "train"), min_member=2)


def test_group_that_kueue_admits_before_its_pods_exist_is_no_gang() -> None:
    pod = of_kueue({"pod-group-name": "web", "pod-group-total-count": "3", "pod-group-fast-admission": "true"})
    assert membership_of(pod) == Membership(GangKey("ns", "p", kind="Pod"), min_member=1)


@pytest.mark.parametrize(
    ("stated", "wrong"),
    [
        ({"pod-group-name": "train"}, "pod-group-total-count"),
        ({"pod-group-total-count": "3"}, "pod-group-name"),
        ({"pod-group-name": "train", "pod-group-total-count": "0"}, "pod-group-total-count"),
    ],
)
def test_incomplete_or_malformed_group_of_kueue_is_an_error_that_names_the_annotation(stated: dict[str, str], wrong: str) -> None:
    membership = membership_of(of_kueue(stated))
    assert (membership.field, membership.reason) == (f"metadata.annotations[{KUEUE}/{wrong}]", "InvalidAnnotation")
    assert f"{KUEUE}/{wrong}" in membership.error


def test_first_of_several_foreign_gang_labels_in_the_order_of_our_table_of_them_is_reported() -> None:
    assert with_foreign_label("annotations", *reversed(FOREIGN_GANG_LABELS)).foreign_gang_labels == (
        next(iter(FOREIGN_GANG_LABELS)),
        DEMANDS[0],
    )


@pytest.mark.parametrize("label", [*ROLE_LABELS, "scheduling.volcano.sh/queue-name", "kueue.x-k8s.io/podset-unconstrained-topology"])
def test_another_schedulers_label_that_names_a_role_or_asks_for_nothing_holds_no_pod(label: str) -> None:
    assert not membership_of(with_foreign_label("labels", label)).error


@pytest.mark.parametrize("label", FOREIGN_GANG_LABELS)
def test_foreign_labels_of_other_schedulers_pods_are_ignored(label: str) -> None:
    assert with_foreign_label("annotations", label, scheduler="volcano").foreign_gang_labels == NONE


def test_foreign_gang_annotation_is_found_if_its_value_is_empty_and_ignored_if_its_value_is_null() -> None:
    found = {
        value: pod_from({"metadata": {"name": "p", "annotations": {"pod-group-name": value}}}).foreign_gang_labels.first
        for value in (None, "")
    }
    assert found == {None: "", "": "pod-group-name"}


def test_label_value_that_is_no_object_name_becomes_a_unique_valid_name() -> None:
    assert object_name("train-1") == "train-1"
    assert object_name("My_Job").startswith("my-job-")
    assert object_name("My_Job") != object_name("My-Job")
    assert object_name("___").startswith("gang-")


def test_label_min_available_is_read_as_a_whole_number() -> None:
    assert min_available("256") == 256
