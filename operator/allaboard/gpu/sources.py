"""Sources of GPU metrics: a Prometheus that the settings name, a Prometheus that is found, or the exporters. ``find`` selects one."""

import time
from collections.abc import Callable
from typing import Protocol

from allaboard.gpu.dialects import Dialect, dialects
from allaboard.gpu.discovery import candidates
from allaboard.gpu.errors import SourceError
from allaboard.gpu.exporters import Locator, exporter_pods, read_exporters
from allaboard.gpu.gathering import Gathering, Reading
from allaboard.gpu.prometheus import Prometheus
from allaboard.gpu.web import NO_CREDENTIALS, Credentials, Web
from allaboard.kube.client import ApiServer
from allaboard.kube.errors import ApiError
from allaboard.settings.gpu_metrics import GpuMetricsOptions

_RELEARN_SECONDS = 60.0  # shortest pause between two lists of exporters' pods
_RELEARN_MOST_SECONDS = 3600.0  # longest pause


class NoneFoundError(SourceError):
    """Raised if no source of GPU metrics was found. That is normal for a cluster without exporters."""


class Source(Protocol):
    """A place from which GPU metrics are read: one Prometheus, or all exporters together."""

    @property
    def description(self) -> str:
        """Kind and address of the source, for the log."""

    async def read(self) -> Reading:
        """Return the present measurements. Raises ``SourceError`` and ``ApiError``."""


async def find(options: GpuMetricsOptions, server: ApiServer, web: Web, is_known: Callable[[str], bool]) -> Source:
    """Return the source that the settings select: the exporters, the named Prometheus, or the first Prometheus found that has GPU metrics.

    ``is_known`` returns whether a text is the name of a node. Raises ``SourceError``, and ``ApiError`` if Services can't be listed.
    """
    known = dialects(options.metrics, options.node_label, options.card_label, options.model_label)
    if options.source == "exporters":
        return _Exporters(options, server, web, known, is_known)
    if options.url:
        prometheus = Prometheus(web, options.url, Credentials.from_options(options), options.matchers)
        return _FromPrometheus(prometheus, options.url, options, server, known, is_known)
    failures: list[str] = []
    for candidate in await candidates(server, options.namespaces, options.path_prefix):
        # Unencrypted credentials could be intercepted. The settings don't name this URL, so no user has accepted that.
        credentials = Credentials.from_options(options) if candidate.url.startswith("https:") else NO_CREDENTIALS
        prometheus = Prometheus(web, candidate.url, credentials, options.matchers)
        try:
            await prometheus.probe()
            if await prometheus.metrics(known):
                description = f"{candidate.url} (Service {candidate.namespace}/{candidate.name}, as installed by {candidate.convention})"
                return _FromPrometheus(prometheus, description, options, server, known, is_known)
            failures.append(f"{candidate.url}: no GPU metrics")
        except SourceError as error:
            failures.append(str(error))
    found = f"; {'; '.join(failures[:3])}" if failures else f" in the namespaces {', '.join(options.namespaces)}"
    raise NoneFoundError(f"no Prometheus with GPU metrics was found{found}")


class _FromPrometheus:
    """Reads a Prometheus. If series name no node, the exporters' pods are listed, to map their addresses and names to nodes."""

    def __init__(
        self,
        prometheus: Prometheus,
        description: str,
        options: GpuMetricsOptions,
        server: ApiServer,
        known: tuple[Dialect, ...],
        is_known: Callable[[str], bool],
    ) -> None:
        self.description = description
        self._prometheus = prometheus
        self._options = options
        self._server = server
        self._dialects = known
        self._locator = Locator(is_known)
        self._pause = _RELEARN_SECONDS
        self._learnt_at = -_RELEARN_MOST_SECONDS

    async def read(self) -> Reading:
        """Return the present measurements of Prometheus."""
        gathering = await self._gather()
        if gathering.unlocated and time.monotonic() - self._learnt_at >= self._pause:
            before = gathering.unlocated
            try:
                self._locator.learn(await exporter_pods(self._server, self._options.exporter_namespaces))
            except ApiError as error:
                if error.status != 403:
                    raise
            else:
                gathering = await self._gather()
            # Series of foreign nodes, or of no node, must not make us list pods at every reading.
            self._pause = _RELEARN_SECONDS if gathering.unlocated < before else min(2 * self._pause, _RELEARN_MOST_SECONDS)
            self._learnt_at = time.monotonic()
        return gathering.reading()

    async def _gather(self) -> Gathering:
        existing = await self._prometheus.metrics(self._dialects)
        if not existing:
            raise SourceError(f"{self._prometheus.url}: no GPU metrics")
        gathering = Gathering(self._locator.locate)
        await self._prometheus.read(self._dialects, existing, gathering)
        return gathering


class _Exporters:
    """Reads each exporter's page, without credentials."""

    description = "the exporters' pods"

    def __init__(
        self, options: GpuMetricsOptions, server: ApiServer, web: Web, known: tuple[Dialect, ...], is_known: Callable[[str], bool]
    ) -> None:
        self._options = options
        self._server = server
        self._web = web
        self._dialects = known
        self._is_known = is_known

    async def read(self) -> Reading:
        """Return the present measurements of all exporters."""
        pods = await exporter_pods(self._server, self._options.exporter_namespaces)
        if not pods:
            raise NoneFoundError(f"no exporter's pod is running in the namespaces {', '.join(self._options.exporter_namespaces)}")
        gathering, _ = await read_exporters(self._web, pods, self._dialects, self._is_known)
        return gathering.reading()
