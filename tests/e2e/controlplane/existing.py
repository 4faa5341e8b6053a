"""Runs the tests on an existing cluster, and leaves the cluster as it was.

Fake kubelets and training-operator are started beside the cluster, and its own nodes are cordoned to keep test pods away. The suite
removes only objects that it has created itself, objects in namespaces that it has created, and objects in the namespace ``default``. That
namespace must be empty at the start.
"""

import os
from contextlib import ExitStack, suppress
from pathlib import Path

import urllib3
import yaml
from rich.console import Console

from allaboard_sandbox import ApiError

from . import binaries
from .access import Access, UnusableError, read_kubeconfig
from .client import MERGE_PATCH, Api, Body
from .controlplane import NODE_ANNOTATION, start_kwok, start_scheduler, start_training_operator
from .processes import Processes

_CORDONED = "tests.allaboard.dev/cordoned"
"""Annotation of nodes that the suite has cordoned: if the suite is killed, the next run uncordons them."""
_RESOURCES_OF_TESTS = (
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "poddisruptionbudgets",
    "persistentvolumeclaims",
)
TRAINING_OPERATOR = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
_OPERATOR = "/apis/apps/v1/namespaces/allaboard-system/deployments/allaboard"
_KUBE_SCHEDULER = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


class RecordingApi(Api):
    """A client that records the objects that it has created: their UIDs by path."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.created: dict[str, str] = {}

    def note_created(self, path: str, uid: str) -> None:
        self.created[path] = uid

    def has_created(self, path: str, obj: Body) -> bool:
        """Return whether this client has created ``obj``, whose path is ``path``."""
        return bool(self.created.get(path) == obj["metadata"]["uid"])


class ExistingCluster:
    """The cluster that ``KUBECONFIG`` names, used during the context; tests use it like a ``ControlPlane``."""

    def __init__(self, folder: Path, *, is_operator_deployed: bool, console: Console | None = None) -> None:
        self.folder = folder
        self.processes = Processes(folder)
        self.kubeconfig = folder / "kubeconfig"
        self.own_nodes: list[str] = []
        self._is_operator_deployed = is_operator_deployed
        self._console = console or Console(stderr=True)
        self._undo = ExitStack()

    def __enter__(self) -> "ExistingCluster":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Check that the cluster can be used, then prepare it. Raises ``UnusableError``, ``MissingToolError`` or ``StartError``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.access = read_kubeconfig(self.folder)
        self.kubeconfig.write_text(yaml.safe_dump(self.access.kubeconfig(), sort_keys=False))
        self.api = RecordingApi(self.access)
        try:
            self.version = str(self.api.request("GET", "/version")["gitVersion"])
            self._refuse_used_cluster()
        except urllib3.exceptions.HTTPError as error:
            raise UnusableError(f"{self.access.url} does not answer ({error}); set KUBECONFIG to a cluster that runs") from error
        except ApiError as error:
            raise UnusableError(f"{self.access.url} refuses ({error.message}); the tests need an administrator's kubeconfig") from error
        self.programs = binaries.ensure([binaries.KWOK], self._console)
        self._undo.callback(self._remove_created)
        self._cordon()
        self._undo.callback(self.processes.stop_all)
        self.start_kubelets()

    def stop(self) -> None:
        """Stop the processes, remove created objects and uncordon the cluster's nodes, even if one of these steps fails."""
        self._undo.close()

    def start_kubelets(self, *, start_pods: bool = True) -> None:
        """Start or restart the fake kubelets; without ``start_pods`` bound pods never run."""
        start_kwok(self.processes, self.programs["kwok"], self.kubeconfig, self.folder, start_pods=start_pods)

    def start_scheduler(self) -> None:
        """Start kube-scheduler unless the cluster has one."""
        if self.api.find(_KUBE_SCHEDULER) is None:
            self.programs |= binaries.ensure([binaries.SCHEDULER], self._console)
            start_scheduler(self.processes, self.programs["kube-scheduler"], self.kubeconfig, self.folder)

    def stop_scheduler(self) -> None:
        """Stop the kube-scheduler that ``start_scheduler`` has started."""
        self.processes.stop("kube-scheduler")

    def start_training_operator(self, gang_scheduler_name: str = "") -> None:
        """Start or restart training-operator for TFJobs; with a name, it creates a PodGroup for each job."""
        self.programs |= binaries.ensure([binaries.TRAINING_OPERATOR], self._console)
        program = self.programs[binaries.TRAINING_OPERATOR.name]
        start_training_operator(self.processes, program, self.api, self.kubeconfig, gang_scheduler_name)

    def describe(self) -> str:
        """Return the versions of the cluster and of the started programs."""
        own = f"an existing cluster, Kubernetes {self.version} with {len(self.own_nodes)} nodes of its own"
        started = (f"{name} {binaries.version_of(_PROGRAMS[name], path)}" for name, path in self.programs.items())
        return ", ".join((own, *started))

    def _refuse_used_cluster(self) -> None:
        """Raise ``UnusableError`` if the cluster has objects that the suite would disturb, or that would disturb the suite."""
        nodes = list(self.api.items("/api/v1/nodes"))
        if fake := [_name(node) for node in nodes if _is_fake(node)]:
            raise UnusableError(
                f"the nodes {', '.join(fake)} are fake ones ({'='.join(NODE_ANNOTATION)}), and the suite brings its own; remove them "
                "(`python -m tests.e2e.controlplane up --bare` boots a cluster without any)"
            )
        found = [f"{plural}/{_name(obj)}" for plural in _RESOURCES_OF_TESTS for obj in self._in_default(plural)]
        found += [f"services/{_name(obj)}" for obj in self._in_default("services") if _name(obj) != "kubernetes"]
        for crd in self.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
            if crd["spec"]["scope"] == "Namespaced":
                names = crd["spec"]["names"]["plural"]
                found += [f"{names}/{_name(obj)}" for obj in self._in_default(names, crd["spec"]["group"], crd["spec"]["versions"])]
        if found:
            more = f" and {len(found) - 10} more" if len(found) > 10 else ""
            raise UnusableError(
                f"the suite empties the namespace default, and that of {self.access.url} contains {', '.join(found[:10])}{more}; "
                "remove it, or use another cluster"
            )
        if self.api.find(TRAINING_OPERATOR):
            raise UnusableError("training-operator is installed in the cluster, and the suite starts its own; use a cluster without one")
        operator = self.api.find(_OPERATOR)
        if operator and operator["spec"].get("replicas") and not self._is_operator_deployed:
            raise UnusableError("an operator is deployed in allaboard-system: set E2E_OPERATOR=deployed to test it, or scale it to 0")

    def _in_default(self, plural: str, group: str = "", versions: "list[Body] | None" = None) -> list[Body]:
        version = next((each["name"] for each in versions or () if each["served"]), "")
        if versions is not None and not version:
            return []
        resource = self.api.resource(plural, f"{group}/{version}" if group else "")
        return list(self.api.items(resource.path("default")))

    def _cordon(self) -> None:
        """Cordon the cluster's own nodes, to keep test pods away, and let ``stop`` uncordon them as its last step."""
        for node in self.api.items("/api/v1/nodes"):
            name, was_killed = _name(node), _CORDONED in (node["metadata"].get("annotations") or {})
            self.own_nodes.append(name)
            if not node["spec"].get("unschedulable") or was_killed:
                self._undo.callback(self._set_cordoned, name, cordoned=False)
                self._set_cordoned(name, cordoned=True)

    def _set_cordoned(self, name: str, *, cordoned: bool) -> None:
        patch = {
            "metadata": {"annotations": {_CORDONED: "true" if cordoned else None}},
            "spec": {"unschedulable": True if cordoned else None},
        }
        with suppress(*(() if cordoned else (ApiError, urllib3.exceptions.HTTPError))):
            self.api.request("PATCH", f"/api/v1/nodes/{name}", patch, content_type=MERGE_PATCH)

    def _remove_created(self) -> None:
        """Remove created objects, the last one first; an object that was replaced since is left alone."""
        for path, uid in reversed(self.api.created.items()):
            options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
            with suppress(ApiError, urllib3.exceptions.HTTPError):
                self.api.request("DELETE", path, options)


_PROGRAMS = {program.name: program for program in binaries.PROGRAMS}


def is_wanted() -> bool:
    """Return whether the tests use the cluster that ``KUBECONFIG`` names."""
    return bool(os.environ.get("E2E_EXISTING"))


def is_operator_deployed() -> bool:
    """Return whether the tests use an operator that is already deployed on the cluster."""
    return os.environ.get("E2E_OPERATOR") == "deployed"


def _name(obj: Body) -> str:
    return str(obj["metadata"]["name"])


def _is_fake(node: Body) -> bool:
    key, value = NODE_ANNOTATION
    return bool((node["metadata"].get("annotations") or {}).get(key) == value)
