"""Parse an HTTP request as the API means it: its verb, resource, object and options."""

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
_MOST_DIGITS = 100  # more than any valid number has, and fewer than Python refuses to parse
CONTAINER_SUBRESOURCES = {
    "log": "has no logs",
    "exec": "can't run a command",
    "attach": "has nothing to attach to",
    "portforward": "listens on no port",
}
"""Subresources that a kubelet would answer, and why the sandbox can't: no containers really run."""


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a resource path, whether the resource is served or not."""

    group: str
    version: str
    plural: str
    namespace: str | None
    name: str
    subresource: str

    def verb(self, method: str, query: Query) -> str:
        """Return the verb as RBAC, audit logs and fault injection name it."""
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
    """The served resource, or an object of it, that a path names."""

    resource: Resource
    namespace: str | None
    name: str
    subresource: str


@functools.lru_cache(maxsize=4096)  # clients request the same paths again and again
def place_of(path: str) -> Place | None:
    """Return the parts of a decoded path, or None if it isn't the path of a resource.

    The rules are those of a real API server (apiserver endpoints/request, NewRequestInfo). Encoded slashes also separate, and slashes at
    the end are ignored. Dots are not resolved: they are taken as names, which no object can have.
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
    """Check that an object can have the name in a path (apimachinery api/validation/path, IsValidPathSegmentName).

    Raises ``ApiError`` (400) otherwise.
    """
    if place.name in (".", ".."):
        raise errors.bad_request(f"Name parameter invalid: \"{place.name}\": may not be '{place.name}'")
    if "%" in place.name:
        raise errors.bad_request(f"Name parameter invalid: \"{place.name}\": may not contain '%'")
    if place.name and place.namespace == "":
        raise errors.bad_request("Namespace parameter required.")


def target_of(place: Place, registry: Registry) -> Target | None:
    """Return the served resource or object that a path names, or None if it isn't served."""
    resource = registry.get(place.group, place.version, place.plural)
    if resource is None or (resource.namespaced and (place.name or place.subresource) and place.namespace is None):
        return None
    if place.subresource and not has_subresource(resource, place.subresource):
        return None
    # An empty or missing namespace means all namespaces.
    return Target(resource, (place.namespace or None) if resource.namespaced else None, place.name, place.subresource)


def is_served(place: Place, registry: Registry) -> bool:
    """Return whether the API serves the group version of a path; if so, an unknown resource is answered in JSON."""
    return place.version in registry.groups().get(place.group, ())


def asks_for_dry_run(query: Query, body: Any) -> bool:
    """Return whether a request asks for a dry run, in its query or in the body of a deletion or eviction."""
    fields = body if isinstance(body, dict) else {}
    return bool(query.get("dryRun") or fields.get("dryRun") or (fields.get("deleteOptions") or {}).get("dryRun"))


def name_in(place: Place, body: Any) -> str:
    """Return the name of a request's object, which may be in the body only; empty if there is none."""
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return place.name or (metadata or {}).get("name") or ""


def has_subresource(resource: Resource, subresource: str) -> bool:
    """Return whether a resource has a subresource."""
    match subresource:
        case "status":
            return resource.status
        case "scale":
            return resource.scale is not None
        case "binding" | "eviction":
            return resource.table == "pods"
        case _ if subresource in CONTAINER_SUBRESOURCES:
            return resource.table == "pods"
        case "finalize":
            return resource.table == "namespaces"
        case _:
            return False


def selection_of(target: Target, query: Query) -> Selection:
    """Return the namespace and selectors of a request."""
    fields = [query["fieldSelector"]] if query.get("fieldSelector") else []
    if target.name:
        # GET on one object with ?watch=true watches just that object.
        fields.append(f"metadata.name={target.name}")
    return Selection(target.namespace, query.get("labelSelector", ""), ",".join(fields))


def paging_of(query: Query) -> Paging:
    """Return the paging parameters of a list."""
    return Paging(
        _number(query.get("limit")), query.get("continue", ""), query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    )


def watch_options_of(query: Query) -> WatchOptions:
    """Return the options of a watch."""
    initial = query.get("sendInitialEvents")
    return WatchOptions(
        revision=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        bookmarks=query.get("allowWatchBookmarks") in TRUE,
        initial_events=None if initial is None else initial in TRUE,
        timeout_seconds=_number(query.get("timeoutSeconds")) or DEFAULT_TIMEOUT_SECONDS,
    )


def write_options_of(query: Query) -> WriteOptions:
    """Return the options of a write."""
    return WriteOptions(dry_run=_is_dry_run(query), strict=query.get("fieldValidation") == "Strict")


def delete_options_of(query: Query, body: Any) -> DeleteOptions:
    """Return the options of a deletion, from its query and its body."""
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
    """Return a request body as plain values.

    Raises ``ApiError`` with the API server's answer if the body can't be decoded.
    """
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
    """Check that a body, or a part of a body, is an object.

    Raises ``ApiError`` (400) otherwise.
    """
    if not isinstance(body, Mapping):
        raise errors.bad_request("the object provided is unrecognized (must be of type Object)")


def _number(text: str | None) -> int:
    """Return a number as Go parses it (strconv.ParseInt); 0 if it is absent.

    Raises ``ApiError`` (400) if the text isn't a number or doesn't fit into 64 bits.
    """
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
