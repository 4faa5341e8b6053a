"""Turn what a client sends into what is stored: decode it, fill in defaults, validate it.

Objects of built-in kinds keep fields that the sandbox doesn't know. Custom resources are pruned and validated by their schema, as in a real
API server.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from allaboard_sandbox import customresources, naming, pods, schema, shapes
from allaboard_sandbox.errors import Cause, bad_request, invalid, invalid_value, not_supported, required
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.selectors import object_label_selector
from allaboard_sandbox.store import Body, Store

# Fields that only the server writes. A client's values for them are ignored.
SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion", "selfLink")

OMITTED_WHEN_EMPTY = ("labels", "annotations", "finalizers", "ownerReferences")
NOT_READY = "node.kubernetes.io/not-ready"


class Admission:
    """Turns a client's object into the stored object: decodes it, fills in defaults and validates it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def decoded(self, resource: Resource, body: Body) -> Body:
        """Return a client's object as a real API server decodes it.

        Null metadata fields are dropped. For built-in kinds all null fields are dropped, and quantities that are bare numbers become
        strings.
        Raises ``ApiError`` (400) if the kind, the version, the shape or a quantity of the object is wrong.
        """
        if problem := shapes.problem(resource, body):
            raise bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {problem}')
        kind, group_version = body.get("kind", resource.kind), body.get("apiVersion", resource.group_version)
        if kind != resource.kind or group_version != resource.group_version:
            raise bad_request(
                f"the API version in the data ({group_version}, Kind={kind}) does not match the expected API version "
                f"({resource.group_version}, Kind={resource.kind})"
            )
        body = {**body, "kind": kind, "apiVersion": group_version}
        metadata = without_nulls(body.get("metadata") or {})
        for field in OMITTED_WHEN_EMPTY:
            if not metadata.get(field, True):
                del metadata[field]
        if resource.custom:
            return {**body, "metadata": metadata}
        cleaned = {**without_nulls(body), "metadata": metadata}
        return cleaned if resource.plural in _NO_QUANTITIES else pods.checked_quantities(resource, cleaned)

    def for_create(self, resource: Resource, body: Body, *, strict: bool = False) -> tuple[Body, list[str]]:
        """Return a new object as it will be stored, and the warnings for the client.

        Raises ``ApiError`` with the API server's answer if the object is invalid.
        """
        if resource.status and resource.table != "nodes":
            # A node is created with its status; objects of every other kind are created without one.
            body = {field: value for field, value in body.items() if field != "status"}
        problems = list(naming.metadata_problems(resource, body))
        dropped: list[str] = []
        if resource.custom:
            body, dropped = self._pruned(resource, body, strict=strict)
            problems += schema.problems(body, resource.schema or {})
        elif resource.table == "pods":
            body = pods.admitted(body, self._store.table("priorityclasses.scheduling.k8s.io"))
        elif default := _DEFAULTS.get(resource.table):
            body = default(body)
        if resource.table == "nodes":
            body = _tainted_until_ready(body)
        problems += _PROBLEMS[resource.table](body) if resource.table in _PROBLEMS else ()
        if problems:
            raise invalid(resource, body["metadata"].get("name") or "", problems)
        return body, [f'unknown field "{path}"' for path in dropped]

    def for_update(self, resource: Resource, old: Body, new: Body, *, strict: bool = False, part: str = "") -> tuple[Body, list[str]]:
        """Return a changed object as it will be stored, and the warnings for the client.

        ``part`` is the subresource that is written (see ``schema.problems``). Raises ``ApiError`` with the API server's answer if the
        object is invalid.
        """
        problems = list(naming.metadata_problems(resource, new))
        dropped: list[str] = []
        if resource.custom:
            new, dropped = self._pruned(resource, new, strict=strict)
            problems += schema.problems(new, resource.schema or {}, part)
        elif resource.table == "pods":
            new = {**new, "spec": pods.with_template_defaults(new["spec"])}
            problems += pods.update_problems(old, new)
        elif default := _DEFAULTS.get(resource.table):
            new = default(new)
            problems += _PROBLEMS[resource.table](new) if resource.table in _PROBLEMS else ()
            problems += _immutable_problems(resource, old, new)
        if problems:
            raise invalid(resource, new["metadata"].get("name") or "", problems)
        return new, [f'unknown field "{path}"' for path in dropped]

    def _pruned(self, resource: Resource, body: Body, *, strict: bool) -> tuple[Body, list[str]]:
        body, dropped = schema.pruned(body, resource.schema or {})
        if dropped and strict:
            listed = ", ".join(f'unknown field "{path}"' for path in dropped)
            raise bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: strict decoding error: {listed}'
            )
        return schema.defaulted(body, resource.schema or {}), dropped


def without_nulls(value: Any) -> Any:
    """Return a decoded JSON value without its null fields, which the server's typed decoder treats as absent."""
    if isinstance(value, Mapping):
        return {field: without_nulls(inner) for field, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def template_hash(template: Body) -> str:
    """Return a digest of a pod template that is short enough for a label."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def _default_workload(body: Body) -> Body:
    spec = {"replicas": 1, **(body.get("spec") or {})}
    template = spec.get("template") or {}
    spec["template"] = {**template, "spec": pods.with_template_defaults(template.get("spec") or {})}
    return {**body, "spec": spec}


def _default_deployment(body: Body) -> Body:
    body = _default_workload(body)
    strategy = {"type": "RollingUpdate", **(body["spec"].get("strategy") or {})}
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxUnavailable": "25%", "maxSurge": "25%", **(strategy.get("rollingUpdate") or {})}
    return {**body, "spec": {"revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, **body["spec"], "strategy": strategy}}


def _default_job(body: Body) -> Body:
    spec = body.get("spec") or {}
    template = spec.get("template") or {}
    # If both fields are absent, both are 1. With parallelism alone the Job is a work queue, and completions stays unset.
    counts = {} if "parallelism" in spec and "completions" not in spec else {"completions": 1}
    filled = {"parallelism": 1, **counts, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, **spec}
    filled["template"] = {**template, "spec": pods.with_template_defaults(template.get("spec") or {})}
    filled.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    return {**body, "spec": filled}


def _default_service(body: Body) -> Body:
    spec = {"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "10.96.0.1", **(body.get("spec") or {})}
    spec["ports"] = [
        {"protocol": "TCP", **port, "targetPort": port.get("targetPort") or port.get("port")} for port in spec.get("ports") or ()
    ]
    return {**body, "spec": spec}


def _default_namespace(body: Body) -> Body:
    labels = {**(body["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": body["metadata"].get("name", "")}
    status = body.get("status") or {"phase": "Active"}
    return {**body, "metadata": {**body["metadata"], "labels": labels}, "spec": {"finalizers": ["kubernetes"]}, "status": status}


def _default_priority_class(body: Body) -> Body:
    return {"preemptionPolicy": "PreemptLowerPriority", **body}


def _default_node(body: Body) -> Body:
    status = body.get("status") or {}
    offered = {"allocatable": dict(status["capacity"])} if status.get("capacity") else {}
    return {"spec": {}, **body, "status": {**offered, **status}}


def _default_claim(body: Body) -> Body:
    return {**body, "spec": {"volumeMode": "Filesystem", **(body.get("spec") or {})}}


def _default_volume(body: Body) -> Body:
    return {**body, "spec": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain", **(body.get("spec") or {})}}


def _default_storage_class(body: Body) -> Body:
    return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", **body}


def _tainted_until_ready(body: Body) -> Body:
    """Return a new node with the not-ready taint, which the node controller removes later (kubernetes plugin/pkg/admission/nodetaint)."""
    taints = body["spec"].get("taints") or []
    if any((taint.get("key"), taint.get("effect")) == (NOT_READY, "NoSchedule") for taint in taints):
        return body
    return {**body, "spec": {**body["spec"], "taints": [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]}}


def _default_secret(body: Body) -> Body:
    given = {name: base64.b64encode(str(text).encode()).decode() for name, text in (body.get("stringData") or {}).items()}
    secret = {"type": "Opaque", **body, "data": {**(body.get("data") or {}), **given}}
    secret.pop("stringData", None)
    return secret


def _workload_problems(body: Body) -> Iterator[Cause]:
    spec = body["spec"]
    if not spec.get("selector"):
        yield required("spec.selector")
        return
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not object_label_selector(spec["selector"])(labels):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _deployment_problems(body: Body) -> Iterator[Cause]:
    yield from _workload_problems(body)
    strategy, path = body["spec"]["strategy"], "spec.strategy"
    if strategy["type"] not in (supported := ("Recreate", "RollingUpdate")):
        yield not_supported(f"{path}.type", strategy["type"], supported)
    elif strategy["type"] == "Recreate" and strategy.get("rollingUpdate"):
        text = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        yield Cause(f"{path}.rollingUpdate", "FieldValueForbidden", text)
    for name, value in (strategy.get("rollingUpdate") or {}).items():
        if not isinstance(value, int) and not _PERCENT.fullmatch(str(value)):
            words = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
            yield invalid_value(f"{path}.rollingUpdate.{name}", value, words)


def _job_problems(body: Body) -> Iterator[Cause]:
    spec, policy = body["spec"], body["spec"]["podReplacementPolicy"]
    supported = ["Failed"] if spec.get("podFailurePolicy") else ["Failed", "TerminatingOrFailed"]
    if policy not in supported:
        yield not_supported("spec.podReplacementPolicy", policy, supported)
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        yield required("spec.completions", "when completion mode is Indexed")


def _priority_class_problems(body: Body) -> Iterator[Cause]:
    name, value = body["metadata"].get("name") or "", body.get("value", 0)
    if value > 1_000_000_000 and not name.startswith("system-"):
        yield Cause("value", "FieldValueForbidden", "Forbidden: maximum allowed value of a user defined priority is 1000000000")


def _volume_problems(body: Body) -> Iterator[Cause]:
    """Yield a problem if no field of a volume's spec is a volume source."""
    if not any(isinstance(value, dict) for field, value in body["spec"].items() if field not in _NOT_SOURCES):
        yield required("spec", "must specify a volume type")


def _immutable_problems(resource: Resource, old: Body, new: Body) -> Iterable[Cause]:
    for path in _IMMUTABLE.get(resource.table, ()):
        before: Any = old
        after: Any = new
        for step in path.split("."):
            before, after = (before or {}).get(step), (after or {}).get(step)
        if before == after:
            continue
        if path == "spec.completions" and new["spec"]["completionMode"] == "Indexed":  # an Indexed Job may be resized
            if not all(each["spec"].get("completions") == each["spec"]["parallelism"] for each in (old, new)):
                yield invalid_value(path, after, "can only be modified in tandem with spec.parallelism")
            continue
        yield invalid_value(path, after, "field is immutable")


_PERCENT = re.compile(r"[0-9]{1,9}%", re.ASCII)
_NOT_SOURCES = frozenset(("capacity", "claimRef", "nodeAffinity"))
"""Fields of a volume's spec that hold an object but are not a volume source."""
_IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    "deployments.apps": ("spec.selector",),
    "replicasets.apps": ("spec.selector",),
    "jobs.batch": ("spec.completions", "spec.selector", "spec.template.spec"),
    "priorityclasses.scheduling.k8s.io": ("value",),
}
_DEFAULTS: Mapping[str, Callable[[Body], Body]] = {
    "deployments.apps": _default_deployment,
    "replicasets.apps": _default_workload,
    "statefulsets.apps": _default_workload,
    "jobs.batch": _default_job,
    "services": _default_service,
    "namespaces": _default_namespace,
    "nodes": _default_node,
    "persistentvolumeclaims": _default_claim,
    "persistentvolumes": _default_volume,
    "storageclasses.storage.k8s.io": _default_storage_class,
    "secrets": _default_secret,
    "priorityclasses.scheduling.k8s.io": _default_priority_class,
    "customresourcedefinitions.apiextensions.k8s.io": customresources.with_defaults,
}
_PROBLEMS: Mapping[str, Callable[[Body], Iterable[Cause]]] = {
    "pods": pods.problems,
    "deployments.apps": _deployment_problems,
    "replicasets.apps": _workload_problems,
    "statefulsets.apps": _workload_problems,
    "jobs.batch": _job_problems,
    "priorityclasses.scheduling.k8s.io": _priority_class_problems,
    "persistentvolumes": _volume_problems,
    "customresourcedefinitions.apiextensions.k8s.io": customresources.problems,
}
# Kinds without quantities whose objects are large, numerous or free-form: a search for quantities would be wasted.
_NO_QUANTITIES = frozenset({"events", "leases", "configmaps", "secrets", "customresourcedefinitions"})
