"""Custom resources: pruning, defaults, validation."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.sandbox import ApiError, Sandbox
from allaboard.sandbox.schema import defaulted, problems, pruned

CRDS = Path(__file__).parents[3] / "crds"


@pytest.fixture
async def groups(sandbox: Sandbox) -> Sandbox:
    """A sandbox that serves PodGroups."""
    sandbox.apply(yaml.safe_load((CRDS / "podgroups.scheduling.x-k8s.io.yaml").read_text()))
    return sandbox


def group(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def test_unknown_fields_are_pruned_and_named() -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"known": {"type": "integer"}}}}}
    body = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"known": 1, "bogus": 2}}
    kept, dropped = pruned(body, schema)
    assert kept["spec"] == {"known": 1}
    assert dropped == ["spec.bogus"]


def test_fields_below_preserve_unknown_fields_are_kept() -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    body = {"metadata": {}, "spec": {"anything": {"goes": [1]}}}
    assert pruned(body, schema) == (body, [])


def test_defaults_fill_absent_fields_at_any_depth() -> None:
    schema = {
        "properties": {"a": {"default": {}, "properties": {"b": {"default": 1}}}, "l": {"items": {"properties": {"c": {"default": 2}}}}}
    }
    assert defaulted({"l": [{}]}, schema) == {"a": {"b": 1}, "l": [{"c": 2}]}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer", "minimum": 1}, 0, "spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"),
        ({"type": "integer", "maximum": 5, "exclusiveMaximum": True}, 5, "spec.x: Invalid value: 5: spec.x in body should be less than 5"),
        ({"type": "integer"}, "1", 'spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"'),
        ({"enum": ["a", "b"]}, "c", 'spec.x: Unsupported value: "c": supported values: "a", "b"'),
        ({"type": "string", "pattern": "^a+$"}, "b", "spec.x: Invalid value: \"b\": spec.x in body should match '^a+$'"),
        ({"type": "string", "maxLength": 2}, "abc", "spec.x: Too long: may not be more than 2 bytes"),
        ({"type": "string", "minLength": 1}, "", 'spec.x: Invalid value: "": spec.x in body should be at least 1 chars long'),
        ({"type": "object", "required": ["y"]}, {}, "spec.x.y: Required value"),
        ({"type": "array", "maxItems": 1}, [1, 2], "spec.x: Too many: 2: must have at most 1 items"),
    ],
)
def test_problems_are_worded_as_the_api_server_words_them(schema: dict[str, Any], value: Any, message: str) -> None:
    whole = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    assert [str(problem) for problem in problems({"metadata": {}, "spec": {"x": value}}, whole)] == [message]


def test_int_or_string_takes_both() -> None:
    schema = {"properties": {"x": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}
    assert problems({"x": 1}, schema) == problems({"x": "1"}, schema) == []
    assert problems({"x": []}, schema) != []


async def test_an_invalid_group_is_refused_with_the_field(groups: Sandbox) -> None:
    with pytest.raises(ApiError) as refused:
        groups.create(group(minMember=0))
    assert refused.value.status == 422
    assert refused.value.message == (
        'PodGroup.scheduling.x-k8s.io "g" is invalid: '
        "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1"
    )


async def test_a_status_in_the_create_body_is_dropped(groups: Sandbox) -> None:
    created = groups.create({**group(minMember=1), "status": {"phase": "Running"}})
    assert "status" not in created


async def test_a_status_patch_changes_the_status_only(groups: Sandbox) -> None:
    groups.create(group(minMember=1))
    patch = {"spec": {"minMember": 5}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Pending", "bogus": 1}}
    patched = groups.patch("podgroups", "g", patch, subresource="status")
    assert patched["status"] == {"phase": "Pending"}
    assert patched["spec"] == {"minMember": 1}
    assert "labels" not in patched["metadata"]
    assert patched["metadata"]["generation"] == 1


async def test_only_a_change_of_the_spec_makes_a_new_generation(groups: Sandbox) -> None:
    groups.create(group(minMember=1))
    assert groups.patch("podgroups", "g", {"metadata": {"labels": {"a": "b"}}})["metadata"]["generation"] == 1
    assert groups.patch("podgroups", "g", {"spec": {"minMember": 2}})["metadata"]["generation"] == 2


async def test_a_wrong_uid_is_noticed_on_the_object_but_not_on_its_status(groups: Sandbox) -> None:
    groups.create(group(minMember=1))
    with pytest.raises(ApiError, match=r"metadata.uid: Invalid value: .* field is immutable"):
        groups.patch("podgroups", "g", {"metadata": {"uid": "1111"}, "spec": {"minMember": 2}})
    groups.patch("podgroups", "g", {"metadata": {"uid": "1111"}, "status": {"phase": "Pending"}}, subresource="status")


async def test_a_definition_is_served_until_it_is_deleted(groups: Sandbox) -> None:
    groups.create(group(minMember=1))
    definition = groups.get("crd", "podgroups.scheduling.x-k8s.io")
    assert definition is not None
    assert {"Established", "NamesAccepted"} == {condition["type"] for condition in definition["status"]["conditions"]}
    groups.delete("crd", "podgroups.scheduling.x-k8s.io")
    with pytest.raises(ApiError, match="no matches for kind"):
        groups.create(group(minMember=1))


async def test_a_protected_group_needs_an_approval(sandbox: Sandbox) -> None:
    definition = yaml.safe_load((CRDS / "podgroups.scheduling.x-k8s.io.yaml").read_text())
    definition["metadata"] = {"name": "podgroups.gangs.k8s.io"}
    definition["spec"]["group"] = "gangs.k8s.io"
    with pytest.raises(ApiError, match="protected groups must have approval annotation"):
        sandbox.create(definition)


async def test_a_list_map_key_must_be_required_or_have_a_default(sandbox: Sandbox) -> None:
    definition = yaml.safe_load((CRDS / "podgroups.scheduling.x-k8s.io.yaml").read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["properties"]["conditions"]["items"]["required"].remove("type")
    with pytest.raises(ApiError, match=r"properties\[type\].default: Required value"):
        sandbox.create(definition)
