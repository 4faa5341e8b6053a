"""Reads raw objects, and computes whether pods fit, so that the judge needn't trust the scheduler's own reading or search."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from allaboard_sandbox.kubelet import amounts, requests_of
from tests.faults.gangs import DEVICES_OF_NODE, DEVICES_OF_POD, PERCENT, RACK, ROLE

Body = dict[str, Any]
Amounts = dict[str, int]

ENDED = ("Succeeded", "Failed")
GPU, DEVICES = "nvidia.com/gpu", "unused GPUs"
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label that makes Kueue the manager of a Job."""
_REPELLING = ("NoSchedule", "NoExecute")


def uid_of(obj: Body) -> str:
    """Return the UID of an object."""
    return str(obj["metadata"]["uid"])


def name_of(obj: Body) -> str:
    """Return the name of an object."""
    return str(obj["metadata"]["name"])


def phase_of(pod: Body) -> str:
    """Return the phase of a pod."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def node_of(pod: Body) -> str:
    """Return the node of a pod, empty without one."""
    return str(pod["spec"].get("nodeName") or "")


def role_of(pod: Body) -> str:
    """Return the role that a pod names, empty without one."""
    return str((pod["metadata"].get("annotations") or {}).get(ROLE, ""))


def owner_of(pod: Body) -> str:
    """Return the UID of the controller of a pod, empty without one."""
    return next((str(each.get("uid")) for each in pod["metadata"].get("ownerReferences") or ()), "")


def is_leaving(obj: Body) -> bool:
    """Return whether an object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]


def is_alive(pod: Body) -> bool:
    """Return whether a pod has neither ended nor is being deleted."""
    return not is_leaving(pod) and phase_of(pod) not in ENDED


def is_gated(pod: Body) -> bool:
    """Return whether a scheduling gate is set on a pod."""
    return bool(pod["spec"].get("schedulingGates"))


def is_managed(job: Body) -> bool:
    """Return whether another controller suspends and resumes the Job."""
    labels = job["metadata"].get("labels") or {}
    return bool(job["spec"].get("managedBy") or labels.get(QUEUE) or job["metadata"].get("ownerReferences"))


def demand_of(pod: Body) -> Amounts:
    """Return what a pod takes of its node's allocatable. The per cent of a GPU are left out: nodes don't count them."""
    demand = {"pods": 1, **requests_of(pod)}
    demand.pop(PERCENT, None)
    return demand


def parts_of(pod: Body) -> list[int]:
    """Return what a pod requests of single GPUs, in per cent of each."""
    requests = requests_of(pod)
    return [requests[PERCENT]] if PERCENT in requests else [100] * requests.get(GPU, 0)


def devices_of(node: Body | None) -> list[str] | None:
    """Return the GPUs of a node that are counted one by one; None if its GPUs are only a number."""
    listed = _annotations(node).get(DEVICES_OF_NODE) if node else None
    return None if listed is None else [each.partition(",")[0] for each in listed.split(":") if each]


def devices_in(text: str) -> list[str]:
    """Return the GPUs that a device annotation names."""
    return [each.partition(",")[0] for each in text.replace(";", ":").split(":") if each]


def held_devices(pod: Body) -> list[str]:
    """Return the GPUs that were given to a pod."""
    return devices_in(_annotations(pod).get(DEVICES_OF_POD, ""))


def rack_of(node: Body | None) -> str:
    """Return the rack of a node, empty without one."""
    return str((node["metadata"].get("labels") or {}).get(RACK, "")) if node else ""


def confined(pod: Body, rack: str) -> Body:
    """Return a copy of ``pod`` that only nodes of ``rack`` admit."""
    selector = {**(pod["spec"].get("nodeSelector") or {}), RACK: rack}
    return {**pod, "spec": {**pod["spec"], "nodeSelector": selector}}


def _annotations(obj: Body) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def capacity_of(node: Body) -> Amounts:
    """Return the allocatable amounts of a node."""
    return amounts((node.get("status") or {}).get("allocatable") or {})


def refusal(node: Body | None, pod: Body) -> str:
    """Return why ``node`` admits no such pod, whatever its free capacity; empty when the node admits it."""
    if node is None:
        return "doesn't exist"
    if is_leaving(node):
        return "is being deleted"
    conditions = (node.get("status") or {}).get("conditions") or ()
    if not any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return "isn't ready"
    spec = node.get("spec") or {}
    tolerations = pod["spec"].get("tolerations") or ()
    if spec.get("unschedulable") and not _tolerated({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, tolerations):
        return "is cordoned"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _REPELLING and not _tolerated(taint, tolerations):
            return f"has the taint {taint['key']}"
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"hasn't the label {key}={value}"
    return ""


def volumes_refusal(pod: Body, node_name: str, get: Callable[[str, str, str], Body | None]) -> str:
    """Return why a pod can't run on a node because of its claims; empty if it can.

    ``get(plural, namespace, name)`` returns an object, or None if it doesn't exist.
    """
    for mounted in pod["spec"].get("volumes") or ():
        name = (mounted.get("persistentVolumeClaim") or {}).get("claimName")
        if name is None:
            continue
        claim = get("persistentvolumeclaims", pod["metadata"]["namespace"], name)
        if claim is None or (claim.get("status") or {}).get("phase") != "Bound":
            return f"its claim {name} has no volume"
        volume = get("persistentvolumes", "", claim["spec"]["volumeName"])
        if volume is None:
            return f"the volume of its claim {name} doesn't exist"
        required = (volume["spec"].get("nodeAffinity") or {}).get("required") or {"nodeSelectorTerms": []}
        hosts = [value for term in required["nodeSelectorTerms"] for each in term["matchExpressions"] for value in each["values"]]
        if hosts and node_name not in hosts:
            return f"the volume of its claim {name} is on {', '.join(hosts)}"
    return ""


def _tolerated(taint: Mapping[str, Any], tolerations: Sequence[Mapping[str, Any]]) -> bool:
    for each in tolerations:
        if each.get("effect") not in (None, "", taint.get("effect")):
            continue
        if each.get("operator") == "Exists" and each.get("key") in (None, "", taint["key"]):
            return True
        if each.get("key") == taint["key"] and each.get("value", "") == taint.get("value", ""):
            return True
    return False


def with_assignments(pods: Iterable[Body], targets: Mapping[str, str]) -> list[Body]:
    """Return ``pods``; a pod without a node gets the node that ``targets`` names for its UID, if any."""
    return [
        pod if node_of(pod) or uid_of(pod) not in targets else {**pod, "spec": {**pod["spec"], "nodeName": targets[uid_of(pod)]}}
        for pod in pods
    ]


def free_capacity(nodes: Mapping[str, Body], pods: Sequence[Body], without: Collection[str] = ()) -> dict[str, Amounts]:
    """Return what is free on each node, as if the pods with the UIDs ``without`` were gone.

    Of GPUs that are counted one by one only unused ones are free, so a pod that fits by this count certainly fits.
    """
    free = {name: capacity_of(node) for name, node in nodes.items()}
    unused = {name: set(devices) for name, node in nodes.items() if (devices := devices_of(node)) is not None}
    elsewhere = dict.fromkeys(unused, 0)
    for pod in pods:
        name = node_of(pod)
        if name not in free or phase_of(pod) in ENDED or uid_of(pod) in without:
            continue
        for resource, amount in demand_of(pod).items():
            free[name][resource] = free[name].get(resource, 0) - amount
        if name in unused and (parts := parts_of(pod)):
            unused[name] -= (held := set(held_devices(pod)))
            elsewhere[name] += 0 if held else len(parts)
    for name, capacity in free.items():
        capacity[DEVICES] = len(unused[name]) - elsewhere[name] if name in unused else capacity.get(GPU, 0)
    return free


def most_placeable(pods: Sequence[Body], nodes: Mapping[str, Body], free: Mapping[str, Amounts], enough: int | None = None) -> int:
    """Return how many of ``pods`` fit at once, exactly, by trying all ways; ``enough`` ends the search early.

    Meant for gangs of a dozen on a dozen nodes: pods with the same requests are interchangeable, and so are nodes with the same capacity.
    """
    kinds: dict[tuple[tuple[tuple[str, int], ...], tuple[str, ...]], int] = {}
    for pod in pods:
        asked = {**demand_of(pod), DEVICES: len(parts_of(pod))}
        demand = tuple(sorted((resource, amount) for resource, amount in asked.items() if amount))
        admitting = tuple(sorted(name for name, node in nodes.items() if not refusal(node, pod)))
        kinds[demand, admitting] = kinds.get((demand, admitting), 0) + 1
    goal = len(pods) if enough is None else min(enough, len(pods))
    resources = sorted({resource for (demand, _), _ in kinds.items() for resource, _ in demand})
    order = sorted(nodes)
    rows = tuple(tuple(free[name].get(resource, 0) for resource in resources) for name in order)
    classes = [
        (
            tuple(dict(demand).get(resource, 0) for resource in resources),
            frozenset(index for index, name in enumerate(order) if name in admitting),
            count,
        )
        for (demand, admitting), count in sorted(kinds.items(), key=lambda each: sum(amount for _, amount in each[0][0]), reverse=True)
    ]
    admitted = [tuple(index in admitting for _, admitting, _ in classes) for index in range(len(order))]
    seen: dict[tuple[int, int, tuple[tuple[int, ...], ...]], int] = {}

    def best(kind: int, left: int, capacities: tuple[tuple[int, ...], ...]) -> int:
        if kind == len(classes):
            return 0
        demand, admitting, _ = classes[kind]
        following = classes[kind + 1][2] if kind + 1 < len(classes) else 0
        if not left:
            return best(kind + 1, following, capacities)
        state = (kind, left, capacities)
        if state in seen:
            return seen[state]
        found = best(kind + 1, following, capacities)  # the other pods of this kind stay unplaced
        tried: set[tuple[tuple[int, ...], tuple[bool, ...]]] = set()
        for index, capacity in enumerate(capacities):
            mark = (capacity, admitted[index])
            if index not in admitting or mark in tried or any(need > have for need, have in zip(demand, capacity, strict=True) if need):
                continue
            tried.add(mark)
            after = tuple(have - need for need, have in zip(demand, capacity, strict=True))
            found = max(found, 1 + best(kind, left - 1, (*capacities[:index], after, *capacities[index + 1 :])))
            if found >= goal:
                break
        seen[state] = found
        return found

    return best(0, classes[0][2], rows) if classes else 0
