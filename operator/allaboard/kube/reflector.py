"""Mirror one resource of the API server into a store: list once, then watch, and list again whenever in doubt.

Kopf can't be used for that: it loses deletions when it lists again, which would leak capacity for ever. The pods of a large cluster also
change faster than Kopf's workers can follow. A raw object is made into a small record when its event is applied, and isn't kept.
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
_WATCH_SECONDS = 3  # The API server ends a watch after this time, which is a sign of life. The next watch continues from there.
_GRACE_SECONDS = 1.0  # A watch that hasn't ended this much later has a dead connection.
_SHORT_SECONDS = 1.0  # A watch that ends sooner and without an event was refused.
_SILENT_SECONDS = 5.0  # If watches fail and bring no event for this long, the collection is listed again.
_BACKOFF_SECONDS = (0.5, 30.0)
_GONE = 410


class Store(Protocol[Projected]):
    """The records that a reflector writes. Keys are ``namespace/name``, or ``name`` for cluster-scoped objects."""

    def upsert(self, key: str, record: Projected) -> None:
        """Apply the newest state of an object."""

    def remove(self, key: str) -> None:
        """Remove an object; unknown keys are ignored."""

    def known(self) -> Collection[str]:
        """Return the keys of all objects in the store."""


class ExpiredError(Exception):
    """The watch can't continue from its resourceVersion, which is too old (410)."""


@dataclass(slots=True)
class _Event:
    """An event that isn't applied yet. ``came`` is the time at which it came, or at which the oldest event that it has replaced came."""

    came: float
    kind: str
    raw: dict[str, Any]


class Reflector:
    """Mirrors one collection into a ``Store``; ``project`` makes a record of a raw object.

    A newer event of an object replaces its queued event, which is then not applied. States for which ``must_be_taken`` is true are applied
    before they are replaced, unless the newer event has such a state, too. Example: the end of a pod, if the newer event is its deletion.

    An answer with a status of ``ends_on`` ends ``run``, and is then ``ended_by``. ``watch_seconds`` is how long a watch lasts; 0 means the
    usual time. Long watches make fewer requests, but a dead connection is noticed later.
    """

    def __init__(
        self,
        server: ApiServer,
        path: ApiPath,
        project: Callable[[dict[str, Any]], Record],
        store: Store[Record],
        *,
        must_be_taken: Callable[[dict[str, Any]], bool] = lambda raw: False,
        ends_on: Collection[int] = (),
        watch_seconds: int = 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.path = path
        self.synced = asyncio.Event()
        self.relists = 0
        self.ended_by: ApiError | None = None
        self._server = server
        self._project = project
        self._store = store
        self._must_be_taken = must_be_taken
        self._ends_on = ends_on
        self._watch_seconds = watch_seconds
        self._clock = clock
        self._sleep = sleep
        self._last_heard = clock()
        self._failures = 0
        self._version: str | None = None
        # Queued events by namespace and key, so that the events of one namespace don't delay those of another.
        self._events: dict[str, dict[str, _Event]] = {}
        self._ahead: dict[str, int] = {}  # by key, the version of each object that was applied early and that the watch hasn't reported yet
        self._has_events = asyncio.Event()
        self._must_list = False

    @property
    def silence_seconds(self) -> float:
        """Seconds since the API server last began a list, sent an event or bookmark, or ended a watch of this collection in time."""
        return self._clock() - self._last_heard

    @property
    def lag_seconds(self) -> float:
        """Seconds that the oldest queued event has waited; 0 if no event is queued."""
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
        """Return whether ``raw``, which another watch reported, is new.

        A new state is newer than all that this watch has reported, and newer than a state of the object that was applied early.
        """
        version, reached = version_of(raw), version_number(self._version)
        return 0 < reached < version and version > self._ahead.get(object_key(raw), 0)

    def apply_early(self, raw: dict[str, Any]) -> bool:
        """Apply ``raw``, which another watch reported, at once if it is new; return whether it was applied.

        ``raw`` is new if it is newer than all that this watch has reported. So this watch will still report the object's deletion, and no
        object that is applied early stays for ever. The call doesn't count as a sign of life of this watch.
        """
        if not self.is_news(raw):
            return False
        key = object_key(raw)
        self._ahead[key] = version_of(raw)
        self._drop_queued(key)  # a queued event has an older state
        self._apply_event(key, _Event(self._clock(), "MODIFIED", raw))
        return True

    def drop_early(self, key: str) -> None:
        """Remove an object that was applied early; it comes back when this watch reports it."""
        if self._ahead.pop(key, None):
            self._store.remove(key)

    async def run(self) -> None:
        """List and watch until cancelled or ended. Every other failure is logged and retried with growing pauses."""
        async with asyncio.TaskGroup() as tasks:
            applying = tasks.create_task(self._apply_events())
            self.ended_by = await self._follow()
            applying.cancel()

    async def _follow(self) -> ApiError:
        """List and watch until an answer has a status of ``ends_on``, and return this answer."""
        while True:
            try:
                if self._must_list:
                    self._version = None  # stays None until a list has succeeded
                if self._version is None:
                    self._version = await self._list()
                problem = await self._watch(self._version)
                if problem:
                    await self._back_off(problem)
            except ExpiredError:
                logger.info("%s: the watch has expired, listing again", self.path)
                self._version = None
            except ApiError as error:
                if error.status in self._ends_on:
                    return error
                # After a failure the next watch continues from the last event: older events would bring back old states.
                if error.status == _GONE:
                    self._version = None
                await self._back_off(str(error))
            except Exception as error:
                # After a defect or an unexpected answer the collection is listed again, so that the mirror goes on.
                logger.exception("%s: the watch failed, listing again", self.path)
                self._version = None
                await self._back_off(str(error))

    async def _list(self) -> str:
        began = self._clock()
        for events in self._events.values():
            for key, event in events.items():
                if self._must_be_taken(event.raw):
                    self._apply_event(key, event)
        self._events.clear()  # the list is newer
        self._ahead.clear()
        self._must_list = False
        seen: set[str] = set()
        version = ""
        async for page in pages(self._server, self.path, page_size=_PAGE_SIZE):
            if page.begins:
                seen, version = set(), page.version
            await self._apply_page(page.items, seen)
        for key in [key for key in self._store.known() if key not in seen]:
            self._store.remove(key)
        self.relists += 1
        self._failures = 0
        self._last_heard = began
        self.synced.set()
        return version

    async def _apply_page(self, objects: Sequence[dict[str, Any]], seen: set[str]) -> None:
        """Apply the objects of one page and add their keys to ``seen``, in slices."""
        slices = Slices(self._clock)
        for raw in objects:
            key = object_key(raw)
            seen.add(key)
            self._upsert(key, raw)
            await slices.give_way()

    async def _watch(self, version: str) -> str:
        """Watch from ``version`` until the server ends the watch, or until it should have ended the watch.

        Returns the problem, empty if there was none.
        """
        seconds = self._watch_seconds or _WATCH_SECONDS
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        longest = seconds + _GRACE_SECONDS
        began, before = self._clock(), self._last_heard
        try:
            async with asyncio.timeout(longest), self._server.stream(self.path, query, longest) as lines:
                await self._receive(lines)
        except TimeoutError:
            # If events came, they are kept and the next watch continues after them. If none came, the connection is dead.
            return "" if self._last_heard != before else f"the watch reported nothing for {longest:g} s"
        if self._last_heard == before and self._clock() - began < _SHORT_SECONDS:
            return "the watch ended as soon as it began"
        self._last_heard = self._clock()
        self._failures = 0
        return ""

    async def _receive(self, lines: AsyncIterator[bytes]) -> None:
        """Queue the events as they come. Let other tasks run after each slice of work."""
        worked = 0.0
        async for line in lines:
            began = self._clock()
            self._queue_event(loads(line))
            worked += self._clock() - began
            if worked > SLICE_SECONDS:
                await asyncio.sleep(0)
                worked = 0.0

    def _queue_event(self, event: dict[str, Any]) -> None:
        """Queue one event in place of the object's older queued event, and continue the watch from its version.

        Raises ``ExpiredError``, and ``ApiError`` for an event that is an error or about another kind of objects.
        """
        kind, raw = event["type"], event["object"]
        if kind == "ERROR":
            if raw.get("code") == _GONE:
                raise ExpiredError
            raise ApiError(int(raw.get("code") or 0), str(raw.get("reason") or ""), str(raw.get("message") or raw))
        if raw.get("kind") != self.path.resource.kind:
            raise WrongAnswerError(f"{self.path}: the watch reports objects of the kind {shown(raw.get('kind'))}")
        self._last_heard = self._clock()
        self._failures = 0
        if kind != "BOOKMARK":
            key = object_key(raw)
            if self._ahead and version_of(raw) >= self._ahead.get(key, 0):
                self._ahead.pop(key, None)
            if key not in self._ahead:
                events = self._events.setdefault(_namespace_of(key), {})
                waiting = events.get(key)
                if waiting and self._must_be_taken(waiting.raw) and (kind == "DELETED" or not self._must_be_taken(raw)):
                    self._apply_event(key, waiting)
                events[key] = _Event(waiting.came if waiting else self._last_heard, kind, raw)
                self._has_events.set()
        self._version = str((raw.get("metadata") or {}).get("resourceVersion") or "") or self._version

    async def _apply_events(self) -> None:
        """Apply queued events for ever, one of each namespace in turn.

        Other tasks run after each slice of work, so that newer events can replace queued ones.
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
                    self._events[namespace] = events  # behind the other namespaces
                self._apply_event(key, event)
                await slices.give_way()
            self._has_events.clear()

    def _drop_queued(self, key: str) -> None:
        """Drop the queued event of an object, if there is one."""
        namespace = _namespace_of(key)
        events = self._events.get(namespace, {})
        events.pop(key, None)
        if not events:
            self._events.pop(namespace, None)

    def _apply_event(self, key: str, event: _Event) -> None:
        try:
            if event.kind == "DELETED":
                self._store.remove(key)
            else:
                self._upsert(key, event.raw)
        except Exception:
            logger.exception("%s: the event of %s can't be applied, listing again", self.path, key)
            self._must_list = True

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
        if self._clock() - self._last_heard > _SILENT_SECONDS:
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
