"""Finds Prometheus by the names, labels and ports of its Service, as the usual ways to install Prometheus choose them.

A user that may create a Service in a searched namespace can pose as Prometheus and receive our credentials. So only the namespaces in the
settings are searched, and no tenant may have rights there.
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
"""The most Services of one namespace that are examined; further Services are ignored."""

_MOST_CANDIDATES = 16
_FORBIDDEN = 403
_TLS_PORTS = (443, 8443, 9091)
_OTHERS = ("alertmanager", "ruler", "node-exporter", "pushgateway", "kube-state-metrics", "-agent-operated")
_OPENSHIFT = "openshift-monitoring"
_is_name = re.compile(OBJECT_NAME, re.ASCII).fullmatch

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Convention:
    """One usual way to install Prometheus: how its Service is recognised, and which port to use.

    ``matches`` tests the Service's namespace, name and labels. ``ports`` are the possible ports by number or name, the best first.
    """

    name: str
    matches: Callable[[str, str, Labels], bool]
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
    """Return the Services of ``namespaces`` that may be Prometheus, the likeliest first.

    Namespaces whose Services we may not list are skipped. Raises ``ApiError``, also if all namespaces are skipped.
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
    """Return those of ``services`` that may be Prometheus, in the order of the conventions that they match.

    Within one convention, Services with a cluster IP come before headless Services. The replicas behind a headless Service hold the same
    data.
    """
    found: list[tuple[int, bool, int, Candidate]] = []
    for position, service in enumerate(services):
        with suppress(MalformedError):  # a malformed Service isn't Prometheus
            if (ranked := _ranked(service, prefix)) is not None:
                rank, is_headless, candidate = ranked
                found.append((rank, is_headless, position, candidate))
    return [candidate for *_, candidate in sorted(found, key=lambda each: each[:3])][:_MOST_CANDIDATES]


def _ranked(service: RawObject, prefix: str) -> tuple[int, bool, Candidate] | None:
    """Return the number of the first convention that ``service`` matches, whether the Service is headless, and the candidate.

    None if no convention matches.
    """
    metadata, spec = mapping(service, "metadata"), mapping(service, "spec")
    namespace, name, stated = text(metadata, "namespace"), text(metadata, "name"), labels(metadata, "labels")
    names = (name, stated.get(_NAME, ""), stated.get(_COMPONENT, ""), stated.get("app", ""))
    if not (_is_name(namespace) and _is_name(name)) or text(spec, "type") == "ExternalName":
        return None
    if any(other in each for other in _OTHERS for each in names) or stated.get("operated-thanos-ruler"):
        return None
    for rank, convention in enumerate(CONVENTIONS):
        if convention.matches(namespace, name, stated) and (port := _port(spec, convention.ports)):
            number, port_name = port
            scheme = "https" if number in _TLS_PORTS or "https" in port_name else "http"
            url = f"{scheme}://{name}.{namespace}.svc:{number}{prefix}"
            return rank, text(spec, "clusterIP") == "None", Candidate(convention.name, namespace, name, url)
    return None


def _port(spec: Mapping[str, object], wanted: Iterable[str | int]) -> tuple[int, str] | None:
    """Return number and name of the first port in ``wanted`` that the Service has.

    If the Service has no port in ``wanted``, return its only port; None if it has several.
    """
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
