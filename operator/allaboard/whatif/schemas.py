"""Knows the fields of each kind, so that a mistyped field is an error instead of a silent default.

A shipped table has the built-in kinds, and the kinds of job operators that a plan expands. CustomResourceDefinitions of the cluster, of a
snapshot or of the manifests take precedence over the table.
"""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from allaboard.model.errors import MalformedError, shown
from allaboard.model.raw_fields import items, mapping, text
from allaboard.model.requests import RawObject
from allaboard.whatif.documents import Document
from allaboard.whatif.kinds import is_cluster_scoped

CUSTOM_RESOURCE_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

_BUILT_IN = ("", "apps", "batch")
_TABLE = "fields.json"
_LIST, _MAP = "[]", "{}"

_Fields = Mapping[str, str]
"""The fields of one type, each with the name of its type.

The prefix ``[]`` means a list of that type, and the prefix ``{}`` a map. An empty name allows any value.
"""


class Schemas:
    """Holds the fields of every known kind, and checks objects against them."""

    def __init__(self) -> None:
        """Start with the fields of the shipped table."""
        kinds, types = _shipped()
        self._kinds: dict[tuple[str, str, str], str] = dict(kinds)
        self._types: dict[str, _Fields] = dict(types)
        self._defined: set[tuple[str, str]] = set()
        self._cluster_scoped: set[tuple[str, str]] = set()

    def learn(self, definition: RawObject) -> None:
        """Add the kind of a CustomResourceDefinition, and its fields if its schema lists any. Raises ``MalformedError``."""
        spec = mapping(definition, "spec")
        group, kind = text(spec, "group", path="spec."), text(mapping(spec, "names", "spec."), "kind", path="spec.names.")
        versions = [(text(version, "name", path=path), path, version) for path, version in items(spec, "versions", "spec.")]
        served = {name: (path, version) for name, path, version in versions if version.get("served") is not False}
        self._defined |= {(f"{group}/{version}", kind) for version in served}
        if spec.get("scope") == "Cluster":
            self._cluster_scoped.add((group, kind))
        for known in [key for key in self._kinds if key[0] == group and key[2] == kind and key[1] not in served]:
            del self._kinds[known]
        for name, (path, version) in served.items():
            schema = mapping(mapping(version, "schema", path), "openAPIV3Schema", f"{path}schema.")
            if not mapping(schema, "properties"):
                continue
            # Every object has these fields, even if its schema doesn't list them.
            properties = {**mapping(schema, "properties"), "apiVersion": {}, "kind": {}, "metadata": {}, "status": {}}
            try:
                root = self._type_of({"properties": properties}, f"{group}/{name} {kind}")
            except RecursionError:  # a YAML alias may refer to an object that contains it
                raise MalformedError(f"{path}schema.openAPIV3Schema", "is nested too deeply") from None
            self._types[root] = {**self._types[root], "metadata": "ObjectMeta"}
            self._kinds[group, name, kind] = root

    def is_defined(self, document: Document) -> bool:
        """Return whether the kind of an object is built-in, or was learned from a definition."""
        return document.group in _BUILT_IN or (document.api_version, document.kind) in self._defined

    def is_cluster_scoped(self, document: Document) -> bool:
        """Return whether an object has no namespace, by its kind or by the definition of its kind."""
        kind = document.group, document.kind
        return kind in self._cluster_scoped or is_cluster_scoped(*kind)

    def versions(self, group: str, kind: str) -> list[str]:
        """Return the API versions in which a kind is known; empty for an unknown kind."""
        return [
            f"{known_group}/{version}".lstrip("/") for known_group, version, name in self._kinds if (known_group, name) == (group, kind)
        ]

    def kinds(self) -> Iterator[str]:
        """Return the names of all known kinds."""
        return (kind for _, _, kind in self._kinds)

    def check(self, document: Document) -> None:
        """Refuse an unknown version or field of a known kind. Raises ``MalformedError`` with the path of the field."""
        versions = self.versions(document.group, document.kind)
        if not versions:
            return
        if not document.api_version:
            raise MalformedError("apiVersion", "is missing")
        if document.api_version not in versions:
            problem = f"{shown(document.api_version)} is not a version of {document.kind}; use {' or '.join(versions)}"
            raise MalformedError("apiVersion", problem)
        root = self._kinds[document.group, document.api_version.rpartition("/")[2], document.kind]
        for field, problem in self._unknown(document.raw, root, ""):
            raise MalformedError(field, problem)

    def _unknown(self, value: object, of: str, path: str) -> Iterator[tuple[str, str]]:
        """Yield the fields below ``path`` that the type ``of`` doesn't have.

        A value of a wrong form, such as a text instead of a list, yields nothing: the code that reads the value checks its form.
        """
        if of.startswith(_LIST) and isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._unknown(item, of.removeprefix(_LIST), f"{path}[{index}]")
        elif of.startswith(_MAP) and isinstance(value, Mapping):
            for key, item in value.items():
                yield from self._unknown(item, of.removeprefix(_MAP), f"{path}.{key}")
        elif of in self._types and isinstance(value, Mapping):
            fields = self._types[of]
            for key, item in value.items():
                below = f"{path}.{key}" if path else str(key)
                if key not in fields:
                    close = difflib.get_close_matches(str(key), fields, n=1)
                    yield below, f"no such field; did you mean {close[0]}?" if close else f"no such field{_known(fields)}"
                else:
                    yield from self._unknown(item, fields[key], below)

    def _type_of(self, schema: Mapping[str, Any], name: str) -> str:
        """Add the type of a structural schema under ``name``, and the types of the fields in it.

        Return the type as ``_Fields`` names it: with a prefix for a list or map, or empty if any value is allowed.
        """
        if schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource"):
            return ""
        for key, sign in (("items", _LIST), ("additionalProperties", _MAP)):
            if isinstance(inner := schema.get(key), Mapping) and (of := self._type_of(inner, name)):
                return sign + of
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return ""
        self._types[name] = {
            key: self._type_of(value, f"{name}.{key}") if isinstance(value, Mapping) else "" for key, value in properties.items()
        }
        return name


def _known(fields: Iterable[str]) -> str:
    """Return the end of a message that lists the known fields; empty if there are many."""
    known = sorted(fields)
    return f"; known are {', '.join(known)}" if len(known) <= 8 else ""


@cache
def _shipped() -> tuple[Mapping[tuple[str, str, str], str], Mapping[str, _Fields]]:
    kinds: dict[tuple[str, str, str], str] = {}
    types: dict[str, _Fields] = {}
    for part in json.loads((files(__package__) / _TABLE).read_text(encoding="utf-8")):
        for key, root in part["kinds"].items():
            api_version, kind = key.split()
            group, _, version = api_version.rpartition("/")
            kinds[group, version, kind] = root
        for name, fields in part["types"].items():
            types[name] = {field: of for field, _, of in (each.partition(":") for each in fields.split())}
    return kinds, types
