"""Keeps a store equal to what the API server holds of one resource: list once, then watch, and list again whenever in doubt.

It exists because Kopf loses deletions over a re-list, which would leak capacity for ever, and because the pods of a large cluster
change faster than Kopf's workers can follow. Events are projected to small records at once; raw objects are never kept.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

import orjson

from allaboard.cluster.client import ApiError, ApiServer, pages
from allaboard.model.errors import MalformedError

logger = logging.getLogger(__name__)

Record = TypeVar("Record")
Projected = TypeVar("Projected", contravariant=True)

_PAGE_SIZE = 250
_WATCH_SECONDS = (240, 360)  # spread, so that watches don't all end together
_SILENCE_SECONDS = 90.0  # bookmarks come once a minute: a longer silence is a dead connection
_SHORT_SECONDS = 1.0  # a watch that ends sooner, with nothing said, was turned away
_BACKOFF_SECONDS = (0.5, 30.0)
_SLICE_SECONDS = 0.02  # work at a stretch before the event loop gets its turn
_GONE = 410


class Store(Protocol[Projected]):
    """Where records go. Keys are ``namespace/name``, or ``name`` for cluster-scoped objects."""

    def upsert(self, key: str, record: Projected) -> None:
        """Take the newest state of an object."""

    def remove(self, key: str) -> None:
        """Forget an object; unknown keys are ignored."""

    def known(self) -> Collection[str]:
        """The keys of all objects held."""


class ExpiredError(Exception):
    """The resourceVersion is too old to go on from (410)."""


class Reflector:
    """Mirrors one collection into a ``Store``."""

    def __init__(
        self,
        server: ApiServer,
        path: str,
        project: Callable[[dict[str, Any]], Record],
        store: Store[Record],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.relists = 0
        self._server = server
        self._project = project
        self._store = store
        self._clock = clock
        self._sleep = sleep
        self._heard = clock()
        self._failures = 0
        self._version: str | None = None

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last said anything about this collection."""
        return self._clock() - self._heard

    async def run(self) -> None:
        """List and watch until cancelled. Every failure is logged and answered by trying again, more slowly each time."""
        while True:
            try:
                if self._version is None:
                    self._version = await self._list()
                if not await self._watch(self._version):
                    await self._back_off("the watch ended before it had begun")
            except ExpiredError:
                logger.info("%s: the watch has expired, listing anew", self.path)
                self._version = None
            except ApiError as error:
                # A watch that breaks off goes on from the last event taken: replaying older ones would turn the clock back.
                if error.status == _GONE:
                    self._version = None
                await self._back_off(str(error))
            except Exception as error:
                # A bug or an answer nobody has thought of must not end the watch: the truth is listed again.
                logger.exception("%s: the watch failed, listing anew", self.path)
                self._version = None
                await self._back_off(str(error))

    async def _list(self) -> str:
        seen: set[str] = set()
        version = ""
        async for page in pages(self._server, self.path, page_size=_PAGE_SIZE):
            version = str(page["metadata"]["resourceVersion"])
            await self._take(page.get("items") or [], seen)
            self._heard = self._clock()
        for key in [key for key in self._store.known() if key not in seen]:
            self._store.remove(key)
        self.relists += 1
        self._failures = 0
        self.synced.set()
        return version

    async def _take(self, objects: list[dict[str, Any]], seen: set[str]) -> None:
        """Take the objects of one page, giving way to the event loop when it takes long."""
        started = self._clock()
        for raw in objects:
            key = object_key(raw)
            seen.add(key)
            self._upsert(key, raw)
            if self._clock() - started > _SLICE_SECONDS:
                await asyncio.sleep(0)
                started = self._clock()

    async def _watch(self, version: str) -> bool:
        """Follow changes from ``version`` until the server ends the watch; returns whether it was worth opening."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # jitter
        }
        async with self._server.stream(self.path, query, _SILENCE_SECONDS) as lines:
            # A collection may be silent for long, but a server that takes the watch is alive.
            began = started = self._heard = self._clock()
            heard = 0
            async for line in lines:
                self._version = self._apply(orjson.loads(line)) or self._version
                heard += 1
                now = self._heard = self._clock()
                self._failures = 0
                if now - started > _SLICE_SECONDS:
                    await asyncio.sleep(0)
                    started = self._clock()
        return heard > 0 or self._clock() - began > _SHORT_SECONDS

    def _apply(self, event: dict[str, Any]) -> str:
        """Take one watch event and return the version it brings the store to."""
        kind, raw = event["type"], event["object"]
        if kind == "ERROR":
            if raw.get("code") == _GONE:
                raise ExpiredError
            raise ApiError(int(raw.get("code") or 0), str(raw.get("reason") or ""), str(raw.get("message") or raw))
        if kind == "DELETED":
            self._store.remove(object_key(raw))
        elif kind != "BOOKMARK":
            self._upsert(object_key(raw), raw)
        return str((raw.get("metadata") or {}).get("resourceVersion") or "")

    def _upsert(self, key: str, raw: dict[str, Any]) -> None:
        try:
            record = self._project(raw)
        except MalformedError as error:
            logger.warning("%s: %s can't be understood and is left out: %s", self.path, key, error)
            self._store.remove(key)
            return
        self._store.upsert(key, record)

    async def _back_off(self, problem: str) -> None:
        first, longest = _BACKOFF_SECONDS
        pause = min(longest, first * 2**self._failures) * random.uniform(0.5, 1.0)  # jitter
        self._failures += 1
        logger.warning("%s: %s; trying again in %.1f s", self.path, problem, pause)
        await self._sleep(pause)


def object_key(raw: dict[str, Any]) -> str:
    """``namespace/name`` of an object, or ``name`` when it has no namespace."""
    metadata = raw["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
