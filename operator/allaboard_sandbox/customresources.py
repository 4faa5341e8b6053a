"""CustomResourceDefinitions: their validation, their defaults, and the resources that the API serves for them."""

from collections.abc import Iterator, Mapping
from typing import Any

from allaboard_sandbox.errors import Cause, invalid_value, required
from allaboard_sandbox.kinds import Column, Registry, Resource, ScalePaths
from allaboard_sandbox.store import DELETED, Body, Change, Store

TABLE = "customresourcedefinitions.apiextensions.k8s.io"
APPROVAL = "api-approved.kubernetes.io"
ESTABLISHED = {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"}
NAMES_ACCEPTED = {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"}

_ANY: Body = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# The CRD that training-operator installs. Its real schema is far larger; the sandbox only needs to keep the fields.
TFJOB: Body = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "tfjobs.kubeflow.org"},
    "spec": {
        "group": "kubeflow.org",
        "scope": "Namespaced",
        "names": {"kind": "TFJob", "listKind": "TFJobList", "plural": "tfjobs", "singular": "tfjob"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": {**_ANY, "properties": {"spec": _ANY, "status": _ANY}}},
            }
        ],
    },
}


def with_defaults(body: Body) -> Body:
    """Return a CRD with the fields that the API server fills in."""
    spec = body.get("spec") or {}
    names = spec.get("names") or {}
    kind = str(names.get("kind", ""))
    filled = {"singular": kind.lower(), "listKind": f"{kind}List", **names}
    return {**body, "spec": {"conversion": {"strategy": "None"}, **spec, "names": filled}}


def established(body: Body, now: str) -> Body:
    """Return a CRD with a status that reports its kind as served."""
    spec = body["spec"]
    status = {
        "conditions": [{**condition, "lastTransitionTime": now} for condition in (NAMES_ACCEPTED, ESTABLISHED)],
        "acceptedNames": spec["names"],
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }
    return {**body, "status": status}


def problems(body: Body) -> Iterator[Cause]:
    """Yield a cause for each problem of a CRD."""
    spec = body.get("spec") or {}
    group, plural = spec.get("group") or "", (spec.get("names") or {}).get("plural") or ""
    for field in ("group", "scope", "versions"):
        if not spec.get(field):
            yield required(f"spec.{field}")
    name = body["metadata"].get("name")
    if name != f"{plural}.{group}":
        yield invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if (group == "k8s.io" or group.endswith((".k8s.io", ".kubernetes.io"))) and not _annotation(body, APPROVAL):
        yield required(
            f"metadata.annotations[{APPROVAL}]",
            f'protected groups must have approval annotation "{APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111',
        )
    for index, version in enumerate(spec.get("versions") or ()):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        path = f"spec.versions[{index}].schema.openAPIV3Schema"
        if not schema:
            yield required(path, "schemas are required")
        else:
            yield from _list_map_problems(schema, path)


def _list_map_problems(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    items = schema.get("items") or {}
    for key in schema.get("x-kubernetes-list-map-keys") or ():
        if key not in (items.get("required") or ()) and "default" not in ((items.get("properties") or {}).get(key) or {}):
            yield required(
                f"{path}.items.properties[{key}].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            )
    if items:
        yield from _list_map_problems(items, f"{path}.items")
    for field, inner in (schema.get("properties") or {}).items():
        yield from _list_map_problems(inner, f"{path}.properties[{field}]")
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from _list_map_problems(schema["additionalProperties"], f"{path}.additionalProperties")


class Definitions:
    """Keeps the registry of served resources equal to the stored CRDs."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store

    def on_change(self, change: Change) -> None:
        """Update the registry when a CRD is written or deleted."""
        if change.table != TABLE:
            return
        spec = change.record.body["spec"]
        self._registry.discard(spec["group"], spec["names"]["plural"])
        if change.type != DELETED:
            for resource in resources_of(change.record.body):
                self._registry.add(resource)
        if change.previous is not None and change.previous.body["spec"] != spec:
            # A real API server starts a new watch cache for the kind: its watches end, and no watch can start at an older revision.
            self._store.restart(change.record.key[1])


def resources_of(body: Body) -> Iterator[Resource]:
    """Yield a resource for each version that a CRD serves, the storage version first."""
    spec = body["spec"]
    names = spec["names"]
    versions = [version for version in spec["versions"] if version.get("served", True)]
    for version in sorted(versions, key=lambda version: not version.get("storage")):
        subresources = version.get("subresources") or {}
        scale = subresources.get("scale")
        yield Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            singular=names["singular"],
            status="status" in subresources,
            scale=scale and ScalePaths(scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")),
            generation=True,
            fields=tuple(each["jsonPath"].lstrip(".") for each in version.get("selectableFields") or ()),
            unconditional_update=False,
            schema=version["schema"]["openAPIV3Schema"],
            columns=tuple(_column(each) for each in version.get("additionalPrinterColumns") or ()),
            custom=True,
        )


def _column(declared: Mapping[str, Any]) -> Column:
    return Column(
        name=declared["name"],
        type=declared["type"],
        path=declared["jsonPath"],
        description=declared.get("description", ""),
        format=declared.get("format", ""),
        priority=declared.get("priority", 0),
    )


def _annotation(body: Body, key: str) -> Any:
    return (body["metadata"].get("annotations") or {}).get(key)
