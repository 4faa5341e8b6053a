"""The store of a reflector as a dictionary that reports changes."""

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

Record = TypeVar("Record")


class ClaimError(Exception):
    """A pod can't be placed because of a claim for a volume or for devices; the message names the claim and the reason."""


class Records(Generic[Record]):
    """The records of objects by key. ``on_change(key, old, new)`` is called after each change; None stands for absence."""

    def __init__(self, on_change: Callable[[str, Record | None, Record | None], None]) -> None:
        self._records: dict[str, Record] = {}
        self._on_change = on_change

    def get(self, key: str) -> Record | None:
        """Return a record; None if there is none."""
        return self._records.get(key)

    def all(self) -> Collection[Record]:
        """Return all records."""
        return self._records.values()

    def upsert(self, key: str, record: Record) -> None:
        """Add or replace a record."""
        old = self._records.get(key)
        self._records[key] = record
        if old != record:
            self._on_change(key, old, record)

    def remove(self, key: str) -> None:
        """Remove a record, if there is one."""
        old = self._records.pop(key, None)
        if old is not None:
            self._on_change(key, old, None)

    def known(self) -> Collection[str]:
        """Return the keys of all records."""
        return self._records.keys()


class HeardRecords(Records[Record]):
    """Records whose changes a listener hears of. ``changed`` is called after each change, before the listener."""

    def __init__(self) -> None:
        super().__init__(self._notify)
        self.changed: Callable[[], None] = lambda: None
        self._listener: Callable[[], None] = lambda: None

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change()`` after each change."""
        self._listener = on_change

    def _notify(self, key: str, old: Record | None, new: Record | None) -> None:
        self.changed()
        self._listener()
