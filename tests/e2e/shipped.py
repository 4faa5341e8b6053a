"""Fixtures for tests of the shipped manifests: the objects of config/, and a real API server."""

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import Home

from .controlplane.controlplane import ControlPlane

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"
NAMESPACE = "allaboard-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:allaboard"

Body = dict[str, Any]
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def api_server(control_plane: ControlPlane, home: Home) -> ControlPlane:
    """Return the control plane of a real API server with the CRDs."""
    home.prepare_crds()
    return control_plane


@pytest.fixture(scope="module")
def manifests() -> list[Body]:
    """Return the objects that `kubectl apply -k config` would apply."""
    return list(yaml.safe_load_all(run_kubectl("kustomize", str(CONFIG))))


@pytest.fixture(scope="module")
def kubectl(api_server: ControlPlane) -> Kubectl:
    """Return a function that runs kubectl as an administrator and returns its output."""

    def call(*words: str, stdin: str = "") -> str:
        return run_kubectl("--kubeconfig", str(api_server.kubeconfig), *words, stdin=stdin)

    return call


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl, manifests: list[Body]) -> None:
    """Install all of config/ except the Deployment: the tests start the operator themselves."""
    kubectl("apply", "-f", str(CONFIG / "namespace.yaml"))
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(each for each in manifests if each["kind"] != "Deployment"))


@pytest.fixture(scope="module")
def deployment(manifests: list[Body]) -> Body:
    """Return the operator's Deployment."""
    (found,) = (each for each in manifests if each["kind"] == "Deployment")
    return found


@pytest.fixture(scope="module")
def container(deployment: Body) -> Body:
    """Return the Deployment's only container."""
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def run_kubectl(*words: str, stdin: str = "") -> str:
    program = shutil.which("kubectl")
    assert program, "kubectl is not installed"
    done = subprocess.run([program, *words], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"kubectl {shlex.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def account_kubeconfig(plane: ControlPlane, kubectl: Kubectl, folder: Path, account: str = "allaboard") -> Path:
    """Write the cluster's kubeconfig with a service account as its user, and return its path."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    token = kubectl("create", "token", account, "--namespace", NAMESPACE).strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
