"""A real API server accepts the manifests of config/, and they grant the operator no right that it doesn't need."""

import os
from pathlib import Path

import pytest
import yaml

from allaboard.cli import bundled

from .controlplane.client import ApiError
from .controlplane.controlplane import ControlPlane
from .shipped import ACCOUNT, CONFIG, NAMESPACE, ROOT, Body, Kubectl, api_server, deployment, installed, kubectl, manifests, run_kubectl

__all__ = ["api_server", "deployment", "installed", "kubectl", "manifests"]


def test_every_manifest_is_accepted_without_a_warning(kubectl: Kubectl, installed: None) -> None:
    answer = kubectl("apply", "--kustomize", str(CONFIG), "--dry-run=server", "--warnings-as-errors", "--validate=strict")

    kinds = {line.partition("/")[0] for line in answer.splitlines()}
    assert kinds >= {"serviceaccount", "deployment.apps", "clusterrole.rbac.authorization.k8s.io"}
    assert not kinds & {"customresourcedefinition.apiextensions.k8s.io", "namespace"}  # they stay when config/ is removed


def rendered_with(component: str, folder: Path) -> tuple[set[str], list[Body]]:
    """Return the kinds of the objects that a component of config/components adds, and the environment of the operator."""
    base = os.path.relpath(CONFIG, folder.resolve())
    overlay = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [base]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay | {"components": [f"{base}/components/{component}"]}))
    rendered = list(yaml.safe_load_all(run_kubectl("kustomize", str(folder))))
    (deployment,) = (each for each in rendered if each["kind"] == "Deployment")
    kinds = {each["kind"] for each in rendered if each["metadata"]["name"] == f"allaboard-{component}"}
    return kinds, deployment["spec"]["template"]["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    ("component", "settings"),
    [
        ("pipelines", {"ALLABOARD_PIPELINES": "true", "ALLABOARD_OPENFAAS": "true"}),
        ("provisioning", {"ALLABOARD_PROVISIONING_CLASS": "best-effort-atomic-scale-up.autoscaling.x-k8s.io"}),
    ],
)
def test_component_adds_its_rights_and_settings(component: str, settings: dict[str, str], tmp_path: Path) -> None:
    kinds, environment = rendered_with(component, tmp_path)

    assert kinds == {"ClusterRole", "ClusterRoleBinding"}
    for name, value in settings.items():
        assert {"name": name, "value": value} in environment


def test_folder_of_crds_can_be_applied_alone(kubectl: Kubectl, installed: None) -> None:
    answer = kubectl("apply", "-f", str(ROOT / "crds"), "--dry-run=server", "--warnings-as-errors")

    assert len(answer.splitlines()) == len(bundled.crds())


def test_operators_pod_meets_the_restricted_pod_security_standard(api_server: ControlPlane, installed: None, deployment: Body) -> None:
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "checked", **template["metadata"]}, "spec": template["spec"]}

    _dry_run_create(api_server, pod)

    del pod["spec"]["containers"][0]["securityContext"]
    with pytest.raises(ApiError, match='violates PodSecurity "restricted'):
        _dry_run_create(api_server, pod)


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("get", "", "secrets"),
        ("create", "", "pods"),
        ("update", "", "pods"),
        ("patch", "", "pods"),
        ("get", "coordination.k8s.io", "leases"),
        ("delete", "coordination.k8s.io", "leases"),
        ("patch", "", "nodes"),
        ("delete", "", "nodes"),
        ("delete", "scheduling.x-k8s.io", "podgroups"),
        ("patch", "apps", "deployments"),
        ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ],
)
def test_operator_lacks_rights_that_it_does_not_need(
    api_server: ControlPlane, installed: None, verb: str, group: str, resource: str
) -> None:
    name, _, subresource = resource.partition("/")
    attributes = {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": name, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": ACCOUNT, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": attributes},
    }

    answer = api_server.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)

    assert answer["status"]["allowed"] is False


def _dry_run_create(plane: ControlPlane, pod: Body) -> None:
    plane.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod, {"dryRun": "All"})
