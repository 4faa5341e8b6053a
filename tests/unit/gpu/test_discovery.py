"""Tests that Prometheus is found by its Service, for each usual way to install it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allaboard.gpu.discovery import among, candidates
from allaboard.kube.errors import ApiError
from allaboard.kube.paths import ApiPath

NAME, COMPONENT, PART_OF = (f"app.kubernetes.io/{key}" for key in ("name", "component", "part-of"))


def a_service(
    name: str, namespace: str = "monitoring", labels: dict[str, str] | None = None, *ports: tuple[str, int], **spec: Any
) -> dict[str, Any]:
    stated = [{"name": port, "port": number} for port, number in ports]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {}},
        "spec": {"clusterIP": "10.0.0.1", "ports": stated, **spec},
    }


OPERATED = a_service("prometheus-operated", "monitoring", {"operated-prometheus": "true"}, ("web", 9090), clusterIP="None")
STACK = a_service(
    "stack-kube-prometheus-stack-prometheus",
    "monitoring",
    {"app": "kube-prometheus-stack-prometheus", PART_OF: "kube-prometheus-stack"},
    ("http-web", 9090),
    ("reloader-web", 8080),
)
CHART = a_service("p-server", "prometheus", {NAME: "prometheus", COMPONENT: "server"}, ("http", 80))
JSONNET = a_service("prometheus-k8s", "monitoring", {NAME: "prometheus", COMPONENT: "prometheus"}, ("web", 9090), ("reloader-web", 8080))
OPENSHIFT = a_service("thanos-querier", "openshift-monitoring", {}, ("web", 9091), ("tenancy", 9092))
OTHERS = [
    a_service("alertmanager-operated", "monitoring", {"operated-alertmanager": "true"}, ("web", 9093)),
    a_service("stack-alertmanager", "monitoring", {"app": "k-alertmanager", PART_OF: "kube-prometheus-stack"}, ("http-web", 9093)),
    a_service("stack-prometheus-node-exporter", "monitoring", {NAME: "prometheus-node-exporter"}, ("metrics", 9100)),
    a_service("p-prometheus-pushgateway", "prometheus", {NAME: "prometheus-pushgateway", COMPONENT: "server"}, ("http", 9091)),
    a_service("thanos-ruler-operated", "monitoring", {"operated-thanos-ruler": "true", "operated-prometheus": "true"}, ("web", 10902)),
    a_service("prometheus-agent-operated", "monitoring", {"operated-prometheus": "true"}, ("web", 9090)),
    a_service("nginx", "monitoring", {"app": "nginx"}, ("http", 80)),
    a_service("prometheus-operated", "monitoring", {}, ("web", 9090), type="ExternalName", externalName="evil.example"),
    a_service("prometheus-operated", "monitoring", {}),
]


@pytest.mark.parametrize(
    ("service", "convention", "url"),
    [
        (OPERATED, "prometheus-operator", "http://prometheus-operated.monitoring.svc:9090"),
        (STACK, "kube-prometheus-stack", "http://stack-kube-prometheus-stack-prometheus.monitoring.svc:9090"),
        (CHART, "prometheus chart", "http://p-server.prometheus.svc:80"),
        (JSONNET, "kube-prometheus", "http://prometheus-k8s.monitoring.svc:9090"),
        (OPENSHIFT, "OpenShift", "https://thanos-querier.openshift-monitoring.svc:9091"),
    ],
)
def test_service_of_each_usual_installation_is_found_with_its_url(service: dict[str, Any], convention: str, url: str) -> None:
    assert [(found.convention, found.url) for found in among([*OTHERS, service])] == [(convention, url)]


def test_services_that_only_resemble_prometheus_are_left_out() -> None:
    assert among(OTHERS) == []


def test_likeliest_prometheus_comes_first_and_services_with_an_address_before_headless_ones() -> None:
    named = a_service("main", "monitoring", {"operated-prometheus": "true"}, ("web", 9090))
    found = among([OPENSHIFT, JSONNET, CHART, STACK, OPERATED, named], "/prometheus")
    order = ["main", "prometheus-operated", "stack-kube-prometheus-stack-prometheus", "p-server", "prometheus-k8s", "thanos-querier"]
    assert [each.name for each in found] == order
    assert found[0].url == "http://main.monitoring.svc:9090/prometheus"


class Api:
    """Lists Services in the given namespaces, and refuses all other namespaces."""

    def __init__(self, services: dict[str, list[dict[str, Any]]]) -> None:
        self._services = services

    async def get(self, path: ApiPath, query: object) -> dict[str, Any]:
        if path.namespace not in self._services:
            raise ApiError(403, "Forbidden", "you may not")
        return {"metadata": {}, "items": self._services[path.namespace]}


async def test_namespaces_whose_services_we_may_not_list_are_skipped() -> None:
    server: Any = Api({"prometheus": [CHART]})
    assert [found.name for found in await candidates(server, ("monitoring", "prometheus"))] == ["p-server"]
    with pytest.raises(ApiError, match="you may not"):
        await candidates(server, ("monitoring", "elsewhere"))


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
PARTS = JSON | st.dictionaries(st.sampled_from(["name", "namespace", "labels", "ports", "type"]), JSON)


@given(st.dictionaries(st.sampled_from(["metadata", "spec"]), PARTS))
def test_malformed_service_hides_no_other_service(malformed: dict[str, Any]) -> None:
    assert [found.name for found in among([malformed, CHART])] == ["p-server"]
