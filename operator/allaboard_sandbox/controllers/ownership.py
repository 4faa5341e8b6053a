"""An index of owner references, so that neither garbage collection nor counting pods scans the whole cluster."""

from collections.abc import Collection, Iterator

from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record, Store

ObjectKey = tuple[str, Key]
"""Table and key of an object."""


class Ownership:
    """Keeps the owner references of all objects, indexed by the owner's UID."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: set[str] = set()
        self._dependents: dict[str, set[ObjectKey]] = {}

    def on_change(self, change: Change) -> None:
        """Update the index with a change of the store."""
        object_key = (change.table, change.record.key)
        before = owner_uids(change.previous.body) if change.previous else frozenset()
        after = owner_uids(change.record.body) if change.type != DELETED else frozenset()
        for uid in before - after:
            dependents = self._dependents[uid]
            dependents.discard(object_key)
            if not dependents:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(object_key)
        if change.type == DELETED:
            self._live.discard(change.record.uid)
        else:
            self._live.add(change.record.uid)

    def is_live(self, uid: str) -> bool:
        """Return whether an object with this UID exists."""
        return uid in self._live

    def dependents(self, uid: str) -> list[ObjectKey]:
        """Return the objects that name this UID as an owner, sorted."""
        return sorted(self._dependents.get(uid, ()))

    def owned(self, owner: Record, table: str) -> Iterator[Record]:
        """Yield the objects of one table that ``owner`` controls."""
        for found_in, key in self.dependents(owner.uid):
            record = self._store.table(table).get(key) if found_in == table else None
            if record is not None and (reference := controller_of(record.body)) and reference["uid"] == owner.uid:
                yield record


def owner_uids(body: Body) -> frozenset[str]:
    """Return the UIDs of an object's owners."""
    return frozenset(owner["uid"] for owner in body["metadata"].get("ownerReferences") or ())


def controller_of(body: Body) -> Body | None:
    """Return an object's reference to its controller, or None."""
    return next((owner for owner in body["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def controlled_by(body: Body, resource_kind: str) -> Iterator[Key]:
    """Yield the key of an object's controller if the controller is of the given kind."""
    owner = controller_of(body)
    if owner and owner["kind"] == resource_kind:
        yield (body["metadata"]["namespace"], owner["name"])


def keys_of(change: Change, table: str, resource_kind: str, dependents: Collection[str] = ("pods",)) -> Iterator[Key]:
    """Yield the key of a changed object of ``table``, or that of its controller if the changed object is in one of ``dependents``."""
    if change.table == table:
        yield change.record.key
    elif change.table in dependents:
        yield from controlled_by(change.record.body, resource_kind)


def reference_to(resource: Resource, owner: Record) -> Body:
    """Return a controller reference to ``owner``."""
    return {
        "apiVersion": resource.group_version,
        "kind": resource.kind,
        "name": owner.key[1],
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
