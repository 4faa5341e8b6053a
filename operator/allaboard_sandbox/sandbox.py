"""The ``Sandbox`` that the tests, the demo and the load tests use: it starts and stops all parts and gives access to them."""

import asyncio
import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import yaml
from aiohttp import web

from allaboard_sandbox import customresources, errors, patches
from allaboard_sandbox.api import Api, DeleteOptions, key_of
from allaboard_sandbox.clock import Clock, micro_stamp, stamp, system_clock
from allaboard_sandbox.controllers import Controllers
from allaboard_sandbox.controllers.node import set_taints
from allaboard_sandbox.faults import Faults
from allaboard_sandbox.kinds import Registry, Resource
from allaboard_sandbox.kubelet import Kubelet
from allaboard_sandbox.selectors import label_selector
from allaboard_sandbox.server import Server
from allaboard_sandbox.store import Body, Store

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
PRIORITY_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
KUBELET_VERSION = "v1.37.0"
SHUTDOWN_SECONDS = 1.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class NodeShape:
    """The capacity of a node."""

    cpu: str = "16"
    memory: str = "64Gi"
    pods: int = 110
    gpus: int = 0
    extra: Mapping[str, str] | None = None

    def capacity(self) -> dict[str, str]:
        """Return the capacity in the form of a Node's status."""
        capacity = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods), "ephemeral-storage": "100Gi"}
        if self.gpus:
            capacity["nvidia.com/gpu"] = str(self.gpus)
        return capacity | dict(self.extra or {})


class Sandbox:
    """A Kubernetes API server with fake kubelets and stand-in controllers, in this process and event loop.

    ``history`` is the number of changes per resource that a watch can go back. ``startup_delay`` is the number of seconds that an admitted
    pod takes to run. ``gang_scheduler_name`` is training-operator's flag of that name: if it is set, TFJobs get a PodGroup.
    """

    NAME: ClassVar = "sandbox"
    """Name of the context in its kubeconfigs."""

    def __init__(
        self,
        port: int = 0,
        host: str = "127.0.0.1",
        *,
        controllers: bool = True,
        history: int = 50_000,
        startup_delay: float = 0.05,
        gang_scheduler_name: str = "",
        clock: Clock = system_clock,
    ) -> None:
        self.faults = Faults()
        self.store = Store(history)
        self.registry = Registry()
        self.api = Api(self.store, self.registry, clock=clock)
        self._host, self._port = host, port
        self._node_addresses = _node_addresses()
        self._kubelet = Kubelet(self.api, startup_delay=startup_delay)
        self._controllers = Controllers(self.api, gang_scheduler_name=gang_scheduler_name) if controllers else None
        self._runner: web.AppRunner | None = None
        self.store.subscribe(customresources.Definitions(self.registry, self.store).on_change)
        self.store.subscribe(self._kubelet.on_change)
        if self._controllers:
            self.store.subscribe(self._controllers.on_change)
        self._create_initial_objects()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the controllers and the HTTP server."""
        if self._controllers:
            self._controllers.start()
        application = Server(self.api, self.faults).application()
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=600
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all watches, and stop the kubelets, the controllers and the HTTP server."""
        self.drop_watches()
        self._kubelet.stop()
        if self._controllers:
            await self._controllers.stop()
        if self._runner:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        """Base URL of the API server."""
        return f"http://{self._host}:{self._port}"

    def kubeconfig(self) -> Body:
        """Return a kubeconfig for this sandbox, which needs no credentials."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.NAME,
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "users": [{"name": "sandbox", "user": {}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}}],
        }

    def write_kubeconfig(self, path: str | Path) -> None:
        """Write a kubeconfig for this sandbox to a file."""
        Path(path).write_text(yaml.safe_dump(self.kubeconfig(), sort_keys=False))

    def add_node(
        self,
        name: str,
        *,
        cpu: str = "16",
        memory: str = "64Gi",
        pods: int = 110,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        ready: bool = True,
        extra: Mapping[str, str] | None = None,
    ) -> Body:
        """Register a node as its kubelet would, and return it with the taints that the node controller sets."""
        shape, now = NodeShape(cpu, memory, pods, gpus, extra), self.api.now()
        self.create(node_object(name, shape, labels, taints, ready=ready, now=now, address=next(self._node_addresses)))
        set_taints(self.api, name)
        heartbeat = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro_stamp(self.api.clock())}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"}}
        self.apply({**lease, "spec": heartbeat})
        resource = self.api.resource("nodes")
        return copy.deepcopy(resource.present(self.api.read(resource, "", name).body))

    def create(self, obj: Body) -> Body:
        """Create an object as a client would, and return it.

        Raises ``ApiError`` if the API refuses the object.
        """
        resource = self._resource_of(obj)
        written = self.api.create(resource, _namespace_of(obj), obj)
        return copy.deepcopy(resource.present(written.record.body))

    def apply(self, obj: Body) -> Body:
        """Create an object, or merge it into the object that exists; return the result."""
        resource, namespace, name = self._resource_of(obj), _namespace_of(obj), str(obj["metadata"].get("name", ""))
        if self.store.table(resource.table).get(key_of(resource, namespace, name)) is None:
            return self.create(obj)
        written = self.api.patch(resource, namespace, name, obj)
        return copy.deepcopy(resource.present(written.record.body))

    def get(self, kind: str, name: str, namespace: str = "default") -> Body | None:
        """Return a copy of an object, or None if it doesn't exist."""
        resource = self.api.resource(kind)
        record = self.store.table(resource.table).get(key_of(resource, namespace, name))
        return copy.deepcopy(resource.present(record.body)) if record else None

    def list(self, kind: str, namespace: str | None = None, label_selector: str | None = None) -> list[Body]:
        """Return the objects of a kind, sorted by namespace and name.

        The objects share their data with the store, so they must not be changed.
        """
        resource = self.api.resource(kind)
        matches = _label_test(label_selector)
        records = self.store.table(resource.table).snapshot(namespace, self.store.revision, self.store.revision) or []
        return [resource.present(record.body) for record in records if matches(record.body["metadata"].get("labels") or {})]

    def patch(
        self,
        plural: str,
        name: str,
        patch: Any,
        namespace: str = "default",
        subresource: str | None = None,
    ) -> Body:
        """Merge-patch an object, or JSON-patch it if ``patch`` is a list; return the result."""
        resource = self.api.resource(plural)
        patch_type = patches.JSON_PATCH if isinstance(patch, list) else patches.MERGE_PATCH
        written = self.api.patch(resource, namespace, name, patch, patch_type=patch_type, subresource=subresource or "")
        return copy.deepcopy(resource.present(written.record.body))

    def delete(self, plural: str, name: str, namespace: str = "default", grace: int | None = None) -> None:
        """Delete an object as a client would; ``grace`` is the grace period in seconds, None for the object's own."""
        self.api.delete(self.api.resource(plural), namespace, name, DeleteOptions(grace_seconds=grace))

    def load(self, objects: Iterable[Body]) -> None:
        """Store complete objects as they are, without admission, which would take minutes for large loads."""
        for obj in objects:
            resource = self._resource_of(obj)
            key = key_of(resource, _namespace_of(obj), obj["metadata"]["name"])
            self.store.put(resource.table, key, obj)

    def finish_pod(self, name: str, namespace: str = "default", phase: str = "Succeeded") -> None:
        """End a running pod with the given phase, ``Succeeded`` or ``Failed``."""
        self._kubelet.finish((namespace, name), phase)

    def drop_watches(self, resource: str | None = None) -> None:
        """End the open watches of one resource, or all open watches."""
        tables = self.store.tables() if resource is None else [self.store.table(self.api.resource(resource).table)]
        for table in tables:
            table.restarts += 1
            table.changed.notify()

    def compact(self) -> None:
        """Forget the history: a watch or list from an older resourceVersion is then answered 410."""
        self.store.compact()

    async def wait_for(self, predicate: Callable[[Self], bool], timeout: float = 50.0, message: str = "") -> None:
        """Wait until ``predicate`` holds. Raises ``TimeoutError`` with ``message``.

        The predicate is evaluated after each change and every 50 ms, because it may depend on more than the store. The timeout only guards
        against waiting for ever; it says nothing about speed, since a busy machine is slow. The timeout is shorter than the minute after
        which the operator lists PodGroups again, so that a test fails if a watch has missed a deletion.
        """
        try:
            async with asyncio.timeout(timeout):
                while not predicate(self):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self.store.changed.wait(), _POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(message or f"not within {timeout} s: {predicate}") from None

    def _resource_of(self, obj: Body) -> Resource:
        resource = self.registry.of_object(obj)
        if resource is None:
            kind, version = obj.get("kind"), obj.get("apiVersion")
            raise errors.ApiError(404, "NotFound", f'no matches for kind "{kind}" in version "{version}"')
        return resource

    def _create_initial_objects(self) -> None:
        """Create the objects that every cluster has from the start."""
        for name in NAMESPACES:
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for name, value in PRIORITY_CLASSES.items():
            self.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value})
        self.create(json.loads(json.dumps(customresources.TFJOB)))


def node_object(
    name: str,
    shape: NodeShape,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    *,
    ready: bool = True,
    now: str | None = None,
    address: str = "10.0.0.1",
) -> Body:
    """Return a Node as a kubelet registers it."""
    now = now or stamp(system_clock())
    well_known = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    kubelet = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    conditions = [
        {"type": type, "status": "False", "reason": f"KubeletHasNo{type}", "message": "", **kubelet}
        for type in ("MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    report = ("True", "KubeletReady", "kubelet is posting ready status") if ready else ("False", "KubeletNotReady", "kubelet is not ready")
    conditions.append({"type": "Ready", "status": report[0], "reason": report[1], "message": report[2], **kubelet})
    capacity = shape.capacity()
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": well_known | dict(labels or {})},
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "nodeInfo": {
                "kubeletVersion": KUBELET_VERSION,
                "osImage": "Sandbox",
                "kernelVersion": "none",
                "containerRuntimeVersion": "sandbox://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _node_addresses() -> Iterator[str]:
    """Yield an IP address for each node; the addresses of pods begin at 10.1."""
    for number in count():
        yield f"10.0.{number // 250 % 250}.{number % 250 + 1}"


def _label_test(selector: str | None) -> Callable[[Mapping[str, str]], bool]:
    return label_selector(selector or "")


def _namespace_of(obj: Body) -> str:
    return str(obj["metadata"].get("namespace") or "default")
