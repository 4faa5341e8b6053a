"""WATCH: the changes of one table as a stream of JSON lines, filtered by the selectors of the request.

A watch keeps only a position in the table's log, so a slow client costs nothing. A client that falls behind the log gets an error and must
list again. An object that leaves the selection is reported as DELETED, with its old state and the new revision. For example, a watch for
``spec.nodeName=`` reports a bind as DELETED.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from allaboard_sandbox import errors
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.lists import NOT_OLDER_THAN, Selection, parsed_revision
from allaboard_sandbox.store import ADDED, DELETED, MODIFIED, Body, Change, Log, Record, Store, encode

BATCH = 1000
BOOKMARK_SECONDS = 60.0
LAST_BOOKMARK_SECONDS = 2.0
DEFAULT_TIMEOUT_SECONDS = 3600.0
INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class Presentation(Protocol):
    """The form in which records are sent: as JSON objects or as table rows."""

    def event(self, resource: Resource, record: Record) -> bytes:
        """Return a record as the object of a watch event."""
        ...


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The query parameters of a watch."""

    revision: str = ""
    match: str = ""
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS


def check_options(options: WatchOptions) -> None:
    """Check the options of a watch before its stream starts.

    Raises ``ApiError`` with the API server's answer if the options are invalid.
    """
    if options.initial_events is not None and options.match != NOT_OLDER_THAN:
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    elif options.match and options.initial_events is None:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    else:
        parsed_revision(options.revision)
        return
    text = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {message}'
    raise errors.ApiError(422, "Invalid", text, details={"group": "meta.k8s.io", "kind": "ListOptions"})


async def watch(
    store: Store, resource: Resource, selection: Selection, options: WatchOptions, presentation: Presentation
) -> AsyncIterator[bytes]:
    """Yield the events of a watch in batches of encoded lines.

    The watch ends when it times out, when all watches of its table are ended, or with an error event when its position is forgotten.
    """
    table = store.table(resource.table)
    generation = table.restarts
    matches = _predicate(resource, selection)
    asked = parsed_revision(options.revision)
    from_start = asked == 0 or bool(options.initial_events)
    if from_start:
        position, seen = table.log.end, store.revision
        # Records never change, so the snapshot stays the state of one moment while a slow client reads it.
        records = table.snapshot(selection.namespace, seen, seen) or []
        for start in range(0, len(records), BATCH):
            yield b"".join(_initial(records[start : start + BATCH], resource, matches, presentation))
        if options.initial_events and options.bookmarks:
            yield bookmark(resource, seen, INITIAL_EVENTS_END)
    else:
        found = table.log.position_after(asked)
        if found is None:
            yield expired(asked, table.log)
            return
        position, seen = found, asked
    started = seen
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + options.timeout_seconds
    bookmark_at = _next_bookmark(loop.time(), ends_at)
    while table.restarts == generation:
        changes = table.log.since(position)
        if changes is None:
            yield expired(seen, table.log)
            return
        if changes:
            # Changes are sent in batches, so that a client that reads a long history doesn't block the event loop.
            changes = changes[:BATCH]
            position += len(changes)
            lines = b"".join(_lines(changes, resource, selection.namespace, matches, presentation, newer_than=seen))
            seen = max(seen, changes[-1].revision)
            if lines:
                yield lines
            continue
        now = loop.time()
        if now >= ends_at:
            break
        if now >= bookmark_at:
            bookmark_at = _next_bookmark(now, ends_at)
            if options.bookmarks and store.revision > started:
                yield bookmark(resource, store.revision)
                continue  # objects may have changed while the client was reading
        try:
            async with asyncio.timeout(min(ends_at, bookmark_at) - now):
                await table.changed.wait()
        except TimeoutError:
            continue


def _next_bookmark(now: float, ends_at: float) -> float:
    """Return the time of the next bookmark (apiserver pkg/storage/cacher, nextBookmarkTime).

    Bookmarks are sent every minute and shortly before the end of the watch.
    """
    last = ends_at - LAST_BOOKMARK_SECONDS
    return last if now < last < now + BOOKMARK_SECONDS else now + BOOKMARK_SECONDS


def line(type: str, payload: bytes) -> bytes:
    """Return an event as an encoded line."""
    return b'{"type":"' + type.encode() + b'","object":' + payload + b"}\n"


def bookmark(resource: Resource, revision: int, annotations: dict[str, str] | None = None) -> bytes:
    """Return a BOOKMARK event for a revision, as an encoded line."""
    metadata: Body = {"resourceVersion": str(revision)}
    if annotations:
        metadata["annotations"] = annotations
    body: Body = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}
    if resource.table == "pods":
        # A real server, which encodes typed objects, sends these fields even when they are empty.
        body |= {"spec": {}, "status": {}}
    return line("BOOKMARK", encode(body))


def expired(asked: int, log: Log) -> bytes:
    """Return the ERROR event for a revision that the log has forgotten, as an encoded line."""
    return line("ERROR", encode(errors.expired(f"too old resource version: {asked} ({log.forgotten})").body()))


def _predicate(resource: Resource, selection: Selection) -> Callable[[Body], bool] | None:
    return selection.predicate(resource) if selection.is_filtered else None


def _initial(
    records: Iterable[Record], resource: Resource, matches: Callable[[Body], bool] | None, presentation: Presentation
) -> Iterable[bytes]:
    for record in records:
        if matches is None or matches(record.body):
            yield line(ADDED, presentation.event(resource, record))


def _lines(
    changes: Iterable[Change],
    resource: Resource,
    namespace: str | None,
    matches: Callable[[Body], bool] | None,
    presentation: Presentation,
    *,
    newer_than: int,
) -> Iterable[bytes]:
    for change in changes:
        if (namespace is not None and change.record.key[0] != namespace) or change.revision <= newer_than:
            continue
        type, record = change.type, change.record
        if matches is not None:
            was = change.previous is not None and matches(change.previous.body)
            now = type != DELETED and matches(record.body)
            if not was and not now:
                continue
            if not now and type != DELETED and change.previous is not None:
                old = change.previous.body
                body = {**old, "metadata": {**old["metadata"], "resourceVersion": str(record.revision)}}
                record = Record(record.key, body, record.revision)
            type = DELETED if not now else (MODIFIED if was else ADDED)
        yield line(type, presentation.event(resource, record))
