"""The commands of docs/install.md on a real API server: running gangs stay as they are, and foreign objects aren't changed."""

import filecmp
import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard_sandbox import NodeShape, node_object
from tests.integration.test_operator import UPSTREAM_STATUS

from .controlplane.access import Access
from .controlplane.audit import Write, audit_flags, writes
from .controlplane.binaries import FOREIGN_CRDS, HELM, POD_GROUP_CRD, SCHEDULER_PLUGINS, ensure, module_file
from .controlplane.certificates import write_user_certificate
from .controlplane.client import MERGE_PATCH
from .controlplane.controlplane import NODE_ANNOTATION, ControlPlane, Options
from .controlplane.operators import OperatorProcess, shipped_arguments
from .document import blocks_under, commands_under
from .shipped import ACCOUNT, CONFIG, NAMESPACE, ROOT, account_kubeconfig

pytestmark = pytest.mark.timeout(600)

POD_GROUPS = ROOT / "crds" / "podgroups.scheduling.x-k8s.io.yaml"
MEMBERS = 3
GANG = "pod-group.scheduling.sigs.k8s.io"
OLDER = {
    # Its program, which doesn't know GPU metrics.
    "e17d125": ["operator"],
    # Its chart with fewer values, and its manifests. The Deployment's selector, which can't be changed, is the same since then.
    "4efc868": ["charts"],
    "72ddc6e": ["config", "crds"],
}
"""Commits that stand for an older version until one is released, and the folders that are taken from each."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Object:
    """An object of the API server, without fields that change by themselves."""

    resource: str
    namespace: str
    name: str
    generation: int

    @property
    def target(self) -> tuple[str, str, str]:
        """Resource, namespace and name, as in ``Write.target`` of the audit log."""
        return self.resource, self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Reader:
    """Runs the commands of docs/install.md as an administrator. ``root`` is the folder of the project, in the version to install."""

    plane: ControlPlane
    helm: Path
    root: Path
    overlay: Path

    def play(self, title: str, program: str = "kubectl") -> list[str]:
        """Run the commands of ``program`` in the section ``title`` of docs/install.md, and return the commands."""
        commands = commands_under(title, program)
        for command in commands:
            self.run(command)
        return commands

    def run(self, command: str, stdin: str = "") -> str:
        """Run one command and return its output."""
        words = shlex.split(command.replace("OVERLAY", str(self.overlay)).replace("REGISTRY/", "localhost/").replace("=TAG", "=v1"))
        environment = {**os.environ, "KUBECONFIG": str(self.plane.kubeconfig), "PATH": f"{self.helm.parent}:{os.environ['PATH']}"}
        done = subprocess.run(words, input=stdin, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def objects(self) -> dict[str, Object]:
        """Return all objects of the API server by UID."""
        listed = self.run("kubectl api-resources --verbs=list -o name").split()
        resources = ",".join(each for each in listed if each != "componentstatuses")  # these aren't stored
        found = {}
        for each in json.loads(self.run(f"kubectl get {resources} --all-namespaces -o json"))["items"]:
            group, metadata = each["apiVersion"].rpartition("/")[0], each["metadata"]
            resource = f"{self.plane.api.resource(each['kind'], each['apiVersion']).plural}.{group}".removesuffix(".")
            found[metadata["uid"]] = Object(resource, metadata.get("namespace", ""), metadata["name"], metadata.get("generation", 0))
        return found


@pytest.fixture
def plane(alone: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """Yield a control plane of its own, with kube-scheduler and two fake nodes, and without anything of ours."""
    with ControlPlane(tmp_path / "plane", Options(apiserver_flags=audit_flags(tmp_path))) as made:
        made.start_scheduler()
        for number in (1, 2):
            node = node_object(f"node-{number}", NodeShape("16"))
            node["metadata"]["annotations"] = dict([NODE_ANNOTATION])
            made.api.request("POST", "/api/v1/nodes", node)
        yield made


@pytest.fixture
def reader(plane: ControlPlane, tmp_path: Path) -> Reader:
    """Return a reader for a cluster with foreign objects, among them a PodGroup of scheduler-plugins' CRD and a role."""
    made = Reader(plane, ensure([HELM], Console(stderr=True))["helm"], ROOT, _overlay(ROOT, tmp_path / "overlay"))
    for path in (module_file(program, path) for program, path in FOREIGN_CRDS):
        made.run(f"kubectl create -f {path}")
        made.run(f"kubectl wait --for=jsonpath='{{.status.acceptedNames.kind}}' -f {path}")
    made.run("kubectl apply -f config/namespace.yaml")
    made.run("kubectl apply -f -", _FOREIGN)
    made.run("kubectl wait deployment/foreign --for=condition=Available --timeout=60s")
    return made


@pytest.fixture
def older(reader: Reader, tmp_path: Path) -> Reader:
    """Return the reader with an older version of the project. Fails in a clone without history."""
    root = tmp_path / "older"
    root.mkdir()
    for commit, folders in OLDER.items():
        archive = subprocess.run(["git", "archive", commit, *folders], cwd=ROOT, capture_output=True, check=False)
        assert archive.returncode == 0, f"an older version is taken from the history of this clone: {archive.stderr.decode()}"
        subprocess.run(["tar", "--extract"], input=archive.stdout, cwd=root, check=True)
    assert filecmp.dircmp(root / "operator" / "allaboard", ROOT / "operator" / "allaboard").right_only != []
    shown = [sys.executable, "-c", "import allaboard; print(allaboard.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(root / "operator")}
    assert subprocess.check_output(shown, env=environment, cwd=tmp_path, text=True).startswith(str(root))
    return replace(reader, root=root, overlay=_overlay(root, tmp_path / "older-overlay"))


def test_every_command_of_the_install_document_is_run_by_a_test() -> None:
    covered = {
        "kubectl apply",
        "kubectl rollout",
        "kubectl delete",
        "helm install",
        "helm test",
        "helm upgrade",
        "helm rollback",
        "helm uninstall",
    }
    on_the_node = {"install --directory", "kubeadm kubeconfig", "chown 65532:65532", "sed 's|image:"}
    for title in ("Install", "Where others", "Two side by side", "As a static pod", "Upgrade", "Downgrade", "Remove"):
        for command in commands_under(title):
            assert " ".join(command.split()[:2]) in covered | (on_the_node if title == "As a static pod" else set()), command


def test_our_pod_group_crd_extends_the_upstream_crd() -> None:
    """Clients of the upstream CRD can read and write the same fields if ours replaces it."""
    theirs, ours = (yaml.safe_load(path.read_text()) for path in (module_file(SCHEDULER_PLUGINS, POD_GROUP_CRD), POD_GROUPS))
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    assert {key: ours["spec"][key] for key in ("group", "names", "scope")} == {
        key: theirs["spec"][key] for key in ("group", "names", "scope")
    }
    (served,), (upstream,) = ours["spec"]["versions"], theirs["spec"]["versions"]
    assert {key: served[key] for key in ("name", "served", "storage", "subresources")} == {
        key: upstream[key] for key in ("name", "served", "storage", "subresources")
    }
    mine, their = (_without_descriptions(version["schema"]["openAPIV3Schema"]["properties"]) for version in (served, upstream))
    assert mine["spec"] == their["spec"]
    assert their["status"]["properties"].items() <= mine["status"]["properties"].items()
    assert set(their["status"]["properties"]) == set(UPSTREAM_STATUS)


def test_gangs_keep_running_during_an_upgrade_a_downgrade_and_a_removal(
    reader: Reader, older: Reader, plane: ControlPlane, tmp_path: Path
) -> None:
    before, noted = reader.objects(), len(writes(tmp_path))
    # The PodGroup CRD is a foreign object here: ours isn't applied.
    (instead,) = commands_under("Where others")
    install, *rest = commands_under("Install", "kubectl")
    assert install.replace("crds/ ", "crds/mlflows.kopf.dev.yaml ") == instead
    for command in (instead, *rest):
        older.run(command)
    # An upgrade keeps the components that were chosen before.
    reader = replace(reader, overlay=_overlay(ROOT, tmp_path / "upgrade-overlay", older.root))
    complaints: list[str] = []
    added = _rights(reader) - _rights(older)
    operator = _operator(older, plane, tmp_path / "1")
    try:
        first = _gang(reader, "first")

        # Upgrade to the newer version, and back. Each time the next operator starts before the last one is stopped.
        for title, version in (("Upgrade", reader), ("Downgrade", older)):
            commands = commands_under(title, "kubectl")
            assert commands
            for command in commands:
                version.run(instead if "-f crds/" in command else command)
            version.run(f"kubectl rollout status deployment/allaboard -n {NAMESPACE} --timeout=60s")
            following = _operator(version, plane, tmp_path / title)
            assert operator.stop() == 0
            complaints += operator.complaints() if version is older else []  # complaints of the older version can't be fixed
            # The roles of the older version are applied a moment before the newer operator is stopped, which then lacks rights.
            complaints = [each for each in complaints if not any(right in each for right in added)]
            operator = following
            _gang(reader, f"after-the-{title.lower()}")
        assert _pods(reader, "first") == first
    finally:
        operator.stop()
    assert complaints == []

    assert [each.split()[2] for each in older.play("Remove")] == ["deployment/allaboard", "-k", "lease/allaboard"]
    after = reader.objects()
    # No foreign object is gone or changed; a foreign Deployment may have created a pod meanwhile.
    assert {uid: after.get(uid) for uid in before} == before
    assert _pods(reader, "first") == first
    left = [each for uid, each in after.items() if uid not in before and each.resource not in _EXPIRING]
    assert [each for each in left if "allaboard" in each.name and each.resource != "customresourcedefinitions.apiextensions.k8s.io"] == []
    assert {"first", "after-the-upgrade", "after-the-downgrade"} == {each.name for each in left if each.resource.startswith("podgroups.")}
    _assert_audited(writes(tmp_path)[noted:], before.values(), gangs=3)


def test_operator_can_be_installed_tested_upgraded_rolled_back_and_removed_by_helm(
    reader: Reader, older: Reader, plane: ControlPlane, tmp_path: Path
) -> None:
    before, noted = reader.objects(), len(writes(tmp_path))
    titles = ("Install", "Upgrade", "Downgrade", "Remove")
    install, test, upgrade, rollback, uninstall = (each for title in titles for each in commands_under(title, "helm"))
    older.run(install)
    operator = _operator(older, plane, tmp_path / "helm")
    try:
        first = _gang(reader, "first")
        with _jobs_that_end(plane):
            reader.run(test)
        for command, version in ((f"{upgrade} --set logFormat=text", reader), (rollback, older)):
            reader.run(command)
            following = _operator(version, plane, tmp_path / f"helm-{version.overlay.name}")
            assert operator.stop() == 0
            operator = following
        reader.run(commands_under("Remove", "kubectl")[0])
        reader.run(f"{uninstall} --wait")
        assert _pods(reader, "first") == first
    finally:
        operator.stop()
    after = reader.objects()
    assert {uid: after.get(uid) for uid in before} == before
    _assert_audited(writes(tmp_path)[noted:], before.values(), gangs=1)


def test_two_installations_side_by_side_write_only_to_their_own_gangs(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
    reader.run(commands_under("Install")[0])
    first, *_ = commands_under("Install", "helm")
    (second,) = commands_under("Two side by side")
    for command in (first, second):
        reader.run(command)
    names = {"allaboard": "allaboard", "second": "second-allaboard"}
    operators = {scheduler: _operator(reader, plane, tmp_path / scheduler, name) for scheduler, name in names.items()}
    try:
        for scheduler in names:
            _gang(reader, f"of-{scheduler}", scheduler)
        held = reader.run(f"kubectl get leases --namespace {NAMESPACE} -o jsonpath='{{.items[*].metadata.name}}'").split()
        assert set(held) == set(names.values())

        reader.run(f"helm uninstall second --namespace {NAMESPACE} --wait")
        _gang(reader, "of-allaboard-alone")
    finally:
        for operator in operators.values():
            operator.stop()
    assert operators["allaboard"].complaints() == []
    for scheduler, name in names.items():
        account = f"system:serviceaccount:{NAMESPACE}:{name}"
        written = {
            each.name for each in writes(tmp_path) if each.user == account and each.resource in ("pods", "podgroups.scheduling.x-k8s.io")
        }
        assert written
        assert [each for each in written if each and not each.startswith(f"of-{scheduler}")] == []


def test_static_pod_schedules_as_the_user_that_its_kubeconfig_names(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
    assert len(reader.play("As a static pod")) == 2
    certificate = write_user_certificate(plane.folder, "allaboard")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(Access(plane.url, plane.folder / "ca.crt", certificate=certificate).kubeconfig()))
    (container,) = yaml.safe_load((CONFIG / "static-pod" / "allaboard.yaml").read_text())["spec"]["containers"]
    arguments = [argument.replace("/etc/kubernetes/allaboard/kubeconfig", str(kubeconfig)) for argument in container["args"]]
    operator = OperatorProcess([sys.executable, "-m", "allaboard", "run", *arguments], kubeconfig, tmp_path / "static")
    try:
        operator.wait_until(operator.is_ready)
        assert set(_gang(reader, "first").values()) <= {"node-1", "node-2"}
        holder = reader.run(f"kubectl get lease allaboard --namespace {NAMESPACE} -o jsonpath={{.spec.holderIdentity}}")
        assert holder.startswith(f"{socket.gethostname()}_")
    finally:
        status = operator.stop()
    assert (status, operator.complaints()) == (0, [])
    reader.run("kubectl delete -k config/static-pod")


def _without_descriptions(schema: Any) -> Any:
    """Return a schema without its descriptions."""
    if isinstance(schema, dict):
        return {key: _without_descriptions(value) for key, value in schema.items() if not (key == "description" and isinstance(value, str))}
    return schema


def _assert_audited(written: list[Write], before: Iterable[Object], gangs: int) -> None:
    """Assert that our account and tools wrote to no object of ``before``, and that no pod outside our namespace was deleted."""
    foreign = {each.target for each in before}
    ours = [each for each in written if each.user == ACCOUNT or each.agent.lower().startswith(("kubectl/", "helm/"))]
    assert [each for each in ours if each.target in foreign] == []
    pods = [each for each in written if each.resource == "pods" and each.namespace != NAMESPACE]
    assert [each for each in pods if each.verb.startswith("delete") or each.subresource == "eviction"] == []
    # The objects and writes that the assertions are about exist.
    assert {"pods", "podgroups.scheduling.x-k8s.io", "deployments.apps"} <= {resource for resource, _, _ in foreign}
    assert any(each.user != ACCOUNT and each.resource == "clusterroles.rbac.authorization.k8s.io" for each in ours)
    assert len([each for each in pods if each.subresource == "binding" and each.user == ACCOUNT]) == gangs * MEMBERS


@contextmanager
def _jobs_that_end(plane: ControlPlane) -> Iterator[None]:
    """End the pods of Jobs with success during the context: fake kubelets would run them for ever."""
    is_over = threading.Event()
    running = {"labelSelector": "job-name", "fieldSelector": "status.phase=Running"}

    def end() -> None:
        while not is_over.wait(0.2):
            for pod in plane.api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", running):
                path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}/status"
                plane.api.request("PATCH", path, {"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _overlay(root: Path, folder: Path, version: Path | None = None) -> Path:
    """Write the overlay of docs/install.md for the ``config/`` in ``root``, and return the overlay's folder.

    It has all components that the project has in ``version``, by default ``root``, but not the webhooks. They can't be called through their
    Service here: tests/e2e/kind has them.
    """
    folder.mkdir()
    config = os.path.relpath(root / "config", folder.resolve())
    options = sorted(each.name for each in ((version or root) / "config" / "components").iterdir() if each.name != "admission")
    (shown,) = blocks_under("Install", "yaml")
    overlay = yaml.safe_load(shown.replace("../config", config).replace("REGISTRY/", "localhost/").replace("TAG", folder.name))
    overlay["components"] += [f"{config}/components/{option}" for option in options]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return folder


def _operator(reader: Reader, plane: ControlPlane, folder: Path, name: str = "allaboard") -> OperatorProcess:
    """Start the program with the Deployment's options and its account's rights: fake kubelets run no containers."""
    folder.mkdir()
    shipped = yaml.safe_load(reader.run(f"kubectl get deployment {name} --namespace {NAMESPACE} -o yaml"))
    spec = shipped["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
    account = spec["serviceAccountName"]
    kubeconfig = account_kubeconfig(plane, lambda *words: reader.run(f"kubectl {shlex.join(words)}"), folder, account)
    command = [sys.executable, "-m", "allaboard", "run", *shipped_arguments(shipped)]
    code = reader.root / "operator"
    has_api = (code / "allaboard" / "sight").is_dir()
    operator = OperatorProcess(command, kubeconfig, folder, {**os.environ, **environment, "PYTHONPATH": str(code)}, has_api=has_api)
    try:
        operator.wait_until(operator.is_ready)
    except BaseException:
        operator.stop()
        raise
    return operator


def _gang(reader: Reader, name: str, scheduler: str = "allaboard") -> dict[str, str]:
    """Apply a gang, wait until it runs, and return its pods by UID."""
    labels = {"app": name, f"{GANG}/name": name, f"{GANG}/min-available": str(MEMBERS)}
    pod = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}],
    }
    spec = {"replicas": MEMBERS, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": labels}, "spec": pod}}
    manifest = yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    reader.run("kubectl apply -f -", manifest)
    reader.run(f"kubectl wait deployment/{name} --for=condition=Available --timeout=60s")
    return _pods(reader, name)


def _rights(reader: Reader) -> set[str]:
    """Return the rights that the ClusterRoles of ``config/`` grant, each as the text by which a JSON log reports that it is missing."""
    objects = yaml.safe_load_all(reader.run("kubectl kustomize OVERLAY"))
    rules = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"] if "resources" in rule]
    return {f'cannot {verb} resource \\"{resource}\\"' for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def _pods(reader: Reader, app: str) -> dict[str, str]:
    """Return the node of each pod of a gang, by the pod's UID."""
    listed = yaml.safe_load(reader.run(f"kubectl get pods -l app={app} -o yaml"))["items"]
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in listed}


_EXPIRING = ("events", "events.events.k8s.io")  # they expire

_FOREIGN = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: foreign, namespace: default}
spec: {minMember: 2}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: foreign}
rules: []
---
apiVersion: v1
kind: ConfigMap
metadata: {name: foreign, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: foreign, namespace: allaboard-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: foreign, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: foreign}}
  template:
    metadata: {labels: {app: foreign}}
    spec: {containers: [{name: main, image: "registry.k8s.io/pause:3.10"}]}
"""
