"""The subset of JSONPath that printer columns use: fields, indices, ``[-1:]`` and ``[?(@.type=="Ready")]``."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\\])+)
    |\[(?P<quote>['"])(?P<quoted>.+?)(?P=quote)\]
    |\[(?P<index>-?\d+)\]
    |\[(?P<start>-?\d*):(?P<end>-?\d*)\]
    |\[\?\(@\.(?P<key>[\w.]+)\s*==\s*(?P<mark>["'])(?P<wanted>.*?)(?P=mark)\)\]
    |\[(?P<all>\*)\]""",
    re.VERBOSE,
)

Step = re.Match[str]


def first(path: str, body: Any) -> Any:
    """Return the first value that ``path`` finds in ``body``, or None."""
    return next(find(path, body), None)


def find(path: str, body: Any) -> Iterator[Any]:
    """Yield all values that ``path`` finds in ``body``; a path that can't be parsed finds none."""
    return _walk(_steps(path), body)


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[Step, ...] | None:
    path = path.strip("{}")
    steps, position = [], 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return None
        steps.append(match)
        position = match.end()
    return tuple(steps)


def _walk(steps: tuple[Step, ...] | None, value: Any) -> Iterator[Any]:
    if steps is None or value is None:
        return
    if not steps:
        yield value
        return
    for inner in _step(steps[0], value):
        yield from _walk(steps[1:], inner)


def _step(step: Step, value: Any) -> Iterator[Any]:
    name = step["field"] or step["quoted"]
    if name is not None:
        if isinstance(value, dict):
            yield value.get(name.replace("\\", ""))
    elif not isinstance(value, list):
        return
    elif step["index"] is not None:
        yield from value[int(step["index"]) :][:1]
    elif step["start"] is not None:
        yield from value[int(step["start"] or 0) : int(step["end"]) if step["end"] else None]
    elif step["key"] is not None:
        yield from (item for item in value if first(f".{step['key']}", item) == step["wanted"])
    else:
        yield from value
