"""A reflector's store that reports an object which was deleted and created again under its name as two objects."""

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar


class HasUid(Protocol):
    """The record of an object with a UID."""

    @property
    def uid(self) -> str:
        """The UID of the object."""


Record = TypeVar("Record", bound=HasUid)


class UidStore(Generic[Record]):
    """The records of one kind of objects. It calls ``observe(old, new)`` after each change of a record; None stands for no object."""

    def __init__(self, observe: Callable[[Record | None, Record | None], None]) -> None:
        self._observe = observe
        self._records: dict[str, Record] = {}

    def upsert(self, key: str, record: Record) -> None:
        """Store the record of the object ``key`` (``namespace/name``), new or changed."""
        old = self._records.get(key)
        if old == record:
            return
        self._records[key] = record
        if old is not None and old.uid != record.uid:
            self._observe(old, None)
            old = None
        self._observe(old, record)

    def remove(self, key: str) -> None:
        """Remove the object ``key``, if it is stored."""
        old = self._records.pop(key, None)
        if old is not None:
            self._observe(old, None)

    def known(self) -> Collection[str]:
        """Return ``namespace/name`` of all stored objects."""
        return self._records.keys()
