"""YAML that people wrote: one reader for settings, scenarios and manifests, which says in one line what is wrong, and where.

PyYAML itself takes the last of two keys that are the same, and its C part crashes where a text is nested deeply enough. A few lines in
which mappings merge each other would keep it busy for hours.
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
"""Characters; an integer that takes no more, in whatever base, is a float too, and Python prints it."""


class TextError(ValueError):
    """A text can't be read. ``line`` counts from 1, and is 0 when no single line is to blame."""

    def __init__(self, problem: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem = problem
        self.line = line


def decoded(content: bytes) -> str:
    """What a file says. Raises ``TextError``."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(f"is not UTF-8 text: {error.reason} at byte {error.start}") from error


def yaml_value(text: str) -> object:
    """The only document of ``text``, or ``None``. Raises ``TextError``, of a key that is there twice too."""
    found = _read(text, _LOADER, are_twins_refused=True)
    if len(found) > 1:
        raise TextError(f"holds {len(found)} YAML documents; there can be only one")
    return found[0] if found else None


def yaml_documents(text: str) -> list[object]:
    """All documents of ``text``. Raises ``TextError``, of a key that is there twice too."""
    return _read(text, _LOADER, are_twins_refused=True)


def yaml_values(text: str, loader: Any) -> list[object]:
    """All documents of ``text``, as ``loader`` understands them. Raises ``TextError``."""
    return _read(text, loader, are_twins_refused=False)


def _read(text: str, loader: Any, *, are_twins_refused: bool) -> list[object]:
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
                if are_twins_refused:
                    _refuse_twins(nodes)
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
    except (ValueError, LookupError, AttributeError) as error:  # a number or a date that Python refuses, or a tag that isn't what it says
        raise TextError(f"holds a value that can't be read: {error}") from error


def _refuse_depth(text: str, loader: Any) -> None:
    """Before anything is built of it, which is done by recursion; to look costs a tenth of that."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _DEEPEST:
            raise TextError("is nested too deeply")


def _nodes_of(root: yaml.Node) -> list[yaml.Node]:
    """Each node once, after those that it holds; one that holds itself stands after the others in it."""
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
    """Whoever names such a number in a message would fail."""
    for node in nodes:
        if node.tag == _INT and isinstance(node, yaml.ScalarNode) and len(node.value) > _LONGEST_NUMBER:
            raise TextError(f"holds a number of more than {_LONGEST_NUMBER} digits", _line_of(node))


def _refuse_merges(nodes: Iterable[yaml.Node]) -> None:
    """Counts the pairs that all ``<<`` together yield, before they are merged."""
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


def _refuse_twins(nodes: Iterable[yaml.Node]) -> None:
    """Before it is constructed: then keys that ``<<`` merges in stand beside those that win over them."""
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
