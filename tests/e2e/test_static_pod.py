"""The static pod equals the Deployment's pod except for what no static pod may have; its user has the service account's rights."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.cli.commands import run

from .controlplane.client import ApiError
from .controlplane.controlplane import ControlPlane
from .shipped import CONFIG, NAMESPACE, Kubectl, api_server, container, deployment, installed, kubectl, manifests

__all__ = ["api_server", "container", "deployment", "installed", "kubectl", "manifests"]

STATIC = CONFIG / "static-pod"
DEPLOYMENT_ONLY = ("serviceAccountName", "nodeSelector", "topologySpreadConstraints")
"""Fields that no static pod has: its node is the one with its manifest file, and it may not refer to objects of the API server."""

Body = dict[str, Any]


@pytest.fixture(scope="module")
def pod() -> Body:
    """Return the pod whose manifest is put into /etc/kubernetes/manifests."""
    found: Body = yaml.safe_load((STATIC / "allaboard.yaml").read_text())
    return found


def test_static_pod_equals_the_deployments_pod_except_for_its_credentials(pod: Body, deployment: Body) -> None:
    template = deployment["spec"]["template"]
    expected = {name: value for name, value in template["spec"].items() if name not in DEPLOYMENT_ONLY}
    folder = "/etc/kubernetes/allaboard"
    (operator,) = expected["containers"]
    operator = {
        **operator,
        "args": [*operator["args"], f"--lease-namespace={NAMESPACE}", f"--kubeconfig={folder}/kubeconfig"],
        "volumeMounts": [*operator["volumeMounts"], {"name": "kubeconfig", "mountPath": folder, "readOnly": True}],
    }
    volume = {"name": "kubeconfig", "hostPath": {"path": folder, "type": "Directory"}}

    assert pod["spec"] == expected | {
        "automountServiceAccountToken": False,
        "dnsPolicy": "Default",
        "containers": [operator],
        "volumes": [*expected["volumes"], volume],
    }
    assert pod["metadata"]["labels"] == template["metadata"]["labels"]


def test_program_accepts_the_options_of_the_static_pod(pod: Body, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").touch()
    (operator,) = pod["spec"]["containers"]
    run.make_context("run", [argument.replace("/etc/kubernetes/allaboard", str(tmp_path)) for argument in operator["args"]])


def test_api_server_accepts_the_mirror_pod_of_the_static_pod(api_server: ControlPlane, pod: Body) -> None:
    _dry_run_create_mirror(api_server, pod)

    pod = copy.deepcopy(pod)
    pod["spec"]["serviceAccountName"] = "allaboard"
    with pytest.raises(ApiError, match="may not reference service accounts"):
        _dry_run_create_mirror(api_server, pod)


def test_user_of_the_static_pod_has_the_rights_of_the_service_account(kubectl: Kubectl, installed: None, manifests: list[Body]) -> None:
    rights = list(yaml.safe_load_all(kubectl("kustomize", str(STATIC))))

    assert _rules(rights) == _rules(manifests)
    bindings = [each for each in rights if each["kind"].endswith("Binding")]
    assert len(bindings) == len(rights) - len(_rules(rights)) == 2
    for each in bindings:
        assert each["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "allaboard"}]
    # Its objects are installed beside those of the Deployment, and replace none.
    deployed = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    assert deployed.isdisjoint((each["kind"], each["metadata"]["name"]) for each in rights)
    kubectl("apply", "--kustomize", str(STATIC), "--dry-run=server", "--warnings-as-errors", "--validate=strict")


def _dry_run_create_mirror(plane: ControlPlane, pod: Body) -> None:
    """Create, as a dry run, the mirror pod that the kubelet creates for a static pod."""
    metadata = pod["metadata"]
    marks = {"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "0" * 32, "kubernetes.io/config.hash": "0" * 32}
    mirror = {
        **pod,
        "metadata": {**metadata, "name": f"{metadata['name']}-node", "annotations": {**metadata["annotations"], **marks}},
        "spec": {**pod["spec"], "nodeName": "node"},
    }
    plane.api.request("POST", f"/api/v1/namespaces/{metadata['namespace']}/pods", mirror, {"dryRun": "All", "fieldValidation": "Strict"})


def _rules(objects: list[Body]) -> dict[str, Any]:
    """Return the rules of each role, by the role's name without the suffix ``-static-pod``."""
    roles = (each for each in objects if each["kind"] in ("Role", "ClusterRole"))
    return {each["metadata"]["name"].removesuffix("-static-pod"): each["rules"] for each in roles}
