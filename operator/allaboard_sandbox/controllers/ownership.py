"""Who owns whom: an index of owner references, so that neither collecting nor counting pods ever scans the cluster."""

from collections.abc import Iterator

from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record, Store

Place = tuple[str, Key]
"""Table and key of an object."""


class Ownership:
    """Owner references of all objects, by the owner's UID."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._live: set[str] = set()
        self._dependents: dict[str, set[Place]] = {}

    def on_change(self, change: Change) -> None:
        place = (change.table, change.record.key)
        before = owner_uids(change.previous.body) if change.previous else frozenset()
        after = owner_uids(change.record.body) if change.type != DELETED else frozenset()
        for uid in before - after:
            dependents = self._dependents[uid]
            dependents.discard(place)
            if not dependents:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents.setdefault(uid, set()).add(place)
        if change.type == DELETED:
            self._live.discard(change.record.uid)
        else:
            self._live.add(change.record.uid)

    def is_live(self, uid: str) -> bool:
        return uid in self._live

    def dependents(self, uid: str) -> list[Place]:
        return sorted(self._dependents.get(uid, ()))

    def owned(self, owner: Record, table: str) -> Iterator[Record]:
        """Iterate over the objects of one table that ``owner`` controls."""
        for place, key in self.dependents(owner.uid):
            record = self._store.table(table).get(key) if place == table else None
            if record is not None and (reference := controller_of(record.body)) and reference["uid"] == owner.uid:
                yield record


def owner_uids(body: Body) -> frozenset[str]:
    return frozenset(owner["uid"] for owner in body["metadata"].get("ownerReferences") or ())


def controller_of(body: Body) -> Body | None:
    """Return the reference to the controller of an object."""
    return next((owner for owner in body["metadata"].get("ownerReferences") or () if owner.get("controller")), None)


def controlled_by(body: Body, resource_kind: str) -> Iterator[Key]:
    """Yield the key of the controller of an object, when it is of the given kind."""
    owner = controller_of(body)
    if owner and owner["kind"] == resource_kind:
        yield (body["metadata"]["namespace"], owner["name"])


def reference_to(resource: Resource, owner: Record) -> Body:
    """Return the controller reference to an owner."""
    return {
        "apiVersion": resource.group_version,
        "kind": resource.kind,
        "name": owner.key[1],
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
