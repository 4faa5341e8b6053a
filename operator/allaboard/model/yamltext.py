"""Reads YAML that users wrote: settings, scenarios and manifests. An error says in one line what is wrong, and where.

PyYAML alone isn't enough: it accepts duplicate keys and keeps the last, and its C part crashes on deeply nested text. A few lines of
mappings that merge each other would keep PyYAML busy for hours.
"""

from collections.abc import Iterable
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 200
_MERGE = "tag:yaml.org,2002:merge"
_INT = "tag:yaml.org,2002:int"
_MOST_MERGED = 100_000
_LONGEST_NUMBER = 256
"""The most characters of an integer. An integer of this length, in any base, can be converted to a float and printed by Python."""


class TextError(ValueError):
    """Raised for a text that can't be read. ``line`` counts from 1; it is 0 if the error isn't in a single line."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line


def decoded(content: bytes) -> str:
    """Return the content of a file as text. Raises ``TextError``."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(f"is not UTF-8 text: {error.reason} at byte {error.start}") from error


def yaml_value(text: str) -> object:
    """Return the only document of ``text``; ``None`` if there is no document. Raises ``TextError``, also for duplicate keys."""
    found = _read(text, _LOADER, refuses_duplicates=True)
    if len(found) > 1:
        raise TextError(f"holds {len(found)} YAML documents; there can be only one")
    return found[0] if found else None


def yaml_documents(text: str) -> list[object]:
    """Return all documents of ``text``. Raises ``TextError``, also for duplicate keys."""
    return _read(text, _LOADER, refuses_duplicates=True)


def yaml_values(text: str, loader: Any) -> list[object]:
    """Return all documents of ``text``, as ``loader`` reads them; duplicate keys are allowed. Raises ``TextError``."""
    return _read(text, loader, refuses_duplicates=False)


def _read(text: str, loader: Any, *, refuses_duplicates: bool) -> list[object]:
    try:
        _refuse_depth(text, loader)
        reader = loader(text)
        try:
            found = []
            while reader.check_node():
                node = reader.get_node()
                nodes = _nodes_of(node)
                _refuse_long_numbers(nodes)
                _refuse_merges(nodes)
                if refuses_duplicates:
                    _refuse_duplicates(nodes)
                found.append(reader.construct_document(node))
            return found
        finally:
            reader.dispose()
    except yaml.MarkedYAMLError as error:
        last = len(text.rstrip().split("\n"))
        line = min(error.problem_mark.line + 1, last) if error.problem_mark else 0  # the end of a text is beyond its last line
        raise TextError(f"is not YAML: {error.problem or error.context}", line) from error
    except yaml.reader.ReaderError as error:
        raise TextError(f"is not YAML: {error.reason}") from error
    except RecursionError as error:
        raise TextError("is nested too deeply") from error
    except TextError:
        raise
    except (ValueError, LookupError, AttributeError) as error:  # a number or date that Python refuses, or a wrong tag
        raise TextError(f"holds a value that can't be read: {error}") from error


def _refuse_depth(text: str, loader: Any) -> None:
    """Raise ``TextError`` for deeply nested text, before PyYAML builds values by recursion.

    The check takes a tenth of the time that PyYAML takes to build the values.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise TextError("is nested too deeply")


def _nodes_of(root: yaml.Node) -> list[yaml.Node]:
    """Return each YAML node once, after the nodes that it contains. A node that contains itself comes after its other contents."""
    found, seen = [], set()
    waiting = [(root, False)]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            if isinstance(node, yaml.SequenceNode):
                waiting += [(each, False) for each in reversed(node.value)]
            elif isinstance(node, yaml.MappingNode):
                waiting += [(each, False) for pair in reversed(node.value) for each in reversed(pair)]
    return found


def _refuse_long_numbers(nodes: Iterable[yaml.Node]) -> None:
    """Raise ``TextError`` for an integer that is too long for Python to print it in a message."""
    for node in nodes:
        if node.tag == _INT and isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_NUMBER:
            raise TextError(f"holds a number of more than {_LONGEST_NUMBER} digits", _line_of(node))


def _refuse_merges(nodes: Iterable[yaml.Node]) -> None:
    """Raise ``TextError`` if all merge keys (``<<``) together yield too many pairs. The pairs are counted before they are merged."""
    sizes: dict[yaml.Node, int] = {}
    left = _MOST_MERGED
    for node in nodes:
        if not isinstance(node, yaml.MappingNode):
            continue
        values = [value for key, value in node.value if key.tag == _MERGE]
        merged = [each for value in values for each in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
        more = sum(sizes.get(each, 0) for each in merged)
        sizes[node] = len(node.value) + more
        left -= more
        if left < 0:
            raise TextError(f"merges more than {_MOST_MERGED} values by <<", _line_of(node))


def _refuse_duplicates(nodes: Iterable[yaml.Node]) -> None:
    """Raise ``TextError`` for a key that a mapping has twice.

    This must run before values are constructed: the construction puts keys merged by ``<<`` beside the keys that override them.
    """
    for node in nodes:
        if not isinstance(node, yaml.MappingNode):
            continue
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in names:
                raise TextError(f"says {key.value[:64]!r} twice", _line_of(key))
            names.add((key.tag, key.value))


def _line_of(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 0


def word_of(value: object) -> object:
    """Return ``off`` for False, since YAML 1.1 reads this word without quotes as a boolean; return any other value unchanged."""
    return "off" if value is False else value
