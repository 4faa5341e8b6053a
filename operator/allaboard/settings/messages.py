"""What is wrong with a value, in the words of people instead of those of the checker."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from allaboard.model.errors import shown

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


def no_such_option(name: str, known: Collection[str], spelt: Callable[[str], str] = str) -> str:
    """That there is no option of that name, or that it is there under another spelling as well."""
    if name in known:  # minGenerations beside min_generations
        return "is stated twice, in different spellings"
    return no_such("option", name, known, spelt)


def in_words(problem: ErrorDetails, options: type[BaseModel]) -> str:
    """One line about one problem that pydantic has with what is stated of ``options``: which it is, and what would be right."""
    option = ".".join(str(part) for part in problem["loc"])
    kind, words = problem["type"], problem["msg"]
    if kind == "value_error":  # our own words, which say what the value is; without an option when it is about several
        words = words.removeprefix("Value error, ")
        return words if words.startswith(f"{option}.") else f"{option}: {words}".removeprefix(": ")
    if kind == "extra_forbidden":
        *group, name = problem["loc"]
        return f"{option}: {no_such_option(str(name), _within(options, group))}"
    if kind == "model_type":
        words = f"must be a mapping of {', '.join(_within(options, problem['loc']))}"
    else:
        words = "must be a number" if str(problem["input"]).lower() == "nan" else words_of(kind, problem.get("ctx", {})) or words
    return f"{option}: {words}, not {shown(problem['input'])}"


def _within(options: Any, path: Iterable[object]) -> Collection[str]:
    """The options in the group that ``path`` leads to, which may be one of several by name; without any, those at the top."""
    for name in path:
        options = get_args(options)[1] if get_origin(options) is dict else options.model_fields[name].annotation
    return tuple(options.model_fields)
