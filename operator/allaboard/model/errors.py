"""What can be wrong with an object somebody else wrote."""

import os
from typing import Self

_SHOWN_LENGTH = 80


class MalformedError(ValueError):
    """A field of an object can't be understood.

    ``field`` is a JSON path inside the object (``spec.containers[0].resources.requests[cpu]``), ``problem`` says what is wrong
    with it and what would be right.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    def noted(self) -> Self:
        """The error as a fact to keep: without the frames that it came through, which hold the object that it is about."""
        return self.with_traceback(None)


def shown(value: object) -> str:
    """``value`` as it may stand in a message: people wrote it, so it can be of any size or nesting."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more than 4,300 digits has no repr
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."


def one_line(text: str) -> str:
    """Return ``text`` without line ends or other characters that don't print, which are escaped: others wrote parts of it.

    Example: ``"denied\\nall is well"`` becomes ``"denied\\\\nall is well"``, which can't be read as two messages.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def unserved(what: str, port: int, error: OSError, setting: str) -> str:
    """That ``what`` can't be served on ``port``, which ``setting`` is for."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{what} can't be served on port {port}: {reason}; choose another with {setting}, or 0 for none"
