"""Custom resources are pruned, defaulted and validated by their schema."""

from pathlib import Path
from typing import Any

import pytest

from allaboard_sandbox.schema import defaulted, problems, pruned

CRDS = Path(__file__).parents[3] / "crds"


def test_unknown_fields_are_pruned_and_their_paths_are_reported() -> None:
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
def test_validation_messages_equal_those_of_the_api_server(schema: dict[str, Any], value: Any, message: str) -> None:
    whole = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    assert [str(problem) for problem in problems({"metadata": {}, "spec": {"x": value}}, whole)] == [message]


def test_int_or_string_accepts_a_number_and_a_text() -> None:
    schema = {"properties": {"x": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}
    assert problems({"x": 1}, schema) == problems({"x": "1"}, schema) == []
    assert problems({"x": []}, schema) != []
