"""Creates nodes and gangs of pods, and watches binds, for benchmarks of whole schedulers.

A process of its own creates the pods, as fast as the API server takes them, so that its work doesn't distort what is measured.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import numpy as np
import yaml

from contenders import CRDS, Connection
from operator_process import ROOT

PODS = "/api/v1/namespaces/default/pods"
NATIVE_GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"

_CRD = ROOT / "crds" / "podgroups.scheduling.x-k8s.io.yaml"
_OUR_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
_GROUPS_IN_NAMESPACE = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
_VOLCANO_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
_GROUPS = {
    "native": NATIVE_GROUPS,
    "podgroup": _GROUPS_IN_NAMESPACE,
    "coscheduling": _GROUPS_IN_NAMESPACE,
    "volcano": _VOLCANO_GROUPS,
}
_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
_READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """``gangs`` gangs of ``size`` pods each, in ``roles`` roles.

    The pods of the first role request one cpu; those of each further role request one cpu more than those of the role before. All further
    roles together are about a tenth of the gang.
    """

    gangs: int
    size: int
    roles: int = 1

    def __str__(self) -> str:
        return f"{self.gangs}x{self.size}" + (f"r{self.roles}" if self.roles > 1 else "")

    def cpus(self, member: int) -> int:
        """Return the number of cpus that the pod with the number ``member`` requests."""
        if self.roles == 1:
            return 1
        pods_of_role = max(1, self.size // (10 * (self.roles - 1)))
        return max(1, self.roles - member // pods_of_role)

    @property
    def pods(self) -> int:
        """Number of pods of all gangs."""
        return self.gangs * self.size


SCENARIOS = {
    str(scenario): scenario
    for scenario in (Scenario(1000, 1), Scenario(50, 20), Scenario(50, 20, 2), Scenario(50, 20, 4), Scenario(2, 500), Scenario(1, 1000))
}


@dataclass(frozen=True, slots=True)
class Load:
    """Work for the load generator. ``bodies``: for each pod, in the order of creation, the number of its gang and the pod as JSON."""

    connection: Connection
    gangs: int
    bodies: Sequence[tuple[int, bytes]]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Created:
    """Times of the creates in seconds on the machine's monotonic clock, and the processor time that they took.

    ``first``: when the first create of each gang was sent. ``ended``: when the last create of all was answered.
    """

    first: Sequence[float]
    ended: float
    cpu_seconds: float


def a_node(number: int, gpus: int = 0) -> dict[str, Any]:
    """Return a ready node of 16 cpu, 64 GiB, 110 pods and ``gpus`` GPUs, which a fake kubelet (kwok) keeps ready."""
    from allaboard_sandbox import NodeShape, node_object  # the load generator doesn't need this import

    node = node_object(f"node-{number}", NodeShape("16", "64Gi", pods=110, gpus=gpus))
    node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    return node


def a_pod(contender: str, name: str, group: str = "", size: int = 1, **requests: str) -> dict[str, Any]:
    """Return a bare pod; with ``group``, a member of that gang of ``size`` pods, stated in the contender's own way.

    The pod requests one cpu and 1 GiB unless ``requests`` are given. A pod for Allaboard is annotated as recreated, as if it had a
    controller, except for the contender ``bare``. Where admission may refuse binds, each bind of a bare pod is dry-run, and of other pods
    one bind of each template.
    """
    labels, annotations, spec = _stated(contender, name, group, size)
    devices = {resource: amount for resource, amount in requests.items() if "/" in resource}  # extended resources need limits
    resources = {"requests": requests or {"cpu": "1", "memory": "1Gi"}, **({"limits": devices} if devices else {})}
    container = {"name": "main", "image": "pause", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels, "annotations": annotations},
        "spec": {"containers": [container], **spec},
    }


def _stated(contender: str, name: str, group: str, size: int) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    """Return the labels, the annotations and the part of the spec by which a pod states its scheduler and its gang."""
    match contender:
        case "native":
            return {}, {}, {"schedulingGroup": {"podGroupName": group}} if group else {}
        case "coscheduling":
            return {_GROUP_LABEL: group} if group else {}, {}, {"schedulerName": contender}
        case "volcano":  # which needs a PodGroup for a single pod, too
            return {}, {"scheduling.k8s.io/group-name": group or name}, {"schedulerName": contender}
    labels = {"pod-group.scheduling.sigs.k8s.io/name": group, "pod-group.scheduling.sigs.k8s.io/min-available": str(size)}
    if contender == "podgroup":
        labels = {_GROUP_LABEL: group}
    annotations = {} if contender == "bare" else {"allaboard.dev/recreate": "true"}
    return labels if group else {}, annotations, {"schedulerName": "allaboard"}


def a_pod_group(contender: str, name: str, size: int) -> dict[str, Any]:
    """Return the PodGroup of a gang, of the kind that the contender reads."""
    versions = {"native": "scheduling.k8s.io/v1beta1", "volcano": "scheduling.volcano.sh/v1beta1"}
    specs: dict[str, dict[str, Any]] = {
        "native": {"schedulingPolicy": {"gang": {"minCount": size}}},
        "volcano": {"minMember": size, "queue": "default"},
    }
    return {
        "apiVersion": versions.get(contender, "scheduling.x-k8s.io/v1alpha1"),
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": specs.get(contender, {"minMember": size}),
    }


async def prepare(session: aiohttp.ClientSession, contender: str, scenario: Scenario, **requests: str) -> list[tuple[int, bytes]]:
    """Create the PodGroups of a scenario, if the contender has any, and return the scenario's pods in the form of ``Load.bodies``."""
    is_gang = scenario.size > 1
    names = [f"gang-{gang}" for gang in range(scenario.gangs)]

    def asked(member: int) -> dict[str, str]:
        return requests or {"cpu": str(scenario.cpus(member)), "memory": "1Gi"}

    single = [f"{name}-0" for name in names] if contender == "volcano" else []  # Volcano needs a PodGroup for a single pod, too
    names_of_groups = names if is_gang else single
    if groups := _GROUPS.get(contender):
        await asyncio.gather(*(send(session, "POST", groups, a_pod_group(contender, name, scenario.size)) for name in names_of_groups))
    return [
        (gang, json.dumps(a_pod(contender, f"{name}-{member}", name if is_gang else "", scenario.size, **asked(member))).encode())
        for gang, name in enumerate(names)
        for member in range(scenario.size)
    ]


def create(load: Load) -> Created:
    """Create pods as fast as the API server takes them. Runs in the load generator's process."""
    return asyncio.run(_create(load))


async def _create(load: Load) -> Created:
    first = [0.0] * load.gangs
    waiting = iter(load.bodies)
    async with load.connection.session(load.concurrency) as session:

        async def post() -> None:
            for gang, body in waiting:
                first[gang] = first[gang] or time.monotonic()
                async with session.post(PODS, data=body) as response:
                    answer = await response.read()
                    if response.status != 201:
                        raise RuntimeError(f"a pod could not be created: {answer.decode(errors='replace')}")

        # Connect first, so that handshakes don't count as creates.
        await asyncio.gather(*(send(session, "GET", "/version") for _ in range(load.concurrency)))
        cpu = time.process_time()
        await asyncio.gather(*(post() for _ in range(load.concurrency)))
        return Created(first, time.monotonic(), time.process_time() - cpu)


async def send(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    """Send a request and return its answer. Raises ``RuntimeError`` with the answer unless the request succeeds."""
    async with session.request(method, path, data=None if body is None else json.dumps(body)) as response:
        answer = await response.read()
        if response.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.decode(errors='replace')}")
        return json.loads(answer)


async def find(session: aiohttp.ClientSession, path: str) -> Any:
    """Return the object at ``path``; None if there is none, or if its kind isn't served yet."""
    async with session.get(path) as response:
        answer = await response.read()
        return json.loads(answer) if response.status == 200 else None


async def furnish(session: aiohttp.ClientSession, nodes: Sequence[dict[str, Any]]) -> None:
    """Create ``nodes`` and the PodGroup CRD, which every compared scheduler uses. Return when nodes and CRD are ready."""
    if await find(session, _OUR_GROUPS) is None:
        await send(session, "POST", CRDS, yaml.safe_load(_CRD.read_text()))
    await asyncio.gather(*(send(session, "POST", "/api/v1/nodes", node) for node in nodes))

    async def is_untainted() -> bool:
        answer = await send(session, "GET", "/api/v1/nodes")
        return not any(node["spec"].get("taints") for node in answer["items"])

    async def is_served() -> bool:
        return await find(session, _OUR_GROUPS) is not None

    await until(is_untainted, "the nodes to be ready")
    await until(is_served, "PodGroups to be served")


async def warm_up(session: aiohttp.ClientSession, contender: str) -> None:
    """Wait until the contender has bound a pod, so that it has read the cluster before it is measured; then delete the pod."""
    path = f"{PODS}/warm-up"

    async def is_bound() -> bool:
        return bool((await send(session, "GET", path))["spec"].get("nodeName"))

    async def is_gone() -> bool:
        return await find(session, path) is None

    if contender == "volcano":
        await until(partial(_is_taken, session, a_pod_group(contender, "warm-up", 1)), "Volcano's PodGroups to be served")
    await send(session, "POST", PODS, a_pod(contender, "warm-up"))
    await until(is_bound, f"{contender} to bind a pod")
    await send(session, "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
    await until(is_gone, "a pod to go")


async def _is_taken(session: aiohttp.ClientSession, group: dict[str, Any]) -> bool:
    async with session.post(_VOLCANO_GROUPS, json=group) as answer:
        return answer.status == 201


async def until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    """Call ``is_so`` until it returns True. Raises ``RuntimeError`` after 60 s; its message says what was awaited: ``what``."""
    deadline = time.monotonic() + _READY_SECONDS
    while not await is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {_READY_SECONDS:.0f} s in vain for {what}")
        await asyncio.sleep(0.05)


class Binds:
    """Records when the first and the last pod of each gang are bound, while the context ``listening()`` is open.

    ``complete`` is set once all pods are bound.
    """

    def __init__(self, scenario: Scenario, on_bound: Callable[[str], None] = lambda name: None) -> None:
        self._on_bound = on_bound
        self._missing = scenario.pods
        self.first = np.zeros(scenario.gangs)
        self.last = np.zeros(scenario.gangs)
        self.complete = asyncio.Event()

    async def all_bound(self, listener: asyncio.Task[None], seconds: float, label: str) -> None:
        """Return when all pods are bound. Raises ``RuntimeError`` with ``label`` after ``seconds``, or the error of ``listener``."""
        waiter = asyncio.create_task(self.complete.wait())
        await asyncio.wait((waiter, listener), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()
        if listener.done():
            listener.result()
        if self._missing:
            raise RuntimeError(f"{label}: {self._missing} pods are not bound after {seconds:.0f} s")

    @asynccontextmanager
    async def listening(self, session: aiohttp.ClientSession) -> AsyncIterator[asyncio.Task[None]]:
        """Watch binds while the context is open; yield the watching task, which ends only by an error."""
        task = asyncio.create_task(self._listen(session, (await send(session, "GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self, session: aiohttp.ClientSession, version: str) -> None:
        """Watch until cancelled. If the API server closes a watch that lags behind a burst, a new watch begins at the last version."""
        # Only bound pods are selected, so a pod is "added" when it is bound. Metadata is enough.
        headers = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
        query = {"watch": "1", "fieldSelector": "spec.nodeName!="}
        while True:
            parameters = {**query, "resourceVersion": version}
            async with session.get(PODS, params=parameters, headers=headers, timeout=aiohttp.ClientTimeout(total=None)) as response:
                response.raise_for_status()
                rest = b""
                async for chunk in response.content.iter_any():
                    now = time.monotonic()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self._take(json.loads(line), now)

    def _take(self, event: dict[str, Any], now: float) -> str:
        """Record one event, and return its resourceVersion. Raises ``RuntimeError`` if the event is an error."""
        if event["type"] == "ERROR":
            raise RuntimeError(f"the watch of bound pods has failed: {event['object'].get('message')}")
        metadata = event["object"]["metadata"]
        if event["type"] == "ADDED":
            gang = int(metadata["name"].split("-")[1])
            self.first[gang] = self.first[gang] or now
            self.last[gang] = now
            self._on_bound(str(metadata["name"]))
            self._missing -= 1
            if not self._missing:
                self.complete.set()
        return str(metadata["resourceVersion"])
