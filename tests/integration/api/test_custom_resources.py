"""Custom resources are pruned, defaulted and validated, and served until their definition is deleted."""

import re
from typing import Any

import aiohttp
import pytest
import yaml

from allaboard_sandbox import ApiError
from tests.cluster import Cluster
from tests.stories import pod_group_crd

from .conftest import APPLY, GROUPS, MERGE, answer, definition, group, is_served

GANGS = "/apis/example.com/v1/namespaces/default/gangs"
INVALID = 'PodGroup.scheduling.x-k8s.io "g" is invalid: '


async def test_unknown_fields_are_dropped_with_a_warning_or_refused_by_strict_validation(http: aiohttp.ClientSession) -> None:
    wrong = group(minMember=1, bogus=1)
    async with http.post(GROUPS, json=wrong, params={"fieldValidation": "Strict"}) as response:
        body = await response.json()
        assert (response.status, body["reason"]) == (400, "BadRequest")
        expected = 'PodGroup in version "v1alpha1" cannot be handled as a PodGroup: strict decoding error: unknown field "spec.bogus"'
        assert body["message"] == expected
    async with http.post(GROUPS, json=wrong) as response:
        assert (response.status, response.headers["Warning"]) == (201, '299 - "unknown field \\"spec.bogus\\""')
        assert (await response.json())["spec"] == {"minMember": 1}


@pytest.mark.parametrize(
    ("spec", "message", "causes"),
    [
        (
            {"minMember": 0},
            INVALID + "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1",
            [("spec.minMember", "FieldValueInvalid")],
        ),
        (
            {"minMember": "two"},
            INVALID + 'spec.minMember: Invalid value: "string": spec.minMember in body must be of type integer: "string"',
            [("spec.minMember", "FieldValueTypeInvalid")],
        ),
        (
            {"minMember": 1, "minResources": {"cpu": "a lot"}},
            INVALID + 'spec.minResources.cpu: Invalid value: "a lot": spec.minResources.cpu in body should match '
            r"'^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$'",
            [("spec.minResources.cpu", "FieldValueInvalid")],
        ),
        (
            {"minMember": 0, "scheduleTimeoutSeconds": "x"},
            INVALID + "[spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1, "
            'spec.scheduleTimeoutSeconds: Invalid value: "string": spec.scheduleTimeoutSeconds in body must be of type integer: "string"]',
            [("spec.minMember", "FieldValueInvalid"), ("spec.scheduleTimeoutSeconds", "FieldValueTypeInvalid")],
        ),
    ],
)
async def test_an_invalid_pod_group_is_refused_with_its_invalid_fields(
    spec: dict[str, Any], message: str, causes: list[tuple[str, str]], http: aiohttp.ClientSession
) -> None:
    status, body = await answer(http, "POST", GROUPS, json=group(**spec))
    assert (status, body["reason"], body["code"]) == (422, "Invalid", 422)
    details = body["details"]
    assert (details["name"], details["group"], details["kind"]) == ("g", "scheduling.x-k8s.io", "PodGroup")
    assert sorted((each["field"], each["reason"]) for each in details["causes"]) == causes
    assert sorted_problems(body["message"]) == sorted_problems(message)


def sorted_problems(message: str) -> list[str]:
    """Return the parts of a message in a fixed order, because a real API server lists problems in any order."""
    head, _, listed = message.partition(" is invalid: ")
    problems = re.split(r", (?=spec\.)", listed[1:-1]) if listed.startswith("[") else [listed]
    return [head, *sorted(problems)]


async def test_conditions_are_validated_when_a_status_is_written(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(group(minMember=1))
    condition = {"type": "Scheduled", "status": "Maybe", "reason": "", "message": ""}
    status, body = await answer(http, "PATCH", f"{GROUPS}/g/status", json={"status": {"conditions": [condition]}}, headers=MERGE)
    assert (status, body["reason"]) == (422, "Invalid")
    assert {each["field"]: each["message"] for each in body["details"]["causes"]} == {
        "status.conditions[0].lastTransitionTime": "Required value",
        "status.conditions[0].reason": 'Invalid value: "": conditions[0].reason in body should be at least 1 chars long',
        "status.conditions[0].status": 'Unsupported value: "Maybe": supported values: "True", "False", "Unknown"',
    }


async def test_a_status_in_the_create_body_is_dropped(cluster: Cluster) -> None:
    assert "status" not in cluster.create({**group(minMember=1), "status": {"phase": "Running"}})


async def test_a_status_patch_changes_the_status_only(cluster: Cluster) -> None:
    cluster.create(group(minMember=1))
    patch = {"spec": {"minMember": 5}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Pending", "bogus": 1}}
    patched = cluster.patch("podgroups", "g", patch, subresource="status")
    assert (patched["status"], patched["spec"]) == ({"phase": "Pending"}, {"minMember": 1})
    assert "labels" not in patched["metadata"]
    assert patched["metadata"]["generation"] == 1


async def test_the_status_stays_when_the_object_is_patched(cluster: Cluster) -> None:
    cluster.create(group(minMember=1))
    cluster.patch("podgroups", "g", {"status": {"phase": "Pending"}}, subresource="status")
    patched = cluster.patch("podgroups", "g", {"spec": {"minMember": 2}, "status": {"phase": "Running"}})
    assert (patched["status"], patched["spec"]) == ({"phase": "Pending"}, {"minMember": 2})


async def test_only_a_change_of_the_spec_increments_the_generation(cluster: Cluster) -> None:
    cluster.create(group(minMember=1))
    assert cluster.patch("podgroups", "g", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert cluster.patch("podgroups", "g", {"spec": {"minMember": 2}})["metadata"]["generation"] == 2


async def test_defaults_of_the_schema_are_filled_in(cluster: Cluster) -> None:
    inner = {"type": "object", "properties": {"size": {"type": "integer", "default": 3}, "open": {"type": "boolean"}}}
    cluster.create(definition(spec={**inner, "default": {}}))
    await cluster.wait_for(is_served)
    assert cluster.create({"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}})["spec"] == {"size": 3}


async def test_a_strategic_merge_patch_of_a_custom_resource_is_refused(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(group(minMember=1))
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    status, body = await answer(http, "PATCH", f"{GROUPS}/g", json={}, headers=headers)
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


async def test_server_side_apply_of_an_undeclared_field_fails_without_a_reason(http: aiohttp.ClientSession) -> None:
    wrong = group(minMember=1, bogus=1)
    status, body = await answer(http, "PATCH", f"{GROUPS}/g", json=wrong, headers=APPLY, params={"fieldManager": "m"})
    assert (status, body.get("reason")) == (500, None)
    expected = (
        "failed to create typed patch object (/g; scheduling.x-k8s.io/v1alpha1, Kind=PodGroup): .spec.bogus: field not declared in schema"
    )
    assert body["message"] == expected


async def test_a_custom_resource_is_served_until_its_definition_is_deleted(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    created = cluster.create(definition())
    await cluster.wait_for(is_served)
    found = cluster.get("customresourcedefinitions", created["metadata"]["name"], "")
    assert found is not None
    assert {"Established", "NamesAccepted"} == {condition["type"] for condition in found["status"]["conditions"]}
    assert found["status"]["storedVersions"] == ["v1"]
    cluster.create({"apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "g"}})
    cluster.delete("customresourcedefinitions", "gangs.example.com", "")
    await cluster.wait_for(lambda home: home.get("customresourcedefinitions", "gangs.example.com", "") is None)
    async with http.get(GANGS) as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_a_custom_resource_definition_in_a_protected_api_group_needs_an_approval(cluster: Cluster) -> None:
    crd = podgroups()
    crd["metadata"] = {"name": "podgroups.gangs.k8s.io"}
    crd["spec"]["group"] = "gangs.k8s.io"
    with pytest.raises(ApiError, match="protected groups must have approval annotation"):
        cluster.create(crd)


async def test_a_list_map_key_must_be_required_or_have_a_default(cluster: Cluster) -> None:
    crd = podgroups()
    crd["metadata"] = {"name": "podgroups.example.com"}
    crd["spec"]["group"] = "example.com"
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["properties"]["conditions"]["items"]["required"].remove("type")
    with pytest.raises(ApiError, match=r"properties\[type\].default: Required value"):
        cluster.create(crd)


def podgroups() -> dict[str, Any]:
    """Return a copy of the PodGroup CRD that the project ships."""
    copied: dict[str, Any] = yaml.safe_load(yaml.safe_dump(pod_group_crd()))
    return copied
