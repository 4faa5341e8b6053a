"""Prometheus metrics: kube-scheduler's suffixes and label values with the prefix ``allaboard_``. Labels never name pods or gangs."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)

from allaboard import __version__
from allaboard.model.errors import unserved
from allaboard.placement import SearchReport
from allaboard.report.metric_definitions import SIZES, Definition, definition_of

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series, and no query needs them

_Labelled = TypeVar("_Labelled", Counter, Histogram)


class Metrics:
    """All metrics of one operator, in their own registry. ``metric_definitions`` defines their names, labels and texts.

    ``strategies`` are the names of strategies whose failures are counted from the start.
    """

    def __init__(self, strategies: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        self.attempts = self._counter("allaboard_podgroup_schedule_attempts_total")
        self.pods_scheduled = self._counter("allaboard_schedule_attempts_total")
        self.attempt_seconds = self._histogram("allaboard_podgroup_scheduling_attempt_duration_seconds")
        self.algorithm_seconds = self._histogram("allaboard_podgroup_scheduling_algorithm_duration_seconds")
        self.gang_latency = self._histogram("allaboard_podgroup_scheduling_sli_duration_seconds")
        self.start_error = self._histogram("allaboard_expected_start_error_seconds")
        self.generations = self._histogram("allaboard_search_generations")
        self.gain = self._histogram("allaboard_search_gain")
        self.search_seconds = self._counter("allaboard_search_seconds_total")
        self.searches = self._counter("allaboard_searches_total")
        self.search_failures = self._counter("allaboard_search_failures_total")
        self.binds = self._counter("allaboard_binds_total")
        self.transactions = self._counter("allaboard_transactions_total")
        self.over_limit = self._counter("allaboard_over_limit_total")
        self.reloads = self._counter("allaboard_configuration_reloads_total")
        self.strategy_failures = self._counter("allaboard_strategy_failures_total")
        for strategy in strategies:
            self.strategy_failures.labels(strategy)
        self.preemptions = self._counter("allaboard_preemption_attempts_total")
        self.victims = self._counter("allaboard_preemption_victims_total")
        self.releases = self._counter("allaboard_released_pods_total")
        build = definition_of("allaboard_build_info")
        Info(build.name.removesuffix("_info"), build.help, registry=self.registry).info({build.label: __version__})

    def _counter(self, name: str) -> Counter:
        defined = definition_of(name)
        return _with_series(Counter(name, defined.help, _labels(defined), registry=self.registry), defined)

    def _histogram(self, name: str) -> Histogram:
        defined = definition_of(name)
        return _with_series(Histogram(name, defined.help, _labels(defined), buckets=defined.buckets, registry=self.registry), defined)

    def searched(self, report: SearchReport, seconds: float) -> None:
        """Record the duration, the generations and the gain of one search."""
        self.algorithm_seconds.observe(seconds)
        self.generations.observe(report.generations)
        self.gain.observe(max(0.0, report.score - report.seed_score))
        self.searches.labels(report.stopped_by).inc()

    def started(self, members: int, seconds: float, late: float | None) -> None:
        """Record that a gang of so many ``members`` is whole after so many ``seconds``.

        ``late``: by how many seconds the start was later than expected, negative if it was earlier; None if none was expected.
        """
        self.gang_latency.labels(size_class(members)).observe(seconds)
        if late is not None:
            self.start_error.labels("late" if late > 0 else "early").observe(abs(late))

    def exceeded(self, limit: str) -> None:
        """Count an object that exceeds the limit of this name."""
        self.over_limit.labels(limit).inc()

    def search_failed(self, reason: str) -> None:
        """Count a search without an answer: its process ``died``, or the search was ended as an ``overrun``."""
        self.search_failures.labels(reason).inc()

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Add the gauge ``allaboard_NAME``, whose value ``read`` returns at each scrape."""
        defined = definition_of(f"allaboard_{name}")
        Gauge(defined.name, defined.help, registry=self.registry).set_function(read)

    def gauges(self, name: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """Add the gauge ``allaboard_NAME``; each function of ``reads`` returns the value for one value of the label, at each scrape."""
        defined = definition_of(f"allaboard_{name}")
        gauge = Gauge(defined.name, defined.help, _labels(defined), registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)


def size_class(members: int) -> str:
    """Return the class of a gang with so many members: a label value, of which there are few."""
    return next(name for most, name in SIZES if most is None or members <= most)


def _labels(defined: Definition) -> tuple[str, ...]:
    return (defined.label,) if defined.label else ()


def _with_series(metric: _Labelled, defined: Definition) -> _Labelled:
    """Return ``metric`` after its series of known label values are added with the value 0."""
    for value in defined.values:
        metric.labels(value)
    return metric


@asynccontextmanager
async def serve(metrics: Metrics, port: int, is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve ``/metrics`` and ``/readyz`` (200 or 503) on ``port`` while the context lasts. With port 0 nothing is served.

    The scheduler's own event loop serves both, so that a stuck loop doesn't look ready. Raises ``OSError`` if the port is taken.
    """
    if not port:
        yield
        return
    from aiohttp import web  # imported only here: ``allaboard plan`` counts searches and serves nothing

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def readiness(_: web.Request) -> web.Response:
        return web.Response(text="ready\n") if is_ready() else web.Response(status=503, text="not ready: see the log for the reason\n")

    app = web.Application()
    app.add_routes([web.get("/metrics", scrape), web.get("/readyz", readiness)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, port=port).start()
        except OSError as error:
            raise OSError(error.errno, unserved("metrics", port, error, "ALLABOARD_METRICS_PORT")) from error
        yield
    finally:
        await runner.cleanup()
