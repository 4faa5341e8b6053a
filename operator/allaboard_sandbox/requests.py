"""Reads an HTTP request as the API means it: which verb, on which resource, which object, with which options."""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from allaboard_sandbox import errors, protobuf
from allaboard_sandbox.api import DeleteOptions, WriteOptions
from allaboard_sandbox.kinds import Registry, Resource
from allaboard_sandbox.lists import Paging, Selection
from allaboard_sandbox.watch import DEFAULT_TIMEOUT_SECONDS, WatchOptions

Query = Mapping[str, str]

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
TRUE = ("true", "1", "True", "t")
_MOST_DIGITS = 100  # more than any number has, and fewer than Python refuses to read
OF_CONTAINERS = {
    "log": "has no logs",
    "exec": "can't run a command",
    "attach": "has nothing to attach to",
    "portforward": "listens on no port",
}
"""What a kubelet answers, of a pod that is only made believe to run."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names, whether it is served or not."""

    group: str
    version: str
    plural: str
    namespace: str | None
    name: str
    subresource: str

    def verb(self, method: str, query: Query) -> str:
        """Return the verb as RBAC, audit logs and fault injection call it."""
        if self.subresource in ("binding", "eviction") and method == "POST":
            return {"binding": "bind", "eviction": "evict"}[self.subresource]
        if method in ("GET", "HEAD"):
            if query.get("watch") in TRUE:
                return "watch"
            return "get" if self.name else "list"
        if method == "DELETE":
            return "delete" if self.name else "deletecollection"
        return VERBS.get(method, method.lower())


@dataclass(frozen=True, slots=True)
class Target:
    """What a path points at: a resource that is served, or an object of it."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


@functools.lru_cache(maxsize=4096)  # the same are asked for again and again
def place_of(path: str) -> Place | None:
    """Return what a decoded path names, or None when it isn't the path of a resource.

    As a real server does (apiserver endpoints/request, NewRequestInfo): slashes that were encoded separate too, those at the end don't
    count, and nothing is resolved, so that dots are the names of what can't be.
    """
    root, *parts = path.rstrip("/").split("/")
    if root:
        return None
    namespace: str | None = None
    match parts:
        case ["api", "v1", *rest]:
            group, version = "", "v1"
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    match rest:
        case ["namespaces", str(within), plural, *rest] if plural not in ("status", "finalize"):
            namespace = within
        case [plural, *rest]:
            pass
        case _:
            return None
    if plural == "bindings" and not group and namespace:
        # The legacy way to bind: the pod is named in the body only.
        plural, rest = "pods", ["", "binding"]
    name, subresource, *more = (*rest, "", "")[: max(2, len(rest))]
    return Place(group, version, plural, namespace, name, "/".join((subresource, *more)))


def check_names(place: Place) -> None:
    """Raise what is answered to a name that no object can have (apimachinery api/validation/path, IsValidPathSegmentName)."""
    if place.name in (".", ".."):
        raise errors.bad_request(f"Name parameter invalid: \"{place.name}\": may not be '{place.name}'")
    if "%" in place.name:
        raise errors.bad_request(f"Name parameter invalid: \"{place.name}\": may not contain '%'")
    if place.name and place.namespace == "":
        raise errors.bad_request("Namespace parameter required.")


def target_of(place: Place, registry: Registry) -> Target | None:
    """Return what a path points at, or None when nothing is served there."""
    resource = registry.get(place.group, place.version, place.plural)
    if resource is None or (resource.namespaced and (place.name or place.subresource) and place.namespace is None):
        return None
    if place.subresource and not has_subresource(resource, place.subresource):
        return None
    # No namespace in its place means all of them.
    return Target(resource, (place.namespace or None) if resource.namespaced else None, place.name, place.subresource)


def is_served(place: Place, registry: Registry) -> bool:
    """Whether the version that a path names a resource of is served: what isn't there is then answered in JSON."""
    return place.version in registry.groups().get(place.group, ())


def is_rehearsal(query: Query, body: Any) -> bool:
    """Whether a request asks for a rehearsal, in its query or in the body of a deletion or eviction."""
    fields = body if isinstance(body, dict) else {}
    return bool(query.get("dryRun") or fields.get("dryRun") or (fields.get("deleteOptions") or {}).get("dryRun"))


def name_in(place: Place, body: Any) -> str:
    """The name of the object that a request is about; it may stand in the body only."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return place.name or (metadata or {}).get("name") or ""


def has_subresource(resource: Resource, subresource: str) -> bool:
    match subresource:
        case "status":
            return resource.status
        case "scale":
            return resource.scale is not None
        case "binding" | "eviction":
            return resource.table == "pods"
        case _ if subresource in OF_CONTAINERS:
            return resource.table == "pods"
        case "finalize":
            return resource.table == "namespaces"
        case _:
            return False


def selection_of(target: Target, query: Query) -> Selection:
    fields = [query["fieldSelector"]] if query.get("fieldSelector") else []
    if target.name:
        # GET on one object with ?watch=true watches just that object.
        fields.append(f"metadata.name={target.name}")
    return Selection(target.namespace, query.get("labelSelector", ""), ",".join(fields))


def paging_of(query: Query) -> Paging:
    return Paging(
        _number(query.get("limit")), query.get("continue", ""), query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    )


def watch_options_of(query: Query) -> WatchOptions:
    initial = query.get("sendInitialEvents")
    return WatchOptions(
        revision=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        bookmarks=query.get("allowWatchBookmarks") in TRUE,
        initial_events=None if initial is None else initial in TRUE,
        timeout_seconds=_number(query.get("timeoutSeconds")) or DEFAULT_TIMEOUT_SECONDS,
    )


def write_options_of(query: Query) -> WriteOptions:
    return WriteOptions(dry_run=_is_dry_run(query), strict=query.get("fieldValidation") == "Strict")


def delete_options_of(query: Query, body: Any) -> DeleteOptions:
    check_object(body)
    check_object(body.get("preconditions") or {})
    grace = query.get("gracePeriodSeconds") or body.get("gracePeriodSeconds")
    propagation = query.get("propagationPolicy") or body.get("propagationPolicy")
    preconditions = body.get("preconditions") or {}
    return DeleteOptions(
        dry_run=_is_dry_run(query) or "All" in (body.get("dryRun") or ()),
        grace_seconds=None if grace is None else _number(str(grace)),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        orphan_dependents=propagation == "Orphan" or query.get("orphanDependents") in TRUE or body.get("orphanDependents") is True,
    )


def decode(content_type: str, payload: bytes) -> Any:
    """Return a request body as plain values; raise what the API server answers to one it can't read."""
    media_type = content_type.partition(";")[0].strip()
    if not payload.strip():
        return {}
    if "protobuf" in media_type and media_type != protobuf.MEDIA_TYPE:
        raise errors.unsupported_media_type(["application/json", "application/yaml", protobuf.MEDIA_TYPE])
    try:
        if media_type == protobuf.MEDIA_TYPE:
            return protobuf.decode(payload)
        return yaml.safe_load(payload) if media_type.endswith("yaml") else json.loads(payload)
    except protobuf.UnknownKindError as error:
        raise errors.kind_not_in_protobuf(error.group_version, error.kind) from None
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(f"the object provided is unrecognized (must be of type Object): {error}") from error


def check_object(body: Any) -> None:
    """Raise what is answered to a body, or a part of one, that is a text, a list or a number instead."""
    if not isinstance(body, Mapping):
        raise errors.bad_request("the object provided is unrecognized (must be of type Object)")


def _number(text: str | None) -> int:
    """Return a number as Go reads it (strconv.ParseInt); none is 0."""
    if not text:
        return 0
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise errors.bad_request(f"strconv.ParseInt: parsing {errors.quoted(text)}: invalid syntax")
    if len(text) > _MOST_DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
        raise errors.bad_request(f"strconv.ParseInt: parsing {errors.quoted(text)}: value out of range")
    return int(text)


def _is_dry_run(query: Query) -> bool:
    value = query.get("dryRun")
    if value not in (None, "", "All"):
        message = f'CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: "{value}": supported values: "All"'
        raise errors.ApiError(422, "Invalid", message)
    return value == "All"
