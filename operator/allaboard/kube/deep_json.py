"""Reads JSON however deep it is nested: parsers end at a thousand levels or so, the API server at ten thousand.

Who may write an object may nest its ``managedFields`` as deep; one such object would keep whoever can't read it from all others.
"""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import orjson

DEEPEST = 100
"""Levels; what is of use to anybody has no more than twenty."""

_QUOTE = ord('"')
_STEPS = np.zeros(256, dtype=np.int8)  # by character
_STEPS[list(b"{[")], _STEPS[list(b"}]")] = 1, -1


def pruned(payload: bytes) -> bytes:
    """JSON documents, one behind another, without what is nested deeper than ``DEEPEST`` in them: there is ``null`` instead.

    What doesn't end is left as it is. 10 ms for each MB.
    """
    if payload.count(b"{") + payload.count(b"[") <= DEEPEST:
        return payload
    # Of the same length: no quote is part of a text any more.
    plain = payload.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in payload else payload
    characters = np.frombuffer(plain, dtype=np.uint8)
    steps = _STEPS[characters]
    steps[np.cumsum(characters == _QUOTE, dtype=np.uint8) & 1 == 1] = 0  # in a text; the number of quotes may overflow, which keeps it odd
    depth = np.cumsum(steps, dtype=np.int32)
    begins = np.flatnonzero((steps == 1) & (depth == DEEPEST + 1))
    ends = np.flatnonzero((steps == -1) & (depth == DEEPEST))
    kept, at = [], 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=False):
        kept += [payload[at:begin], b"null"]
        at = end + 1
    return b"".join((*kept, payload[at:])) if kept else payload


def loads(payload: bytes) -> Any:
    """What JSON says, as far as it isn't nested too deep. Raises ``ValueError`` for what isn't JSON."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return orjson.loads(pruned(payload))


class PrunedResponse(aiohttp.ClientResponse):
    """An answer in which nothing is nested too deep for who reads it, also line by line: for a session of somebody else's."""

    async def start(self, connection: "aiohttp.connector.Connection") -> "PrunedResponse":
        """As of any response."""
        await super().start(connection)
        self.content = _PrunedLines(self.content)  # type: ignore[assignment]  # it does what readers of lines ask for
        return self

    async def json(self, **options: Any) -> Any:
        """As of any response."""
        return await super().json(**{**options, "loads": lambda text: loads(text.encode())})


class _PrunedLines:
    """A reader of documents, each on a line of its own; otherwise what it reads from."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Whole lines, and at last what is left."""
        left = b""
        async for chunk in self._content.iter_chunked(size):
            lines, newline, left = (left + chunk).rpartition(b"\n")
            if newline:
                yield pruned(lines + newline)
        if left:
            yield pruned(left)
