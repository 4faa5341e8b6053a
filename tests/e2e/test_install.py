"""docs/install.md, command by command, on a real API server: gangs that run stay as they are, and nobody else's objects are touched."""

import os
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from allaboard_sandbox import NodeShape, node_object

from .controlplane.access import Access
from .controlplane.audit import Write, audit_flags, writes
from .controlplane.binaries import HELM, ensure
from .controlplane.certificates import write_user_certificate
from .controlplane.client import MERGE_PATCH
from .controlplane.controlplane import NODE_ANNOTATION, ControlPlane, Options
from .controlplane.operators import OperatorProcess, shipped_arguments
from .test_shipped import ACCOUNT, CONFIG, NAMESPACE, ROOT, account_kubeconfig

pytestmark = pytest.mark.timeout(300)

DOCUMENT = ROOT / "docs" / "install.md"
MEMBERS = 3
GANG = "pod-group.scheduling.sigs.k8s.io"
PLACES = "pods,podgroups,deployments,services,configmaps,serviceaccounts,roles,rolebindings"
EVERYWHERE = "namespaces,nodes,clusterroles,clusterrolebindings,priorityclasses,customresourcedefinitions"

Body = dict[str, Any]


class Reader:
    """Does what the document says, as an administrator, in the project's folder."""

    def __init__(self, plane: ControlPlane, helm: Path, overlay: Path) -> None:
        self._environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": f"{helm.parent}:{os.environ['PATH']}"}
        self._overlay = overlay

    def play(self, title: str, program: str = "kubectl") -> list[str]:
        """Run the commands of one program under a heading, and return them."""
        commands = [command for command in commands_under(title) if command.startswith(f"{program} ")]
        for command in commands:
            self.run(command.replace("OVERLAY", str(self._overlay)).replace("REGISTRY/", "localhost/"))
        return commands

    def run(self, command: str, stdin: str = "") -> str:
        """Run one command and return what it prints."""
        done = subprocess.run(
            shlex.split(command), input=stdin, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def objects(self) -> dict[str, tuple[str, str, int]]:
        """Kind, name and generation of whatever there is, by UID."""
        found: dict[str, tuple[str, str, int]] = {}
        for kinds, words in ((PLACES, "--all-namespaces"), (EVERYWHERE, "")):
            for each in yaml.safe_load(self.run(f"kubectl get {kinds} {words} -o yaml"))["items"]:
                metadata = each["metadata"]
                found[metadata["uid"]] = (
                    each["kind"],
                    f"{metadata.get('namespace', '')}/{metadata['name']}",
                    metadata.get("generation", 0),
                )
        return found


def everything(reader: Reader, plane: ControlPlane) -> set[tuple[str, str, str]]:
    """Resource, namespace and name of every object that the API server knows of."""
    listed = reader.run("kubectl api-resources --verbs=list -o name").split()
    resources = ",".join(each for each in listed if each != "componentstatuses")  # which are no objects
    found = set()
    for each in yaml.safe_load(reader.run(f"kubectl get {resources} --all-namespaces -o json"))["items"]:
        group = each["apiVersion"].rpartition("/")[0]
        plural = plane.api.resource(each["kind"], each["apiVersion"]).plural
        found.add((f"{plural}.{group}".removesuffix("."), each["metadata"].get("namespace", ""), each["metadata"]["name"]))
    return found


def commands_under(title: str) -> list[str]:
    """The commands of a section of the document, without what is said about them."""
    (section,) = (part for part in DOCUMENT.read_text().split("\n## ") if part.startswith(title))
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture
def plane(alone: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, on which nothing of ours is installed, with kube-scheduler and two fake nodes."""
    with ControlPlane(tmp_path / "plane", Options(apiserver_flags=audit_flags(tmp_path))) as made:
        made.start_scheduler()
        for number in (1, 2):
            node = node_object(f"node-{number}", NodeShape("16"))
            node["metadata"]["annotations"] = dict([NODE_ANNOTATION])
            made.api.request("POST", "/api/v1/nodes", node)
        yield made


@pytest.fixture
def reader(plane: ControlPlane, tmp_path: Path) -> Reader:
    """Who reads the document, before a cluster in which others have PodGroups and rights."""
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    _write_overlay(overlay, "1")
    made = Reader(plane, ensure([HELM], Console(stderr=True))["helm"], overlay)
    made.run("kubectl apply -f crds/podgroups.scheduling.x-k8s.io.yaml")
    made.run("kubectl wait --for=condition=Established crd/podgroups.scheduling.x-k8s.io")
    made.run("kubectl apply -f config/namespace.yaml")
    made.run("kubectl apply -f -", _OTHERS)
    made.run("kubectl wait deployment/somebody-elses --for=condition=Available --timeout=60s")
    return made


def test_every_command_of_the_document_is_known_here() -> None:
    played = {
        "kubectl apply",
        "kubectl rollout",
        "kubectl delete",
        "helm install",
        "helm test",
        "helm upgrade",
        "helm rollback",
        "helm uninstall",
    }
    of_the_node = {"install --directory", "kubeadm kubeconfig", "chown 65532:65532", "sed 's|image:"}
    for title in ("Install", "Two side by side", "As a static pod", "Upgrade", "Remove"):
        for command in commands_under(title):
            assert " ".join(command.split()[:2]) in played | (of_the_node if title == "As a static pod" else set()), command


def test_gangs_run_through_an_upgrade_a_downgrade_and_a_removal(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
    before, foreign, noted = reader.objects(), everything(reader, plane), len(writes(tmp_path))
    reader.play("Install")
    operator = _operator(reader, plane, tmp_path / "1")
    try:
        first = _gang(reader, "first")

        # The newer version, and the older one again: each time the next is there before the last one goes.
        for number, title in enumerate(("Upgrade", "Upgrade"), start=2):
            _write_overlay(tmp_path / "overlay", str(number))
            assert reader.play(title)
            reader.run(f"kubectl rollout status deployment/allaboard -n {NAMESPACE} --timeout=60s")
            following = _operator(reader, plane, tmp_path / str(number))
            assert operator.stop() == 0
            assert operator.complaints() == []
            operator = following
            _gang(reader, f"gang-{number}")
        assert _pods(reader, "first") == first
    finally:
        operator.stop()

    assert reader.play("Remove") == ["kubectl delete -k OVERLAY"]
    after = reader.objects()
    assert {uid: what for uid, what in before.items() if uid not in after} == {}
    # Nothing was written to, either; a Deployment of the others may have made a pod meanwhile.
    assert {uid: after[uid] for uid in before} == before
    assert _pods(reader, "first") == first
    left = {(kind, name) for uid, (kind, name, _) in after.items() if uid not in before}
    ours = {kind for kind, name in left if "allaboard" in name}
    assert ours == set(), left
    names = {f"default/{name}" for name in ("first", "gang-2", "gang-3")}
    assert names <= {name for kind, name in left if kind == "PodGroup"}
    _assert_audited(writes(tmp_path)[noted:], foreign, gangs=3)


def test_helm_installs_tests_upgrades_and_removes_the_same(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
    reader.run(f"kubectl patch crd podgroups.scheduling.x-k8s.io --type=json --patch '{_ANOTHERS_CRD}'")
    before, foreign, noted = reader.objects(), everything(reader, plane), len(writes(tmp_path))
    titles = ("Install", "Upgrade", "Remove")
    install, test, upgrade, rollback, uninstall = (each for title in titles for each in commands_under(title) if each.startswith("helm "))
    reader.run(install.replace("REGISTRY/", "localhost/"))
    operator = _operator(reader, plane, tmp_path / "helm")
    try:
        first = _gang(reader, "first")
        with _jobs_that_end(plane):
            reader.run(test)
        reader.run(f"{upgrade} --set logFormat=text")
        reader.run(rollback)
        reader.run(f"{uninstall} --wait")
        assert _pods(reader, "first") == first
    finally:
        operator.stop()
    after = reader.objects()
    assert {uid: after.get(uid) for uid in before} == before
    _assert_audited(writes(tmp_path)[noted:], foreign, gangs=1)


def test_two_installations_side_by_side_each_place_their_own_gangs_and_touch_nothing_else(
    reader: Reader, plane: ControlPlane, tmp_path: Path
) -> None:
    reader.run(commands_under("Install")[0])
    first, *_ = (command for command in commands_under("Install") if command.startswith("helm "))
    (second,) = commands_under("Two side by side")
    for command in (first, second):
        reader.run(command.replace("REGISTRY/", "localhost/"))
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


def test_a_static_pod_schedules_as_the_user_that_its_kubeconfig_names(reader: Reader, plane: ControlPlane, tmp_path: Path) -> None:
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


def _assert_audited(written: list[Write], foreign: set[tuple[str, str, str]], gangs: int) -> None:
    """Nobody of ours wrote to what was there before, and nobody at all ended a pod outside of our namespace."""
    ours = [each for each in written if each.user == ACCOUNT or each.agent.lower().startswith(("kubectl/", "helm/"))]
    assert [each for each in ours if each.target in foreign] == []
    pods = [each for each in written if each.resource == "pods" and each.namespace != NAMESPACE]
    assert [each for each in pods if each.verb.startswith("delete") or each.subresource == "eviction"] == []
    # All of that was there to be seen.
    assert {"pods", "podgroups.scheduling.x-k8s.io", "deployments.apps"} <= {resource for resource, _, _ in foreign}
    assert any(each.user != ACCOUNT and each.resource == "clusterroles.rbac.authorization.k8s.io" for each in ours)
    assert len([each for each in pods if each.subresource == "binding" and each.user == ACCOUNT]) == gangs * MEMBERS


@contextmanager
def _jobs_that_end(plane: ControlPlane) -> Iterator[None]:
    """Fake kubelets run pods for ever; those of Jobs succeed meanwhile."""
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


def _write_overlay(folder: Path, tag: str) -> None:
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(CONFIG, folder.resolve())],
        "images": [{"name": "allaboard", "newTag": tag}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))


def _operator(reader: Reader, plane: ControlPlane, folder: Path, name: str = "allaboard") -> OperatorProcess:
    """The Deployment's program with the Deployment's options and its account's rights: the pods' containers are only said to run."""
    folder.mkdir()
    shipped = yaml.safe_load(reader.run(f"kubectl get deployment {name} --namespace {NAMESPACE} -o yaml"))
    spec = shipped["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {variable["name"]: variable["value"] for variable in container.get("env", ())}
    account = spec["serviceAccountName"]
    kubeconfig = account_kubeconfig(plane, lambda *words: reader.run(f"kubectl {shlex.join(words)}"), folder, account)
    command = [sys.executable, "-m", "allaboard", "run", *shipped_arguments(shipped)]
    operator = OperatorProcess(command, kubeconfig, folder, {**os.environ, **environment})
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


def _pods(reader: Reader, app: str) -> dict[str, str]:
    """The node of each pod of a gang, by UID."""
    listed = yaml.safe_load(reader.run(f"kubectl get pods -l app={app} -o yaml"))["items"]
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in listed}


_ANOTHERS_CRD = '[{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": []}]'

_OTHERS = """
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: somebody-elses, namespace: default}
spec: {minMember: 2}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: somebody-elses}
rules: []
---
apiVersion: v1
kind: ConfigMap
metadata: {name: somebody-elses, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: somebody-elses, namespace: allaboard-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: somebody-elses, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: somebody-elses}}
  template:
    metadata: {labels: {app: somebody-elses}}
    spec: {containers: [{name: main, image: "registry.k8s.io/pause:3.10"}]}
"""
