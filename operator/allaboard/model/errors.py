"""Errors in objects that users and other components wrote, and functions that quote parts of such objects in messages."""

import os
from typing import Self

_SHOWN_LENGTH = 80


class MalformedError(ValueError):
    """A field of an object that can't be understood.

    ``field`` is a JSON path inside the object (``spec.containers[0].resources.requests[cpu]``). ``problem`` says what is wrong with the
    field and what would be right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def noted(self) -> Self:
        """Return the error without its traceback, so that it can be kept: the traceback would keep the whole object in memory."""
        return self.with_traceback(None)


def shown(value: object) -> str:
    """Return ``value`` as a short text for a message.

    Users write such values, so a value can be of any size and nesting.
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more than 4,300 digits has no repr
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."


def one_line(text: str) -> str:
    r"""Return ``text`` with line ends and other unprintable characters escaped. Other programs may have written parts of ``text``."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def unserved(what: str, port: int, error: OSError, setting: str) -> str:
    """Return the message that ``what`` can't be served on ``port``; ``setting`` is the option that chooses the port."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{what} can't be served on port {port}: {reason}; choose another with {setting}, or 0 for none"
