"""Names of GPUs, and the regular expressions by which pods ask for GPUs of certain names.

A tenant writes the expression, so RE2 matches it, which takes linear time for any expression. Labels can't have blanks, so blanks, ``-``
and ``_`` count as the same letter, both in names and in the literals of expressions. Example: ``GTX-1070`` matches ``GeForce GTX 1070 Ti``.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import re2

from allaboard.model.errors import one_line, shown

MOST_CHARACTERS = 128
"""The most characters that an expression may have."""

_MOST_INSTRUCTIONS = 2_000
_MOST_BYTES = 64 * 1024  # that RE2 may keep of one expression
_MOST_COMPILED = 512
_COSTLY = re.compile(r"(?<!\\)(?:\\\\)*\\[pPC]")
"""Unicode classes, which expressions may not have, since RE2 takes half a millisecond to compile one of them."""

_LETTERS = str.maketrans("-_", "  ")
# Parts of an expression without literal letters: the heads of groups, and letters given by their number.
_HEAD = re.compile(r"\(\?(P?<[A-Za-z0-9_]*>|[A-Za-z-]*[:)])|\\x\{[^}]*\}")


class Expression(Protocol):
    """A compiled regular expression for names of GPUs."""

    def search(self, text: str) -> object:
        """Return a match if the expression matches anywhere in ``text``, else ``None``."""


def canonical(name: str) -> str:
    """Return ``name`` in the form that expressions are matched with: each ``-`` and ``_`` is replaced by a blank."""
    return name.translate(_LETTERS)


def expression(pattern: str) -> Expression:
    """Compile ``pattern`` for searches in ``canonical`` names; letter case doesn't matter.

    Raises ``ValueError``, which says what is wrong.
    """
    if len(pattern) > MOST_CHARACTERS:
        raise ValueError(f"{len(pattern)} characters are more than the {MOST_CHARACTERS} of an expression that are supported")
    if not pattern.strip():
        raise ValueError("is empty; it must be an expression such as A100")
    if _COSTLY.search(pattern):
        raise ValueError(f"{shown(pattern)} has a class of Unicode (\\p, \\P or \\C), which isn't supported")
    found = _compiled(pattern)
    if isinstance(found, str):
        raise ValueError(found)
    return found


@lru_cache(maxsize=_MOST_COMPILED)
def _compiled(pattern: str) -> Expression | str:
    """Return ``pattern`` compiled, or a message that says what is wrong with it.

    The expression and the message are cached, since many pods may have the same pattern.
    """
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, _MOST_BYTES
    try:
        re2.compile(pattern, options)  # for errors that quote the pattern as it is written
        found = re2.compile("".join(_canonical_parts(pattern)), options)
    except (re2.error, UnicodeError) as error:
        return f"{shown(pattern)} is no regular expression of RE2: {one_line(_words(error))}"
    if found.programsize > _MOST_INSTRUCTIONS:
        return f"{shown(pattern)} is too large an expression: it takes {found.programsize} steps, {_MOST_INSTRUCTIONS} at most"
    ready: Expression = found
    return ready


def matches(pattern: str, names: tuple[str, ...]) -> bool:
    """Return whether ``pattern`` matches one of the ``canonical`` names of a GPU."""
    wanted = expression(pattern)
    return any(wanted.search(name) is not None for name in names)


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(error)


def _canonical_parts(pattern: str) -> Iterator[str]:
    """Yield the parts of ``pattern`` with literal letters as in ``canonical``. In brackets a ``-`` between two letters is a range."""
    place = 0
    while place < len(pattern):
        if head := _HEAD.match(pattern, place):
            yield head[0]
            place = head.end()
        elif pattern[place] == "\\" and place + 1 < len(pattern):
            yield " " if pattern[place + 1] in "-_ " else pattern[place : place + 2]
            place += 2
        elif pattern[place] == "[":
            end = _end_of_brackets(pattern, place)
            yield _brackets(pattern[place:end])
            place = end
        else:
            yield canonical(pattern[place])
            place += 1


def _end_of_brackets(pattern: str, start: int) -> int:
    place = start + 1 + pattern.startswith("^", start + 1)
    place += pattern.startswith("]", place)  # a literal in this place
    while place < len(pattern) and pattern[place] != "]":
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) >= 0:
            place = end + 2
        else:
            place += 2 if pattern[place] == "\\" else 1
    return min(place + 1, len(pattern))


def _brackets(part: str) -> str:
    """Return a bracket expression with a blank added, if it contains a blank, ``-`` or ``_`` as a letter."""
    inner = part[2:-1] if part.startswith("[^") else part[1:-1]
    ranges = re.sub(r"\[:[^]]*:\]|\\[^-_ ]|[^\\\[\]]-[^\\\[\]]", "", inner)
    if not re.search(r"[-_ ]", ranges):
        return part
    # A dash at the end is a letter; with a blank after it, it would be a range.
    end = -2 if part.endswith("-]") and not part.endswith("\\-]") else -1
    return f"{part[:end]} {part[end:]}"
