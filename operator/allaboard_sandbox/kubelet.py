"""The kubelets of all nodes in one: admits bound pods, starts them, finishes them and takes deleted ones away.

Driven by changes and timers, never by polling, so that 5,000 nodes cost nothing while nothing happens. A node that isn't Ready has
a kubelet that doesn't answer: its pods stay as they are until it comes back.
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
"""How long containers take to stop; a real one is given its grace period, which no demo wants to wait for."""

Amounts = Mapping[str, int]
"""Resource name to amount: cpu in thousandths, everything else in whole units."""


@dataclass(slots=True)
class _Node:
    """What one kubelet keeps in mind."""

    pods: set[Key] = field(default_factory=set)
    admitted: dict[Key, Amounts] = field(default_factory=dict)

    def used(self, name: str) -> int:
        if name == "pods":
            return len(self.admitted)
        return sum(amounts.get(name, 0) for amounts in self.admitted.values())


class Kubelet:
    """Stands in for the kubelet of every node."""

    def __init__(self, api: Api, *, startup_delay: float) -> None:
        self._api = api
        self._startup_delay = startup_delay
        self._nodes: dict[str, _Node] = {}
        self._timers: dict[tuple[str, Key], asyncio.TimerHandle] = {}
        self._addresses = _addresses()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def on_change(self, change: Change) -> None:
        """Note a change. Nothing is written here: what follows from it happens in a later turn of the loop."""
        if change.table == "pods":
            self._on_pod(change)
        elif change.table == "nodes" and change.type != DELETED and _is_ready(change.record.body):
            was_ready = change.previous is not None and _is_ready(change.previous.body)
            node = self._nodes.get(change.record.key[1])
            if node and not was_ready:
                for key in node.pods:
                    self._later(0, "sync", key, self._sync)

    def finish(self, key: Key, phase: str, *, reason: str = "", message: str = "") -> None:
        """End a pod's containers."""
        pod = self._pod(key)
        if pod is None or pod["status"].get("phase") in TERMINAL_PHASES:
            return
        code = 0 if phase == "Succeeded" else 1
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": self._api.now()}
        statuses = [{**each, "ready": False, "started": False, "state": {"terminated": ended}} for each in _statuses(pod)]
        waiting = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        said = {field: text for field, text in (("reason", reason), ("message", message)) if text}
        self._set_status(key, {"phase": phase, "containerStatuses": statuses, **said}, {"Ready": waiting, "ContainersReady": waiting})

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
            # Started by somebody else, such as a bulk load: it takes its room without being asked.
            node.admitted[key] = requests_of(pod)
        if phase == "Pending" or "deletionTimestamp" in pod["metadata"] or (phase == "Running" and _duration(pod) is not None):
            self._later(0, "sync", key, self._sync)

    def _sync(self, key: Key) -> None:
        """Do the next thing a pod needs."""
        pod = self._pod(key)
        if pod is None or not self._answers(pod["spec"]["nodeName"]):
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
        """Return the reason and message with which the kubelet refuses a pod, or None when it has room."""
        name = pod["spec"]["nodeName"]
        node = self._nodes[name]
        if key in node.admitted:
            return None
        found = self._api.store.table("nodes").get(("", name))
        allocatable = amounts((found.body.get("status") or {}).get("allocatable") or {}) if found else {}
        for resource, requested in {"pods": 1, **requests_of(pod)}.items():
            if "/" in resource and resource not in allocatable:
                continue  # the node knows nothing of it (kubelet lifecycle/predicate.go, removeMissingExtendedResources)
            used, capacity = node.used(resource), allocatable.get(resource, 0)
            if requested and requested > capacity - used:
                text = f"resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
                return f"OutOf{resource}", f"Pod was rejected: Node didn't have enough {text}"
        return None

    def _reject(self, key: Key, reason: str, message: str) -> None:
        self._set_status(key, {"phase": "Failed", "reason": reason, "message": message, "startTime": self._api.now()}, {})

    def _start(self, key: Key) -> None:
        pod = self._pod(key)
        if pod is None or "deletionTimestamp" in pod["metadata"] or not self._answers(pod["spec"]["nodeName"]):
            return
        if pod["status"].get("phase", "Pending") != "Pending":
            return  # somebody has written that it has ended meanwhile
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
            # The containers have stopped, but somebody still holds the object: it goes when they let go.
            metadata = {**pod["metadata"], "deletionGracePeriodSeconds": 0}
            if metadata != pod["metadata"]:
                self._api.store.put("pods", key, {**pod, "metadata": metadata})
            return
        self._api.store.remove("pods", key)

    def _set_status(self, key: Key, changes: Body, conditions: Mapping[str, str]) -> None:
        """Merge ``changes`` into a pod's status; conditions without a reason become true, the others false."""
        pod = self._pod(key)
        if pod is None:
            return
        listed: list[dict[str, Any]] = pod["status"].get("conditions") or []
        for type, reason in conditions.items():
            condition = {"type": type, "status": "False" if reason else "True", "lastProbeTime": None}
            said = {"reason": reason} if reason else {}
            listed = with_condition(listed, {**condition, "lastTransitionTime": self._api.now(), **said})
        self._api.store.put("pods", key, {**pod, "status": {**pod["status"], "conditions": listed, **changes}})

    def _pod(self, key: Key) -> Body | None:
        record: Record | None = self._api.store.table("pods").get(key)
        return record.body if record else None

    def _answers(self, name: str) -> bool:
        node = self._api.store.table("nodes").get(("", name))
        return node is not None and _is_ready(node.body)

    def _host_address(self, name: str) -> str:
        """Return the address of a node, if it has one."""
        node = self._api.store.table("nodes").get(("", name))
        addresses = ((node.body.get("status") or {}).get("addresses") or ()) if node else ()
        return next((str(each.get("address", "")) for each in addresses if each.get("type") == "InternalIP"), "")

    def _later(self, seconds: float, what: str, key: Key, action: Callable[[Key], None]) -> None:
        if (what, key) in self._timers:
            return

        def fire() -> None:
            self._timers.pop((what, key), None)
            action(key)

        self._timers[what, key] = asyncio.get_running_loop().call_later(seconds, fire)

    def _cancel(self, key: Key) -> None:
        for what in ("sync", "start", "finish", "remove"):
            if timer := self._timers.pop((what, key), None):
                timer.cancel()


def amounts(listed: Mapping[str, str]) -> dict[str, int]:
    return {name: quantities.whole(str(text), milli=name == "cpu") for name, text in listed.items()}


def requests_of(pod: Body) -> dict[str, int]:
    """Return what a pod takes of its node (kubernetes pkg/api/v1/resource/helpers.go)."""
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
    """Return how long a pod asks to run; pods that are restarted for ever can't end."""
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
