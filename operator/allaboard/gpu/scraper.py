"""Reads GPU metrics periodically in a separate thread, and hands fresh measurements to the scheduler.

The scheduler never waits for metrics. A failure is logged when it begins and when it ends; during the failure the measurements only get
older.
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
"""The longest pause after a failure, if metrics were read before or the settings name a Prometheus."""

_LOOKING_SECONDS = 300.0
"""The longest pause between two attempts to find GPU metrics, if none were ever found."""

_LONGEST_PAUSE_SECONDS = 60.0
"""Pause after the scraper has ended by an error, such as missing credentials, until it is started again."""

Gauge = Callable[[str, Callable[[], float]], None]


class Scraper:
    """Reads GPU metrics by ``options``, and calls ``push`` with all measurements.

    ``push`` is called after each reading, and when measurements have become too old. ``is_known`` returns whether a text is the name of a
    node.
    """

    def __init__(self, options: GpuMetricsOptions, is_known: Callable[[str], bool], push: Callable[[Cards], None]) -> None:
        self._options = options
        self._is_known = is_known
        self._push = push
        self._cache = CardCache(options.stale_seconds)
        self._has_read = asyncio.Event()
        self._read_at = math.nan
        self._logged_level = 0  # highest level of the failures that were logged since the last successful reading
        self._errors = 0
        self._left_out = 0
        self._counts = (0, 0)

    def measure(self, gauge: Gauge) -> None:
        """Register the gauges of the scraper with the operator's metrics."""
        gauge("gpu_metrics_age_seconds", lambda: self._now() - self._read_at)
        gauge("gpu_metrics_cards", lambda: self._counts[0])
        gauge("gpu_metrics_stale_nodes", lambda: self._counts[1])
        gauge("gpu_metrics_errors", lambda: self._errors)
        gauge("gpu_metrics_left_out", lambda: self._left_out)

    async def run(self, server: ApiServer) -> None:
        """Read GPU metrics until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_reading(server))
            tasks.create_task(self._expire_old())

    async def _keep_reading(self, server: ApiServer) -> None:
        failures = 0
        while True:
            try:
                async with Web.open(self._options) as web:
                    source = await find(self._options, server, web, self._is_known)
                    while True:
                        self._take(await source.read(), source.description)
                        failures = 0
                        await asyncio.sleep(self._options.interval_seconds)
            except (SourceError, ApiError) as error:
                self._log_failure(error)
            except Exception as error:  # a defect must not stop the scheduler
                self._log_failure(error)
            await asyncio.sleep(pause_after(failures, self._options, has_read=not math.isnan(self._read_at)))
            failures += 1

    async def _expire_old(self) -> None:
        """Push the measurements again whenever some have become too old, at most once a second."""
        at_least = min(1.0, self._options.stale_seconds / 10)
        while True:
            expires = self._cache.expires(self._now())
            if math.isinf(expires):
                self._has_read.clear()
                await self._has_read.wait()
                continue
            await asyncio.sleep(max(expires, at_least))
            if self._cache.counts(self._now()) != self._counts:
                self._push_all()

    def _take(self, reading: Reading, source: str) -> None:
        now = self._now()
        self._cache.take(reading, now)
        if self._logged_level or math.isnan(self._read_at):
            logger.info("GPUs: %d GPUs of %d nodes are known from %s", sum(map(len, reading.names)), len(reading.nodes), source)
        if reading.left_out and not self._left_out:
            logger.warning("GPUs: %s: series beyond the limits on number and length are left out", source)
        self._left_out += reading.left_out
        self._logged_level, self._read_at = 0, now
        self._has_read.set()
        self._push_all()

    def _push_all(self) -> None:
        now = self._now()
        self._counts = self._cache.counts(now)
        self._push(self._cache.cards(now))

    def _log_failure(self, error: Exception) -> None:
        """Log a failure once, as a warning unless it is harmless.

        A failure is harmless if no metrics were ever read, the settings name no Prometheus, and the cause may be intended.
        """
        has_read = not math.isnan(self._read_at)
        is_harmless = not has_read and not self._options.url and self._may_be_intended(error)
        level = logging.INFO if is_harmless else logging.WARNING
        is_expected = isinstance(error, SourceError | ApiError)
        logger.log(
            level if level > self._logged_level else logging.DEBUG, "GPUs: metrics can't be read: %s", error, exc_info=not is_expected
        )
        self._logged_level = max(level, self._logged_level)
        self._errors += not is_harmless

    def _may_be_intended(self, error: Exception) -> bool:
        """Return whether a failure may be intended: no metrics are found, or this scheduler lacks the right to look for metrics."""
        return isinstance(error, NoneFoundError) or (isinstance(error, ApiError) and error.status in (401, 403))

    def _now(self) -> float:
        return time.monotonic()


def pause_after(failures: int, options: GpuMetricsOptions, *, has_read: bool) -> float:
    """Return the seconds until the next attempt after ``failures`` + 1 failures in a row.

    If no metrics were ever read and the settings name no Prometheus, the pause grows with each failure: the cluster may have no metrics.
    """
    interval = options.interval_seconds
    if has_read or options.url:
        return min(interval, _RETRY_SECONDS)
    return max(interval, min(interval * 2.0 ** min(failures, 32), _LOOKING_SECONDS))


async def keep_cards(scraper: Scraper, kubeconfig: str, synced: asyncio.Event) -> None:
    """Run ``scraper`` in a separate thread with a separate connection, once the nodes are known (``synced``)."""
    await synced.wait()

    async def scrape() -> None:
        while True:
            try:
                async with ApiServer.connect(kubeconfig=kubeconfig) as server:
                    await scraper.run(server)
            except Exception as error:  # no failure may stop the scheduler
                logger.warning("GPUs: metrics are not read: %s", error, exc_info=not isinstance(error, CredentialsError))
            await asyncio.sleep(_LONGEST_PAUSE_SECONDS)

    await in_own_thread(scrape)


async def in_own_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` on a separate event loop in a separate thread. If cancelled, cancel the work and wait until it has ended."""
    async with own_loop("gpu metrics") as loop:
        await run_on(loop, work())
