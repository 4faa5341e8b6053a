"""Finds Prometheus by the conventions of those who install it: which Services it has, and with which labels and ports.

Who may create a Service where we look may have it answer as Prometheus does, and would be sent our credentials: so the settings name the
namespaces, which must be no tenant's.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from allaboard.kube.client import ApiServer, RawObject
from allaboard.kube.errors import ApiError
from allaboard.kube.lists import pages
from allaboard.kube.paths import SERVICES
from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import OBJECT_NAME, integer, items, labels, mapping, text

_MOST_SERVICES = 2_000
"""Of one namespace; those beyond aren't looked at."""

_MOST_CANDIDATES = 16
_FORBIDDEN = 403
_TLS_PORTS = (443, 8443, 9091)
_OTHERS = ("alertmanager", "ruler", "node-exporter", "pushgateway", "kube-state-metrics", "-agent-operated")
_OPENSHIFT = "openshift-monitoring"
_is_name = re.compile(OBJECT_NAME, re.ASCII).fullmatch

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Convention:
    """How the Service of one way to install Prometheus is told, and its ports by name or number, the best first."""

    name: str
    is_one: Callable[[str, str, Labels], bool]
    ports: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Service that may be Prometheus."""

    convention: str
    namespace: str
    name: str
    url: str


_NAME, _COMPONENT, _PART_OF = (f"app.kubernetes.io/{key}" for key in ("name", "component", "part-of"))

CONVENTIONS = (
    Convention(
        "prometheus-operator",
        lambda _, name, labels: name == "prometheus-operated" or labels.get("operated-prometheus") == "true",
        ("web", "http-web", 9090),
    ),
    Convention(
        "kube-prometheus-stack",
        lambda _, __, labels: labels.get(_PART_OF) == "kube-prometheus-stack" and labels.get("app", "").endswith("-prometheus"),
        ("http-web", "web", 9090),
    ),
    Convention(
        "prometheus chart",
        lambda _, __, labels: labels.get(_NAME) == "prometheus" and labels.get(_COMPONENT) == "server",
        ("http", "https", 80, 9090),
    ),
    Convention(
        "kube-prometheus",
        lambda namespace, name, labels: (
            namespace != _OPENSHIFT
            and (name == "prometheus-k8s" or (labels.get(_NAME) == "prometheus" and labels.get(_COMPONENT) == "prometheus"))
        ),
        ("web", 9090),
    ),
    Convention(
        "OpenShift",
        lambda namespace, name, _: namespace == _OPENSHIFT and name in ("thanos-querier", "prometheus-k8s"),
        (9091, "web"),
    ),
)


async def candidates(server: ApiServer, namespaces: Sequence[str], prefix: str = "") -> list[Candidate]:
    """Services of ``namespaces`` that may be Prometheus, the likeliest first. Where they may not be listed, none are seen.

    Raises ``ApiError``, also when they may be listed nowhere.
    """
    services: list[RawObject] = []
    refused: list[ApiError] = []
    for namespace in namespaces:
        try:
            services += await _services(server, namespace)
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            refused.append(error)
    if refused and len(refused) == len(namespaces):
        raise refused[0]
    return among(services, prefix)


async def _services(server: ApiServer, namespace: str) -> list[RawObject]:
    found: list[RawObject] = []
    async for page in pages(server, SERVICES.within(namespace)):
        found = [*([] if page.begins else found), *page.items]
        if len(found) >= _MOST_SERVICES:
            break
    return found[:_MOST_SERVICES]


def among(services: Iterable[RawObject], prefix: str = "") -> list[Candidate]:
    """Those of ``services`` that may be Prometheus, in the order of the conventions and, within one, those with an address first.

    Any of the replicas behind a Service that has no address of its own is as good: all hold the same.
    """
    found: list[tuple[int, bool, int, Candidate]] = []
    for place, service in enumerate(services):
        with suppress(MalformedError):  # it can't be one
            if (judged := _judged(service, prefix)) is not None:
                rank, is_headless, candidate = judged
                found.append((rank, is_headless, place, candidate))
    return [candidate for *_, candidate in sorted(found, key=lambda each: each[:3])][:_MOST_CANDIDATES]


def _judged(service: RawObject, prefix: str) -> tuple[int, bool, Candidate] | None:
    metadata, spec = mapping(service, "metadata"), mapping(service, "spec")
    namespace, name, stated = text(metadata, "namespace"), text(metadata, "name"), labels(metadata, "labels")
    said = (name, stated.get(_NAME, ""), stated.get(_COMPONENT, ""), stated.get("app", ""))
    if not (_is_name(namespace) and _is_name(name)) or text(spec, "type") == "ExternalName":
        return None
    if any(other in word for other in _OTHERS for word in said) or stated.get("operated-thanos-ruler"):
        return None
    for rank, convention in enumerate(CONVENTIONS):
        if convention.is_one(namespace, name, stated) and (port := _port(spec, convention.ports)):
            number, port_name = port
            scheme = "https" if number in _TLS_PORTS or "https" in port_name else "http"
            url = f"{scheme}://{name}.{namespace}.svc:{number}{prefix}"
            return rank, text(spec, "clusterIP") == "None", Candidate(convention.name, namespace, name, url)
    return None


def _port(spec: Mapping[str, object], wanted: Iterable[str | int]) -> tuple[int, str] | None:
    """Number and name of the port that is wanted most; the only one, whatever it is called."""
    ports = [
        (number, text(port, "name"))
        for _, port in items(spec, "ports")
        if 0 < (number := integer(port, "port")) < 2**16 and text(port, "protocol", "TCP") == "TCP"
    ]
    for each in wanted:
        for port in ports:
            if each in port:
                return port
    return ports[0] if len(ports) == 1 else None
