"""Garbage collection: delete dependents of deleted owners, contents of deleted namespaces, and pods of deleted nodes."""

from collections.abc import Iterator

from allaboard_sandbox.api import Api, DeleteOptions
from allaboard_sandbox.controllers.ownership import ObjectKey, Ownership, owner_uids
from allaboard_sandbox.store import ADDED, DELETED, Change, Key


class GarbageCollector:
    """The controller that deletes objects whose owners are all gone.

    Foreground deletion is treated like background deletion.
    """

    def __init__(self, api: Api, ownership: Ownership) -> None:
        self._api = api
        self._ownership = ownership

    def keys(self, change: Change) -> Iterator[ObjectKey]:
        """Yield the dependents of a deleted object, or a new object that names a missing owner."""
        if change.type == DELETED:
            yield from self._ownership.dependents(change.record.uid)
        elif change.type == ADDED and any(not self._ownership.is_live(uid) for uid in owner_uids(change.record.body)):
            yield (change.table, change.record.key)

    def reconcile(self, object_key: ObjectKey) -> None:
        """Remove an object's references to missing owners; delete the object if no owner is left."""
        table, key = object_key
        record, resource = self._api.store.table(table).get(key), self._api.registry.of_table(table)
        if record is None or resource is None:
            return
        owners = record.body["metadata"].get("ownerReferences") or []
        live = [owner for owner in owners if self._ownership.is_live(owner["uid"])]
        if len(live) == len(owners):
            return
        if not live:
            self._api.delete(resource, *key)
        else:
            self._api.store.put(table, key, {**record.body, "metadata": {**record.body["metadata"], "ownerReferences": live}})


class NamespaceCollector:
    """The controller that deletes the objects of a terminating namespace, and then the namespace."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterator[str]:
        """Yield a terminating namespace when the namespace changes or an object in it is deleted."""
        if change.table == "namespaces":
            if change.type != DELETED and "deletionTimestamp" in change.record.body["metadata"]:
                yield change.record.key[1]
        elif change.type == DELETED and (namespace := change.record.key[0]) and self._is_ending(namespace):
            yield namespace

    def reconcile(self, name: str) -> None:
        """Delete the objects of a terminating namespace; remove the namespace when no object is left."""
        if not self._is_ending(name):
            return
        left = False
        for table in self._api.store.tables():
            resource = self._api.registry.of_table(table.name)
            for record in list(table.in_namespace(name)):
                if resource is None:
                    self._api.store.remove(table.name, record.key)
                    continue
                if "deletionTimestamp" not in record.body["metadata"]:
                    self._api.delete(resource, *record.key)
                left = left or table.get(record.key) is not None
        if not left:
            self._api.store.remove("namespaces", ("", name))

    def _is_ending(self, name: str) -> bool:
        record = self._api.store.table("namespaces").get(("", name))
        return record is not None and "deletionTimestamp" in record.body["metadata"]


class PodCollector:
    """The controller that deletes the pods of deleted nodes, and terminating pods whose node doesn't exist.

    A real cluster takes the better part of a minute for this. A pod that is bound to a node that never existed stays, because some tests
    need such a pod.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def keys(self, change: Change) -> Iterator[Key]:
        """Yield the pods of a deleted node, or a terminating pod whose node doesn't exist."""
        if change.table == "nodes" and change.type == DELETED:
            name = change.record.key[1]
            for record in self._api.store.table("pods"):
                if record.body["spec"].get("nodeName") == name:
                    yield record.key
        elif change.table == "pods" and change.type != DELETED:
            pod = change.record.body
            if "deletionTimestamp" in pod["metadata"] and self._node_is_gone(pod["spec"].get("nodeName")):
                yield change.record.key

    def reconcile(self, key: Key) -> None:
        """Delete a pod whose node doesn't exist, without a grace period."""
        record = self._api.store.table("pods").get(key)
        if record is not None and self._node_is_gone(record.body["spec"].get("nodeName")):
            self._api.delete(self._api.resource("pods"), *key, DeleteOptions(grace_seconds=0))

    def _node_is_gone(self, name: str | None) -> bool:
        return bool(name) and self._api.store.table("nodes").get(("", str(name))) is None
