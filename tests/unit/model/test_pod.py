"""Tests reading raw pods, also malformed ones, into records."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.errors import MalformedError
from allaboard.model.interner import Interner
from allaboard.model.pod import Owner, Pod, pod_from, reports_end
from allaboard.model.times import parse_time


def raw_pod(
    *, metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "metadata": {"name": "worker-0", "namespace": "ml", "uid": "u1", "resourceVersion": "7", **(metadata or {})},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}], **(spec or {})},
        "status": status or {},
    }


def read(**parts: Any) -> Pod:
    return pod_from(raw_pod(**parts))


def test_identity_priority_age_and_labels_of_a_pod_are_read() -> None:
    pod = read(metadata={"creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"b": "2", "a": "1"}}, spec={"priority": 10})
    assert (pod.key, pod.uid, pod.resource_version, pod.priority) == ("ml/worker-0", "u1", "7", 10)
    assert pod.created == 1767323045
    assert pod.labels == (("a", "1"), ("b", "2"))
    assert (pod.label("a"), pod.label("c")) == ("1", None)


def test_absent_fields_have_the_defaults_of_the_api_server() -> None:
    pod = pod_from({"metadata": {"name": "x"}})
    assert (pod.namespace, pod.scheduler_name, pod.phase, pod.node_name, pod.created) == ("default", "default-scheduler", "Pending", "", 0)
    assert pod.is_candidate


def test_only_annotations_with_the_allaboard_prefix_are_kept_and_lose_the_prefix() -> None:
    pod = read(metadata={"annotations": {"allaboard.dev/objective": "spread", "huge": "x" * 1000}})
    assert pod.options == (("objective", "spread"),)
    assert (pod.option("objective"), pod.option("huge")) == ("spread", None)


def test_the_owner_is_the_controller_among_the_owner_references() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u2"}
    controller = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "t", "uid": "u3", "controller": True}
    assert read(metadata={"ownerReferences": [other, controller]}).owner == Owner("kubeflow.org/v1", "TFJob", "t", "u3")
    assert read(metadata={"ownerReferences": [other]}).owner is None


def test_the_scheduling_group_of_kubernetes_itself_is_read() -> None:
    assert read(spec={"schedulingGroup": {"podGroupName": "g"}}).group_name == "g"


@pytest.mark.parametrize(
    ("parts", "is_candidate", "is_bound"),
    [
        ({}, True, False),
        ({"spec": {"nodeName": "n1"}}, False, True),
        ({"spec": {"nodeName": "n1"}, "status": {"phase": "Pending"}}, False, True),
        ({"spec": {"nodeName": "n1"}, "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False, True),
        ({"spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded"}}, False, False),
        ({"spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}}, False, False),
        ({"spec": {"schedulingGates": [{"name": "quota"}]}}, False, False),
        ({"spec": {"schedulingGates": []}}, True, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False, False),
        ({"status": {"phase": "Failed"}}, False, False),
    ],
)
def test_node_phase_gates_and_deletion_decide_whether_a_pod_is_a_candidate_or_bound(
    parts: dict[str, Any], is_candidate: bool, is_bound: bool
) -> None:
    pod = read(**parts)
    assert (pod.is_candidate, pod.is_bound) == (is_candidate, is_bound)


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}, "spec.containers[0].resources.requests[cpu]"),
        ({"spec": {"priority": "high"}}, "spec.priority"),
        ({"spec": {"tolerations": {}, "nodeSelector": 1}}, "spec.nodeSelector"),
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels[a]"),
        ({"metadata": {"annotations": {"allaboard.dev/objective": 1}}}, "metadata.annotations[allaboard.dev/objective]"),
    ],
)
def test_a_malformed_pod_keeps_its_identity_and_names_the_error(parts: dict[str, Any], field: str) -> None:
    parts = {**parts, "spec": {"schedulerName": "allaboard", "nodeName": "n1", **parts.get("spec", {})}}
    pod = read(**parts)
    assert pod.malformed.startswith(f"{field}: ")
    assert (pod.key, pod.uid, pod.scheduler_name, pod.node_name) == ("ml/worker-0", "u1", "allaboard", "n1")
    is_readable = "containers" not in parts["spec"]
    assert pod.spec.requests == ((("cpu", 1000),) if is_readable else ()) + (("pods", 1),), (
        "the requests that can be read count nevertheless"
    )


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ({}, "metadata.name"),
        ({"metadata": {"name": ""}}, "metadata.name"),
        ({"metadata": {"name": 5}}, "metadata.name"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"name": "x", "ownerReferences": {}}}, "metadata.ownerReferences"),
        ({"metadata": {"name": "x"}, "spec": 1}, "spec"),
    ],
)
def test_a_pod_without_a_readable_identity_is_refused(raw: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedError) as caught:
        pod_from(raw)
    assert caught.value.field == field


def test_pods_read_with_one_interner_share_their_specs() -> None:
    intern = Interner()
    labelled = {"labels": {"app": "train"}}
    one, other = pod_from(raw_pod(metadata=labelled), intern), pod_from(raw_pod(metadata={"name": "worker-1", **labelled}), intern)
    assert one.spec is other.spec
    assert one.labels[0] is other.labels[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01T00:00:00.250000Z", 0.25),
        ("", 0.0),
        ("soon", 0.0),
    ],
)
def test_times_are_read_as_seconds_since_the_epoch_and_unreadable_times_as_zero(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


def test_a_time_before_the_epoch_raises_no_error() -> None:
    assert parse_time("0001-01-01T00:00:00") <= 0.0


FIELDS = [
    "metadata",
    "spec",
    "status",
    "name",
    "namespace",
    "uid",
    "labels",
    "annotations",
    "ownerReferences",
    "creationTimestamp",
    "controller",
    "containers",
    "initContainers",
    "resources",
    "requests",
    "limits",
    "cpu",
    "memory",
    "overhead",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
    "matchExpressions",
    "matchFields",
    "key",
    "operator",
    "values",
    "tolerations",
    "effect",
    "nodeSelector",
    "volumes",
    "persistentVolumeClaim",
    "claimName",
    "ephemeral",
    "topologySpreadConstraints",
    "whenUnsatisfiable",
    "ports",
    "hostPort",
    "containerPort",
    "hostNetwork",
    "priority",
    "schedulerName",
    "nodeName",
    "phase",
    "conditions",
    "schedulingGates",
    "schedulingGroup",
    "podGroupName",
    "containerStatuses",
    "allocatedResources",
    "restartPolicy",
    "hugepages-2Mi",
]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["Always", "In", "1Gi", "1e3"])
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3) | st.integers(), inner, max_size=6)
    ),
    max_leaves=30,
)
objects = st.dictionaries(st.sampled_from(FIELDS), junk, max_size=6)


@given(st.fixed_dictionaries({"metadata": objects.map(lambda found: {"name": "x", **found}), "spec": objects, "status": objects}))
def test_junk_in_a_pod_raises_nothing_but_malformed_error(raw: dict[str, Any]) -> None:
    try:
        hash(pod_from(raw))
    except MalformedError as error:
        assert error.field


@given(junk)
def test_a_pod_with_junk_as_its_spec_is_malformed_or_refused(spec: Any) -> None:
    with suppress(MalformedError):
        assert pod_from({"metadata": {"name": "x"}, "spec": spec}).name == "x"


def test_a_bound_pod_frees_resources_when_it_ends_is_deleted_or_requests_less() -> None:
    pod, requests = read(spec={"nodeName": "node-1"}), SchedulingSpec((("cpu", 500), ("pods", 1)))
    assert pod.freed(pod) == []
    assert pod.freed(replace(pod, spec=requests)) == ["cpu"]
    for now in (None, replace(pod, phase="Succeeded"), replace(pod, uid="u2")):
        assert pod.freed(now) == ["cpu", "pods"]


def test_a_pod_without_a_node_frees_nothing() -> None:
    assert read().freed(None) == []


@pytest.mark.parametrize(
    ("difference", "is_one"),
    [
        ({"metadata": {"labels": {"app": "a", "training.kubeflow.org/replica-index": "1"}}}, True),
        ({"metadata": {"labels": {"app": "a", "apps.kubernetes.io/pod-index": "1", "statefulset.kubernetes.io/pod-name": "x-1"}}}, True),
        ({"metadata": {"labels": {"app": "a"}, "annotations": {"batch.kubernetes.io/job-completion-index": "1"}}}, True),
        ({"metadata": {"labels": {"app": "a"}, "annotations": {"allaboard.dev/epoch": "3/abc"}}}, True),
        ({"metadata": {"labels": {"app": "a"}, "name": "worker-1", "uid": "u2"}}, True),
        ({"metadata": {"labels": {"app": "b"}}}, False),
        ({"metadata": {"labels": {"app": "a"}, "annotations": {"team": "x"}}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"serviceAccountName": "other"}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"securityContext": {"runAsUser": 0}}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"runtimeClassName": "gvisor"}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "other"}]}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"securityContext": {"privileged": True}}]}}, False),
        ({"metadata": {"labels": {"app": "a"}}, "spec": {"initContainers": [{"image": "setup"}]}}, False),
    ],
)
def test_pods_have_one_template_if_they_differ_only_in_name_and_index(difference: dict[str, Any], is_one: bool) -> None:
    first = read(metadata={"labels": {"app": "a", "training.kubeflow.org/replica-index": "0"}, "annotations": {}})
    difference["metadata"].setdefault("annotations", {})
    assert (read(**difference).template == first.template) is is_one


def test_bound_pods_have_no_template_and_pods_with_very_many_labels_have_their_own() -> None:
    assert read(spec={"nodeName": "n1"}).template == 0
    many = {f"label-{number}": "x" for number in range(1000)}
    assert read(metadata={"labels": many, "uid": "u1"}).template != read(metadata={"labels": many, "uid": "u2"}).template


@pytest.mark.parametrize(
    ("metadata", "status", "is_reported"),
    [
        ({}, {"phase": "Succeeded"}, True),
        ({}, {"phase": "Failed"}, True),
        ({}, {"phase": "Running"}, False),
        ({}, {"phase": ["Failed"]}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"phase": "Succeeded"}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True),
        ({}, {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"conditions": "many"}, False),
    ],
)
def test_the_end_of_a_pod_is_recognised_whether_it_ended_by_itself_or_by_a_disruption(
    metadata: dict[str, Any], status: dict[str, Any], is_reported: bool
) -> None:
    assert reports_end(raw_pod(metadata=metadata, status=status)) is is_reported


@pytest.mark.parametrize(
    "raw", [{}, {"status": None}, {"status": "Failed", "metadata": []}, {"status": {"phase": "Failed"}, "metadata": 1}]
)
def test_function_reports_end_raises_no_error_for_a_malformed_pod(raw: dict[str, Any]) -> None:
    assert reports_end(raw) in (True, False)
