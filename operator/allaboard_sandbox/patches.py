"""The patch formats of the API: JSON patch, merge patch, strategic merge patch, and a simple server-side apply.

A strategic merge must know for each list whether its items are merged and by which key. ``MERGE_KEYS`` holds the ``patchMergeKey`` tags of
kubernetes staging/src/k8s.io/api by field name.
Server-side apply creates or merges objects, but tracks no field ownership. An apply that leaves a field out never removes it, and two
managers never conflict.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonpatch

from allaboard_sandbox.errors import ApiError, bad_request
from allaboard_sandbox.store import Body

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

# List field -> keys that may identify its items; the first key that is present is used. Lists not named here are replaced as a whole.
MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "addresses": ("type",),
    "conditions": ("type",),
    "containerStatuses": ("name",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "port"),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeClaimTemplates": ("name",),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
MERGED_PRIMITIVES = frozenset({"finalizers", "podCIDRs"})


def apply_json_patch(body: Body, operations: Any) -> Body:
    """Return ``body`` after a JSON patch.

    Raises ``ApiError``: a failing operation, including ``test``, is a 422 without details, as in a real API server.
    """
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    try:
        patched = jsonpatch.JsonPatch(operations).apply(body)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request", details={}) from error
    if not isinstance(patched, dict):
        raise bad_request("json: cannot unmarshal the patched document into an object")
    return patched


def apply_merge_patch(body: Any, patch: Any) -> Any:
    """Return ``body`` after an RFC 7386 merge patch; neither argument is changed."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(body) if isinstance(body, Mapping) else {}
    for field, value in patch.items():
        if value is None:
            merged.pop(field, None)
        else:
            merged[field] = apply_merge_patch(merged.get(field), value)
    return merged


def apply_strategic_merge_patch(body: Any, patch: Mapping[str, Any]) -> Body:
    """Return ``body`` after a strategic merge patch with its directives ``$patch``, ``$deleteFromPrimitiveList`` and ``$retainKeys``."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {field: value for field, value in patch.items() if field != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(body) if isinstance(body, Mapping) else {}
    if "$retainKeys" in patch:
        kept = set(patch["$retainKeys"])
        merged = {field: value for field, value in merged.items() if field in kept}
    for field, value in patch.items():
        if field.startswith("$deleteFromPrimitiveList/"):
            listed = field.partition("/")[2]
            merged[listed] = [item for item in merged.get(listed) or () if item not in value]
        elif field.startswith("$"):
            continue
        elif value is None:
            merged.pop(field, None)
        elif isinstance(value, Mapping):
            merged[field] = apply_strategic_merge_patch(merged.get(field), value)
        elif isinstance(value, list):
            order = patch.get(f"$setElementOrder/{field}")
            merged[field] = _merged_list(field, merged.get(field) or [], value, order)
        else:
            merged[field] = value
    for field in [field for field in patch if field.startswith("$setElementOrder/")]:
        listed = field.partition("/")[2]
        if listed not in patch and listed in merged:
            merged[listed] = _ordered(listed, merged[listed], patch[field])
    return merged


def apply_server_side(body: Body | None, applied: Body) -> Body:
    """Return ``body`` merged with the fields of ``applied``.

    Lists with a merge key are merged, all other lists are replaced. Field ownership isn't tracked.
    """
    cleaned = json.loads(json.dumps(applied))
    cleaned.get("metadata", {}).pop("managedFields", None)
    return cleaned if body is None else apply_strategic_merge_patch(body, cleaned)


FORMATS: Mapping[str, Callable[[Body, Any], Body]] = {
    JSON_PATCH: apply_json_patch,
    MERGE_PATCH: apply_merge_patch,
    STRATEGIC_MERGE_PATCH: apply_strategic_merge_patch,
}


def _merged_list(field: str, current: list[Any], patch: list[Any], order: list[Any] | None) -> list[Any]:
    if any(isinstance(item, Mapping) and item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    if field in MERGED_PRIMITIVES:
        return [*current, *(item for item in patch if item not in current)]
    key = _merge_key(field, [*patch, *current])
    if key is None:
        return patch
    merged = {item.get(key): item for item in current}
    for item in patch:
        name = item.get(key)
        if item.get("$patch") == "delete":
            merged.pop(name, None)
        else:
            merged[name] = apply_strategic_merge_patch(merged.get(name), item)
    return _ordered(field, list(merged.values()), order)


def _ordered(field: str, items: list[Any], order: list[Any] | None) -> list[Any]:
    """Return ``items`` in the given ``order``; items that ``order`` doesn't name come last."""
    if not order:
        return items
    key = _merge_key(field, items)
    names = [item.get(key) if isinstance(item, Mapping) else item for item in order]
    rank = {name: position for position, name in enumerate(names)}
    return sorted(items, key=lambda item: rank.get(item.get(key) if isinstance(item, Mapping) else item, len(rank)))


def _merge_key(field: str, items: list[Any]) -> str | None:
    if not items or not all(isinstance(item, Mapping) for item in items):
        return None
    return next((key for key in MERGE_KEYS.get(field, ()) if any(key in item for item in items)), None)
