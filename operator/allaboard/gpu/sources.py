"""Where cards are read: a Prometheus that is named or found, or the exporters themselves. Both have one verb, ``read``."""

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

_RELEARN_SECONDS = 60.0
_RELEARN_MOST_SECONDS = 3600.0


class NoneFoundError(SourceError):
    """Nobody has metrics of GPUs, as far as can be seen: nothing to be alarmed at."""


class Source(Protocol):
    """Who says something of cards."""

    @property
    def words(self) -> str:
        """What it is and where, for people."""

    async def read(self) -> Reading:
        """What it says now. Raises ``SourceError`` and ``ApiError``."""


async def find(options: GpuMetricsOptions, server: ApiServer, web: Web, is_known: Callable[[str], bool]) -> Source:
    """The source that the settings want: a named Prometheus, the exporters, or the first Service that is one and has metrics of GPUs.

    ``is_known`` tells the names of nodes. Raises ``SourceError``, and ``ApiError`` when Services can't be listed.
    """
    known = dialects(options.metrics, options.node_label, options.card_label, options.model_label)
    if options.source == "exporters":
        return _Exporters(options, server, web, known, is_known)
    if options.url:
        prometheus = Prometheus(web, options.url, Credentials.by(options), options.matchers)
        return _FromPrometheus(prometheus, options.url, options, server, known, is_known)
    failures: list[str] = []
    for candidate in await candidates(server, options.namespaces, options.path_prefix):
        # Whoever listens on the way would hear what isn't encrypted, which nobody has asked for here.
        credentials = Credentials.by(options) if candidate.url.startswith("https:") else NO_CREDENTIALS
        prometheus = Prometheus(web, candidate.url, credentials, options.matchers)
        try:
            await prometheus.probe()
            if await prometheus.metrics(known):
                words = f"{candidate.url} (Service {candidate.namespace}/{candidate.name}, as of {candidate.convention})"
                return _FromPrometheus(prometheus, words, options, server, known, is_known)
            failures.append(f"{candidate.url}: it has no metrics of GPUs")
        except SourceError as error:
            failures.append(str(error))
    found = f"; {'; '.join(failures[:3])}" if failures else f" in the namespaces {', '.join(options.namespaces)}"
    raise NoneFoundError(f"no Prometheus that has metrics of GPUs was found{found}")


class _FromPrometheus:
    """Asks a Prometheus, and for exporters' pods where series tell no node."""

    def __init__(
        self,
        prometheus: Prometheus,
        words: str,
        options: GpuMetricsOptions,
        server: ApiServer,
        known: tuple[Dialect, ...],
        is_known: Callable[[str], bool],
    ) -> None:
        self.words = words
        self._prometheus = prometheus
        self._options = options
        self._server = server
        self._dialects = known
        self._locator = Locator(is_known)
        self._pause = _RELEARN_SECONDS
        self._learnt_at = -_RELEARN_MOST_SECONDS

    async def read(self) -> Reading:
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
            # Series of nodes that aren't ours, or of none, must not have us list pods again and again.
            self._pause = _RELEARN_SECONDS if gathering.unlocated < before else min(2 * self._pause, _RELEARN_MOST_SECONDS)
            self._learnt_at = time.monotonic()
        return gathering.reading()

    async def _gather(self) -> Gathering:
        there = await self._prometheus.metrics(self._dialects)
        if not there:
            raise SourceError(f"{self._prometheus.url}: it has no metrics of GPUs")
        gathering = Gathering(self._locator.locate)
        await self._prometheus.read(self._dialects, there, gathering)
        return gathering


class _Exporters:
    """Asks each exporter for its page, without credentials."""

    words = "the exporters' pods"

    def __init__(
        self, options: GpuMetricsOptions, server: ApiServer, web: Web, known: tuple[Dialect, ...], is_known: Callable[[str], bool]
    ) -> None:
        self._options = options
        self._server = server
        self._web = web
        self._dialects = known
        self._is_known = is_known

    async def read(self) -> Reading:
        pods = await exporter_pods(self._server, self._options.exporter_namespaces)
        if not pods:
            raise NoneFoundError(f"no exporter's pod runs in the namespaces {', '.join(self._options.exporter_namespaces)}")
        gathering, _ = await read_exporters(self._web, pods, self._dialects, self._is_known)
        return gathering.reading()
