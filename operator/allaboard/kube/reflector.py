"""Mirror one resource of the API server into a store: list once, then watch, and list again whenever in doubt.

Kopf loses deletions over a re-list, which would leak capacity for ever, and the pods of a large cluster change faster than Kopf's workers
can follow. Events are projected to small records when they are applied; the raw objects aren't kept.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from allaboard.kube.client import ApiServer
from allaboard.kube.deep_json import loads
from allaboard.kube.errors import ApiError, WrongAnswerError
from allaboard.kube.lists import pages
from allaboard.kube.paths import ApiPath
from allaboard.model.errors import MalformedError, shown
from allaboard.model.raw_fields import version_number, version_of
from allaboard.runtime.slices import SLICE_SECONDS, Slices

logger = logging.getLogger(__name__)

Record = TypeVar("Record")
Projected = TypeVar("Projected", contravariant=True)

_PAGE_SIZE = 250
_WATCH_SECONDS = 3  # then the API server ends a watch, which is a sign of life; the next watch continues there
_GRACE_SECONDS = 1.0  # a watch that hasn't ended after this much longer hangs on a dead connection
_SHORT_SECONDS = 1.0  # a watch that ends sooner without an event was refused
_SILENT_SECONDS = 5.0  # after so long without an event from failing watches the collection is listed instead
_BACKOFF_SECONDS = (0.5, 30.0)
_GONE = 410


class Store(Protocol[Projected]):
    """The records of a reflector. Keys are ``namespace/name``, or ``name`` for cluster-scoped objects."""

    def upsert(self, key: str, record: Projected) -> None:
        """Apply the newest state of an object."""

    def remove(self, key: str) -> None:
        """Remove an object; unknown keys are ignored."""

    def known(self) -> Collection[str]:
        """Return the keys of all objects in the store."""


class ExpiredError(Exception):
    """The resourceVersion is too old to continue the watch from (410)."""


@dataclass(slots=True)
class _Event:
    """An event of the watch that isn't applied yet; ``came`` is the time of the object's oldest event that it replaces."""

    came: float
    kind: str
    raw: dict[str, Any]


class Reflector:
    """Mirrors one collection into a ``Store``.

    Of several queued events of one object only the newest is applied, and older ones for which ``must_be_taken`` is true: states that the
    newer event doesn't show, such as the end of a pod before its deletion.
    """

    def __init__(
        self,
        server: ApiServer,
        path: ApiPath,
        project: Callable[[dict[str, Any]], Record],
        store: Store[Record],
        *,
        must_be_taken: Callable[[dict[str, Any]], bool] = lambda raw: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.relists = 0
        self._server = server
        self._project = project
        self._store = store
        self._must_be_taken = must_be_taken
        self._clock = clock
        self._sleep = sleep
        self._heard = clock()
        self._failures = 0
        self._version: str | None = None
        # Queued events by namespace and key: the events of one namespace don't delay those of another.
        self._events: dict[str, dict[str, _Event]] = {}
        self._ahead: dict[str, int] = {}  # versions of objects that were applied early and that the watch hasn't reported yet
        self._has_events = asyncio.Event()
        self._is_doubtful = False

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last reported on this collection, also if there was no change."""
        return self._clock() - self._heard

    @property
    def lag_seconds(self) -> float:
        """Seconds that the oldest queued event has waited; 0 without one."""
        oldest = min((next(iter(events.values())).came for events in self._events.values()), default=None)
        return 0.0 if oldest is None else self._clock() - oldest

    @property
    def age_seconds(self) -> float:
        """Seconds by which the store may be out of date."""
        return max(self.silence_seconds, self.lag_seconds)

    @property
    def ahead(self) -> Collection[str]:
        """The keys of objects that were applied early and that this watch hasn't reported yet."""
        return self._ahead.keys()

    def is_news(self, raw: dict[str, Any]) -> bool:
        """Return whether another watch's state of an object is newer than all that this watch reported or that was applied early."""
        version, reached = version_of(raw), version_number(self._version)
        return 0 < reached < version and version > self._ahead.get(object_key(raw), 0)

    def apply_early(self, raw: dict[str, Any]) -> bool:
        """Apply another watch's state of an object at once if that is news; return whether it is.

        News is newer than all that this watch has reported, so this watch will still report the object's end: no object applied early can
        stay for ever. An older state this watch may have reported already. The call is no sign of life of this watch.
        """
        if not self.is_news(raw):
            return False
        key = object_key(raw)
        self._ahead[key] = version_of(raw)
        self._drop(key)  # of an older state
        self._take_event(key, _Event(self._clock(), "MODIFIED", raw))
        return True

    def drop_early(self, key: str) -> None:
        """Remove an object that was applied early, until this watch reports the object."""
        if self._ahead.pop(key, None):
            self._store.remove(key)

    async def run(self) -> None:
        """List and watch until cancelled. Every failure is logged and retried with growing pauses."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take_events())
            await self._follow()

    async def _follow(self) -> None:
        while True:
            try:
                if self._is_doubtful:
                    self._version = None  # until a list has succeeded
                if self._version is None:
                    self._version = await self._list()
                problem = await self._watch(self._version)
                if problem:
                    await self._back_off(problem)
            except ExpiredError:
                logger.info("%s: the watch has expired, listing anew", self.path)
                self._version = None
            except ApiError as error:
                # A watch that breaks is continued from the last event: replaying older events would bring back old states.
                if error.status == _GONE:
                    self._version = None
                await self._back_off(str(error))
            except Exception as error:
                # A bug or an unexpected answer must not end the watch: the collection is listed again.
                logger.exception("%s: the watch failed, listing anew", self.path)
                self._version = None
                await self._back_off(str(error))

    async def _list(self) -> str:
        began = self._clock()
        for events in self._events.values():
            for key, event in events.items():
                if self._must_be_taken(event.raw):
                    self._take_event(key, event)
        self._events.clear()  # the list is newer
        self._ahead.clear()
        self._is_doubtful = False
        seen: set[str] = set()
        version = ""
        async for page in pages(self._server, self.path, page_size=_PAGE_SIZE):
            if page.begins:
                seen, version = set(), page.version
            await self._take(page.items, seen)
        for key in [key for key in self._store.known() if key not in seen]:
            self._store.remove(key)
        self.relists += 1
        self._failures = 0
        self._heard = began
        self.synced.set()
        return version

    async def _take(self, objects: Sequence[dict[str, Any]], seen: set[str]) -> None:
        """Apply the objects of one page, yielding to the event loop when that takes long."""
        slices = Slices(self._clock)
        for raw in objects:
            key = object_key(raw)
            seen.add(key)
            self._upsert(key, raw)
            await slices.give_way()

    async def _watch(self, version: str) -> str:
        """Watch from ``version`` until the server ends the watch, or should have; return the problem, empty if there was none."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        longest = _WATCH_SECONDS + _GRACE_SECONDS
        began, before = self._clock(), self._heard
        try:
            async with asyncio.timeout(longest), self._server.stream(self.path, query, longest) as lines:
                await self._receive(lines)
        except TimeoutError:
            # Events that came are kept, and the next watch continues from there. Without any event the connection is dead.
            return "" if self._heard != before else f"nothing was heard for {longest:g} s"
        if self._heard == before and self._clock() - began < _SHORT_SECONDS:
            return "the watch ended before it had begun"
        self._heard = self._clock()
        self._failures = 0
        return ""

    async def _receive(self, lines: AsyncIterator[bytes]) -> None:
        """Queue the events that come, yielding to the event loop when that takes long."""
        worked = 0.0
        async for line in lines:
            began = self._clock()
            self._note(loads(line))
            worked += self._clock() - began
            if worked > SLICE_SECONDS:
                await asyncio.sleep(0)
                worked = 0.0

    def _note(self, event: dict[str, Any]) -> None:
        """Queue one event in place of the object's older queued event."""
        kind, raw = event["type"], event["object"]
        if kind == "ERROR":
            if raw.get("code") == _GONE:
                raise ExpiredError
            raise ApiError(int(raw.get("code") or 0), str(raw.get("reason") or ""), str(raw.get("message") or raw))
        if raw.get("kind") != self.path.resource.kind:
            raise WrongAnswerError(f"{self.path}: the watch tells of the kind {shown(raw.get('kind'))}")
        self._heard = self._clock()
        self._failures = 0
        if kind != "BOOKMARK":
            key = object_key(raw)
            if self._ahead and version_of(raw) >= self._ahead.get(key, 0):
                self._ahead.pop(key, None)
            if key not in self._ahead:
                events = self._events.setdefault(_namespace_of(key), {})
                waiting = events.get(key)
                if waiting and self._must_be_taken(waiting.raw) and (kind == "DELETED" or not self._must_be_taken(raw)):
                    self._take_event(key, waiting)
                events[key] = _Event(waiting.came if waiting else self._heard, kind, raw)
                self._has_events.set()
        self._version = str((raw.get("metadata") or {}).get("resourceVersion") or "") or self._version

    async def _take_events(self) -> None:
        """Apply queued events, one of each namespace in turn.

        The event loop gets its turn when that takes long, so that newer events can replace queued ones.
        """
        while True:
            await self._has_events.wait()
            slices = Slices(self._clock)
            while self._events:
                namespace, events = next(iter(self._events.items()))
                key = next(iter(events))
                event = events.pop(key)
                del self._events[namespace]
                if events:
                    self._events[namespace] = events  # behind those of the other namespaces
                self._take_event(key, event)
                await slices.give_way()
            self._has_events.clear()

    def _drop(self, key: str) -> None:
        """Drop the queued event of an object."""
        namespace = _namespace_of(key)
        events = self._events.get(namespace, {})
        events.pop(key, None)
        if not events:
            self._events.pop(namespace, None)

    def _take_event(self, key: str, event: _Event) -> None:
        try:
            if event.kind == "DELETED":
                self._store.remove(key)
            else:
                self._upsert(key, event.raw)
        except Exception:
            logger.exception("%s: what has happened to %s can't be taken, listing anew", self.path, key)
            self._is_doubtful = True

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
        if self._clock() - self._heard > _SILENT_SECONDS:
            self._version = None
        logger.warning("%s: %s; trying again in %.1f s", self.path, problem, pause)
        await self._sleep(pause)


def _namespace_of(key: str) -> str:
    return key.rpartition("/")[0]


def object_key(raw: dict[str, Any]) -> str:
    """Return ``namespace/name`` of an object, or ``name`` of a cluster-scoped one."""
    metadata = raw["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
