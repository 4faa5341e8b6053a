"""The discovery and OpenAPI documents, from which clients learn what the API serves.

kubectl needs little of OpenAPI: before an apply it checks whether PATCH accepts ``fieldValidation``, and if so leaves validation to the
server.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from allaboard_sandbox.kinds import Registry, Resource
from allaboard_sandbox.patches import APPLY_PATCH, JSON_PATCH, MERGE_PATCH
from allaboard_sandbox.store import Body

VERSION = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+sandbox",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-08-26T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
# Strategic merge is accepted for built-in kinds but not advertised. The sandbox's schemas have no merge keys, so kubectl must use the
# merge keys that were compiled into it.
PATCH_TYPES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


def document(path: str, registry: Registry, address: str) -> Body | None:
    """Return the discovery or OpenAPI document at ``path``, or None if there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            return dict(VERSION)
        case ["api"]:
            clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
        case ["apis"]:
            groups = [_group(group, versions) for group, versions in registry.groups().items() if group]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", "v1"]:
            return _resource_list(registry, "", "v1")
        case ["apis", group] if group in registry.groups():
            return {"apiVersion": "v1", **_group(group, registry.groups()[group])}
        case ["apis", group, version] if version in registry.groups().get(group, ()):
            return _resource_list(registry, group, version)
        case ["openapi", "v2"]:
            return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
        case ["openapi", "v3"]:
            return _openapi_index(registry)
        case ["openapi", "v3", "api", "v1"]:
            return _openapi(registry, "", "v1")
        case ["openapi", "v3", "apis", group, version] if version in registry.groups().get(group, ()):
            return _openapi(registry, group, version)
    return None


OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def openapi_v2() -> bytes:
    """Return the OpenAPI v2 document, which has no definitions, as gnostic's protobuf.

    kubectl asks for the document only in this form, and can't apply a ``List`` without it.
    """

    def field(number: int, value: bytes) -> bytes:
        return bytes((number << 3 | 2, len(value))) + value  # every value is shorter than 128 bytes, so its length takes one byte

    info = field(1, _INFO["title"].encode()) + field(2, _INFO["version"].encode())
    return field(1, b"2.0") + field(2, info) + field(8, b"")


_INFO = {"title": "Kubernetes", "version": VERSION["gitVersion"]}


def _group(group: str, versions: list[str]) -> Body:
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "name": group, "versions": served, "preferredVersion": served[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Body:
    resources = [entry for resource in registry.served_by(group, version) for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _entries(resource: Resource) -> Iterator[Body]:
    entry: Body = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS if resource.review_status is None else ["create"],
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    below: Body = {"singularName": "", "namespaced": resource.namespaced}
    if resource.status:
        yield {"name": f"{resource.plural}/status", **below, "kind": resource.kind, "verbs": ["get", "patch", "update"]}
    if resource.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]}
        yield {"name": f"{resource.plural}/scale", **below, **scale}
    if resource.table == "pods":
        yield {"name": "pods/binding", **below, "kind": "Binding", "verbs": ["create"]}
        yield {"name": "pods/eviction", **below, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}


def _openapi_index(registry: Registry) -> Body:
    paths = {}
    for group, versions in registry.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            # The hash lets kubectl cache a document until it changes.
            digest = hashlib.sha256(json.dumps(_openapi(registry, group, version), default=str).encode()).hexdigest()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest[:32].upper()}"}
    return {"paths": paths}


def _openapi(registry: Registry, group: str, version: str) -> Body:
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in registry.served_by(group, version):
        identity = {"group": group, "version": version, "kind": resource.kind}
        place = f"{prefix}/namespaces/{{namespace}}" if resource.namespaced else prefix
        content = {media_type: {"schema": {"type": "object"}} for media_type in PATCH_TYPES}
        paths[f"{place}/{resource.plural}/{{name}}"] = {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": [
                    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                    for name in ("dryRun", "fieldManager", "fieldValidation")
                ],
                "requestBody": {"content": content},
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": identity,
            }
        }
        schema = resource.schema or {"type": "object"}
        schemas[f"{'.'.join(reversed((group or 'core').split('.')))}.{version}.{resource.kind}"] = {
            **schema,
            "x-kubernetes-group-version-kind": [identity],
        }
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}
