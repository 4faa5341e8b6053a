"""What GPUs are called, and the expressions by which they are asked for.

A tenant writes the expression, so RE2 matches it: in linear time, whatever it says. Blanks, ``-`` and ``_`` are the same letter, in names
and, as literals, in expressions, for labels can't have blanks: ``GTX-1070`` asks for a ``GeForce GTX 1070 Ti``, whoever spells it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import re2

from allaboard.model.errors import shown

MOST_CHARACTERS = 128
"""Of an expression."""

_MOST_INSTRUCTIONS = 2_000
_MOST_BYTES = 64 * 1024  # of what RE2 keeps of one expression
_MOST_COMPILED = 512
_COSTLY = re.compile(r"(?<!\\)(?:\\\\)*\\[pPC]")
"""Classes of Unicode take RE2 half a millisecond each to compile, whatever it may keep; names of cards need none."""

_LETTERS = str.maketrans("-_", "  ")
# Parts of an expression of which no letter stands for itself: groups' heads, and letters by number.
_HEAD = re.compile(r"\(\?(P?<[A-Za-z0-9_]*>|[A-Za-z-]*[:)])|\\x\{[^}]*\}")


class Expression(Protocol):
    """What is asked for, ready to be matched."""

    def search(self, text: str) -> object:
        """Something if it is anywhere in ``text``, else ``None``."""


def canonical(name: str) -> str:
    """``name`` as expressions see it."""
    return name.translate(_LETTERS)


def expression(pattern: str) -> Expression:
    """``pattern`` to be searched for in ``canonical`` names, whatever the case. Raises ``ValueError`` that says what is wrong with it."""
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
    """``pattern`` compiled, or what is wrong with it: that, too, is found out once, however many pods have it."""
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = False, False, _MOST_BYTES
    try:
        re2.compile(pattern, options)  # what is wrong is told of what was written
        found = re2.compile("".join(_canonical_parts(pattern)), options)
    except (re2.error, UnicodeError) as error:
        return f"{shown(pattern)} is no regular expression of RE2: {_words(error)}"
    if found.programsize > _MOST_INSTRUCTIONS:
        return f"{shown(pattern)} is too large an expression: it takes {found.programsize} steps, {_MOST_INSTRUCTIONS} at most"
    ready: Expression = found
    return ready


def matches(pattern: str, names: tuple[str, ...]) -> bool:
    """Whether a card with these ``canonical`` names is one that ``pattern`` asks for."""
    wanted = expression(pattern)
    return any(wanted.search(name) is not None for name in names)


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(error)


def _canonical_parts(pattern: str) -> Iterator[str]:
    """``pattern`` with its literal letters as in ``canonical``; within brackets a ``-`` between two letters is a range."""
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
    place += pattern.startswith("]", place)  # which is a letter there
    while place < len(pattern) and pattern[place] != "]":
        if pattern.startswith("[:", place) and (end := pattern.find(":]", place)) >= 0:
            place = end + 2
        else:
            place += 2 if pattern[place] == "\\" else 1
    return min(place + 1, len(pattern))


def _brackets(part: str) -> str:
    """A set of letters: one that has any of the three has the blank."""
    inner = part[2:-1] if part.startswith("[^") else part[1:-1]
    ranges = re.sub(r"\[:[^]]*:\]|\\[^-_ ]|[^\\\[\]]-[^\\\[\]]", "", inner)
    if not re.search(r"[-_ ]", ranges):
        return part
    # A dash that ends the set is a letter, and would begin a range before the blank.
    end = -2 if part.endswith("-]") and not part.endswith("\\-]") else -1
    return f"{part[:end]} {part[end:]}"
