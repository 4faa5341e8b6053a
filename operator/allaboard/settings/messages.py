"""Error messages for invalid options, in place of pydantic's."""

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from allaboard.model.errors import shown

_REQUIREMENTS = {
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
"""Requirements on a value, by the type of pydantic's error or the first word of that type."""


def requirement_of(kind: str, context: Mapping[str, Any]) -> str:
    """Return the requirement on a value for pydantic's error type ``kind``; empty if pydantic's own text is clear enough."""
    template = _REQUIREMENTS.get(kind) or _REQUIREMENTS.get(kind.split("_")[0])
    return template.format(**context) if template else ""


def no_such(kind: str, name: str, known: Collection[str], spelt: Callable[[str], str] = str) -> str:
    """Return the message that there is no ``kind`` (such as "option") of this name, with close names or else all known names."""
    close = difflib.get_close_matches(name, known, n=2)
    if close:
        return f"no such {kind}; did you mean {' or '.join(map(spelt, close))}?"
    return f"no such {kind}; known are {', '.join(sorted(map(spelt, known)))}"


def no_such_option(name: str, known: Collection[str], spelt: Callable[[str], str] = str) -> str:
    """Return the message that there is no option ``name``, or that it is stated twice in different spellings."""
    if name in known:  # minGenerations beside min_generations
        return "is stated twice, in different spellings"
    return no_such("option", name, known, spelt)


def message_of(problem: ErrorDetails, options: type[BaseModel]) -> str:
    """Return one line about an error of pydantic: the option of the model ``options``, and what its value must be."""
    option = ".".join(str(part) for part in problem["loc"])
    kind, words = problem["type"], problem["msg"]
    if kind == "value_error":  # a message of Allaboard, which states the value; its location is empty if it is about several options
        words = words.removeprefix("Value error, ")
        return words if words.startswith(f"{option}.") else f"{option}: {words}".removeprefix(": ")
    if kind == "extra_forbidden":
        *group, name = problem["loc"]
        return f"{option}: {no_such_option(str(name), _within(options, group))}"
    if kind == "model_type":
        words = f"must be a mapping of {', '.join(_within(options, problem['loc']))}"
    else:
        words = "must be a number" if str(problem["input"]).lower() == "nan" else requirement_of(kind, problem.get("ctx", {})) or words
    return f"{option}: {words}, not {shown(problem['input'])}"


def _within(options: Any, path: Iterable[object]) -> Collection[str]:
    """Return the names of the options in the group at ``path``; at the top if ``path`` is empty. A group may be a value of a mapping."""
    for name in path:
        options = get_args(options)[1] if get_origin(options) is dict else options.model_fields[name].annotation
    return tuple(options.model_fields)
