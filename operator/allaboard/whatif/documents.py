"""Reads files of Kubernetes objects, YAML or JSON, and remembers where in the files each object is.

An error is raised as ``ManifestError``, which names the file, the document in it and the field: users fix their manifests by that message
alone.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from allaboard.model.errors import MalformedError, shown
from allaboard.model.raw_fields import items, text
from allaboard.model.yamltext import TextError, decoded, yaml_values

STDIN = "-"
_SUFFIXES = (".json", ".yaml", ".yml")


class ManifestError(Exception):
    """A file of objects can't be used.

    ``document`` counts from 1; 0 means the file as a whole. ``field`` is a JSON path inside the document, or empty.
    """

    def __init__(self, file: str, document: int, field: str, problem: str) -> None:
        where = [file, f"document {document}" if document else "", field, problem]
        super().__init__(": ".join(part for part in where if part))
        self.file = file
        self.document = document
        self.field = field
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Origin:
    """The location of an object in a file. ``path`` leads from the top of its document to the object and ends with a dot, or is empty."""

    file: str
    document: int
    path: str = ""

    def inside(self, path: str) -> "Origin":
        """Return the origin of the part of this object that ``path`` leads to."""
        return replace(self, path=self.path + path)

    def error(self, field: str, problem: str) -> ManifestError:
        """Return the error that ``field`` of this object has ``problem``."""
        return ManifestError(self.file, self.document, self.path + field, problem)

    def blame(self, error: MalformedError) -> ManifestError:
        """Return ``error``, an error in this object, as a ``ManifestError`` that names the object's location."""
        return self.error(error.field, error.problem)


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file. Its kind and version are those that it states, or those that its list states for all items."""

    raw: Mapping[str, Any]
    kind: str
    api_version: str
    origin: Origin

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def qualified_kind(self) -> str:
        """The kind, and its API group unless that is the core group, apps or batch: ``Job``, ``Job.batch.volcano.sh``."""
        return self.kind if self.group in ("", "apps", "batch") else f"{self.kind}.{self.group}"


def read_documents(paths: Iterable[str]) -> Iterator[Document]:
    """Yield the objects of all files in order, including the items of lists.

    ``-`` is standard input, and a folder stands for its YAML and JSON files. Raises ``ManifestError``.
    """
    is_stdin_read = False
    for path in paths:
        if path == STDIN:
            if is_stdin_read:
                raise ManifestError("standard input", 0, "", "can be read only once")
            is_stdin_read = True
        for file in _files(path):
            yield from _objects(file)


def _files(path: str) -> list[str]:
    folder = Path(path)
    if path == STDIN or not folder.is_dir():
        return [path]
    found = sorted(str(file) for file in folder.iterdir() if file.suffix in _SUFFIXES)
    if not found:
        raise ManifestError(path, 0, "", f"is a folder without {', '.join(_SUFFIXES)} files")
    return found


def _objects(path: str) -> Iterator[Document]:
    name = "standard input" if path == STDIN else path
    is_empty = True
    for number, value in enumerate(_parsed(name, _content(path, name)), start=1):
        if value is None:
            continue
        is_empty = False
        origin = Origin(name, number)
        try:
            yield from _flattened(value, origin, kind="", api_version="")
        except MalformedError as error:
            raise origin.blame(error) from error
    if is_empty:
        raise ManifestError(name, 0, "", "holds no objects")


def _flattened(value: object, origin: Origin, *, kind: str, api_version: str) -> Iterator[Document]:
    """Yield an object, or the items of a list. ``kind`` and ``api_version`` are the defaults of an object that doesn't state its own."""
    if not isinstance(value, Mapping):
        raise origin.error("", f"{shown(value)} is not an object")
    kind = text(value, "kind", path=origin.path) or kind
    api_version = text(value, "apiVersion", path=origin.path) or api_version
    if not kind:
        raise origin.error("kind", "is missing")
    if kind == "List" or (kind.endswith("List") and "items" in value):
        item_kind = kind.removesuffix("List")
        for path, item in items(value, "items", origin.path):
            yield from _flattened(item, replace(origin, path=path), kind=item_kind, api_version=api_version if item_kind else "")
        return
    yield Document(value, kind, api_version, origin)


def _content(path: str, name: str) -> str:
    try:
        content = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise ManifestError(name, 0, "", f"can't be read: {error.strerror or error}") from error
    try:
        return decoded(content)
    except TextError as error:
        raise ManifestError(name, 0, "", error.problem) from error


def _parsed(name: str, content: str) -> list[object]:
    """Return the values in ``content``, read as JSON if possible, which is a hundred times faster, else as YAML."""
    try:
        if content.lstrip()[:1] in ("{", "["):
            try:
                return list(_json_values(content))
            except json.JSONDecodeError as error:
                if name.endswith(".json"):
                    raise ManifestError(name, 0, "", f"is not JSON: {error.msg} (line {error.lineno})") from error
        return yaml_values(content, _Loader)
    except TextError as error:
        line = f" (line {error.line})" if error.line else ""
        raise ManifestError(name, 0, "", f"{error.problem}{line}") from error
    except RecursionError as error:
        raise ManifestError(name, 0, "", "is nested too deeply") from error
    except ValueError as error:  # such as a number that Python can't read
        raise ManifestError(name, 0, "", f"holds a value that can't be read: {error}") from error


def _json_values(content: str) -> Iterator[object]:
    """Yield one JSON value or several consecutive ones, as kubectl accepts them."""
    decoder = json.JSONDecoder()
    position = 0
    while match := re.compile(r"\s*(?=\S)").match(content, position):
        value, position = decoder.raw_decode(content, match.end())
        yield value


def _loader() -> Any:
    """Return PyYAML's safe loader without conversions that kubectl's doesn't do: times into dates, and ``12:30`` into 750."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":int", ":float"))]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    loader: Any = type("_Loader", (base,), {"yaml_implicit_resolvers": plain})
    loader.add_implicit_resolver(
        "tag:yaml.org,2002:int", re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$"), list("-+0123456789")
    )
    loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(
            r"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
        ),
        list("-+0123456789."),
    )
    return loader


_Loader = _loader()
