"""Admission of pods: defaults, priority, tolerations, quality of service, and validation.

Sources: kubernetes pkg/apis/core/v1/defaults.go, pkg/apis/core/validation, and the admission plug-ins priority, defaulttolerationseconds
and serviceaccount.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from allaboard_sandbox import quantities
from allaboard_sandbox.errors import ApiError, Cause, bad_request, invalid_value, not_allowed, not_supported, required
from allaboard_sandbox.kinds import Resource
from allaboard_sandbox.store import Body, Table

SPEC_DEFAULTS: Mapping[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
}
ADMITTED_DEFAULTS: Mapping[str, Any] = {"enableServiceLinks": True, "serviceAccountName": "default", "serviceAccount": "default"}
CONTAINER_DEFAULTS: Mapping[str, Any] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "IfNotPresent",
}
DEFAULT_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
DEFAULT_TOLERATION_SECONDS = 300
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
MUTABLE_SPEC = (
    "spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


def with_template_defaults(spec: Body) -> Body:
    """Return a pod spec with the defaults that apply to pods and to pod templates."""
    filled = {**SPEC_DEFAULTS, **spec}
    for listed in CONTAINER_LISTS:
        if listed in filled:
            filled[listed] = [_container_with_defaults(container) for container in filled[listed] or ()]
    return filled


def admitted(body: Body, priority_classes: Table) -> Body:
    """Return a new pod as it will be stored.

    Raises ``ApiError`` (403) if its priority class is unknown or its priority contradicts the class.
    """
    spec = {**ADMITTED_DEFAULTS, **with_template_defaults(body.get("spec") or {})}
    spec["containers"] = [_with_requests_from_limits(each) for each in spec.get("containers") or ()]
    if spec.get("initContainers"):
        spec["initContainers"] = [_with_requests_from_limits(each) for each in spec["initContainers"]]
    spec["tolerations"] = _with_default_tolerations(spec.get("tolerations") or [])
    spec |= _priority(body["metadata"].get("name") or "", spec, priority_classes)
    status: Body = {"phase": "Pending", "qosClass": quality_of_service(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": None}
        status["conditions"] = [{**gated, "reason": "SchedulingGated", "message": GATED_MESSAGE}]
    return {**body, "spec": spec, "status": status}


def quality_of_service(spec: Body) -> str:
    """Return the QoS class of a pod spec whose requests have been defaulted."""
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    amounts = [(each["resources"].get("requests") or {}, each["resources"].get("limits") or {}) for each in containers]
    if not any(name in amount for pair in amounts for amount in pair for name in ("cpu", "memory")):
        return "BestEffort"
    guaranteed = all(
        name in limits and quantities.parse(requests.get(name, limits[name])) == quantities.parse(limits[name])
        for requests, limits in amounts
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def problems(body: Body) -> Iterator[Cause]:
    """Yield a cause for each problem of a new pod."""
    spec = body.get("spec") or {}
    if not spec.get("containers"):
        yield required("spec.containers")
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield not_supported("spec.restartPolicy", spec.get("restartPolicy"), ["Always", "OnFailure", "Never"])
    for listed in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(listed) or ()):
            yield from _container_problems(container, f"spec.{listed}[{index}]")


def update_problems(old: Body, new: Body) -> Iterator[Cause]:
    """Yield a cause for each change of a pod's spec that isn't allowed."""
    before, after = dict(old["spec"]), dict(new["spec"])
    gates_before, gates_after = before.pop("schedulingGates", None) or [], after.pop("schedulingGates", None) or []
    if any(gate not in gates_before for gate in gates_after):
        yield not_allowed("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate")
    tolerations_before, tolerations_after = before.pop("tolerations", None) or [], after.pop("tolerations", None) or []
    if any(toleration not in tolerations_after for toleration in tolerations_before):
        yield not_allowed("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    if gates_before:
        # The node selection of a gated pod may be narrowed (KEP-3838).
        for field in ("nodeSelector", "affinity"):
            before.pop(field, None)
            after.pop(field, None)
    for each in (before, after):
        each.pop("activeDeadlineSeconds", None)
        for listed in CONTAINER_LISTS:
            if listed in each:
                each[listed] = [{**container, "image": ""} for container in each[listed] or ()]
    if before != after:
        yield not_allowed("spec", f"pod updates may not change fields other than `{MUTABLE_SPEC}`\n{_difference(before, after)}")


def checked_quantities(resource: Resource, value: Any) -> Any:
    """Return an object with all its quantities as strings.

    Raises ``ApiError`` (400) for a malformed quantity, as a real API server does when it decodes the body.
    """
    if isinstance(value, list):
        return [checked_quantities(resource, item) for item in value]
    if not isinstance(value, Mapping) or resource.kind == "CSINode":  # a CSINode's ``allocatable`` is a plain number of volumes
        return value
    return {
        field: _amounts(resource, inner) if field in _AMOUNTS and isinstance(inner, Mapping) else checked_quantities(resource, inner)
        for field, inner in value.items()
    }


_AMOUNTS = frozenset({"requests", "limits", "capacity", "allocatable", "overhead"})


def _amounts(resource: Resource, amounts: Mapping[str, Any]) -> Body:
    checked: Body = {}
    for name, amount in amounts.items():
        if isinstance(amount, bool) or not isinstance(amount, str | int | float):
            return dict(amounts)
        text = amount if isinstance(amount, str) else quantities.canonical(amount)
        try:
            quantities.parse(text)
        except quantities.InvalidQuantityError as error:
            raise bad_request(f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}') from error
        checked[name] = text
    return checked


def _container_with_defaults(container: Body) -> Body:
    filled = {**CONTAINER_DEFAULTS, **container}
    if filled.get("ports"):
        filled["ports"] = [{"protocol": "TCP", **port} for port in filled["ports"]]
    image = str(filled.get("image", ""))
    if "imagePullPolicy" not in container and (":" not in image.rpartition("/")[2] or image.endswith(":latest")):
        filled["imagePullPolicy"] = "Always"
    return filled


def _with_requests_from_limits(container: Body) -> Body:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    if not limits:
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **(resources.get("requests") or {})}}}


def _with_default_tolerations(tolerations: list[Body]) -> list[Body]:
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}
        for key in DEFAULT_TOLERATED
        if not any(each.get("key") in (key, None, "") and each.get("effect") in ("NoExecute", None, "") for each in tolerations)
    ]
    return [*tolerations, *added]


def _priority(name: str, spec: Body, classes: Table) -> Body:
    """Return the fields that the priority admission plug-in sets.

    Raises ``ApiError`` (403) if the priority class is unknown or the priority contradicts the class.
    """
    wanted = spec.get("priorityClassName")
    found = classes.get(("", wanted)) if wanted else None
    if wanted and found is None:
        raise ApiError(
            403,
            "Forbidden",
            f'pods "{name}" is forbidden: no PriorityClass with name {wanted} was found',
            details={"name": name, "kind": "pods"},
        )
    if found is None:
        defaults = [record for record in classes if record.body.get("globalDefault")]
        found = min(defaults, key=lambda record: int(record.body.get("value", 0)), default=None)
    value = int(found.body.get("value", 0)) if found else 0
    if spec.get("priority") not in (None, value):
        raise ApiError(
            403,
            "Forbidden",
            f'pods "{name}" is forbidden: the integer value of priority ({spec["priority"]}) must not be provided in pod spec; '
            f"priority admission controller computed {value} from the given PriorityClass name",
            details={"name": name, "kind": "pods"},
        )
    policy = found.body.get("preemptionPolicy", "PreemptLowerPriority") if found else "PreemptLowerPriority"
    named = {"priorityClassName": found.body["metadata"]["name"]} if found else {}
    return {"priority": value, "preemptionPolicy": policy, **named}


def _container_problems(container: Body, path: str) -> Iterator[Cause]:
    for field in ("name", "image"):
        if not container.get(field):
            yield required(f"{path}.{field}")
    resources = container.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, amount in _sorted_items(limits, requests):
        if quantities.parse(amount) < 0:
            yield invalid_value(f"{path}.resources[{name}]", amount, "must be greater than or equal to 0")
    for name, amount in sorted(requests.items()):
        extended = "/" in name and not name.startswith("kubernetes.io/")
        if extended and quantities.parse(amount) % 1:
            yield invalid_value(f"{path}.resources.requests[{name}]", amount, "must be an integer")
        if name not in limits:
            if extended:
                yield required(f"{path}.resources.limits", "Limit must be set for non overcommitable resources")
        elif extended and quantities.parse(amount) != quantities.parse(limits[name]):
            yield invalid_value(f"{path}.resources.requests", amount, f"must be equal to {name} limit of {limits[name]}")
        elif quantities.parse(amount) > quantities.parse(limits[name]):
            yield invalid_value(f"{path}.resources.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")


def _sorted_items(*amounts: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return sorted({item for each in amounts for item in each.items()})


def _difference(before: Body, after: Body) -> str:
    changed = [field for field in sorted(before.keys() | after.keys()) if before.get(field) != after.get(field)]
    return "\n".join(f"  {field}: {json.dumps(before.get(field))} -> {json.dumps(after.get(field))}" for field in changed)
