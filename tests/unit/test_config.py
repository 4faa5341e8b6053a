"""What config/ grants, and what it promises of the operator's pods: said a second time, so that nobody widens it in passing."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    "mlflows/status.kopf.dev": {"patch"},  # also without pipelines: that they are off
    # With pipelines.
    "mlflows/finalizers.kopf.dev": {"update"},
    "deployments.apps": {"create", "patch", "delete"},
    "functions.openfaas.com": {"create", "patch", "delete"},
}
"""What may be changed: a resource, and the one object of it where only that one may be."""

WATCHED = {"list", "watch"}
READ = {
    "nodes": WATCHED,
    "pods": READS,
    "podgroups.scheduling.x-k8s.io": READS,
    "persistentvolumes": WATCHED,
    "persistentvolumeclaims": WATCHED,
    "csinodes.storage.k8s.io": WATCHED,
    "jobs.batch": READS,
    "leases.coordination.k8s.io allaboard": {"get"},
    "customresourcedefinitions.apiextensions.k8s.io": WATCHED,  # Kopf's, which looks what there is
    "services": {"list"},  # of which one may be Prometheus
    # With admission.
    "secrets allaboard-admission": {"get"},
    "mutatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"get"},
    "validatingwebhookconfigurations.admissionregistration.k8s.io allaboard-admission": {"get"},
    # With pipelines.
    "mlflows.kopf.dev": READS,
    "deployments.apps": {"get", "list"},
    "functions.openfaas.com": {"get", "list"},
}
"""What may be read."""

Body = dict[str, Any]


def objects(*kinds: str) -> Iterator[Body]:
    for path in sorted(CONFIG.rglob("*.yaml")):
        yield from (each for each in yaml.safe_load_all(path.read_text()) if each["kind"] in kinds)


def deployment() -> Body:
    """The operator's; what a component adds to it is of that kind as well."""
    (found,) = (each for each in objects("Deployment") if "strategy" in each["spec"])
    return found


def granted() -> Iterator[tuple[str, str, str]]:
    """Resource, object and verb of each right."""
    for role in objects("ClusterRole", "Role"):
        for rule in role["rules"]:
            assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for name in rule.get("resourceNames", [""]):
                        for verb in rule["verbs"]:
                            yield f"{resource}.{group}".removesuffix("."), name, verb


def test_nothing_else_may_be_read_or_changed_than_is_listed_here() -> None:
    read, changed = defaultdict(set), defaultdict(set)
    for resource, name, verb in granted():
        (read if verb in READS else changed)[f"{resource} {name}".rstrip()].add(verb)
    assert read == READ
    assert changed == WRITES


def test_rights_are_given_to_the_operators_account_alone() -> None:
    bindings = list(objects("ClusterRoleBinding", "RoleBinding"))
    assert bindings
    for binding in bindings:
        assert [(each["kind"], each["name"], each["namespace"]) for each in binding["subjects"]] == [
            ("ServiceAccount", "allaboard", "allaboard-system")
        ]


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_its_pods_write_nowhere_and_are_given_nothing_they_need_not(kind: str) -> None:
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


def test_the_account_hands_its_token_to_no_pod_that_does_not_ask_for_it() -> None:
    (account,) = objects("ServiceAccount")
    assert account["automountServiceAccountToken"] is False


def test_there_is_always_somebody_in_an_update_and_in_a_drain() -> None:
    spec = deployment()["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    (budget,) = objects("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


def test_only_its_ports_are_reached() -> None:
    (policy,) = objects("NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["metrics", "health", 9443]


def test_webhooks_are_for_namespaces_that_have_opted_in_and_never_for_the_clusters_own() -> None:
    hooks = [hook for each in objects("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration") for hook in each["webhooks"]]
    assert len(hooks) == 2
    for hook in hooks:
        (left_out,) = hook["namespaceSelector"]["matchExpressions"]
        assert hook["namespaceSelector"]["matchLabels"] == {"allaboard.dev/schedule": "true"}
        assert (left_out["key"], left_out["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert set(left_out["values"]) == {"kube-system", "kube-public", "kube-node-lease", "allaboard-system"}


def test_pods_are_given_a_scheduler_when_they_are_made_and_never_later() -> None:
    hooks = [hook for each in objects("MutatingWebhookConfiguration") for hook in each["webhooks"]]
    assert [(rule["operations"], rule["resources"]) for hook in hooks for rule in hook["rules"]] == [(["CREATE"], ["pods"])]
