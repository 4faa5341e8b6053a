"""Reads what is known of GPUs again and again, in a thread of its own, and hands over what is fresh.

Nothing waits for it. Whatever goes wrong is logged when it begins and when it ends, and costs nothing but freshness.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

from allaboard.gpu.cache import CardCache
from allaboard.gpu.errors import SourceError
from allaboard.gpu.gathering import Reading
from allaboard.gpu.sources import NoneFoundError, find
from allaboard.gpu.web import Web
from allaboard.kube.client import ApiServer, CredentialsError
from allaboard.kube.errors import ApiError
from allaboard.model.gpus import Cards
from allaboard.runtime.threads import own_loop, run_on
from allaboard.settings.gpu_metrics import GpuMetricsOptions

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0
"""Longest pause after a failure where metrics have been, or should be."""

_LOOKING_SECONDS = 300.0
"""Longest pause between two looks where nobody has ever had metrics of GPUs."""

_LONGEST_PAUSE_SECONDS = 60.0
"""Between two tries to reach the API server."""

Gauge = Callable[[str, str, Callable[[], float]], None]


class Scraper:
    """Reads cards as ``options`` say and calls ``push`` with all that is known, whenever that has changed or has grown too old.

    ``is_known`` tells the names of nodes.
    """

    def __init__(self, options: GpuMetricsOptions, is_known: Callable[[str], bool], push: Callable[[Cards], None]) -> None:
        self._options = options
        self._is_known = is_known
        self._push = push
        self._cache = CardCache(options.stale_seconds)
        self._has_read = asyncio.Event()
        self._read_at = math.nan
        self._complained = 0  # level of what was logged since the last reading
        self._errors = 0
        self._left_out = 0
        self._counts = (0, 0)

    def measure(self, gauge: Gauge) -> None:
        """Have the figures of it read where metrics are served."""
        gauge("gpu_metrics_age_seconds", "Seconds since metrics of GPUs were read; NaN before.", lambda: self._now() - self._read_at)
        gauge("gpu_metrics_cards", "GPUs of which fresh metrics are known.", lambda: self._counts[0])
        gauge("gpu_metrics_stale_nodes", "Nodes of whose GPUs metrics were known and are too old.", lambda: self._counts[1])
        gauge("gpu_metrics_errors", "Readings of metrics of GPUs that failed.", lambda: self._errors)
        gauge("gpu_metrics_left_out", "Series that were too long, and answers that were cut off, in all readings.", lambda: self._left_out)

    async def run(self, server: ApiServer) -> None:
        """Read for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_on(server))
            tasks.create_task(self._let_expire())

    async def _read_on(self, server: ApiServer) -> None:
        failures = 0
        while True:
            try:
                async with Web.open(self._options) as web:
                    source = await find(self._options, server, web, self._is_known)
                    while True:
                        self._take(await source.read(), source.words)
                        failures = 0
                        await asyncio.sleep(self._options.interval_seconds)
            except (SourceError, ApiError) as error:
                self._complain(error)
            except Exception as error:  # a defect, which must not end the scheduler
                self._complain(error)
            await asyncio.sleep(pause_after(failures, self._options, has_read=not math.isnan(self._read_at)))
            failures += 1

    async def _let_expire(self) -> None:
        """Hand over what is known without what has just become too old, once a second at most."""
        at_least = min(1.0, self._options.stale_seconds / 10)
        while True:
            expires = self._cache.expires(self._now())
            if math.isinf(expires):
                self._has_read.clear()
                await self._has_read.wait()
                continue
            await asyncio.sleep(max(expires, at_least))
            if self._cache.counts(self._now()) != self._counts:
                self._tell()

    def _take(self, reading: Reading, words: str) -> None:
        now = self._now()
        self._cache.take(reading, now)
        if self._complained or math.isnan(self._read_at):
            logger.info("GPUs: %d cards of %d nodes are known by %s", sum(map(len, reading.names)), len(reading.nodes), words)
        if reading.left_out and not self._left_out:
            logger.warning("GPUs: %s: what has more series, or longer ones, than there can be of GPUs is left out", words)
        self._left_out += reading.left_out
        self._complained, self._read_at = 0, now
        self._has_read.set()
        self._tell()

    def _tell(self) -> None:
        now = self._now()
        self._counts = self._cache.counts(now)
        self._push(self._cache.cards(now))

    def _complain(self, error: Exception) -> None:
        """Say once what is wrong, and as a warning only where something was there, or should be."""
        has_read = not math.isnan(self._read_at)
        is_quiet = not has_read and not self._options.url and self._is_quiet(error)
        level = logging.INFO if is_quiet else logging.WARNING
        is_expected = isinstance(error, SourceError | ApiError)
        logger.log(level if level > self._complained else logging.DEBUG, "GPUs: metrics can't be read: %s", error, exc_info=not is_expected)
        self._complained = max(level, self._complained)
        self._errors += not is_quiet

    def _is_quiet(self, error: Exception) -> bool:
        """Whether it may well be meant: no Prometheus, or no right to look for one."""
        return isinstance(error, NoneFoundError) or (isinstance(error, ApiError) and error.status in (401, 403))

    def _now(self) -> float:
        return time.monotonic()


def pause_after(failures: int, options: GpuMetricsOptions, *, has_read: bool) -> float:
    """Seconds until the next try after one more failure than so many in a row: longer each time where there may be nothing to read."""
    interval = options.interval_seconds
    if has_read or options.url:
        return min(interval, _RETRY_SECONDS)
    return max(interval, min(interval * 2.0 ** min(failures, 32), _LOOKING_SECONDS))


async def keep_cards(scraper: Scraper, kubeconfig: str, synced: asyncio.Event) -> None:
    """Run ``scraper`` in a thread of its own, with a connection of its own, from when nodes are known."""
    await synced.wait()

    async def scrape() -> None:
        while True:
            try:
                async with ApiServer.connect(kubeconfig=kubeconfig) as server:
                    await scraper.run(server)
            except Exception as error:  # whatever it is must not end the scheduler
                logger.warning("GPUs: metrics aren't read: %s", error, exc_info=not isinstance(error, CredentialsError))
            await asyncio.sleep(_LONGEST_PAUSE_SECONDS)

    await in_own_thread(scrape)


async def in_own_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do ``work`` on a loop of its own in a thread of its own. When this is cancelled, that is, and waited for."""
    async with own_loop("gpu metrics") as loop:
        await run_on(loop, work())
