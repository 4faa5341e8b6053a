"""YAML that people wrote: one reader for settings, scenarios and manifests, which says in one line what is wrong, and where.

PyYAML itself takes the last of two keys that are the same, and its C part crashes where a text is nested deeply enough.
"""

from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 200
_MERGE = "tag:yaml.org,2002:merge"


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
                if are_twins_refused:
                    _refuse_twins(node)
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


def _refuse_twins(root: yaml.Node) -> None:
    """Before it is constructed: then keys that ``<<`` merges in stand beside those that win over them."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE]
            names = set()
            for key in keys:
                if (key.tag, key.value) in names:
                    raise TextError(f"says {key.value[:64]!r} twice", key.start_mark.line + 1 if key.start_mark else 0)
                names.add((key.tag, key.value))
            waiting += [value for _, value in node.value]
