"""Prometheus metrics: kube-scheduler's suffixes and label values under our own prefix. No names of pods or gangs in labels."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from allaboard.model.errors import unserved
from allaboard.placement import SearchReport

_SECONDS = tuple(0.001 * 2**power for power in range(16))


class Metrics:
    """All metrics of one operator, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.attempts = Counter(
            "allaboard_podgroup_schedule_attempts", "Attempts to schedule a gang, by result.", ["result"], registry=self.registry
        )
        self.pods_scheduled = Counter(
            "allaboard_schedule_attempts", "Pods by the result of an attempt.", ["result"], registry=self.registry
        )
        self.attempt_seconds = Histogram(
            "allaboard_podgroup_scheduling_attempt_duration_seconds",
            "One attempt at a gang, from the snapshot to the last reply of the API server.",
            ["result"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.algorithm_seconds = Histogram(
            "allaboard_podgroup_scheduling_algorithm_duration_seconds", "The search alone.", buckets=_SECONDS, registry=self.registry
        )
        self.gang_latency = Histogram(
            "allaboard_podgroup_scheduling_sli_duration_seconds",
            "From a gang's quorum being there to its last bind.",
            buckets=tuple(0.01 * 2**power for power in range(20)),
            registry=self.registry,
        )
        self.generations = Histogram(
            "allaboard_search_generations",
            "Generations of the genetic search.",
            buckets=(0, 10, 20, 30, 40, 60, 100, 200, 400),
            registry=self.registry,
        )
        self.gain = Histogram(
            "allaboard_search_gain",
            "Points (of 100) of the score gained over the best greedy seed.",
            buckets=(0, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 50),
            registry=self.registry,
        )
        self.search_seconds = Counter(
            "allaboard_search_seconds",
            "Time of searches: short ones, that others wait for, and long ones beside.",
            ["lane"],
            registry=self.registry,
        )
        self.searches = Counter("allaboard_searches", "Searches, by what stopped them.", ["stopped_by"], registry=self.registry)
        self.binds = Counter("allaboard_binds", "Binds, by result.", ["result"], registry=self.registry)
        self.transactions = Counter("allaboard_transactions", "Transactions, by outcome.", ["outcome"], registry=self.registry)
        self.over_limit = Counter(
            "allaboard_over_limit", "Objects that had more of something than is taken in.", ["what"], registry=self.registry
        )
        self.reloads = Counter(
            "allaboard_configuration_reloads", "Changes of the configuration file, by result.", ["result"], registry=self.registry
        )
        self.strategy_failures = Counter(
            "allaboard_strategy_failures", "Placements that a strategy failed at.", ["strategy"], registry=self.registry
        )
        self.releases = Counter("allaboard_released_pods", "Bound pods deleted to undo a partial gang.", registry=self.registry)

    def searched(self, report: SearchReport, seconds: float) -> None:
        """Count one search."""
        self.algorithm_seconds.observe(seconds)
        self.generations.observe(report.generations)
        self.gain.observe(max(0.0, report.score - report.seed_score))
        self.searches.labels(report.stopped_by).inc()

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when it is scraped."""
        Gauge(f"allaboard_{name}", text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """Add gauges of one name that differ in one label, read when they are scraped."""
        gauge = Gauge(f"allaboard_{name}", text, [label], registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)


@asynccontextmanager
async def serve(metrics: Metrics, port: int, is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Serve ``/metrics``, and ``/readyz`` (200 or 503), on ``port`` while the context lasts; 0 serves nothing.

    Served by the event loop itself: a loop that is stuck is not ready. Raises ``OSError`` when the port is taken.
    """
    if not port:
        yield
        return
    from aiohttp import web  # only here: ``allaboard plan`` counts searches, and serves nothing

    async def scrape(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def readiness(_: web.Request) -> web.Response:
        return web.Response(text="ready\n") if is_ready() else web.Response(status=503, text="not ready: the log says why\n")

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
