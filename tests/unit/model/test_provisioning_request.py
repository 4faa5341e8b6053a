"""Tests that ProvisioningRequests are read as far as they are understood, and that no malformed one raises an error."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.model.gang import GangKey
from allaboard.model.pod import pod_from
from allaboard.model.provisioning import CONSUMES, MANAGED_BY, OURS, Stage, consumed_by, is_our_name, our_name
from allaboard.model.provisioning_request import ProvisioningRequest, request_from

NAME, TEMPLATE = our_name("train", "0123456789"), our_name("train", "abcdef0123")


def raw(*conditions: Any, **fields: Any) -> dict[str, Any]:
    owner = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "name": "train", "uid": "u"}
    metadata = {
        "name": NAME,
        "namespace": "ml",
        "uid": "r",
        "resourceVersion": "7",
        "labels": {MANAGED_BY: OURS},
        "ownerReferences": [owner],
    }
    spec = {"provisioningClassName": "c", "podSets": [{"count": 2, "podTemplateRef": {"name": name}} for name in (TEMPLATE, "users-own")]}
    return {"metadata": metadata | fields, "spec": spec, "status": {"conditions": list(conditions)}}


def condition(kind: str, status: str = "True", message: object = "") -> dict[str, object]:
    return {"type": kind, "status": status, "message": message, "reason": "Because"}


def stage_of(*conditions: Any) -> tuple[Stage, str]:
    request = request_from(raw(*conditions))
    assert request is not None
    return request.stage, request.note


def test_request_of_a_gang_is_read() -> None:
    assert request_from(raw()) == ProvisioningRequest("ml", NAME, "r", 7, GangKey("ml", "train"), templates=(TEMPLATE,))


@pytest.mark.parametrize(
    ("conditions", "stage", "note"),
    [
        ([], Stage.PENDING, ""),
        ([condition("Accepted", message="taken")], Stage.ACCEPTED, ""),
        ([condition("Accepted"), condition("Provisioned", "False", "not found yet")], Stage.ACCEPTED, "not found yet"),
        ([condition("Accepted"), condition("Provisioned", message="there")], Stage.PROVISIONED, "there"),
        ([condition("Provisioned"), condition("BookingExpired", message="too late")], Stage.BOOKING_EXPIRED, "too late"),
        ([condition("Provisioned"), condition("CapacityRevoked")], Stage.CAPACITY_REVOKED, "Because"),
        ([condition("Failed", "False"), condition("Accepted")], Stage.ACCEPTED, ""),
        ([condition("Failed", message="x\ny" + "z" * 900)], Stage.FAILED, "x\\ny" + "z" * 197),
    ],
)
def test_the_stage_follows_from_the_conditions(conditions: list[Any], stage: Stage, note: str) -> None:
    assert stage_of(*conditions) == (stage, note)


@pytest.mark.parametrize(
    "conditions",
    [
        [None],
        [7],
        [condition("Provisioned")] * 300,
        [{"type": ["Failed"], "status": "True"}],
        [{"type": "Failed", "status": True}],
        [{"type": "Failed"}],
    ],
)
def test_malformed_conditions_count_as_no_answer(conditions: list[Any]) -> None:
    assert stage_of(*conditions) == (Stage.PENDING, "")


@pytest.mark.parametrize("fields", [{"labels": {}}, {"name": "made-by-kueue"}, {"ownerReferences": []}, {"labels": {MANAGED_BY: "kueue"}}])
def test_requests_of_others_are_left_alone(fields: dict[str, Any]) -> None:
    assert request_from(raw(**fields)) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=6,
)


@given(_JSON, _JSON)
def test_no_status_and_no_spec_raises_an_error(status: Any, spec: Any) -> None:
    request = request_from({**raw(), "status": status, "spec": spec})
    assert request is None or request.stage is Stage.PENDING


def test_waiting_pods_of_this_scheduler_say_which_request_they_name() -> None:
    pod = {"metadata": {"name": "a", "annotations": {CONSUMES: "r"}}, "spec": {"containers": [{"name": "c"}]}}
    assert pod_from(pod).consumes == "r"
    assert pod_from({**pod, "spec": {"nodeName": "n", **pod["spec"]}}).consumes == ""
    older = {"annotations": {"cluster-autoscaler.kubernetes.io/consume-provisioning-request": "old"}}
    assert consumed_by(older) == "old"
    assert [consumed_by(each) for each in ({}, {"annotations": 7}, {"annotations": {CONSUMES: 7}})] == ["", "", ""]


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True))
def test_names_are_valid_and_recognised(gang: str) -> None:
    name = our_name(gang, "0123456789")
    assert is_our_name(name)
    assert len(name) <= 253
    assert not is_our_name(gang)
