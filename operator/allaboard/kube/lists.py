"""Read collections of any size in pages.

A page that is too large is requested again with fewer objects. A list whose continuation expires is requested again as one answer, as
client-go does (tools/pager, ``FullListIfExpired``). The objects of that answer are read one by one as their bytes arrive.
"""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allaboard.kube.client import OBJECT_BYTES, ApiServer, RawObject, check_list, decoded
from allaboard.kube.deep_json import pruned
from allaboard.kube.errors import ApiError, TooLargeError
from allaboard.kube.paths import ApiPath

_PAGE_SIZE = 500
_SILENCE_SECONDS = 60.0  # encoding a large collection takes the API server long before it sends the first byte
_EXPIRED = 410
_ITEMS = re.compile(r'"items"\s*:\s*(\[|null)')
_GAP = re.compile(r"[\s,]+")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of a list at the resourceVersion ``version``.

    ``begins`` is true for the first page of the list. A list may start over at a newer version: pages before the new first page are void.
    """

    version: str
    items: Sequence[RawObject]
    begins: bool


async def pages(
    server: ApiServer, path: ApiPath, *, page_size: int = _PAGE_SIZE, query: Mapping[str, str] | None = None
) -> AsyncIterator[Page]:
    """Yield the pages of a list, in order. Raises ``ApiError``."""
    selection = dict(query or {})
    continuation, size = "", page_size
    while True:
        try:
            page = await server.get(path, {**selection, "limit": str(size), **({"continue": continuation} if continuation else {})})
        except TooLargeError:
            if size == 1:
                raise
            size = max(1, size // 4)
            continue
        except ApiError as error:
            if error.status != _EXPIRED or not continuation:
                raise
            break
        yield _page(page, page.get("items") or (), begins=not continuation)
        continuation = str((page.get("metadata") or {}).get("continue") or "")
        if not continuation:
            return
        size = min(page_size, size * 2)
        await asyncio.sleep(0)
    async with server.download(path, selection, _SILENCE_SECONDS) as chunks:
        async for piece in _pieces(chunks, path):
            yield piece
            await asyncio.sleep(0)


async def listed(server: ApiServer, path: ApiPath, query: Mapping[str, str] | None = None) -> list[RawObject]:
    """Return all objects of a list. Raises ``ApiError``."""
    found: list[RawObject] = []
    async for page in pages(server, path, query=query):
        if page.begins:
            found.clear()
        found += page.items
    return found


async def _pieces(chunks: AsyncIterator[bytes], path: ApiPath) -> AsyncIterator[Page]:
    """Yield one answer to a list in pieces as its bytes arrive; only the last chunk and one object are in memory. Raises ``ApiError``."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    head: RawObject | None = None
    text, next_length = "", 0
    async for chunk in _with_end(chunks):
        text += decode(chunk)
        if chunk and len(text) < next_length:
            continue  # an object of many chunks is parsed again only when its text has doubled
        if len(text) > OBJECT_BYTES:
            raise TooLargeError(path, OBJECT_BYTES)
        begins = head is None
        if head is None:
            # The API server writes the list's kind and metadata before its items.
            if (found := _ITEMS.search(text)) is None:
                continue
            head = decoded(f'{text[: found.start()]}"items":[]}}'.encode(), path)
            text = text[found.end() :]
        items, text, is_end = _objects(text)
        if items or begins:
            check_list({**head, "items": items}, path)
            yield _page(head, items, begins=begins)
        if is_end:
            return
        next_length = 2 * len(text)
    raise ApiError(0, "Malformed", f"{path}: the list broke off")


async def _with_end(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield ``chunks``, and an empty chunk at their end."""
    async for chunk in chunks:
        yield chunk
    yield b""


def _objects(text: str) -> tuple[list[RawObject], str, bool]:
    """Return the complete objects at the beginning of ``text``, the text after them, and whether the list ends there."""
    found: list[RawObject] = []
    at = 0
    while True:
        gap = _GAP.match(text, at)
        at = gap.end() if gap else at
        if text.startswith(("]", "}"), at):
            return found, "", True
        try:
            item, at = _DECODER.raw_decode(text, at)
        except RecursionError:
            rest = text[at:]
            text, at = pruned(rest.encode()).decode(), 0
            if text == rest:  # the object isn't complete
                return found, text, False
            continue
        except json.JSONDecodeError:
            return found, text[at:], False
        found.append(item)


def _page(answer: Mapping[str, Any], items: Sequence[RawObject], *, begins: bool) -> Page:
    return Page(str((answer.get("metadata") or {}).get("resourceVersion") or ""), items, begins)
