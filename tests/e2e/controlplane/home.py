"""A real cluster with the sandbox's interface, so that one suite runs on both.

Requests with which a test prepares the cluster go directly to the API server; those of the scheduler under test go through the fault proxy.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from allaboard_sandbox import ApiError, NodeShape, node_object
from allaboard_sandbox.faults import Faults
from tests.webhooks import BIND_WEBHOOK

from .access import kubeconfig
from .client import JSON_PATCH, MERGE_PATCH, Api, Body, Resource, namespace_of
from .controlplane import NODE_ANNOTATION, ControlPlane
from .existing import ExistingCluster
from .proxy import FaultProxy

CONFIG = Path(__file__).parents[3] / "config"
GONE_SECONDS = 60.0
_POLL_SECONDS = 0.03
_NOT_READY = "node.kubernetes.io/not-ready"
_ADMITTED_SECONDS = 10.0
SYSTEM_NAMESPACES = frozenset(("default", "kube-system", "kube-public", "kube-node-lease", "kubeflow", "kueue-system", "allaboard-system"))
# Owners come first, so that no controller recreates removed objects.
_WORKLOADS = (
    ("apps/v1", "deployments"),
    ("apps/v1", "replicasets"),
    ("apps/v1", "statefulsets"),
    ("batch/v1", "jobs"),
    ("policy/v1", "poddisruptionbudgets"),
    ("v1", "pods"),
    ("v1", "services"),
    ("v1", "persistentvolumeclaims"),
    ("v1", "persistentvolumes"),
    ("storage.k8s.io/v1", "csinodes"),
    ("storage.k8s.io/v1", "csidrivers"),
    ("storage.k8s.io/v1", "csistoragecapacities"),
    ("storage.k8s.io/v1", "storageclasses"),
    ("v1", "nodes"),
)
_CLUSTER_WIDE = (
    ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations"),
    ("scheduling.k8s.io/v1", "priorityclasses"),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    ("v1", "namespaces"),
)


class RealCluster:
    """A real cluster as tests see it: the sandbox's methods, each a request to the API server."""

    def __init__(self, api: Api, proxy: FaultProxy) -> None:
        self._api, self._proxy = api, proxy

    @property
    def url(self) -> str:
        """URL at which the proxy serves the API without TLS and without authentication."""
        return self._proxy.url

    @property
    def faults(self) -> Faults:
        """Faults of the requests to ``url``."""
        return self._proxy.faults

    @property
    def wire(self) -> FaultProxy:
        """The proxy, at which requests with credentials can be observed."""
        return self._proxy

    def kubeconfig(self) -> Body:
        """Return a kubeconfig of the administrator."""
        return kubeconfig(self.url, None, "")

    def write_kubeconfig(self, path: str | Path) -> None:
        Path(path).write_text(yaml.safe_dump(self.kubeconfig()))

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
        """Register a node as its kubelet would, and wait until the node controller has seen that it is ready."""
        node = node_object(name, NodeShape(cpu, memory, pods, gpus, extra), labels, taints, ready=ready)
        node["metadata"]["annotations"] = dict([NODE_ANNOTATION])
        created = self.create(node)
        while ready and any(taint["key"] == _NOT_READY for taint in created["spec"].get("taints") or ()):
            time.sleep(0.005)
            created = self.get("nodes", name) or created
        return created

    def create(self, obj: Body) -> Body:
        resource = self._api.resource(str(obj["kind"]), str(obj["apiVersion"]))
        created = self._api.request("POST", resource.path(namespace_of(obj)), obj)
        if obj["kind"] == "PriorityClass":
            self._until_admitted(created["metadata"]["name"])
        if obj["kind"] == "CustomResourceDefinition":
            _until(partial(self._is_discovered, obj), f"{obj['metadata']['name']} is discovered")
        return created

    def _is_discovered(self, crd: Body) -> bool:
        """Return whether the API server lists the kind of a CRD, which it does some time after the CRD is Established."""
        spec = crd["spec"]
        try:
            self._api.resource(spec["names"]["kind"], f"{spec['group']}/{spec['versions'][0]['name']}")
        except ApiError:
            return False
        return True

    def _until_admitted(self, priority_class: str) -> None:
        """Wait until the API server admits pods of a priority class: its admission sees a new class with a delay."""
        spec = {"priorityClassName": priority_class, "containers": [{"name": "main", "image": "pause"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": "default"}, "spec": spec}
        ends = time.monotonic() + _ADMITTED_SECONDS
        while True:
            try:
                self._api.request("POST", self._resource("pods").path("default"), pod, query={"dryRun": "All"})
                return
            except ApiError as error:
                if error.status != 403 or time.monotonic() > ends:
                    raise
            time.sleep(0.005)

    def apply(self, obj: Body) -> Body:
        return self._api.apply(obj)

    def get(self, kind: str, name: str, namespace: str = "default") -> Body | None:
        return self._api.find(self._resource(kind).path(namespace, name))

    def list(self, kind: str, namespace: str | None = None, label_selector: str | None = None) -> list[Body]:
        query = {"labelSelector": label_selector} if label_selector else {}
        try:
            return list(self._api.items(self._resource(kind).path(namespace), query))
        except ApiError as error:
            if error.status == 404:
                return []
            raise

    def patch(self, plural: str, name: str, patch: Any, namespace: str = "default", subresource: str | None = None) -> Body:
        path = self._resource(plural).path(namespace, name, subresource or "")
        return self._api.request("PATCH", path, patch, content_type=JSON_PATCH if isinstance(patch, list) else MERGE_PATCH)

    def delete(self, plural: str, name: str, namespace: str = "default", grace: int | None = None) -> None:
        options: Body = {"propagationPolicy": "Background"} | ({} if grace is None else {"gracePeriodSeconds": grace})
        self._api.request("DELETE", self._resource(plural).path(namespace, name), options)

    def finish_pod(self, name: str, namespace: str = "default", phase: str = "Succeeded") -> None:
        pod = self.get("pods", name, namespace) or {}
        exit_code = 0 if phase == "Succeeded" else 1
        ends = {"ready": False, "restartCount": 0, "imageID": "", "state": {"terminated": {"exitCode": exit_code}}}
        # Job operators read the exit codes of containers, which a kubelet would report.
        containers = [{"name": each["name"], "image": each["image"], **ends} for each in pod.get("spec", {}).get("containers", ())]
        self.patch("pods", name, {"status": {"phase": phase, "containerStatuses": containers}}, namespace, "status")

    def drop_watches(self, resource: str | None = None) -> None:
        self._proxy.drop_watches(resource)

    def compact(self, plural: str = "pods") -> None:
        """Make the proxy answer as if the history of a resource had been compacted."""
        revision = self._api.request("GET", self._resource(plural).path(None), query={"limit": "1"})["metadata"]["resourceVersion"]
        self._proxy.expire(plural, int(revision))

    async def wait_for(self, predicate: Callable[["RealCluster"], bool], timeout: float = 50.0, message: str = "") -> None:
        """Wait until ``predicate`` holds, at most three times ``timeout`` seconds: a real cluster is slower than the sandbox."""
        try:
            async with asyncio.timeout(3 * timeout):
                while not predicate(self):  # noqa: ASYNC110  # the cluster is another process, and polling is simpler than watching
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(message or f"not within {3 * timeout} s: {predicate}") from None

    def _resource(self, kind: str) -> Resource:
        return self._api.resource(kind)


class ControlPlaneHome:
    """Lends one control plane to one test after another, and clears it in between."""

    def __init__(self, plane: ControlPlane | ExistingCluster, crds: Sequence[Body]) -> None:
        self._plane, self._crds, self._api = plane, crds, plane.api
        self._operator_token = operator_token(self._api, self._install)
        self._gang_scheduler_name: str | None = None
        self._starts_pods = True

    @contextlib.asynccontextmanager
    async def open(self, *, crds: bool = True, gang_scheduler_name: str = "", startup_delay: float = 0.05) -> AsyncIterator[RealCluster]:
        """Yield the empty cluster, with or without the CRDs of ``crds/``; pods never start if ``startup_delay`` is a minute or more."""
        self.prepare_crds(crds=crds)
        if self._gang_scheduler_name != gang_scheduler_name:
            self._plane.start_training_operator(gang_scheduler_name)
            self._gang_scheduler_name = gang_scheduler_name
        if self._starts_pods is not (startup_delay < GONE_SECONDS):
            self._starts_pods = not self._starts_pods
            self._plane.start_kubelets(start_pods=self._starts_pods)
        async with FaultProxy(self._plane.access) as proxy:
            try:
                yield self._cluster_at(proxy)
            finally:
                self.clear()

    def write_operator_kubeconfig(self, cluster: RealCluster, path: Path) -> None:
        """Write a kubeconfig for the fault proxy with only the rights of the operator's ClusterRole."""
        path.write_text(yaml.safe_dump(kubeconfig(cluster.url, None, self._operator_token)))

    def write_direct_operator_kubeconfig(self, path: Path) -> None:
        """Write the operator's kubeconfig for the API server itself over TLS, as a pod has it."""
        path.write_text(yaml.safe_dump(self._plane.access.kubeconfig(self._operator_token)))

    def clear(self) -> None:
        """Remove all objects that a test may have left, and wait until they are gone."""
        for group_version, plural in (*self._custom(), *_WORKLOADS):
            for obj in self._left(group_version, plural):
                self._remove(self._api.resource(plural, group_version), obj)
        for group_version, plural in (*self._custom(), *_WORKLOADS):
            self._until_gone(group_version, plural)
        self._clear_events()
        for group_version, plural in _CLUSTER_WIDE:
            for obj in self._left(group_version, plural):
                self._remove(self._api.resource(plural, group_version), obj)
        self._until_gone("v1", "namespaces")

    def prepare_crds(self, *, crds: bool = True) -> None:
        """Install the CRDs, or remove them without ``crds``, and wait until that has taken effect."""
        for crd in self._crds:
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
            if crds:
                self._install(crd)
                _until(partial(self._is_served, path), f"{crd['metadata']['name']} is served")
            elif self._api.find(path):
                self._api.request("DELETE", path)
                _until(partial(self._is_gone, path), f"{crd['metadata']['name']} is gone")

    def _install(self, obj: Body) -> None:
        self._api.apply(obj)

    def _cluster_at(self, proxy: FaultProxy) -> RealCluster:
        return RealCluster(self._api, proxy)

    def _is_ours(self, resource: Resource, obj: Body) -> bool:
        """Return whether a test may have created ``obj``; other objects are left alone."""
        return not _is_system(resource.plural, obj)

    def _clear_events(self) -> None:
        self._api.request("DELETE", "/api/v1/namespaces/default/events")

    def _is_served(self, path: str) -> bool:
        conditions = ((self._api.find(path) or {}).get("status") or {}).get("conditions") or []
        return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

    def _is_gone(self, path: str) -> bool:
        return self._api.find(path) is None

    def _custom(self) -> Iterator[tuple[str, str]]:
        """Yield group, version and plural of each custom resource that is served."""
        for crd in self._api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
            spec = crd["spec"]
            yield f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["plural"]

    def _left(self, group_version: str, plural: str) -> list[Body]:
        try:
            resource = self._api.resource(plural, group_version)
            return [obj for obj in self._api.items(resource.path(None)) if self._is_ours(resource, obj)]
        except ApiError as error:
            if error.status == 404:
                return []
            raise

    def _remove(self, resource: Resource, obj: Body) -> None:
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"])
        try:
            if metadata.get("finalizers"):
                self._api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
            grace = {"gracePeriodSeconds": 0} if resource.plural == "pods" else {}
            self._api.request("DELETE", path, {"propagationPolicy": "Background", **grace})
        except ApiError as error:
            if error.status != 404:
                raise

    def _until_gone(self, group_version: str, plural: str) -> None:
        def is_gone() -> bool:
            left = self._left(group_version, plural)
            for obj in left:
                if plural == "pods" or obj["metadata"].get("finalizers"):
                    # A controller that hasn't seen the deletion of its own object recreates pods, and finalizers keep objects.
                    self._remove(self._api.resource(plural, group_version), obj)
            return not left

        _until(is_gone, f"no {plural} are left")


def operator_token(api: Api, install: Callable[[Body], None]) -> str:
    """Install the operator's account with the shipped rights, and return a token of the account."""
    manifests = [CONFIG / "namespace.yaml", *sorted((CONFIG / "rbac").glob("[!k]*.yaml"))]
    for manifest in manifests:
        install(yaml.safe_load(manifest.read_text()))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 24 * 3600}}
    answer = api.request("POST", "/api/v1/namespaces/allaboard-system/serviceaccounts/allaboard/token", request)
    return str(answer["status"]["token"])


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {GONE_SECONDS:.0f} s: {what}")
        time.sleep(0.02)


def _is_system(plural: str, obj: Body) -> bool:
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
    match plural:
        case "priorityclasses":
            return bool(name.startswith("system-"))
        case "validatingwebhookconfigurations":  # the other ones are those of installed controllers
            return bool(name != BIND_WEBHOOK["metadata"]["name"])
        case "customresourcedefinitions":
            return bool(obj["spec"]["group"] != "example.com")
        case "services":
            return bool(name == "kubernetes") or namespace in SYSTEM_NAMESPACES - {"default"}
        case "namespaces":
            return name in SYSTEM_NAMESPACES
        case _:
            return namespace in SYSTEM_NAMESPACES - {"default"}
