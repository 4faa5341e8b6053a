"""Tests that each bind that admission refuses on a real API server is foreseen, and no other bind is."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from allaboard.cluster.bind_admission import BindAdmission, policy_binding_from, selectors_of_policy, selectors_of_webhooks
from allaboard.cluster.namespaces import Namespaces
from allaboard_sandbox import ApiError

from .controlplane import existing

Raw = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
TEAM, OTHER = "bind-admission-a", "bind-admission-b"
BINDS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}
MAPS = {**BINDS, "resources": ["configmaps"]}
OF_TEAM = {"matchLabels": {"kubernetes.io/metadata.name": TEAM}}
RULES: list[Raw] = [
    {},
    {"resources": ["pods/*"]},
    {"resources": ["*/binding"]},
    {"resources": ["*/*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]},
    {"resources": ["*"]},
    {"resources": ["pods", "bindings", "pods/status"]},
    {"scope": "Namespaced"},
    {"scope": "Cluster"},
    {"operations": ["UPDATE", "DELETE"]},
    {"apiGroups": ["apps"]},
]
SELECTORS: list[Raw] = [
    OF_TEAM,
    {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [TEAM]}]},
    {"matchExpressions": [{"key": "absent", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]},
]


def webhook(name: str, rule: Raw, selector: Raw | None = None) -> Raw:
    """Return a webhook that refuses whatever it sees, since nothing answers at its address."""
    return {
        "name": f"{name}.example.com",
        "rules": [rule],
        "namespaceSelector": selector or {},
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
    }


def policy(rule: Raw, selector: Raw | None = None) -> Raw:
    """Return the spec of a policy that refuses whatever it sees."""
    constraints = {"resourceRules": [rule], "namespaceSelector": selector or {}}
    return {"failurePolicy": "Fail", "matchConstraints": constraints, "validations": [{"expression": "false"}]}


class Cluster:
    """The real API server, with a pending pod in each of two namespaces, and what is said about its admission."""

    def __init__(self, control_plane: Any) -> None:
        self.api = control_plane.api
        self.namespaces = Namespaces()
        self.said = BindAdmission(self.namespaces)
        self.said.is_known = lambda: True

    def post(self, path: str, body: Raw, query: Mapping[str, str] | None = None) -> Raw:
        found: Raw = self.api.request("POST", path, body, query)
        return found

    def is_bind_refused(self, namespace: str) -> bool:
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
        return self._is_refused(f"/api/v1/namespaces/{namespace}/pods/p/binding", body)

    def is_map_refused(self) -> bool:
        return self._is_refused(
            f"/api/v1/namespaces/{TEAM}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
        )

    def _is_refused(self, path: str, body: Raw) -> bool:
        try:
            self.post(path, body, {"dryRun": "All"})
        except ApiError as error:
            assert "failed calling webhook" in str(error) or "denied request" in str(error), error
            return True
        return False

    def compare(self) -> tuple[list[bool], list[bool]]:
        """Return in which namespaces binds are refused, and in which ones they may be refused as far as is said."""
        names = (TEAM, OTHER)
        return [self.is_bind_refused(name) for name in names], [self.said.may_refuse(name) for name in names]


@pytest.fixture(scope="module")
def cluster(control_plane: Any) -> Iterator[Cluster]:
    if existing.is_wanted():
        pytest.skip("on an existing cluster these webhooks would refuse other binds, too")
    found = Cluster(control_plane)
    for name in (TEAM, OTHER):
        labels = found.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})["metadata"][
            "labels"
        ]
        found.namespaces.upsert(name, labels)
        spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, "containers": [{"name": "m", "image": "i"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        _until(lambda name=name, pod=pod: _is_created(found, name, pod))
    yield found
    for name in (TEAM, OTHER):
        found.api.request("DELETE", f"/api/v1/namespaces/{name}")


def _is_created(found: Cluster, namespace: str, pod: Raw) -> bool:
    try:
        found.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    except ApiError as error:
        if "serviceaccount" not in str(error):
            raise
        return False
    return True


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)  # no event says when an API server begins to obey a configuration


@contextmanager
def installed(cluster: Cluster, *objects: tuple[str, Raw]) -> Iterator[None]:
    """Create admission objects, each with its plural, and wait until the API server obeys the last one, which refuses ConfigMaps."""
    for plural, raw in objects:
        cluster.post(f"{GROUP}/{plural}", {"apiVersion": "admissionregistration.k8s.io/v1", **raw})
    try:
        _until(cluster.is_map_refused)
        yield
    finally:
        for plural, raw in reversed(objects):
            cluster.api.request("DELETE", f"{GROUP}/{plural}/{raw['metadata']['name']}")
        _until(lambda: not cluster.is_map_refused())


@pytest.mark.parametrize("case", [*((rule, None) for rule in RULES), *(({}, selector) for selector in SELECTORS)], ids=str)
def test_binds_that_a_webhook_refuses_are_foreseen(case: tuple[Raw, Raw | None], cluster: Cluster) -> None:
    rule, selector = case
    plural, kind = "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"
    tried = {"kind": kind, "metadata": {"name": "bind-a"}, "webhooks": [webhook("tried", {**BINDS, **rule}, selector)]}
    marker = {"kind": kind, "metadata": {"name": "bind-b"}, "webhooks": [webhook("marker", MAPS)]}
    cluster.said.validating_webhooks.upsert("bind-a", selectors_of_webhooks(tried))
    cluster.said.validating_webhooks.upsert("bind-b", selectors_of_webhooks(marker))
    try:
        with installed(cluster, (plural, tried), (plural, marker)):
            refused, said = cluster.compare()
        assert refused == said
    finally:
        for name in list(cluster.said.validating_webhooks.known()):
            cluster.said.validating_webhooks.remove(name)


@pytest.mark.parametrize(
    "case",
    [
        *(({**BINDS, **rule}, None, {}) for rule in RULES),
        *((BINDS, selector, {}) for selector in SELECTORS),
        *((BINDS, None, {"namespaceSelector": selector}) for selector in SELECTORS),
        (BINDS, None, {"resourceRules": [MAPS]}),
        (BINDS, OF_TEAM, {"namespaceSelector": OF_TEAM}),
    ],
    ids=str,
)
def test_binds_that_a_policy_refuses_are_foreseen(case: tuple[Raw, Raw | None, Raw], cluster: Cluster) -> None:
    rule, selector, resources = case
    policies, bindings = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
    kind = "ValidatingAdmissionPolicy"
    tried = {"kind": kind, "metadata": {"name": "bind-a"}, "spec": policy(rule, selector)}
    marker = {"kind": kind, "metadata": {"name": "bind-b"}, "spec": policy(MAPS)}
    specs = {"bind-a": {"matchResources": resources} if resources else {}, "bind-b": {}}
    applied = [
        {"kind": f"{kind}Binding", "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"], **spec}}
        for name, spec in specs.items()
    ]
    said = cluster.said
    for raw in (tried, marker):
        said.validating_policies.upsert(raw["metadata"]["name"], selectors_of_policy(raw))
    for raw in applied:
        said.validating_bindings.upsert(raw["metadata"]["name"], policy_binding_from(raw))
    try:
        with installed(cluster, (policies, tried), (policies, marker), *((bindings, raw) for raw in applied)):
            refused, foreseen = cluster.compare()
        assert refused == foreseen
    finally:
        for records in (said.validating_policies, said.validating_bindings):
            for name in list(records.known()):
                records.remove(name)
