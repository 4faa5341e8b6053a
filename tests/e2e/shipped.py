"""What config/ holds, on a real API server, for the tests of what is shipped."""

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
    """A real API server, with the CRDs."""
    home.furnish()
    return control_plane


@pytest.fixture(scope="module")
def manifests() -> list[Body]:
    """What `kubectl apply -k config` would apply."""
    return list(yaml.safe_load_all(run_kubectl("kustomize", str(CONFIG))))


@pytest.fixture(scope="module")
def kubectl(api_server: ControlPlane) -> Kubectl:
    """Runs kubectl as an administrator and returns what it prints."""

    def call(*words: str, stdin: str = "") -> str:
        return run_kubectl("--kubeconfig", str(api_server.kubeconfig), *words, stdin=stdin)

    return call


@pytest.fixture(scope="module")
def installed(kubectl: Kubectl, manifests: list[Body]) -> None:
    """Everything of config/ but the Deployment, since the tests start the operator themselves."""
    kubectl("apply", "-f", str(CONFIG / "namespace.yaml"))
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(each for each in manifests if each["kind"] != "Deployment"))


@pytest.fixture(scope="module")
def deployment(manifests: list[Body]) -> Body:
    """The operator's Deployment."""
    (found,) = (each for each in manifests if each["kind"] == "Deployment")
    return found


@pytest.fixture(scope="module")
def container(deployment: Body) -> Body:
    """The Deployment's only container."""
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return found


def run_kubectl(*words: str, stdin: str = "") -> str:
    program = shutil.which("kubectl")
    assert program, "kubectl is not installed"
    done = subprocess.run([program, *words], input=stdin, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"kubectl {shlex.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def account_kubeconfig(plane: ControlPlane, kubectl: Kubectl, folder: Path, account: str = "allaboard") -> Path:
    """The cluster's kubeconfig with a service account as its user."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    token = kubectl("create", "token", account, "--namespace", NAMESPACE).strip()
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
