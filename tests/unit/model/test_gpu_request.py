"""Tests labels and annotations that ask for GPUs: such GPUs are charged, or the pod is held with a message that names the error."""

from typing import Any

import pytest

from allaboard.gangs.options import meaningless_option, of_group
from allaboard.gangs.podgroup import PodGroup, pod_group_from
from allaboard.model.constraints import GpuRequest, SchedulingSpec
from allaboard.model.gpu_request import with_group
from allaboard.model.pod import Pod, Reading, pod_from

GPU = "nvidia.com/gpu"


def a_pod(labels: dict[str, str] | None = None, requests: dict[str, str] | None = None, **annotations: str) -> Pod:
    written = {f"allaboard.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    raw: dict[str, Any] = {
        "metadata": {"name": "p", "labels": {f"genius/{key}": value for key, value in (labels or {}).items()}, "annotations": written},
        "spec": {"schedulerName": "ours", "containers": [{"name": "main", "resources": {"requests": requests or {}}}]},
    }
    return pod_from(raw, reading=Reading(ours=("ours",)))


def test_annotations_override_labels_and_accept_quantities_beside_whole_mebibytes() -> None:
    labels = {"gpu-number": "2", "gpu-memory-each": "8000", "gpu-memory-total": "16000", "gpu-model": "1070.Ti"}
    assert a_pod(labels).spec.gpus == GpuRequest(2, 8000, 16000, "1070.Ti")
    pod = a_pod(labels, gpu_memory_each="16Gi", gpu_memory_total="40000", gpu_model="A100|H100", gpu_number="1")
    assert pod.spec.gpus == GpuRequest(1, 16384, 40000, "A100|H100")
    assert a_pod(gpu_memory_each="1").spec.gpus == GpuRequest(memory_each=1)
    assert a_pod(gpu_memory_each="1500Ki").spec.gpus == GpuRequest(memory_each=2)
    assert a_pod().spec.gpus is None


@pytest.mark.parametrize(
    ("number", "requests", "charged"),
    [
        ("3", {}, {GPU: 3}),
        ("3", {GPU: "1"}, {GPU: 3}),
        ("1", {GPU: "4"}, {GPU: 4}),
        ("2", {"amd.com/gpu": "1"}, {"amd.com/gpu": 2}),
        ("2", {"nvidia.com/mig-1g.5gb": "1"}, {"nvidia.com/mig-1g.5gb": 2}),
        ("0", {}, {}),
    ],
)
def test_a_pod_is_charged_for_its_requests_or_its_label_whichever_is_more(
    number: str, requests: dict[str, str], charged: dict[str, int]
) -> None:
    spec = a_pod({"gpu-number": number}, requests).spec
    assert {name: amount for name, amount in spec.requests if name != "pods"} == charged


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu-number", "two", "not a whole number from 0 to 1000000"),
        ("gpu-number", "-1", "not a whole number"),
        ("gpu-number", "1.5", "not a whole number"),
        ("gpu-number", "", "not a whole number"),
        ("gpu-number", "٣", "not a whole number"),
        ("gpu-number", "99999999999999999999", "not a whole number"),
        ("gpu-memory-each", "8Gi", "not a whole number of MiB"),
        ("gpu-memory-total", "9999999999", "not a whole number of MiB"),
        ("gpu-model", "a**", "no regular expression"),
        ("priority", "high", "not a whole number"),
        ("priority", "-5", "not a whole number"),
    ],
)
def test_the_error_names_a_malformed_gpu_label(name: str, value: str, words: str) -> None:
    pod = a_pod({name: value})
    assert pod.malformed.startswith(f"metadata.labels[genius/{name}]: ")
    assert words in pod.malformed
    assert (pod.spec.gpus, pod.spec.amount(GPU)) == (None, 0)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("gpu_number", "1Gi", "not a whole number"),
        ("gpu_memory_each", "lots", "not a quantity"),
        ("gpu_memory_each", "-1Gi", "negative"),
        ("gpu_memory_total", "1e99", "more than"),
        ("gpu_model", "x" * 300, "more than the 128"),
    ],
)
def test_the_error_names_a_malformed_gpu_annotation(name: str, value: str, words: str) -> None:
    pod = a_pod(**{name: value})
    assert pod.malformed.startswith(f"metadata.annotations[allaboard.dev/{name.replace('_', '-')}]: ")
    assert words in pod.malformed


@pytest.mark.parametrize(
    "wrong",
    [
        {"genius/gpu-model": "("},
        {"genius/gpu-memory-each": "lots"},
        {"genius/gpu-memory-total": "-1"},
        {"genius/priority": "high"},
        {f"label-{number}": "x" for number in range(100)},
        {"other": 5},
        {"annotation": "allaboard.dev/gpu-model", "value": "("},
        {"annotation": "allaboard.dev/gpu-memory-each", "value": "1" * 10_000},
        {"annotation": "allaboard.dev/gpu-number", "value": "-1"},
        {"annotation": "allaboard.dev/role", "value": 5},
    ],
)
def test_the_number_of_gpus_in_a_label_counts_despite_other_errors_of_the_pod(wrong: dict[str, Any]) -> None:
    labels, annotations = {"genius/gpu-number": "2"}, {}
    if "annotation" in wrong:
        annotations[wrong["annotation"]] = wrong["value"]
    else:
        labels |= wrong
    containers = [{"name": "main", "resources": {"requests": {GPU: "1"}}}]
    raw = {
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "ours", "nodeName": "n", "containers": containers},
    }
    pod = pod_from(raw, reading=Reading(ours=("ours",)))
    assert pod.malformed
    assert pod.spec.amount(GPU) == 2


def test_a_malformed_number_of_gpus_in_a_label_leaves_the_requests_unchanged() -> None:
    pod = a_pod({"gpu-number": "x"}, {GPU: "3"})
    assert pod.malformed
    assert pod.spec.amount(GPU) == 3


KNOWN_LABELS = "known are genius/gpu-number, genius/gpu-memory-each, genius/gpu-memory-total, genius/gpu-model, genius/priority"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpu-nubmer", "did you mean genius/gpu-number?"),
        ("gpu_number", "did you mean genius/gpu-number?"),
        ("GPU-Model", "did you mean genius/gpu-model?"),
        ("gpunumber", "did you mean genius/gpu-number?"),
        ("number", "did you mean genius/gpu-number?"),
        ("gpu-memory", "did you mean genius/gpu-memory-each?"),
        ("priorty", "did you mean genius/priority?"),
        ("gpus", KNOWN_LABELS),
        ("gpu-count", KNOWN_LABELS),
    ],
)
def test_a_misspelt_label_of_genius_holds_its_pod_and_the_message_suggests_the_right_name(name: str, meant: str) -> None:
    pod = a_pod({name: "2"})
    assert pod.malformed == f"metadata.labels[genius/{name}]: no such label; {meant}"


@pytest.mark.parametrize("name", ["team", "queue", "x" * 63])
def test_other_labels_with_the_prefix_of_genius_are_ignored(name: str) -> None:
    assert not a_pod({name: "2"}).malformed


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("gpu-number", "; the annotation is allaboard.dev/gpu-number"),
        ("gpu-model", "; the annotation is allaboard.dev/gpu-model"),
        ("priority", ""),
    ],
)
def test_an_annotation_with_the_name_of_a_genius_label_holds_its_pod(name: str, instead: str) -> None:
    raw = {"metadata": {"name": "p", "annotations": {f"genius/{name}": "2"}}, "spec": {"containers": []}}
    assert pod_from(raw).malformed == f"metadata.annotations[genius/{name}]: is read as a label only{instead}"


def test_a_number_of_gpus_in_a_label_that_is_not_charged_is_still_a_rule_about_nodes() -> None:
    raw = {
        "metadata": {"name": "p", "labels": {"genius/gpu-number": "3"}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {GPU: "1"}}}]},
    }
    spec = pod_from(raw, reading=Reading(charged_by_label=False)).spec
    assert spec.amount(GPU) == 1
    assert spec.gpus is not None
    assert (spec.gpus.number, spec.gpus.rules) == (3, 1)


def test_gpu_labels_of_pods_of_other_schedulers_are_ignored() -> None:
    raw = {"metadata": {"name": "p", "labels": {"genius/gpu-number": "3"}}, "spec": {"schedulerName": "other", "containers": []}}
    assert pod_from(raw, reading=Reading(ours=("ours",))).spec == SchedulingSpec((("pods", 1),))


def a_group(**annotations: str) -> PodGroup:
    written = {f"allaboard.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return pod_group_from({"metadata": {"name": "g", "annotations": written}, "spec": {"minMember": 1}})


def test_gpu_options_of_a_pod_group_apply_to_members_that_request_gpus() -> None:
    asked, hold = of_group(a_group(gpu_model="A100", gpu_memory_each="1Gi"))
    assert (asked, hold) == (GpuRequest(model="A100", memory_each=1024), None)
    assert asked is not None
    assert with_group(a_pod(requests={GPU: "1"}).spec, asked).gpus == asked
    assert with_group(a_pod({"gpu-model": "V100"}, {GPU: "1"}).spec, asked).gpus == GpuRequest(model="V100", memory_each=1024, requested=1)
    launcher = a_pod(requests={"cpu": "1"}).spec
    assert with_group(launcher, asked) is launcher


def test_a_pod_group_with_a_gpu_number_or_a_malformed_option_holds_its_gang() -> None:
    hold = meaningless_option(a_group(gpu_number="2"), ())
    assert hold is not None
    assert "gpu-number: only a pod can have it" in hold.message
    _, hold = of_group(a_group(gpu_model="("))
    assert hold is not None
    assert (hold.reason, "gpu-model" in hold.message) == ("InvalidAnnotation", True)


@pytest.mark.parametrize(
    ("number", "requests", "container"),
    [("1", {}, -1), ("2", {"nvidia.com/gpu": "1"}, -1), ("1", {"nvidia.com/gpu": "2"}, 0), ("2", {"amd.com/gpu": "1"}, 0)],
)
def test_gpus_beyond_the_requests_of_a_container_belong_to_no_container(number: str, requests: dict[str, str], container: int) -> None:
    assert a_pod({"gpu-number": number}, requests).spec.device_container == container


@pytest.mark.parametrize("count", ["nvidia.com/gpu", "volcano.sh/vgpu-number"])
@pytest.mark.parametrize(("number", "refused"), [("0", False), ("1", False), ("2", True)])
def test_label_gpu_number_adds_no_gpu_to_a_request_for_a_gpu_part_and_is_refused_above_one(count: str, number: str, refused: bool) -> None:
    word = "nvidia.com/gpumem" if count == "nvidia.com/gpu" else "volcano.sh/vgpu-memory"
    spec = a_pod({"gpu-number": number}, {count: "1", word: "1000"}).spec
    assert dict(spec.requests) == dict(a_pod({}, {count: "1", word: "1000"}).spec.requests)
    assert ("parts of more than one GPU are not supported" in spec.unsupported) is refused
