"""Computes the requests of pods as kube-scheduler and the kubelet do (component-helpers/resource/helpers.go, 1.37).

Amounts are integers: milli-cores for cpu, bytes for memory, pieces otherwise. Zero amounts are left out: a resource that isn't
requested is never checked. Each pod also requests one of the node's ``pods``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from allaboard.model.errors import MalformedError, shown
from allaboard.model.limits import CHARACTERS, CONTAINERS, ENTRIES, Limit, Tally
from allaboard.model.quantities import LARGEST_AMOUNT, milli_amount, whole_amount
from allaboard.model.raw_fields import items, mapping, text

Requests = tuple[tuple[str, int], ...]
"""Amount by resource name, sorted by name, without zeros."""

RawObject = Mapping[str, object]
_ASSUMED = {"cpu": "100m", "memory": "200Mi"}
UNSTATED = tuple(_ASSUMED)
"""Resources for which kube-scheduler's scores assume an amount if a container requests none. Arrays of these amounts have this order."""

_Amounts = dict[str, int]
"""Amounts in thousandths of a unit, so that sums are rounded once, at the end."""


def pod_requests(pod: RawObject, tally: Tally | None = None) -> Requests:
    """Return the effective requests of a pod as the API server returns it, ``pods: 1`` included.

    Limits aren't read: the API server has already copied limits to missing requests. For manifests, ``default_requests`` copies them. A pod
    that is being resized in place counts with what it wants or what it holds, whichever is larger.

    Raises ``MalformedError`` for a quantity or list that can't be read, and ``OverLimitError`` for more containers than are read, or more
    quantities than ``tally`` allows.
    """
    spec, status = mapping(pod, "spec"), mapping(pod, "status")
    is_infeasible = _resize_is_infeasible(status)
    containers = _containers(spec, status, is_infeasible, tally)
    wanted = _together([(container.starts, container.wanted) for container in containers])
    resources, allocated = _stated_mapping(status, "resources", "status."), _stated_mapping(status, "allocatedResources", "status.")
    actual = _stated_mapping(resources or {}, "requests", "status.resources.")
    as_a_whole = _larger(
        _amounts(actual or {}, "status.resources.requests", tally), _amounts(allocated or {}, "status.allocatedResources", tally)
    )
    if actual is not None and allocated is not None:
        held = as_a_whole  # the kubelet reports the sums
    elif all(container.is_settled for container in containers):
        held = wanted
    else:
        held = _larger(*(_together([(each.starts, amounts(each)) for each in containers]) for amounts in (_allocated, _actual)))
    total = held if is_infeasible else _larger(wanted, held)
    total = total | _pod_level(spec, None if resources is None else as_a_whole, is_infeasible, tally)
    total = _sum(total, _amounts(mapping(spec, "overhead", "spec."), "spec.overhead", tally))
    return as_requests(_whole(total) | {"pods": 1})


def unstated_requests(pod: RawObject, requests: Requests) -> Requests:
    """Return what kube-scheduler's scores count beside a pod's requests: 100m of cpu and 200Mi for each container that states none.

    (pkg/scheduler/util/pod_resources.go, ``NonMissingContainerRequests`` of component-helpers.) ``requests`` is the result of
    ``pod_requests`` for ``pod``.
    """
    spec = mapping(pod, "spec")
    completed: dict[str, object] = {}
    for key in ("containers", "initContainers"):
        containers = [
            (path, container, _stated(mapping(container, "resources", path), "requests", path)) for path, container in items(spec, key)
        ]
        if any(not requests.keys() >= _ASSUMED.keys() for _, _, requests in containers):
            completed[key] = [
                {**container, "resources": {**mapping(container, "resources", path), "requests": _ASSUMED | requests}}
                for path, container, requests in containers
            ]
    if not completed:
        return ()
    stated, scored = dict(requests), dict(pod_requests({**pod, "spec": {**spec, **completed}}))
    return as_requests({resource: scored.get(resource, 0) - stated.get(resource, 0) for resource in UNSTATED})


def default_requests(pod_spec: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of ``pod_spec`` in which each missing request is set to the limit for its resource, as by the API server.

    This is done for each container, and for the pod as a whole: a limit of the pod becomes its request if no container requests the
    resource. Raises ``MalformedError`` for a field that should be a list or an object and isn't.
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
    """Return ``amounts`` in canonical form: sorted by resource, without zeros."""
    return tuple(sorted((resource, amount) for resource, amount in amounts.items() if amount))


def stated_amounts(parent: RawObject, key: str, path: str, limit: Limit) -> Requests:
    """Return the amounts under ``key``. Raises ``MalformedError`` for malformed amounts, and for more resources than ``limit``."""
    stated = mapping(parent, key, path)
    if max((len(resource) for resource in stated if isinstance(resource, str)), default=0) > CHARACTERS.most:
        raise MalformedError(f"{path}{key}", f"the name of a resource has more than {CHARACTERS.most} characters")
    return as_requests(_whole(_amounts(stated, f"{path}{key}", Tally(limit))))


def node_allocatable(node: RawObject) -> Requests:
    """Return what a node offers to pods.

    Every amount is less than ``LARGEST_AMOUNT``, so that a request that was cut to ``LARGEST_AMOUNT`` fits no node.
    """
    amounts = _whole(_amounts(mapping(mapping(node, "status"), "allocatable", "status."), "status.allocatable"))
    return as_requests({resource: min(amount, LARGEST_AMOUNT - 1) for resource, amount in amounts.items()})


def _with_default_requests(path: str, container: RawObject) -> dict[str, object]:
    resources = mapping(container, "resources", path)
    stated = _stated(resources, "limits", f"{path}resources.") | _stated(resources, "requests", f"{path}resources.")
    return {**container, "resources": {**resources, "requests": stated}} if stated else dict(container)


def _stated(resources: RawObject, key: str, path: str) -> dict[str, object]:
    return {resource: amount for resource, amount in mapping(resources, key, path).items() if amount is not None}


def _has_pod_level(resource: object) -> bool:
    """Return whether a pod as a whole can request ``resource``.

    (component-helpers/resource/helpers.go, ``IsSupportedPodLevelResource``)
    """
    return resource in ("cpu", "memory") or str(resource).startswith("hugepages-")


def _amounts(quantities: RawObject, path: str, tally: Tally | None = None) -> _Amounts:
    if tally:
        tally.take(quantities, path)
    amounts: _Amounts = {}
    for resource, quantity in quantities.items():
        if not isinstance(resource, str):
            raise MalformedError(path, f"the key {shown(resource)} is not a string")
        if quantity is not None:
            amounts[resource] = milli_amount(quantity, f"{path}[{resource}]")
    return amounts


def _whole(amounts: _Amounts) -> dict[str, int]:
    return {resource: whole_amount(resource, milli) for resource, milli in amounts.items()}


class _Starts(Enum):
    """The order in which a container starts, and whether it keeps running."""

    LAST = auto()
    FIRST = auto()  # an init container: runs one at a time, and ends before other containers start
    FIRST_AND_STAYS = auto()  # a sidecar


@dataclass(frozen=True, slots=True)
class _Container:
    """The requests of a container, and what the container holds by the kubelet's reports.

    Requests and reports differ during a resize in place. ``allocated`` and ``actual`` are what the kubelet reports, ``None`` if it reports
    nothing.
    """

    starts: _Starts
    wanted: _Amounts
    allocated: _Amounts | None
    actual: _Amounts | None
    unreported: _Amounts
    """The amounts that count if the kubelet reports nothing about the container."""

    @property
    def is_settled(self) -> bool:
        """Return whether the container holds what it wants."""
        return self.unreported is self.wanted and self.allocated in (None, self.wanted) and self.actual in (None, self.wanted)


def _allocated(container: _Container) -> _Amounts:
    return container.unreported if container.allocated is None else container.allocated


def _actual(container: _Container) -> _Amounts:
    return _allocated(container) if container.actual is None else container.actual


def _containers(spec: RawObject, status: RawObject, is_infeasible: bool, tally: Tally | None) -> list[_Container]:
    statuses: dict[str, tuple[str, RawObject]] = {}
    regular, first = (items(status, key, "status.", CONTAINERS) for key in ("containerStatuses", "initContainerStatuses"))
    for path, each in chain(regular, first):
        statuses.setdefault(text(each, "name", path=path), (path, each))
    found = []
    for key, is_init in (("containers", False), ("initContainers", True)):
        for path, container in items(spec, key, "spec.", CONTAINERS):
            stated = mapping(mapping(container, "resources", path), "requests", f"{path}resources.")
            wanted = _amounts(stated, f"{path}resources.requests", tally)
            where, reported = statuses.get(text(container, "name", path=path), ("", {}))
            allocated = _stated_mapping(reported, "allocatedResources", where)
            actual = _stated_mapping(mapping(reported, "resources", where), "requests", f"{where}resources.")
            stays = is_init and text(container, "restartPolicy", path=path) == "Always"
            found.append(
                _Container(
                    starts=_Starts.LAST if not is_init else _Starts.FIRST_AND_STAYS if stays else _Starts.FIRST,
                    wanted=wanted,
                    allocated=_reported(allocated, stated, wanted, f"{where}allocatedResources", tally),
                    actual=_reported(actual, stated, wanted, f"{where}resources.requests", tally),
                    unreported={} if is_infeasible else wanted,
                )
            )
    return found


def _reported(amounts: RawObject | None, stated: RawObject, wanted: _Amounts, path: str, tally: Tally | None) -> _Amounts | None:
    """Return the amounts that the kubelet reports, ``None`` without a report.

    Reported amounts mostly equal the ``stated`` amounts. If so, ``wanted`` is returned, so that nothing is parsed twice.
    """
    return None if amounts is None else wanted if amounts == stated else _amounts(amounts, path, tally)


def _together(containers: Iterable[tuple[_Starts, _Amounts]]) -> _Amounts:
    """Return the most that the containers of a pod take together at any time (``aggregateContainerResourcesByFn``).

    Not all containers run at the same time, since some start after others have ended.
    """
    total: _Amounts = {}
    sidecars: _Amounts = {}
    peak: _Amounts = {}
    for starts, amounts in containers:
        if starts is _Starts.FIRST:
            # An init container runs beside the sidecars that were started before it.
            peak = _larger(peak, _sum(amounts, sidecars))
            continue
        total = _sum(total, amounts)
        if starts is _Starts.FIRST_AND_STAYS:
            sidecars = _sum(sidecars, amounts)
            peak = _larger(peak, sidecars)
    return _larger(total, peak)


def _pod_level(spec: RawObject, held: _Amounts | None, is_infeasible: bool, tally: Tally | None) -> _Amounts:
    """Return what the pod as a whole requests or holds, which replaces the sums of its containers (``effectivePodLevelResources``)."""
    stated = mapping(mapping(spec, "resources", "spec."), "requests", "spec.resources.")
    wanted = _amounts(stated, "spec.resources.requests", tally)
    if not any(map(_has_pod_level, wanted)):
        return {}
    effective = wanted if held is None else held if is_infeasible else _larger(wanted, held)
    return {resource: amount for resource, amount in effective.items() if _has_pod_level(resource)}


def _resize_is_infeasible(status: RawObject) -> bool:
    for _, condition in items(status, "conditions", "status.", ENTRIES):
        if condition.get("type") == "PodResizePending":
            return condition.get("reason") == "Infeasible"
    return False


def _stated_mapping(parent: RawObject, key: str, path: str) -> RawObject | None:
    """Return the object under ``key``; ``None`` if there is none. An empty object is returned as such."""
    return None if parent.get(key) is None else mapping(parent, key, path)


def _sum(left: _Amounts, right: _Amounts) -> _Amounts:
    if not (left and right):
        return left or right
    return {resource: left.get(resource, 0) + right.get(resource, 0) for resource in _union(left, right)}


def _larger(left: _Amounts, right: _Amounts) -> _Amounts:
    if left is right or not (left and right):
        return left or right
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in _union(left, right)}


def _union(left: _Amounts, right: _Amounts) -> Iterable[str]:
    return left.keys() | right.keys()
