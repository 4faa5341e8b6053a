"""Finds the pods of exporters, maps the pods' addresses and names to nodes, and reads metrics from the pods directly."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address

from allaboard.gpu.dialects import DCGM_PORT, EXPORTER_LABELS, EXPORTER_PORTS, INSTANCE, Dialect
from allaboard.gpu.errors import SourceError
from allaboard.gpu.expositions import samples
from allaboard.gpu.gathering import MOST_NODES, Gathering
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiServer, RawObject
from allaboard.kube.lists import pages
from allaboard.kube.paths import PODS
from allaboard.model.errors import MalformedError
from allaboard.model.raw_fields import labels, mapping, text

_AT_ONCE = 16  # exporters that are asked concurrently
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class ExporterPod:
    """A running pod of an exporter: its node, and the address and port on which the exporter listens."""

    name: str
    node: str
    address: str
    port: int

    @property
    def url(self) -> str:
        """URL of the exporter's page of metrics."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"


async def exporter_pods(server: ApiServer, namespaces: Iterable[str]) -> list[ExporterPod]:
    """Return the running pods of exporters in ``namespaces``. Raises ``ApiError``."""
    found: dict[tuple[str, str], ExporterPod] = {}
    for namespace in namespaces:
        for selector in EXPORTER_LABELS:
            async for page in pages(server, PODS.within(namespace), query={"labelSelector": selector}):
                for raw in page.items:
                    with suppress(MalformedError):
                        if (pod := _exporter(raw)) is not None and len(found) < 2 * MOST_NODES:
                            found[namespace, pod.name] = pod
    return list(found.values())


class Locator:
    """Finds the node of a series by the series' labels. ``is_known`` returns whether a text is the name of a node."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._nodes: dict[str, str] = {}  # nodes by the address and by the name of an exporter's pod

    def learn(self, pods: Iterable[ExporterPod]) -> None:
        """Record on which nodes the pods of exporters run."""
        self._nodes = {key: pod.node for pod in pods for key in (pod.address, pod.name)}

    def locate(self, label: str, value: str) -> str | None:
        """Return the node that the ``value`` of a label stands for: a node's name, or the node of the exporter's pod; None if unknown."""
        if self._is_known(value):
            return value
        node = self._nodes.get(value.rpartition(":")[0].strip("[]") if label == INSTANCE else value)
        return node if node is not None and self._is_known(node) else None


async def read_exporters(
    web: Web, pods: Sequence[ExporterPod], dialects: Sequence[Dialect], is_known: Callable[[str], bool]
) -> tuple[Gathering, int]:
    """Read the metrics of exporters' pods. Return the measurements, and the number of pods that didn't answer.

    A pod's series count for the node on which the pod runs, even if their labels name another node. Raises ``SourceError`` if no pod
    answers.
    """
    gathering = Gathering(lambda label, value: value if label == INSTANCE and is_known(value) else None)
    names = {metric.name for dialect in dialects for metric in dialect.metrics}
    limit, failures = asyncio.Semaphore(_AT_ONCE), list[SourceError]()

    async def read(pod: ExporterPod) -> None:
        async with limit:
            try:
                async with web.get(pod.url, most_bytes=_MOST_BYTES) as chunks:
                    found = await samples(chunks, names, {INSTANCE: pod.node})
            except SourceError as error:
                failures.append(error)
                return
        for dialect in dialects:
            for metric in dialect.metrics:
                if metric.name in found:
                    gathering.take(dialect, metric, found[metric.name])

    await asyncio.gather(*map(read, pods))
    if failures and len(failures) == len(pods):
        raise failures[0]
    return gathering, len(failures)


def _exporter(raw: RawObject) -> ExporterPod | None:
    """Return the record of a raw pod; None if the pod isn't running or has no valid address."""
    metadata, status = mapping(raw, "metadata"), mapping(raw, "status")
    node, address = text(mapping(raw, "spec"), "nodeName"), text(status, "podIP")
    if not node or text(status, "phase") != "Running":
        return None
    try:
        ip_address(address)
    except ValueError:
        return None
    port = EXPORTER_PORTS.get(labels(metadata, "labels").get("name", ""), DCGM_PORT)
    return ExporterPod(text(metadata, "name"), node, address, port)
