"""What is wrong with a value, in the words of people instead of those of the checker."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any

_WORDS = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text in quotes",
    "tuple": "must be a list of names",
    "list": "must be a list",
    "dict": "must be a mapping",
    "model": "must be a mapping",
    "missing": "must be stated",
    "too_short": "must name at least one",
    "enum": "must be {expected}",
    "literal": "must be {expected}",
    "greater_than": "must be more than {gt:.15g}",
    "greater_than_equal": "must be {ge:.15g} or more",
    "less_than_equal": "must be {le:.15g} or less",
}
"""What is said of a value, by the kind of pydantic's error or the first word of it."""


def words_of(kind: str, context: Mapping[str, Any]) -> str:
    """What must hold of the value that pydantic refuses for ``kind``; empty where its own words are as good."""
    template = _WORDS.get(kind) or _WORDS.get(kind.split("_")[0])
    return template.format(**context) if template else ""


def no_such(what: str, name: str, known: Collection[str], spelt: Callable[[str], str] = str) -> str:
    """That there is no ``what`` of that name, and which are close to it, or all there are."""
    close = difflib.get_close_matches(name, known, n=2)
    if close:
        return f"no such {what}; did you mean {' or '.join(map(spelt, close))}?"
    return f"no such {what}; known are {', '.join(sorted(map(spelt, known)))}"
