"""Structural schemas of custom resources: pruning, defaults and validation, with the messages of a real API server.

The validator is jsonschema's. This module translates OpenAPI's dialect for it, and its errors into the API server's words.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft4Validator, ValidationError

from allaboard_sandbox.errors import Cause, invalid_value, not_supported, required, too_long, too_many, type_invalid
from allaboard_sandbox.store import Body

Schema = Mapping[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
# Every object has these fields, whether its schema declares them or not; the schema doesn't apply to their content.
ROOT_FIELDS = ("apiVersion", "kind", "metadata")


def pruned(body: Body, schema: Schema) -> tuple[Body, list[str]]:
    """Return ``body`` without the fields that its schema doesn't declare, and the paths of the dropped fields."""
    dropped: list[str] = []
    kept = {field: body[field] for field in ROOT_FIELDS if field in body}
    rest = {field: value for field, value in body.items() if field not in ROOT_FIELDS}
    return {**kept, **_pruned(rest, schema, "", dropped)}, dropped


def _pruned(value: Any, schema: Schema, path: str, dropped: list[str]) -> Any:
    if isinstance(value, list):
        items = schema.get("items")
        return [_pruned(item, items, f"{path}[{index}]", dropped) for index, item in enumerate(value)] if items else value
    if not isinstance(value, Mapping):
        return value
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    kept = {}
    for field, inner in value.items():
        below = f"{path}.{field}" if path else field
        if field in properties:
            kept[field] = _pruned(inner, properties[field], below, dropped)
        elif isinstance(additional, Mapping):
            kept[field] = _pruned(inner, additional, below, dropped)
        elif additional or schema.get(PRESERVE) or schema.get("x-kubernetes-embedded-resource"):
            kept[field] = inner
        else:
            dropped.append(below)
    return kept


def defaulted(value: Any, schema: Schema) -> Any:
    """Return ``value`` with the defaults of its schema filled in.

    A null is replaced by the default unless the schema allows null.
    """
    if isinstance(value, list):
        items = schema.get("items")
        return [defaulted(item, items) for item in value] if items else value
    if not isinstance(value, Mapping):
        return value
    filled = dict(value)
    for field, declared in (schema.get("properties") or {}).items():
        if "default" in declared and (field not in filled or (filled[field] is None and not declared.get("nullable"))):
            filled[field] = declared["default"]
        if field in filled:
            filled[field] = defaulted(filled[field], declared)
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        declared_fields = schema.get("properties") or {}
        for field in filled.keys() - declared_fields.keys():
            filled[field] = defaulted(filled[field], additional)
    return filled


def problems(body: Body, schema: Schema, part: str = "") -> list[Cause]:
    """Return a cause for each problem of ``body`` by its schema.

    A message about a field below ``part`` (such as ``status``) names the field relative to ``part``.
    """
    found: list[Cause] = []
    checked = {field: value for field, value in body.items() if field not in ROOT_FIELDS}
    for error in sorted(_validator(json.dumps(schema, sort_keys=True)).iter_errors(checked), key=lambda error: list(map(str, error.path))):
        found.extend(_causes(error, part))
    return list(dict.fromkeys(found))


@lru_cache(maxsize=64)
def _validator(schema: str) -> Draft4Validator:
    return Draft4Validator(_translated(json.loads(schema), root=True))


def _translated(schema: Any, *, root: bool = False) -> Any:
    """Return an OpenAPI v3 schema as JSON schema draft 4, in which exclusive bounds are booleans too."""
    if not isinstance(schema, Mapping):
        return schema
    nested: dict[str, Any] = {}
    if "properties" in schema:
        nested["properties"] = {field: _translated(inner) for field, inner in schema["properties"].items()}
    nested |= {word: [_translated(each) for each in schema[word]] for word in ("allOf", "anyOf", "oneOf") if word in schema}
    nested |= {word: _translated(schema[word]) for word in ("items", "additionalProperties", "not") if word in schema}
    result = {word: value for word, value in schema.items() if not word.startswith("x-") and word not in ("default", "format")} | nested
    if schema.get(INT_OR_STRING):
        # The anyOf that usually accompanies this marker means the same, but its errors are less clear.
        result.pop("anyOf", None)
        result["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in result:
        types = result["type"] if isinstance(result["type"], list) else [result["type"]]
        result["type"] = [*types, "null"]
    if root:
        result["properties"] = {field: inner for field, inner in result.get("properties", {}).items() if field not in ROOT_FIELDS}
        result["required"] = [field for field in result.get("required", ()) if field not in ROOT_FIELDS] or None
        if result["required"] is None:
            del result["required"]
    return result


def _causes(error: ValidationError, part: str) -> Iterator[Cause]:
    path = _path(error.absolute_path)
    relative_path = path.removeprefix(f"{part}.")
    value: Any = error.instance
    limit: Any = error.validator_value
    match error.validator:
        case "required":
            for field in limit:
                if field not in value:
                    yield required(f"{path}.{field}" if path else field)
        case "type":
            types = limit if isinstance(limit, list) else [limit]
            kind = _type_name(value)
            yield type_invalid(path, kind, f'{relative_path} in body must be of type {",".join(types)}: "{kind}"')
        case "enum":
            yield not_supported(path, value, limit)
        case "maxLength":
            yield too_long(path, limit)
        case "maxItems":
            yield too_many(path, len(value), limit)
        case _:
            yield invalid_value(path, value, f"{relative_path} in body {_expectation(error)}")


def _expectation(error: ValidationError) -> str:
    limit: Any = error.validator_value
    schema: Any = error.schema
    match error.validator:
        case "minimum":
            return f"should be greater than {'' if schema.get('exclusiveMinimum') else 'or equal to '}{limit}"
        case "maximum":
            return f"should be less than {'' if schema.get('exclusiveMaximum') else 'or equal to '}{limit}"
        case "minLength":
            return f"should be at least {limit} chars long"
        case "minItems":
            return f"should have at least {limit} items"
        case "minProperties":
            return f"should have at least {limit} properties"
        case "maxProperties":
            return f"should have at most {limit} properties"
        case "pattern":
            return f"should match '{limit}'"
        case "multipleOf":
            return f"should be a multiple of {limit}"
        case "uniqueItems":
            return "shouldn't contain duplicates"
        case _:
            return f"must validate the schema ({error.validator})"


def _path(steps: Any) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else (f".{step}" if path else str(step))
    return path


def _type_name(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return names.get(type(value), "object")
