"""The scale subresource: the replica count of any scalable kind, in one form (autoscaling/v1 Scale)."""

from typing import Any

from allaboard_sandbox import jsonpath, patches
from allaboard_sandbox.api import Api, WriteOptions
from allaboard_sandbox.kinds import Resource, ScalePaths
from allaboard_sandbox.store import Body, Record


def scale_of(resource: Resource, record: Record) -> Body:
    """Return the Scale of an object."""
    paths = resource.scale or ScalePaths()
    metadata = record.body["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Body = {"replicas": jsonpath.first(paths.status, record.body) or 0}
    labels = ((record.body.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if labels:
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "spec": {"replicas": jsonpath.first(paths.spec, record.body) or 0},
        "status": status,
    }


def replace(api: Api, resource: Resource, namespace: str, name: str, scale: Body, options: WriteOptions) -> Body:
    """Set an object's replicas to those of a Scale, and return the new Scale.

    The given Scale may carry a resourceVersion as a precondition.
    """
    paths = resource.scale or ScalePaths()
    change: Any = (scale.get("spec") or {}).get("replicas", 0)
    for step in reversed(paths.spec.strip(".").split(".")):
        change = {step: change}
    if revision := (scale.get("metadata") or {}).get("resourceVersion"):
        change["metadata"] = {"resourceVersion": revision}
    written = api.patch(resource, namespace, name, change, patch_type=patches.MERGE_PATCH, options=options)
    return scale_of(resource, written.record)


def patch(api: Api, resource: Resource, namespace: str, name: str, change: Any, patch_type: str, options: WriteOptions) -> Body:
    """Patch the Scale of an object, and return the new Scale."""
    current = scale_of(resource, api.read(resource, namespace, name))
    return replace(api, resource, namespace, name, patches.FORMATS[patch_type](current, change), options)
