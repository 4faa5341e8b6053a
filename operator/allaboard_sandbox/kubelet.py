"""A stand-in for the kubelets of all nodes: it admits bound pods, starts and ends them, and removes deleted pods.

It is driven by changes and timers and never polls, so 5,000 idle nodes cost nothing. The kubelet of a node that isn't Ready does nothing:
the node's pods stay as they are until the node is Ready.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from allaboard_sandbox import quantities
from allaboard_sandbox.api import TERMINAL_PHASES, Api
from allaboard_sandbox.binding import with_condition
from allaboard_sandbox.store import DELETED, Body, Change, Key, Record

DURATION_ANNOTATION = "sandbox.allaboard.dev/duration"
DELETION_SECONDS = 0.05
"""Seconds that containers take to stop. Real containers may take their whole grace period, which is too long for a demo."""

Amounts = Mapping[str, int]
"""Resource name to amount: cpu in thousandths, everything else in whole units."""


@dataclass(slots=True)
class _Node:
    """The pods that are bound to one node, and the amounts that the admitted pods take of it."""

    pods: set[Key] = field(default_factory=set)
    admitted: dict[Key, Amounts] = field(default_factory=dict)

    def used(self, name: str) -> int:
        if name == "pods":
            return len(self.admitted)
        return sum(amounts.get(name, 0) for amounts in self.admitted.values())


class Kubelet:
    """A stand-in for the kubelets of all nodes."""

    def __init__(self, api: Api, *, startup_delay: float) -> None:
        self._api = api
        self._startup_delay = startup_delay
        self._nodes: dict[str, _Node] = {}
        self._timers: dict[tuple[str, Key], asyncio.TimerHandle] = {}
        self._addresses = _addresses()

    def stop(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def on_change(self, change: Change) -> None:
        """Schedule what a change requires, in a later iteration of the event loop. The method writes nothing to the store."""
        if change.table == "pods":
            self._on_pod(change)
        elif change.table == "nodes" and change.type != DELETED and _is_ready(change.record.body):
            was_ready = change.previous is not None and _is_ready(change.previous.body)
            node = self._nodes.get(change.record.key[1])
            if node and not was_ready:
                for key in node.pods:
                    self._later(0, "sync", key, self._sync)

    def finish(self, key: Key, phase: str, *, reason: str = "", message: str = "") -> None:
        """End a pod's containers and set its phase, ``Succeeded`` or ``Failed``."""
        pod = self._pod(key)
        if pod is None or pod["status"].get("phase") in TERMINAL_PHASES:
            return
        code = 0 if phase == "Succeeded" else 1
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": self._api.now()}
        statuses = [{**each, "ready": False, "started": False, "state": {"terminated": ended}} for each in _statuses(pod)]
        waiting = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        explained = {field: text for field, text in (("reason", reason), ("message", message)) if text}
        self._set_status(key, {"phase": phase, "containerStatuses": statuses, **explained}, {"Ready": waiting, "ContainersReady": waiting})

    def _on_pod(self, change: Change) -> None:
        pod, key = change.record.body, change.record.key
        name = pod["spec"].get("nodeName")
        if not name:
            return
        node = self._nodes.setdefault(name, _Node())
        if change.type == DELETED:
            node.pods.discard(key)
            node.admitted.pop(key, None)
            self._cancel(key)
            return
        if change.previous is not None and change.previous.uid != change.record.uid:
            self._cancel(key)
        node.pods.add(key)
        phase = pod["status"].get("phase")
        if phase in TERMINAL_PHASES:
            node.admitted.pop(key, None)
        elif phase == "Running" and key not in node.admitted:
            # The pod was stored as Running, for example by `Sandbox.load`: it is admitted without a check of the capacity.
            node.admitted[key] = requests_of(pod)
        if phase == "Pending" or "deletionTimestamp" in pod["metadata"] or (phase == "Running" and _duration(pod) is not None):
            self._later(0, "sync", key, self._sync)

    def _sync(self, key: Key) -> None:
        """Take the next step of a pod: reject or start it, schedule its end, or schedule its removal."""
        pod = self._pod(key)
        if pod is None or not self._is_node_ready(pod["spec"]["nodeName"]):
            return
        phase = pod["status"].get("phase")
        if "deletionTimestamp" in pod["metadata"]:
            grace = pod["metadata"].get("deletionGracePeriodSeconds", 0)
            self._later(min(DELETION_SECONDS, grace), "remove", key, self._remove)
        elif phase == "Pending" and ("start", key) not in self._timers:
            if rejection := self._rejection(key, pod):
                self._reject(key, *rejection)
            else:
                self._nodes[pod["spec"]["nodeName"]].admitted[key] = requests_of(pod)
                self._later(self._startup_delay, "start", key, self._start)
        elif phase == "Running" and (seconds := _duration(pod)) is not None:
            self._later(seconds, "finish", key, lambda key: self.finish(key, "Succeeded"))

    def _rejection(self, key: Key, pod: Body) -> tuple[str, str] | None:
        """Return the reason and message with which the kubelet rejects a pod, or None if its requests fit."""
        name = pod["spec"]["nodeName"]
        node = self._nodes[name]
        if key in node.admitted:
            return None
        found = self._api.store.table("nodes").get(("", name))
        allocatable = amounts((found.body.get("status") or {}).get("allocatable") or {}) if found else {}
        for resource, requested in {"pods": 1, **requests_of(pod)}.items():
            if "/" in resource and resource not in allocatable:
                continue  # extended resources that the node lacks are ignored (lifecycle/predicate.go, removeMissingExtendedResources)
            used, capacity = node.used(resource), allocatable.get(resource, 0)
            if requested and requested > capacity - used:
                text = f"resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
                return f"OutOf{resource}", f"Pod was rejected: Node didn't have enough {text}"
        return None

    def _reject(self, key: Key, reason: str, message: str) -> None:
        self._set_status(key, {"phase": "Failed", "reason": reason, "message": message, "startTime": self._api.now()}, {})

    def _start(self, key: Key) -> None:
        pod = self._pod(key)
        if pod is None or "deletionTimestamp" in pod["metadata"] or not self._is_node_ready(pod["spec"]["nodeName"]):
            return
        if pod["status"].get("phase", "Pending") != "Pending":
            return  # the pod has ended before its start
        now, host = self._api.now(), self._host_address(pod["spec"]["nodeName"])
        address = host if host and pod["spec"].get("hostNetwork") else next(self._addresses)
        statuses = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "containerID": f"sandbox://{pod['metadata']['uid']}/{container['name']}",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "lastState": {},
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ]
        running = {
            "phase": "Running",
            "startTime": now,
            **({"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "containerStatuses": statuses,
        }
        self._set_status(key, running, {"PodReadyToStartContainers": "", "Initialized": "", "Ready": "", "ContainersReady": ""})

    def _remove(self, key: Key) -> None:
        pod = self._pod(key)
        if pod is None or "deletionTimestamp" not in pod["metadata"]:
            return
        self._cancel(key)
        if pod["metadata"].get("finalizers"):
            # The containers have stopped, but finalizers keep the object: it is removed with its last finalizer.
            metadata = {**pod["metadata"], "deletionGracePeriodSeconds": 0}
            if metadata != pod["metadata"]:
                self._api.store.put("pods", key, {**pod, "metadata": metadata})
            return
        self._api.store.remove("pods", key)

    def _set_status(self, key: Key, changes: Body, conditions: Mapping[str, str]) -> None:
        """Merge ``changes`` into a pod's status, and set ``conditions``, a mapping from type to reason.

        A condition with an empty reason becomes True, a condition with a reason becomes False.
        """
        pod = self._pod(key)
        if pod is None:
            return
        listed: list[dict[str, Any]] = pod["status"].get("conditions") or []
        for type, reason in conditions.items():
            condition = {"type": type, "status": "False" if reason else "True", "lastProbeTime": None}
            explained = {"reason": reason} if reason else {}
            listed = with_condition(listed, {**condition, "lastTransitionTime": self._api.now(), **explained})
        self._api.store.put("pods", key, {**pod, "status": {**pod["status"], "conditions": listed, **changes}})

    def _pod(self, key: Key) -> Body | None:
        record: Record | None = self._api.store.table("pods").get(key)
        return record.body if record else None

    def _is_node_ready(self, name: str) -> bool:
        node = self._api.store.table("nodes").get(("", name))
        return node is not None and _is_ready(node.body)

    def _host_address(self, name: str) -> str:
        """Return the internal IP address of a node; empty if the node reports none."""
        node = self._api.store.table("nodes").get(("", name))
        addresses = ((node.body.get("status") or {}).get("addresses") or ()) if node else ()
        return next((str(each.get("address", "")) for each in addresses if each.get("type") == "InternalIP"), "")

    def _later(self, seconds: float, step: str, key: Key, action: Callable[[Key], None]) -> None:
        if (step, key) in self._timers:
            return

        def fire() -> None:
            self._timers.pop((step, key), None)
            action(key)

        self._timers[step, key] = asyncio.get_running_loop().call_later(seconds, fire)

    def _cancel(self, key: Key) -> None:
        for step in ("sync", "start", "finish", "remove"):
            if timer := self._timers.pop((step, key), None):
                timer.cancel()


def amounts(listed: Mapping[str, str]) -> dict[str, int]:
    """Return quantities as numbers: cpu in thousandths, everything else in whole units, rounded up."""
    return {name: quantities.whole(str(text), milli=name == "cpu") for name, text in listed.items()}


def requests_of(pod: Body) -> dict[str, int]:
    """Return the amounts that a pod requests of its node (kubernetes pkg/api/v1/resource/helpers.go)."""
    spec = pod["spec"]
    total: dict[str, int] = {}
    for container in spec["containers"]:
        _add(total, _container_requests(container))
    sidecars: dict[str, int] = {}
    at_start: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            own = sidecars
        else:
            own = dict(own)
            _add(own, sidecars)
        at_start = {name: max(at_start.get(name, 0), own.get(name, 0)) for name in at_start.keys() | own.keys()}
    total = {name: max(total.get(name, 0), at_start.get(name, 0)) for name in (*total, *(at_start.keys() - total.keys()))}
    total |= amounts((spec.get("resources") or {}).get("requests") or {})
    _add(total, amounts(spec.get("overhead") or {}))
    return total


def _container_requests(container: Body) -> dict[str, int]:
    return amounts((container.get("resources") or {}).get("requests") or {})


def _add(total: dict[str, int], added: Amounts) -> None:
    for name, amount in added.items():
        total[name] = total.get(name, 0) + amount


def _statuses(pod: Body) -> list[Body]:
    return pod["status"].get("containerStatuses") or []


def _is_ready(node: Body) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _duration(pod: Body) -> float | None:
    """Return the seconds for which a pod asks to run; None without a duration, or if the pod is always restarted."""
    text = (pod["metadata"].get("annotations") or {}).get(DURATION_ANNOTATION)
    if text is None or pod["spec"].get("restartPolicy") == "Always":
        return None
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        return None


def _addresses() -> Iterator[str]:
    count = 0
    while True:
        count = count % (250 * 250 * 250) + 1
        yield f"10.{count // 62500 % 250 + 1}.{count // 250 % 250}.{count % 250 + 1}"
