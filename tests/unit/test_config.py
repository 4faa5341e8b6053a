"""Tests the permissions that config/ grants, and the security settings of the operator's pods. Any change has to be made here as well."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allaboard.gangs.owner_walltimes import OWNER_KINDS

CONFIG = Path(__file__).parents[2] / "config"
READS = {"get", "list", "watch"}
WRITES = {
    "pods": {"delete"},
    "pods/binding": {"create"},
    "pods/eviction": {"create"},
    "pods/status": {"patch"},
    "jobs.batch": {"patch"},
    "podgroups.scheduling.x-k8s.io": {"create", "patch"},
    "podgroups/status.scheduling.x-k8s.io": {"patch"},
    "events.events.k8s.io": {"create", "patch"},
    "leases.coordination.k8s.io": {"create"},
    "leases.coordination.k8s.io allaboard": {"update"},
    # With admission.
    "secrets": {"create"},
    "secrets allaboard-admission": {"update"},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"patch"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"patch"},
    "persistentvolumes": {"patch"},
    "persistentvolumeclaims": {"patch"},
    "mlflows/status.kopf.dev": {"patch"},  # also if pipelines are off, to report that
    # With pipelines.
    "mlflows/finalizers.kopf.dev": {"update"},
    "deployments.apps": {"create", "patch", "delete"},
    "functions.openfaas.com": {"create", "patch", "delete"},
    # With provisioning.
    "podtemplates": {"create", "delete"},
    "provisioningrequests.autoscaling.x-k8s.io": {"create", "delete"},
}
"""Verbs that change something, by resource, or by resource and name if only that object may be changed."""

WATCHED = {"list", "watch"}
READ = {
    "nodes": WATCHED,
    "pods": READS,
    "podgroups.scheduling.x-k8s.io": READS,
    "persistentvolumes": WATCHED,
    "persistentvolumeclaims": WATCHED,
    "poddisruptionbudgets.policy": WATCHED,
    "csinodes.storage.k8s.io": WATCHED,
    "csidrivers.storage.k8s.io": WATCHED,
    "namespaces": WATCHED,
    "resourceclaims.resource.k8s.io": WATCHED,
    "csistoragecapacities.storage.k8s.io": WATCHED,
    **{
        f"{each}.admissionregistration.k8s.io": WATCHED
        for each in (
            "validatingwebhookconfigurations",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        )
    },
    "storageclasses.storage.k8s.io": WATCHED,
    "jobs.batch": READS,
    "leases.coordination.k8s.io allaboard": {"get"},
    "customresourcedefinitions.apiextensions.k8s.io": WATCHED,  # Kopf finds out which resources exist
    "services": {"list"},  # to find Prometheus
    **{f"{each}s.kubeflow.org": WATCHED for each in ("tfjob", "pytorchjob", "xgboostjob", "paddlejob", "jaxjob", "mpijob")},
    "rayjobs.ray.io": WATCHED,
    "rayclusters.ray.io": WATCHED,
    # With admission.
    "secrets allaboard-admission": {"get"},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"get"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"get"},
    # With pipelines.
    "mlflows.kopf.dev": READS,
    "deployments.apps": {"get", "list"},
    "functions.openfaas.com": {"get", "list"},
    # With provisioning.
    "podtemplates": {"get"},
    "provisioningrequests.autoscaling.x-k8s.io": READS,
}
"""Verbs that read, by resource, or by resource and name if only that object may be read."""

Body = dict[str, Any]


def objects(*kinds: str) -> Iterator[Body]:
    for path in sorted(CONFIG.rglob("*.yaml")):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if each["kind"] in kinds)


def deployment() -> Body:
    """Return the operator's Deployment. Only it has an update strategy: other documents of that kind are a component's patches."""
    (found,) = (each for each in objects("Deployment") if "strategy" in each["spec"])
    return found


def granted() -> Iterator[tuple[str, str, str]]:
    """Yield the resource, the object's name and the verb of each right; the name is empty if all objects are meant."""
    for role in objects("ClusterRole", "Role"):
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            yield f"{resource}.{group}".removesuffix("."), name, verb


def test_roles_grant_only_the_listed_reads_and_writes() -> None:
    read, changed = defaultdict(set), defaultdict(set)
    for resource, name, verb in granted():
        (read if verb in READS else changed)[f"{resource} {name}".rstrip()].add(verb)
    assert read == READ
    assert changed == WRITES


def test_the_operator_may_watch_all_kinds_that_state_walltimes() -> None:
    resources = [resource for kind in OWNER_KINDS for resource in kind.resources]
    assert all(READ[f"{each.plural}.{each.api_version.partition('/')[0]}"] == WATCHED for each in resources)


def test_roles_are_bound_only_to_the_operators_service_account() -> None:
    bindings = list(objects("ClusterRoleBinding", "RoleBinding"))
    assert bindings
    for binding in bindings:
        assert [(each["kind"], each["name"], each["namespace"]) for each in binding["subjects"]] == [
            ("ServiceAccount", "allaboard", "allaboard-system")
        ]


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_operator_pods_have_a_read_only_root_filesystem_and_no_needless_privileges(kind: str) -> None:
    found = deployment()["spec"]["template"] if kind == "Deployment" else next(objects(kind))
    pod = found["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"], context["capabilities"]) == (
        True,
        False,
        {"drop": ["ALL"]},
    )
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is (kind == "Deployment")


def test_service_account_token_is_mounted_only_in_pods_that_request_it() -> None:
    (account,) = objects("ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_updates_and_drains_leave_a_replica_running() -> None:
    spec = deployment()["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (budget,) = objects("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_network_policy_admits_only_the_operators_ports() -> None:
    (policy,) = objects("NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["metrics", "health", 9443, 8083]


def test_webhooks_apply_to_opted_in_namespaces_but_never_to_system_namespaces() -> None:
    hooks = [hook for each in objects("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration") for hook in each["webhooks"]]
    assert len(hooks) == 2
    for hook in hooks:
        (excluded,) = hook["namespaceSelector"]["matchExpressions"]
        assert hook["namespaceSelector"]["matchLabels"] == {"allaboard.dev/schedule": "true"}
        assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert set(excluded["values"]) == {"kube-system", "kube-public", "kube-node-lease", "allaboard-system"}


def test_mutating_webhook_applies_only_when_pods_are_created() -> None:
    hooks = [hook for each in objects("MutatingWebhookConfiguration") for hook in each["webhooks"]]
    assert [(rule["operations"], rule["resources"]) for hook in hooks for rule in hook["rules"]] == [(["CREATE"], ["pods"])]


@pytest.mark.parametrize("path", sorted((CONFIG.parent / "crds").glob("*.yaml")), ids=lambda path: path.stem)
def test_printer_columns_of_crds_have_only_fields_that_the_api_server_knows(path: Path) -> None:
    known = {"name", "type", "jsonPath", "description", "format", "priority"}
    versions = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["versions"]
    assert [column for version in versions for column in version["additionalPrinterColumns"] if not column.keys() <= known] == []
