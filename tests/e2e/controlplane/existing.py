"""A cluster that is there already and belongs to somebody: fake kubelets and training-operator are started beside it, its own nodes are
kept free of test pods, and at the end everything is as it was.

Only what the suite has made is ever removed: objects whose creation it has asked for, and what lies in the namespace ``default``,
which must be empty to begin with, or in a namespace of its own.
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
"""Marks the nodes that this suite has cordoned, so that one that was killed is made good by the next."""
_GUESTS = ("pods", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "poddisruptionbudgets", "persistentvolumeclaims")
TRAINING_OPERATOR = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
_OPERATOR = "/apis/apps/v1/namespaces/allaboard-system/deployments/allaboard"
_KUBE_SCHEDULER = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"


class NotingApi(Api):
    """Remembers what it has created: the UID by path."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.made: dict[str, str] = {}

    def note_created(self, path: str, uid: str) -> None:
        self.made[path] = uid

    def has_made(self, path: str, obj: Body) -> bool:
        """Whether ``obj``, which lies at ``path``, is one of those."""
        return bool(self.made.get(path) == obj["metadata"]["uid"])


class ExistingCluster:
    """The cluster that ``KUBECONFIG`` names, lent for the time of the context; as far as tests go, it's a ``ControlPlane``."""

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
        """Look whether the cluster can be used, then take it over. Raises ``UnusableError``, ``MissingToolError`` or ``StartError``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.access = read_kubeconfig(self.folder)
        self.kubeconfig.write_text(yaml.safe_dump(self.access.kubeconfig(), sort_keys=False))
        self.api = NotingApi(self.access)
        try:
            self.version = str(self.api.request("GET", "/version")["gitVersion"])
            self._refuse_what_is_used()
        except urllib3.exceptions.HTTPError as error:
            raise UnusableError(f"{self.access.url} does not answer ({error}); set KUBECONFIG to a cluster that runs") from error
        except ApiError as error:
            raise UnusableError(f"{self.access.url} refuses ({error.message}); the tests need an administrator's kubeconfig") from error
        self.programs = binaries.ensure([binaries.KWOK], self._console)
        self._undo.callback(self._remove_what_was_made)
        self._cordon()
        self._undo.callback(self.processes.stop_all)
        self.start_kubelets()

    def stop(self) -> None:
        """End the processes, remove what was made, and let pods onto the cluster's nodes again, whatever else fails."""
        self._undo.close()

    def start_kubelets(self, *, start_pods: bool = True) -> None:
        """Start the fake kubelets, again if need be; without ``start_pods`` what is bound never gets to run."""
        start_kwok(self.processes, self.programs["kwok"], self.kubeconfig, self.folder, start_pods=start_pods)

    def start_scheduler(self) -> None:
        """Start kube-scheduler, unless the cluster has one."""
        if self.api.find(_KUBE_SCHEDULER) is None:
            self.programs |= binaries.ensure([binaries.SCHEDULER], self._console)
            start_scheduler(self.processes, self.programs["kube-scheduler"], self.kubeconfig, self.folder)

    def stop_scheduler(self) -> None:
        """End what ``start_scheduler`` has started."""
        self.processes.stop("kube-scheduler")

    def start_training_operator(self, gang_scheduler_name: str = "") -> None:
        """Start training-operator for TFJobs, again if need be; with a name, it makes a PodGroup for each job."""
        self.programs |= binaries.ensure([binaries.TRAINING_OPERATOR], self._console)
        program = self.programs[binaries.TRAINING_OPERATOR.name]
        start_training_operator(self.processes, program, self.api, self.kubeconfig, gang_scheduler_name)

    def describe(self) -> str:
        """What the tests ran on, in which versions."""
        own = f"a cluster that was there, Kubernetes {self.version} with {len(self.own_nodes)} nodes of its own"
        started = (f"{name} {binaries.version_of(_PROGRAMS[name], path)}" for name, path in self.programs.items())
        return ", ".join((own, *started))

    def _refuse_what_is_used(self) -> None:
        """Raise ``UnusableError`` when the suite would be in somebody's way, or somebody in its."""
        nodes = list(self.api.items("/api/v1/nodes"))
        if fake := [_name(node) for node in nodes if _is_fake(node)]:
            raise UnusableError(
                f"the nodes {', '.join(fake)} are fake ones ({'='.join(NODE_ANNOTATION)}), and the suite brings its own; remove them "
                "(`python -m tests.e2e.controlplane up --bare` boots a cluster without any)"
            )
        found = [f"{plural}/{_name(obj)}" for plural in _GUESTS for obj in self._in_default(plural)]
        found += [f"services/{_name(obj)}" for obj in self._in_default("services") if _name(obj) != "kubernetes"]
        for crd in self.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
            if crd["spec"]["scope"] == "Namespaced":
                names = crd["spec"]["names"]["plural"]
                found += [f"{names}/{_name(obj)}" for obj in self._in_default(names, crd["spec"]["group"], crd["spec"]["versions"])]
        if found:
            more = f" and {len(found) - 10} more" if len(found) > 10 else ""
            raise UnusableError(
                f"the suite empties the namespace default, and in that of {self.access.url} there is {', '.join(found[:10])}{more}; "
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
        """Keep test pods off the cluster's own nodes, and let them on again when everything else is undone."""
        for node in self.api.items("/api/v1/nodes"):
            name, was_killed = _name(node), _CORDONED in (node["metadata"].get("annotations") or {})
            self.own_nodes.append(name)
            if not node["spec"].get("unschedulable") or was_killed:
                self._undo.callback(self._mark, name, cordoned=False)
                self._mark(name, cordoned=True)

    def _mark(self, name: str, *, cordoned: bool) -> None:
        patch = {
            "metadata": {"annotations": {_CORDONED: "true" if cordoned else None}},
            "spec": {"unschedulable": True if cordoned else None},
        }
        with suppress(*(() if cordoned else (ApiError, urllib3.exceptions.HTTPError))):
            self.api.request("PATCH", f"/api/v1/nodes/{name}", patch, content_type=MERGE_PATCH)

    def _remove_what_was_made(self) -> None:
        """Last made first; what has gone, or isn't what was made any more, is left alone."""
        for path, uid in reversed(self.api.made.items()):
            options = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
            with suppress(ApiError, urllib3.exceptions.HTTPError):
                self.api.request("DELETE", path, options)


_PROGRAMS = {program.name: program for program in binaries.PROGRAMS}


def is_wanted() -> bool:
    """Whether the tests are to use the cluster that ``KUBECONFIG`` names."""
    return bool(os.environ.get("E2E_EXISTING"))


def is_operator_deployed() -> bool:
    """Whether an operator schedules there already, which the tests are to use."""
    return os.environ.get("E2E_OPERATOR") == "deployed"


def _name(obj: Body) -> str:
    return str(obj["metadata"]["name"])


def _is_fake(node: Body) -> bool:
    key, value = NODE_ANNOTATION
    return bool((node["metadata"].get("annotations") or {}).get(key) == value)
