"""The requests of an OpenFaaS function count only if the containers of its pod request no cpu or memory."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.limits import FUNCTION_CHARACTERS
from allaboard.model.openfaas import FUNCTION_SPEC
from allaboard.model.pod import Pod, Reading, pod_from

MEBI = 2**20


def read(annotation: object, *, openfaas: bool = True, ours: tuple[str, ...] | None = None, **spec: Any) -> Pod:
    """Return the pod of a function, with one container that states no requests."""
    metadata = {"name": "load-data-0", "namespace": "openfaas-fn", "uid": "u1", "annotations": {FUNCTION_SPEC: annotation}}
    raw = {"metadata": metadata, "spec": {"containers": [{"name": "load-data"}], **spec}}
    return pod_from(raw, reading=Reading(ours, openfaas))


def function(**parts: object) -> str:
    return json.dumps({"name": "load-data", "image": "example/load-data", "readOnlyRootFilesystem": False, **parts})


def container(**requests: str) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests}}


REQUESTS, LIMITS = {"cpu": "200m", "memory": "128Mi"}, {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("stated", "asked"),
    [
        ({"requests": REQUESTS}, {"cpu": 200, "memory": 128 * MEBI}),
        ({"limits": LIMITS}, {"cpu": 1000, "memory": 1024 * MEBI}),
        ({"requests": REQUESTS, "limits": LIMITS}, {"cpu": 200, "memory": 128 * MEBI}),
        ({"requests": {"cpu": "200m"}, "limits": LIMITS}, {"cpu": 200, "memory": 1024 * MEBI}),
        ({"requests": {"cpu": "", "memory": None}, "limits": LIMITS}, {"cpu": 1000, "memory": 1024 * MEBI}),
        ({"requests": None, "limits": {}}, {}),
        ({"requests": {"cpu": 0.5, "nvidia.com/gpu": "8"}}, {"cpu": 500}),
        ({}, {}),
    ],
)
def test_a_pod_is_charged_for_the_requests_of_its_function_or_for_its_limits_if_it_has_no_requests(
    stated: dict[str, object], asked: dict[str, int]
) -> None:
    pod = read(function(**stated))
    assert dict(pod.spec.requests) == {**asked, "pods": 1}
    assert (pod.malformed, pod.caution) == ("", "")


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(cpu="100m")]},
        {"containers": [container(), container(memory="1Mi")]},
        {"containers": [container()], "initContainers": [container(cpu="0")]},
        {"containers": [container()], "resources": {"requests": {"cpu": "1"}}},
    ],
)
def test_a_pod_that_requests_cpu_or_memory_itself_is_not_charged_for_its_function(spec: dict[str, Any]) -> None:
    with_function, without = read(function(requests=LIMITS), **spec), read(function(), openfaas=False, **spec)
    assert with_function.spec.requests == without.spec.requests


def test_requests_of_a_function_are_added_to_other_resources_of_the_pod() -> None:
    pod = read(function(requests=REQUESTS), containers=[container(**{"nvidia.com/gpu": "1"})], overhead={"cpu": "50m"})
    assert dict(pod.spec.requests) == {"cpu": 250, "memory": 128 * MEBI, "nvidia.com/gpu": 1, "pods": 1}


@pytest.mark.parametrize(
    ("stated", "unstated"),
    [
        ({"requests": REQUESTS}, {}),
        ({"limits": {"cpu": "1"}}, {"memory": 200 * MEBI}),
        ({}, {"cpu": 100, "memory": 200 * MEBI}),
    ],
)
def test_scores_assume_no_amount_of_resources_that_the_function_requests(stated: dict[str, object], unstated: dict[str, int]) -> None:
    assert dict(read(function(**stated)).spec.unstated) == unstated


def test_the_annotation_is_ignored_if_openfaas_is_switched_off() -> None:
    assert read(function(requests=REQUESTS), openfaas=False).spec.requests == (("pods", 1),)
    assert not read("{", openfaas=False).malformed


def test_a_function_that_another_scheduler_has_bound_is_charged_too() -> None:
    pod = read(function(requests={"cpu": "1", "memory": "128"}), ours=("allaboard",), nodeName="node-1")
    assert dict(pod.spec.requests) == {"cpu": 1000, "memory": 128, "pods": 1}
    assert not pod.caution


def test_memory_of_a_function_without_a_unit_counts_as_bytes_and_causes_a_warning() -> None:
    pod = read(function(requests={"cpu": "2", "memory": "128"}))
    assert dict(pod.spec.requests) == {"cpu": 2000, "memory": 128, "pods": 1}
    field = f"metadata.annotations[{FUNCTION_SPEC}].requests.memory"
    assert pod.caution == f"{field}: '128' has no unit and counts as bytes; 128Mi would be mebibytes"
    assert not pod.malformed


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 5000, "is not JSON"),
        ("[]", r"\[\] is not an object"),
        (3, "3 is not a string"),
        (function(requests=[1]), r"\.requests: \[1\] is not an object"),
        (function(requests={"cpu": "many"}), r"\.requests\.cpu: 'many' is not a quantity"),
        (function(limits={"memory": "-1Mi"}), r"\.limits\.memory: '-1Mi' is negative"),
        (function(image="x" * FUNCTION_CHARACTERS.most), "characters of com.openfaas.function.spec are more than"),
    ],
)
def test_a_malformed_function_holds_its_pod_and_requests_nothing(annotation: object, words: str) -> None:
    pod = read(annotation)
    assert pod.spec.requests == (("pods", 1),)
    assert pod.malformed.startswith(f"metadata.annotations[{FUNCTION_SPEC}]")
    assert re.search(words, pod.malformed)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1", "200m", "1Gi", "1e99", "9" * 70]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cpu", "memory", "requests", "limits"]), inner),
    max_leaves=12,
)


@given(_JSON | st.builds(json.dumps, _JSON) | st.text())
def test_no_annotation_makes_a_pod_unreadable_or_lowers_its_requests(annotation: object) -> None:
    spec = {"containers": [container(**{"nvidia.com/gpu": "1"})]}
    pod, plain = read(annotation, **spec), read(annotation, openfaas=False, **spec)
    assert all(pod.spec.amount(resource) >= amount for resource, amount in plain.spec.requests)
