"""The pods of exporters: which node an address or a pod's name stands for, and what they say when they are asked themselves."""

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

_AT_ONCE = 16
_MOST_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class ExporterPod:
    """A pod that runs on ``node``, at whose ``address`` an exporter listens on ``port``."""

    name: str
    node: str
    address: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"


async def exporter_pods(server: ApiServer, namespaces: Iterable[str]) -> list[ExporterPod]:
    """Those of ``namespaces`` that run. Raises ``ApiError``."""
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
    """Tells nodes by what series say of where they are from; ``is_known`` tells the names of nodes."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._nodes: dict[str, str] = {}  # by address and by name of an exporter's pod

    def learn(self, pods: Iterable[ExporterPod]) -> None:
        """Take where exporters' pods run."""
        self._nodes = {key: pod.node for pod in pods for key in (pod.address, pod.name)}

    def locate(self, label: str, value: str) -> str | None:
        """The node that the ``value`` of a series' ``label`` stands for: its name, or the exporter's pod on it."""
        if self._is_known(value):
            return value
        node = self._nodes.get(value.rpartition(":")[0].strip("[]") if label == INSTANCE else value)
        return node if node is not None and self._is_known(node) else None


async def read_exporters(
    web: Web, pods: Sequence[ExporterPod], dialects: Sequence[Dialect], is_known: Callable[[str], bool]
) -> tuple[Gathering, int]:
    """What ``pods`` say, each of the node it runs on, whatever it says of where it is; and how many didn't answer.

    Raises ``SourceError`` when none did.
    """
    gathering = Gathering(lambda label, value: value if label == INSTANCE and is_known(value) else None)
    names = {metric.name for dialect in dialects for metric in dialect.metrics}
    turns, failures = asyncio.Semaphore(_AT_ONCE), list[SourceError]()

    async def read(pod: ExporterPod) -> None:
        async with turns:
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
