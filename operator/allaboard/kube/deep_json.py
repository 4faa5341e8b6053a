"""Read JSON of any nesting depth: parsers fail beyond about a thousand levels, and the API server accepts ten thousand.

A tenant may nest the ``managedFields`` of an object that deeply. A client that fails on such an object can't read the list that holds it.
"""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import numpy as np
import orjson

DEEPEST = 100
"""Number of levels of nesting that are kept. Fields that the scheduler reads have at most twenty."""

_QUOTE = ord('"')
_STEPS = np.zeros(256, dtype=np.int8)  # by character
_STEPS[list(b"{[")], _STEPS[list(b"}]")] = 1, -1


def pruned(payload: bytes) -> bytes:
    """Return the JSON documents of ``payload`` with ``null`` in place of values nested deeper than ``DEEPEST``.

    An incomplete document is left unchanged. This takes 10 ms for each MB.
    """
    if payload.count(b"{") + payload.count(b"[") <= DEEPEST:
        return payload
    # Escaped characters become underscores, so that every quote that is left begins or ends a string. The length stays the same.
    plain = payload.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in payload else payload
    characters = np.frombuffer(plain, dtype=np.uint8)
    steps = _STEPS[characters]
    # Brackets in a string don't count. The number of quotes may overflow uint8, which doesn't change whether it is odd.
    steps[np.cumsum(characters == _QUOTE, dtype=np.uint8) & 1 == 1] = 0
    depth = np.cumsum(steps, dtype=np.int32)
    begins = np.flatnonzero((steps == 1) & (depth == DEEPEST + 1))
    ends = np.flatnonzero((steps == -1) & (depth == DEEPEST))
    kept, at = [], 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=False):
        kept += [payload[at:begin], b"null"]
        at = end + 1
    return b"".join((*kept, payload[at:])) if kept else payload


def loads(payload: bytes) -> Any:
    """Return the value of a JSON document. Raises ``ValueError`` if the document isn't JSON.

    If the document is nested too deeply for the parser, values nested deeper than ``DEEPEST`` are read as ``null``.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return orjson.loads(pruned(payload))


class PrunedResponse(aiohttp.ClientResponse):
    """An HTTP answer whose JSON is read as by ``pruned``, in one piece or line by line. It is for sessions of another library (Kopf)."""

    async def start(self, connection: "aiohttp.connector.Connection") -> "PrunedResponse":
        """Start reading the answer."""
        await super().start(connection)
        self.content = _PrunedLines(self.content)  # type: ignore[assignment]  # it has the attributes that readers of lines need
        return self

    async def json(self, **options: Any) -> Any:
        """Return the JSON value of the answer, with ``null`` in place of values that are nested too deeply."""
        return await super().json(**{**options, "loads": lambda text: loads(text.encode())})


class _PrunedLines:
    """The stream ``content``, of which each line is a JSON document that is pruned when it is read."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the content in pieces of whole lines, and at the end what follows the last line."""
        left = b""
        async for chunk in self._content.iter_chunked(size):
            lines, newline, left = (left + chunk).rpartition(b"\n")
            if newline:
                yield pruned(lines + newline)
        if left:
            yield pruned(left)
