"""What a pod asks of a node, computed as kube-scheduler and the kubelet do (component-helpers/resource/helpers.go, 1.37).

Amounts are integers: milli-cores for cpu, bytes for memory, pieces otherwise. Zero amounts are left out: a resource that isn't
asked for is never checked. Each pod also takes one of the node's ``pods``.
"""

from collections.abc import Iterable, Mapping
from itertools import chain

from allaboard.model.errors import MalformedError, shown
from allaboard.model.fields import items, mapping, text
from allaboard.model.quantities import milli_amount, whole_amount

Requests = tuple[tuple[str, int], ...]
"""Amount by resource name, sorted by name, without zeros."""

RawObject = Mapping[str, object]
_Amounts = dict[str, int]
"""In thousandths of a unit, so that sums are rounded once, at the end."""


def pod_requests(pod: RawObject) -> Requests:
    """Effective requests of a pod as the API server returns it, ``pods: 1`` included.

    Requests are taken as they stand: the API server has copied limits to requests already. ``default_requests`` does it for
    manifests. A pod that is being resized in place counts with the larger of what it wants and what it holds.
    Raises ``MalformedError`` for a quantity or list that can't be read.
    """
    spec = mapping(pod, "spec")
    held = _held_by_container(pod)
    resize_is_infeasible = _resize_is_infeasible(pod)

    def container_requests(path: str, container: RawObject) -> _Amounts:
        wanted = _amounts(mapping(mapping(container, "resources", path), "requests", f"{path}resources."), f"{path}resources.requests")
        holding = held.get(text(container, "name", path=path))
        if holding is None:
            return wanted
        return holding if resize_is_infeasible else _larger(wanted, holding)

    total: _Amounts = {}
    for path, container in items(spec, "containers", "spec."):
        total = _sum(total, container_requests(path, container))
    sidecars: _Amounts = {}
    peak: _Amounts = {}
    for path, container in items(spec, "initContainers", "spec."):
        own = container_requests(path, container)
        if text(container, "restartPolicy", path=path) == "Always":
            total = _sum(total, own)
            sidecars = _sum(sidecars, own)
            peak = _larger(peak, sidecars)
        else:
            # An init container runs beside the sidecars that were started before it.
            peak = _larger(peak, _sum(own, sidecars))
    total = _larger(total, peak)
    pod_level = mapping(mapping(spec, "resources", "spec."), "requests", "spec.resources.")
    for resource, amount in _amounts(pod_level, "spec.resources.requests").items():
        if _has_pod_level(resource):
            total[resource] = amount
    total = _sum(total, _amounts(mapping(spec, "overhead", "spec."), "spec.overhead"))
    return as_requests(_whole(total) | {"pods": 1})


def default_requests(pod_spec: Mapping[str, object]) -> dict[str, object]:
    """A copy of ``pod_spec`` with missing requests set from limits, resource by resource, as the API server does.

    Per container, and for the pod as a whole: a limit of the pod becomes its request where no container asks for the resource.
    Raises ``MalformedError`` for lists and objects that aren't.
    """
    spec = dict(pod_spec)
    asked: set[str] = set()
    for key in ("containers", "initContainers"):
        if spec.get(key) is not None:
            containers = [_with_default_requests(path, container) for path, container in items(spec, key, "spec.")]
            for container in containers:
                asked |= mapping(mapping(container, "resources"), "requests").keys()
            spec[key] = containers
    resources = mapping(spec, "resources", "spec.")
    # Huge pages can't be over-committed, so the pod's limit is its request whatever the containers say (defaults.go, defaultPodRequests).
    limits = {
        resource: amount
        for resource, amount in _stated(resources, "limits", "spec.resources.").items()
        if _has_pod_level(resource) and (resource not in asked or resource.startswith("hugepages-"))
    }
    if limits:
        spec["resources"] = {**resources, "requests": limits | _stated(resources, "requests", "spec.resources.")}
    return spec


def as_requests(amounts: Mapping[str, int]) -> Requests:
    """``amounts`` in canonical form: sorted, without zeros."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount))


def node_allocatable(node: RawObject) -> Requests:
    """What a node has to give to pods."""
    return as_requests(_whole(_amounts(mapping(mapping(node, "status"), "allocatable", "status."), "status.allocatable")))


def _with_default_requests(path: str, container: RawObject) -> dict[str, object]:
    resources = mapping(container, "resources", path)
    stated = _stated(resources, "limits", f"{path}resources.") | _stated(resources, "requests", f"{path}resources.")
    return {**container, "resources": {**resources, "requests": stated}} if stated else dict(container)


def _stated(resources: RawObject, key: str, path: str) -> dict[str, object]:
    return {resource: amount for resource, amount in mapping(resources, key, path).items() if amount is not None}


def _has_pod_level(resource: object) -> bool:
    """Whether a pod as a whole may ask for ``resource`` (component-helpers/resource/helpers.go, ``IsSupportedPodLevelResource``)."""
    return resource in ("cpu", "memory") or str(resource).startswith("hugepages-")


def _amounts(quantities: RawObject, path: str) -> _Amounts:
    amounts: _Amounts = {}
    for resource, quantity in quantities.items():
        if not isinstance(resource, str):
            raise MalformedError(path, f"the key {shown(resource)} is not a string")
        if quantity is not None:
            amounts[resource] = milli_amount(quantity, f"{path}[{resource}]")
    return amounts


def _whole(amounts: _Amounts) -> dict[str, int]:
    return {resource: whole_amount(resource, milli) for resource, milli in amounts.items()}


def _held_by_container(pod: RawObject) -> dict[str, _Amounts]:
    """What running containers hold by the kubelet's word, which differs from the spec during an in-place resize."""
    status = mapping(pod, "status")
    statuses = chain(items(status, "containerStatuses", "status."), items(status, "initContainerStatuses", "status."))
    held: dict[str, _Amounts] = {}
    for path, container in statuses:
        allocated = _amounts(mapping(container, "allocatedResources", path), f"{path}allocatedResources")
        actual = mapping(mapping(container, "resources", path), "requests", f"{path}resources.")
        if allocated or actual:
            held[text(container, "name", path=path)] = _larger(allocated, _amounts(actual, f"{path}resources.requests"))
    return held


def _resize_is_infeasible(pod: RawObject) -> bool:
    conditions = items(mapping(pod, "status"), "conditions", "status.")
    return any(condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible" for _, condition in conditions)


def _sum(left: _Amounts, right: _Amounts) -> _Amounts:
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in _union(left, right)}


def _larger(left: _Amounts, right: _Amounts) -> _Amounts:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in _union(left, right)}


def _union(left: _Amounts, right: _Amounts) -> Iterable[str]:
    return left.keys() | right.keys()
