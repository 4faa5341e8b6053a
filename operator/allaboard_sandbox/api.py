"""The verbs that change objects: create, update, patch, delete.

HTTP requests, the methods of ``Sandbox`` and the stand-in controllers all call this module, so the same rules hold for all of them.
Every verb is synchronous: within one event loop each write is atomic without locks.
"""

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allaboard_sandbox import customresources, errors, patches, schema
from allaboard_sandbox.admission import SERVER_FIELDS, Admission
from allaboard_sandbox.clock import Clock, stamp, system_clock
from allaboard_sandbox.kinds import Registry, Resource
from allaboard_sandbox.store import Body, Key, Record, Store, Table

NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of the generated end of a name: no vowels and no digits that look like letters (apimachinery/pkg/util/rand)."""

TERMINAL_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The query parameters of a write."""

    dry_run: bool = False
    strict: bool = False
    """True if unknown fields are an error instead of a warning (``fieldValidation=Strict``)."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The body and query parameters of a deletion."""

    dry_run: bool = False
    grace_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    orphan_dependents: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write: the record of the object, and the warnings for the client."""

    record: Record
    created: bool = False
    warnings: tuple[str, ...] = ()


class Api:
    """Carries out the verbs that change the objects of one store."""

    def __init__(self, store: Store, registry: Registry, *, clock: Clock = system_clock) -> None:
        self.store = store
        self.registry = registry
        self.clock = clock
        self._admission = Admission(store)
        # Names need not be unguessable, only unlikely to collide.
        self._random = random.Random()

    def now(self) -> str:
        """Return the current time as metav1.Time is written."""
        return stamp(self.clock())

    def table(self, resource: Resource) -> Table:
        """Return the table that stores the objects of ``resource``."""
        return self.store.table(resource.table)

    def resource(self, word: str) -> Resource:
        """Return the resource called ``word``.

        Raises ``ApiError`` (404) if the API serves no such resource.
        """
        resource = self.registry.named(word)
        if resource is None:
            raise errors.ApiError(404, "NotFound", f'the server doesn\'t have a resource type "{word}"')
        return resource

    def read(self, resource: Resource, namespace: str, name: str) -> Record:
        """Return the record of an object.

        Raises ``ApiError`` (404) if the object doesn't exist.
        """
        record = self.table(resource).get(key_of(resource, namespace, name))
        if record is None:
            raise errors.not_found(resource, name)
        return record

    def create(self, resource: Resource, namespace: str, body: Body, options: WriteOptions = WriteOptions()) -> Written:
        """Create an object.

        Raises ``ApiError`` with the API server's answer if the object is refused.
        """
        body = self._admission.decoded(resource, body)
        if body["metadata"].get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        metadata = {field: value for field, value in body["metadata"].items() if field not in SERVER_FIELDS}
        if resource.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
            self._require_namespace(resource, namespace, metadata.get("name", ""))
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generated_name(resource, namespace, metadata["generateName"])
        body = {**body, "metadata": metadata}
        if resource.to_stored:
            body = resource.to_stored(body)
        body, warnings = self._admission.for_create(resource, body, strict=options.strict)
        key = key_of(resource, namespace, body["metadata"]["name"])
        if self.table(resource).get(key) is not None:
            raise errors.already_exists(resource, key[1])
        body["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": self.now()}
        if resource.generation:
            body["metadata"]["generation"] = 1
        if resource.table == customresources.TABLE:
            body = customresources.established(body, self.now())
        record = Record(key, body, 0) if options.dry_run else self.store.put(resource.table, key, body)
        return Written(record, created=True, warnings=(*warnings, *filter(None, [resource.warning])))

    def update(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Body,
        *,
        subresource: str = "",
        options: WriteOptions = WriteOptions(),
    ) -> Written:
        """Replace an object; create it if it doesn't exist and its resource has ``create_on_update``.

        Raises ``ApiError`` with the API server's answer if the object is refused.
        """
        body = self._admission.decoded(resource, body)
        given = body["metadata"].get("name") or ""
        if given != name:
            raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        old = self.table(resource).get(key_of(resource, namespace, name))
        if old is None:
            if resource.create_on_update and not subresource:
                return self.create(resource, namespace, body, options)
            raise errors.not_found(resource, name)
        if not body["metadata"].get("resourceVersion") and not resource.unconditional_update:
            raise errors.version_required(resource, name)
        uid = body["metadata"].get("uid")
        if uid and uid != old.uid:
            raise errors.storage_conflict(resource, old.key, "UID", uid, old.uid, dry_run=options.dry_run)
        return self._replace(resource, old, body, subresource, options)

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: Any,
        *,
        patch_type: str = patches.MERGE_PATCH,
        subresource: str = "",
        options: WriteOptions = WriteOptions(),
    ) -> Written:
        """Change an object by a patch in one of the formats of ``patches``; a server-side apply also creates objects.

        Raises ``ApiError`` with the API server's answer if the patch or its result is refused.
        """
        if patch_type not in (*patches.FORMATS, patches.APPLY_PATCH):
            raise errors.unknown_media_type()
        accepted = [patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH]
        if not resource.custom:
            accepted.insert(2, patches.STRATEGIC_MERGE_PATCH)
        if patch_type not in accepted:
            raise errors.unsupported_media_type(accepted)
        old = self.table(resource).get(key_of(resource, namespace, name))
        if patch_type == patches.APPLY_PATCH:
            self._check_applied(resource, name, patch)
            if old is None:
                return self.create(resource, namespace, patch, options)
            body = patches.apply_server_side(resource.present(old.body), patch)
        else:
            if old is None:
                raise errors.not_found(resource, name)
            body = patches.FORMATS[patch_type](resource.present(old.body), patch)
        body = self._admission.decoded(resource, body)
        ignores_uid = resource.custom and subresource == "status"
        for field, actual in (("uid", old.uid), ("name", name)):
            given = body["metadata"].get(field)
            if given != actual and not ignores_uid and (given or field == "name"):
                cause = errors.invalid_value(f"metadata.{field}", given, "field is immutable")
                raise errors.invalid(resource, name, [cause])
        return self._replace(resource, old, body, subresource, options)

    def delete(self, resource: Resource, namespace: str, name: str, options: DeleteOptions = DeleteOptions()) -> Record:
        """Delete an object, or mark the object as terminating while a finalizer or its grace period keeps it.

        Returns the last state of a deleted object, and the present state of an object that is kept.
        """
        record = self.read(resource, namespace, name)
        check_preconditions(resource, record, options.uid, options.resource_version)
        if options.dry_run:
            return record
        if options.orphan_dependents:
            self._orphan_dependents(record.uid)
        if resource.table == customresources.TABLE:
            self._remove_instances(record)
        grace = self._grace_seconds(resource, record.body, options.grace_seconds)
        metadata = record.body["metadata"]
        held = bool(metadata.get("finalizers")) or (resource.table == "namespaces" and bool(record.body["spec"].get("finalizers")))
        if "deletionTimestamp" in metadata:
            shortened = grace < metadata.get("deletionGracePeriodSeconds", 0)
            if not shortened and (held or grace):
                return record
        if resource.table == "pods" or held:
            # Even a pod that is deleted at once is marked first, so that watches report it as terminating before it is gone.
            record = self._mark_deleted(resource, record, grace)
        if grace or held:
            return record
        return self.store.remove(resource.table, record.key)

    def _replace(self, resource: Resource, old: Record, new: Body, subresource: str, options: WriteOptions) -> Written:
        """Store ``new`` in place of ``old``, without the changes that a client may not make."""
        name = old.key[1]
        kept = old.body["metadata"]
        if (new["metadata"].get("resourceVersion") or kept["resourceVersion"]) != kept["resourceVersion"]:
            raise errors.modified(resource, name)
        if resource.to_stored:
            new = resource.to_stored(new)
        metadata = {field: value for field, value in new["metadata"].items() if field not in SERVER_FIELDS}
        metadata |= {field: kept[field] for field in (*SERVER_FIELDS, "name", "namespace") if field in kept}
        warnings: list[str] = []
        if subresource == "status":
            status = {"status": new["status"]} if "status" in new else {}
            if resource.table == "pods":
                # A status write must not change owner references, which old kubelets corrupt (registry/core/pod, podStatusStrategy).
                metadata = {field: value for field, value in metadata.items() if field != "ownerReferences"}
                metadata |= {"ownerReferences": kept["ownerReferences"]} if "ownerReferences" in kept else {}
            changed = {**old.body, **status, "metadata": kept if resource.custom else metadata}
            if resource.custom:
                changed, _ = self._admission.for_update(resource, old.body, changed, part=subresource)
        else:
            changed = {**new, "metadata": metadata}
            if resource.status:
                changed.pop("status", None)
                changed |= {"status": old.body["status"]} if "status" in old.body else {}
            changed, warnings = self._admission.for_update(resource, old.body, changed, strict=options.strict)
        changed |= {"kind": old.body["kind"], "apiVersion": old.body["apiVersion"]}
        if changed == old.body:
            return Written(old, warnings=tuple(warnings))
        if resource.generation and _specified(changed) != _specified(old.body):
            changed["metadata"] = {**changed["metadata"], "generation": kept.get("generation", 0) + 1}
        if options.dry_run:
            return Written(Record(old.key, changed, old.revision), warnings=tuple(warnings))
        if "deletionTimestamp" in kept and not metadata.get("finalizers") and not kept.get("deletionGracePeriodSeconds"):
            return Written(self.store.remove(resource.table, old.key, last=changed))
        return Written(self.store.put(resource.table, old.key, changed), warnings=tuple(warnings))

    def _check_applied(self, resource: Resource, name: str, applied: Body) -> None:
        """Check the name and the fields of a server-side apply.

        Undeclared fields are not pruned: they fail the apply, with an empty ``reason``. Raises ``ApiError`` (400 or 500).
        """
        given = (applied.get("metadata") or {}).get("name")
        if not given:
            raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
        if given != name:
            raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        undeclared = schema.pruned(applied, resource.schema or {})[1] if resource.custom else ()
        for path in undeclared:
            metadata = applied.get("metadata") or {}
            place = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            kind = f"{resource.group_version}, Kind={resource.kind}"
            message = f"failed to create typed patch object ({place}; {kind}): .{path}: field not declared in schema"
            raise errors.ApiError(500, "", message)

    def _require_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self.store.table("namespaces").get(("", namespace))
        if found is None:
            raise errors.not_found(self.resource("namespaces"), namespace)
        if "deletionTimestamp" in found.body["metadata"]:
            message = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource, name, message)

    def _generated_name(self, resource: Resource, namespace: str, prefix: str) -> str:
        table = self.table(resource)
        while True:
            name = prefix[:58] + "".join(self._random.choices(NAME_ALPHABET, k=5))
            if table.get(key_of(resource, namespace, name)) is None:
                return name

    def _mark_deleted(self, resource: Resource, record: Record, grace: int) -> Record:
        gone_at = stamp(self.clock() + timedelta(seconds=grace))
        metadata = {**record.body["metadata"], "deletionTimestamp": gone_at, "deletionGracePeriodSeconds": grace}
        body = {**record.body, "metadata": metadata}
        if resource.table == "namespaces":
            body["status"] = {**(body.get("status") or {}), "phase": "Terminating"}
        return self.store.put(resource.table, record.key, body)

    def _grace_seconds(self, resource: Resource, body: Body, asked: int | None) -> int:
        if resource.table != "pods":
            return 0
        if not body["spec"].get("nodeName") or body["status"].get("phase") in TERMINAL_PHASES:
            return 0
        return int(body["spec"].get("terminationGracePeriodSeconds", 30)) if asked is None else asked

    def _orphan_dependents(self, uid: str) -> None:
        for table in self.store.tables():
            for record in list(table):
                owners = record.body["metadata"].get("ownerReferences") or []
                kept = [owner for owner in owners if owner.get("uid") != uid]
                if len(kept) != len(owners):
                    body = {**record.body, "metadata": {**record.body["metadata"], "ownerReferences": kept}}
                    self.store.put(table.name, record.key, body)

    def _remove_instances(self, definition: Record) -> None:
        table = self.store.table(definition.key[1])
        for record in list(table):
            self.store.remove(table.name, record.key)


def key_of(resource: Resource, namespace: str, name: str) -> Key:
    """Return the key of an object in its table: the namespace, empty for cluster-scoped resources, and the name."""
    return (namespace if resource.namespaced else "", name)


def check_preconditions(resource: Resource, record: Record, uid: str | None, resource_version: str | None) -> None:
    """Check that an object has the UID and version that a deletion or eviction requires.

    Raises ``ApiError`` (409) if the object has another UID or version.
    """
    name, current = record.key[1], record.body["metadata"]["resourceVersion"]
    if uid and uid != record.uid:
        raise errors.precondition_failed(
            resource,
            name,
            f"the UID in the precondition ({uid}) does not match the UID in record ({record.uid}). "
            "The object might have been deleted and then recreated",
        )
    if resource_version and resource_version != current:
        raise errors.precondition_failed(
            resource,
            name,
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion in record ({current}). "
            "The object might have been modified",
        )


def _specified(body: Mapping[str, Any]) -> Body:
    """Return the fields of an object whose change increments the generation."""
    return {field: value for field, value in body.items() if field not in ("metadata", "status", "kind", "apiVersion")}
