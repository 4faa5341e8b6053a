"""The store: all objects, their revisions, and the log of changes that feeds the watches.

Everything else depends on three properties of the store. A stored object is never changed, only replaced, so records can be shared freely.
One counter numbers all writes. Each revision of an object is encoded at most once, however many lists and watches send it, which lets one
Python process serve 100,000 pods.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

SNAPSHOTS_KEPT = 8


class Record:
    """One revision of one object. All readers share ``body``, so it must not be changed."""

    __slots__ = ("_encoded", "body", "key", "revision")

    def __init__(self, key: Key, body: Body, revision: int) -> None:
        self.key = key
        self.body = body
        self.revision = revision
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The object as JSON without ``kind`` and ``apiVersion``, which depend on the group version that a client requests."""
        if self._encoded is None:
            self._encoded = encode({field: value for field, value in self.body.items() if field not in ("kind", "apiVersion")})
        return self._encoded

    @property
    def uid(self) -> str:
        """UID of the object; empty if it has none."""
        return str(self.body["metadata"].get("uid", ""))


@dataclass(frozen=True, slots=True)
class Change:
    """One write. ``record`` is the new state or, for a deletion, the last state with the revision of the deletion."""

    type: str
    table: str
    record: Record
    previous: Record | None

    @property
    def revision(self) -> int:
        """Revision of the write."""
        return self.record.revision


class Signal:
    """A wake-up for all tasks that wait for the next change, in the order in which they began to wait."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake all tasks that are waiting."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Wait for the next ``notify``."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        try:
            await future
        finally:
            self._waiting.pop(future, None)


class Log:
    """Keeps the latest changes of one table, the oldest first.

    A reader keeps a position in the log. A reader whose position is forgotten must list again.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changes: list[Change] = []
        self._first = 0
        self.forgotten = 0
        """Revision of the newest forgotten change; 0 while no change is forgotten."""

    @property
    def end(self) -> int:
        """Position after the newest change."""
        return self._first + len(self._changes)

    def append(self, change: Change) -> None:
        """Add a change, and forget the oldest changes beyond the capacity."""
        self._changes.append(change)
        # The log is trimmed only at twice its capacity, which keeps appending cheap.
        if len(self._changes) >= 2 * self._capacity:
            self._forget(len(self._changes) - self._capacity)

    def since(self, position: int) -> Sequence[Change] | None:
        """Return the changes from ``position`` on, or None if some of them are forgotten."""
        if position < self._first:
            return None
        return self._changes[position - self._first :]

    def position_after(self, revision: int) -> int | None:
        """Return the position of the first change newer than ``revision``, or None if that change is forgotten."""
        if revision < self.forgotten:
            return None
        low, high = 0, len(self._changes)
        while low < high:
            middle = (low + high) // 2
            if self._changes[middle].revision > revision:
                high = middle
            else:
                low = middle + 1
        return self._first + low

    def forget_all(self, revision: int) -> None:
        """Forget all changes. ``revision`` is the store's present revision: the changes up to it count as forgotten."""
        self._forget(len(self._changes))
        self.forgotten = revision

    def _forget(self, count: int) -> None:
        if count:
            self.forgotten = self._changes[count - 1].revision
            del self._changes[:count]
            self._first += count


class Table:
    """All objects of one resource, by namespace and name."""

    def __init__(self, name: str, history: int) -> None:
        self.name = name
        self.log = Log(history)
        self.changed = Signal()
        self.restarts = 0
        """Number of times that all watches of this table were ended."""
        self._namespaces: dict[str, dict[str, Record]] = {}
        self._snapshots: dict[tuple[str | None, int], list[Record]] = {}

    def get(self, key: Key) -> Record | None:
        """Return the record at ``key``, or None if there is none."""
        return self._namespaces.get(key[0], {}).get(key[1])

    def __iter__(self) -> Iterator[Record]:
        for names in self._namespaces.values():
            yield from names.values()

    def __len__(self) -> int:
        return sum(len(names) for names in self._namespaces.values())

    def in_namespace(self, namespace: str | None) -> Iterator[Record]:
        """Iterate over the records of one namespace, or of all namespaces, in no particular order."""
        return iter(self) if namespace is None else iter(self._namespaces.get(namespace, {}).values())

    def snapshot(self, namespace: str | None, revision: int, current: int) -> list[Record] | None:
        """Return the records as they were at ``revision``, in key order; None if the revision is forgotten."""
        # The table is the same at all revisions since its last change, so these revisions share one snapshot.
        last = self.log.since(self.log.end - 1)
        newest = last[0].revision if last else self.log.forgotten
        version = min(revision, newest) if revision <= current else newest
        if revision < self.log.forgotten:
            return None
        wanted = (namespace, version)
        if wanted not in self._snapshots:
            if len(self._snapshots) >= SNAPSHOTS_KEPT:
                self._snapshots.pop(next(iter(self._snapshots)))
            self._snapshots[wanted] = sorted(self._at(namespace, version), key=lambda record: record.key)
        return self._snapshots[wanted]

    def forget(self, revision: int) -> None:
        """Forget the history: clients that ask for an older revision must list again."""
        self.log.forget_all(revision)
        self._snapshots.clear()

    def apply(self, change: Change) -> None:
        """Store the record of a change or remove it, log the change, and wake the watches."""
        namespace, name = change.record.key
        if change.type == DELETED:
            names = self._namespaces[namespace]
            del names[name]
            if not names:
                del self._namespaces[namespace]
        else:
            self._namespaces.setdefault(namespace, {})[name] = change.record
        self.log.append(change)
        self.changed.notify()

    def _at(self, namespace: str | None, revision: int) -> list[Record]:
        position = self.log.position_after(revision)
        later = self.log.since(position) if position is not None else ()
        if not later:
            return list(self.in_namespace(namespace))
        state = {record.key: record for record in self.in_namespace(namespace)}
        for change in reversed(later):
            if namespace is not None and change.record.key[0] != namespace:
                continue
            if change.previous is None:
                state.pop(change.record.key, None)
            else:
                state[change.record.key] = change.previous
        return list(state.values())


class Store:
    """Holds all tables, and numbers the writes to them.

    Subscribers are called at once with each change, and must not write to the store during the call.
    """

    def __init__(self, history: int) -> None:
        self.revision = 1
        self.changed = Signal()
        self._history = history
        self._tables: dict[str, Table] = {}
        self._subscribers: list[Callable[[Change], None]] = []

    def table(self, name: str) -> Table:
        """Return the table called ``name``, which is created if it doesn't exist."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self._history)
        return table

    def tables(self) -> list[Table]:
        """Return all tables."""
        return list(self._tables.values())

    def subscribe(self, subscriber: Callable[[Change], None]) -> None:
        """Call ``subscriber`` with each change from now on."""
        self._subscribers.append(subscriber)

    def put(self, table: str, key: Key, body: Body) -> Record:
        """Store ``body`` as the next revision of the object at ``key``."""
        record = self._stamped(key, body)
        previous = self.table(table).get(key)
        self._commit(Change(ADDED if previous is None else MODIFIED, table, record, previous))
        return record

    def remove(self, table: str, key: Key, last: Body | None = None) -> Record:
        """Remove the object at ``key``, and return its last state with the revision of the removal.

        ``last`` is the last state if it differs from the stored state. Raises ``KeyError`` if there is no object.
        """
        previous = self.table(table).get(key)
        if previous is None:
            raise KeyError(key)
        record = self._stamped(key, last or previous.body)
        self._commit(Change(DELETED, table, record, previous))
        return record

    def compact(self) -> None:
        """Forget the history of all tables."""
        for table in self._tables.values():
            table.forget(self.revision)

    def restart(self, table: str) -> None:
        """Forget the history of one table, and end its watches."""
        found = self.table(table)
        found.forget(self.revision)
        found.restarts += 1
        found.changed.notify()

    def _stamped(self, key: Key, body: Body) -> Record:
        self.revision += 1
        return Record(key, {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.revision)}}, self.revision)

    def _commit(self, change: Change) -> None:
        self.table(change.table).apply(change)
        for subscriber in self._subscribers:
            subscriber(change)
        self.changed.notify()


def encode(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
