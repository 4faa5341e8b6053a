"""Label and field selectors, parsed once and compiled to predicates: a watch evaluates its selector on every change."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from allaboard_sandbox.errors import bad_request
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import Body

Labels = Mapping[str, str]
LabelTest = Callable[[Labels], bool]
ObjectTest = Callable[[Body], bool]

_SET_BASED = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)")
_EQUALITY = re.compile(r"(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!,]*)")
_EXISTS = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s=!,()]+)")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


def everything(_: object) -> bool:
    """Return True: the predicate of an empty selector."""
    return True


def label_selector(text: str) -> LabelTest:
    """Return the predicate of a label selector that is written as in query parameters and ``kubectl -l``.

    Raises ``ApiError`` (400) if the selector can't be parsed.
    """
    if not text.strip():
        return everything
    tests = [_label_requirement(part.strip()) for part in _COMMA_OUTSIDE_PARENTHESES.split(text)]
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _label_requirement(text: str) -> LabelTest:
    if match := _SET_BASED.fullmatch(text):
        key, values = match["key"], frozenset(value.strip() for value in match["values"].split(","))
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALITY.fullmatch(text):
        key, value = match["key"], match["value"]
        if match["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.fullmatch(text):
        key = match["key"]
        return (lambda labels: key not in labels) if match["absent"] else (lambda labels: key in labels)
    raise bad_request(f"unable to parse requirement: found '{text}', expected: identifier")


def object_label_selector(selector: Mapping[str, Any] | None) -> LabelTest:
    """Return the predicate of a LabelSelector object. None selects nothing, an empty selector everything."""
    if selector is None:
        return lambda _: False
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, operator, values = expression.get("key", ""), expression.get("operator", ""), ",".join(expression.get("values") or ())
        written = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
        if operator not in written:
            raise bad_request(f'"{operator}" is not a valid label selector operator')
        parts.append(written[operator])
    return label_selector(",".join(parts))


def field_selector(text: str, resource: Resource) -> ObjectTest:
    """Return the predicate of a field selector.

    Raises ``ApiError`` (400) if the resource can't be selected by one of the fields.
    """
    if not text.strip():
        return everything
    tests = [_field_requirement(part.strip(), resource) for part in text.split(",")]
    if len(tests) == 1:
        return tests[0]
    return lambda body: all(test(body) for test in tests)


def _field_requirement(text: str, resource: Resource) -> ObjectTest:
    match = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", text)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    field, operator, wanted = match.groups()
    if not _is_supported(field, resource):
        raise bad_request(f"field label not supported: {field}")
    path = tuple(_stored_name(field).split("."))
    unequal = operator == "!="

    def test(body: Body) -> bool:
        return (_text_at(body, path) == wanted) != unequal

    return test


def _is_supported(field: str, resource: Resource) -> bool:
    if field == "metadata.name" or (field == "metadata.namespace" and resource.namespaced):
        return True
    field = _stored_name(field)
    return any(field == each or (each.endswith("*") and field.startswith(each[:-1])) for each in resource.fields)


def _stored_name(field: str) -> str:
    # events.k8s.io names some fields of the core Event differently; only the core form is stored.
    if field.startswith("regarding."):
        return f"involvedObject.{field.removeprefix('regarding.')}"
    return {"reportingController": "reportingComponent", "status.podIPs": "status.podIP"}.get(field, field)


def _text_at(body: Body, path: tuple[str, ...]) -> str:
    value: Any = body
    for step in path:
        if not isinstance(value, Mapping):
            return ""
        value = value.get(step)
    if value is None:
        # An absent boolean field counts as false, an absent string as empty.
        return "false" if path in _BOOLEANS else ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return str(value.get("component", ""))
    return str(value)


_BOOLEANS = {("spec", "unschedulable"), ("spec", "hostNetwork")}
