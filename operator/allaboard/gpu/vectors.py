"""Parses an instant vector of Prometheus' HTTP API in parts, as it arrives.

At 5,000 nodes an answer has megabytes, and parsing it in one call would block every thread of the process. Any scraped pod may make the
answer too large: series beyond the limits are left out, and all other series count.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import chain

import orjson

from allaboard.gpu.errors import SourceError, TooLongError
from allaboard.gpu.gathering import MOST_CARDS, MOST_NODES, Sample

_BETWEEN = b'},{"metric"'
"""The bytes between two series. They occur nowhere else: inside a string a quotation mark follows a backslash, never a brace."""

_AS_WRITTEN = re.compile(rb'\{"metric":\{([^{}]*)\},"value":\[([-+.eE0-9]{1,30}),"([^"\\]{0,60})"\]\}')
_BEGIN = b'{"metric":{'
_AROUND = len('{"metric":{},"value":[,""]}')
_RESULT = re.compile(rb'"result"\s*:\s*\[')
_BLOCK = 2**16
_LONGEST = 2**20
"""The most bytes of one series. An answer in an unexpected format is parsed in one call, and may have no more bytes than this."""

_MOST_SERIES = MOST_NODES * MOST_CARDS


async def vector(chunks: AsyncIterator[bytes], place: str, leave_out: Callable[[], None]) -> AsyncIterator[Sequence[Sample]]:
    """Yield the series of an answer in parts. Raises ``SourceError`` if the answer is no vector; ``place`` is the URL in the message.

    ``leave_out`` is called for each series that is too long, and once for an answer that is cut off or has too many series.
    """
    head, rest, count, is_skipping = b"", b"", 0, False
    try:
        async for block in _blocks(chunks):
            rest += block
            if not head and (begin := _RESULT.search(rest)):
                head, rest = rest[: begin.end()], rest[begin.end() :]
            if is_skipping:
                end = rest.find(_BETWEEN)
                rest, is_skipping = (rest[end + 2 :], False) if end >= 0 else (rest[1 - len(_BETWEEN) :], True)
            end = rest.rfind(_BETWEEN)
            if head and end >= 0:
                found = _series(rest[: end + 1], place)
                rest = rest[end + 2 :]
                yield found[: _MOST_SERIES - count]
                count += len(found)
                if count > _MOST_SERIES:
                    leave_out()
                    return
            if len(rest) > _LONGEST:
                if not (head and rest.startswith(_BEGIN)):
                    raise SourceError(f"{place}: the answer has a series longer than {_LONGEST} bytes")
                leave_out()
                rest, is_skipping = rest[1 - len(_BETWEEN) :], True
    except TooLongError:
        if not head:
            raise
        leave_out()
        return
    if is_skipping:  # the last series was left out, and the end of the document with it
        rest = b"]}}"
    # The rest is the end of the list. With the head it is a whole document again, so that its status and type can be checked.
    document = _parsed(head + rest, place)
    data = document.get("data") if isinstance(document, dict) and document.get("status") == "success" else None
    if not isinstance(data, dict) or data.get("resultType") != "vector":
        raise SourceError(f"{place}: the answer is not an instant vector")
    yield _read(data.get("result"), place)


def _parsed(text: bytes, place: str) -> object:
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise SourceError(f"{place}: the answer is not JSON") from error


def _series(text: bytes, place: str) -> list[Sample]:
    """Return the samples in ``text``, series separated by commas.

    Series that aren't written exactly as Prometheus writes them are parsed by the JSON parser.
    """
    found: list[Sample] = _AS_WRITTEN.findall(text)
    if sum(map(len, chain.from_iterable(found))) + (_AROUND + 1) * len(found) - 1 == len(text):
        return found
    return _read(_parsed(b"[" + text + b"]", place), place)


def _read(found: object, place: str) -> list[Sample]:
    """Return the sample of each series in ``found``, a parsed list: its labels, the time of evaluation and the value."""
    try:
        if not isinstance(found, list):
            raise TypeError
        return [(_inside(each["metric"]), _as_text(each["value"][0]), _as_text(each["value"][1])) for each in found]
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise SourceError(f"{place}: the answer contains a malformed series") from error


def _inside(labels: object) -> bytes:
    if not isinstance(labels, dict):
        raise TypeError
    return orjson.dumps(labels)[1:-1]


def _as_text(number: object) -> bytes:
    return str(number).encode() if isinstance(number, str | int | float) else b""


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks joined to blocks of at least 64 KiB.

    So the end of a series isn't looked for after each byte if a server sends single bytes.
    """
    waiting: list[bytes] = []
    size = 0
    async for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)
