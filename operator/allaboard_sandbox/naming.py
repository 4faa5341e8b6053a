"""The rules for names, labels and annotations (kubernetes apimachinery/pkg/util/validation)."""

import re
from collections.abc import Iterator
from typing import Any

from allaboard_sandbox.errors import Cause, invalid_value, required, too_long
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import Body

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
    f"character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an "
    f"alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
LABEL_KEY_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED}')"
)
LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    r"'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ANNOTATIONS_LIMIT = 256 * 1024

# Resources whose names must be DNS labels; the names of all other resources may contain dots.
_DNS_LABEL_NAMES = frozenset({"namespaces", "services"})


def metadata_problems(resource: Resource, body: Body) -> Iterator[Cause]:
    """Yield a cause for each problem of an object's metadata."""
    metadata = body["metadata"]
    yield from _name_problems(resource, metadata.get("name"))
    for key, value in (metadata.get("labels") or {}).items():
        yield from label_problems(key, value, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key, value in annotations.items():
        yield from _key_problems(key.lower(), "metadata.annotations")
        if not isinstance(value, str):
            yield invalid_value(f"metadata.annotations[{key}]", value, "must be a string")
    if sum(len(str(key)) + len(str(value)) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield too_long("metadata.annotations", ANNOTATIONS_LIMIT)
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield invalid_value(f"metadata.ownerReferences[{index}].{field}", "", "must not be empty")


def label_problems(key: str, value: Any, field: str) -> Iterator[Cause]:
    """Yield a cause for each problem of one label."""
    yield from _key_problems(key, field)
    if not isinstance(value, str):
        yield invalid_value(field, value, "must be a string")
    elif len(value) > 63:
        yield invalid_value(field, value, "must be no more than 63 bytes")
    elif value and not re.fullmatch(_QUALIFIED, value):
        yield invalid_value(field, value, LABEL_VALUE_MESSAGE)


def _name_problems(resource: Resource, name: Any) -> Iterator[Cause]:
    if not name:
        yield required("metadata.name", "name or generateName is required")
        return
    if resource.plural in _DNS_LABEL_NAMES:
        if len(name) > 63:
            yield invalid_value("metadata.name", name, "must be no more than 63 characters")
        if not re.fullmatch(_LABEL, name):
            yield invalid_value("metadata.name", name, LABEL_MESSAGE)
        return
    if len(name) > 253:
        yield invalid_value("metadata.name", name, "must be no more than 253 characters")
    if not re.fullmatch(_SUBDOMAIN, name):
        yield invalid_value("metadata.name", name, SUBDOMAIN_MESSAGE)


def _key_problems(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield invalid_value(field, key, f"prefix part {SUBDOMAIN_MESSAGE}")
    if not name:
        yield invalid_value(field, key, "name part must be non-empty")
    elif len(name) > 63:
        yield invalid_value(field, key, "name part must be no more than 63 bytes")
    elif not re.fullmatch(_QUALIFIED, name):
        yield invalid_value(field, key, LABEL_KEY_MESSAGE)
