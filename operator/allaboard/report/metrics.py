"""Prometheus metrics: kube-scheduler's suffixes and label values with the prefix ``allaboard_``. Labels never name pods or gangs."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

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

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series, and no query needs them

_SIZES = ((1, "1"), (8, "2-8"), (32, "9-32"), (128, "33-128"))

_SECONDS = tuple(0.001 * 2**power for power in range(16))


class Metrics:
    """All metrics of one operator, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.attempts = Counter(
            "allaboard_podgroup_schedule_attempts",
            "Attempts to schedule a gang, by result: scheduled, unschedulable or error.",
            ["result"],
            registry=self.registry,
        )
        self.pods_scheduled = Counter(
            "allaboard_schedule_attempts",
            "Pods that were part of an attempt, by result of the attempt.",
            ["result"],
            registry=self.registry,
        )
        self.attempt_seconds = Histogram(
            "allaboard_podgroup_scheduling_attempt_duration_seconds",
            "Duration of one attempt to schedule a gang, from the snapshot to the last reply of the API server.",
            ["result"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.algorithm_seconds = Histogram(
            "allaboard_podgroup_scheduling_algorithm_duration_seconds",
            "Duration of the search for a placement alone.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.gang_latency = Histogram(
            "allaboard_podgroup_scheduling_sli_duration_seconds",
            "Time from when the pods of a gang's quorum exist until the gang is whole, by the number of its members.",
            ["members"],
            buckets=tuple(0.01 * 2**power for power in range(20)),
            registry=self.registry,
        )
        self.start_error = Histogram(
            "allaboard_expected_start_error_seconds",
            "Difference between the start that a gang was last expected to have and its real start; it was early or late.",
            ["start"],
            buckets=(10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
            registry=self.registry,
        )
        Info("allaboard_build", "Version of the operator.", registry=self.registry).info({"version": __version__})
        self.generations = Histogram(
            "allaboard_search_generations",
            "Generations of the genetic search, per search.",
            buckets=(0, 10, 20, 30, 40, 60, 100, 200, 400),
            registry=self.registry,
        )
        self.gain = Histogram(
            "allaboard_search_gain",
            "Points of the score (0 to 100) that a search gained over its best greedy seed.",
            buckets=(0, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 50),
            registry=self.registry,
        )
        self.search_seconds = Counter(
            "allaboard_search_seconds",
            "Seconds spent on searches, by lane: short ones, for which other gangs wait, and long ones, which run beside the cycle.",
            ["lane"],
            registry=self.registry,
        )
        self.searches = Counter("allaboard_searches", "Searches, by the reason why they stopped.", ["stopped_by"], registry=self.registry)
        self.binds = Counter("allaboard_binds", "Binds of pods, by result.", ["result"], registry=self.registry)
        self.transactions = Counter(
            "allaboard_transactions", "Transactions that bind a gang, by outcome.", ["outcome"], registry=self.registry
        )
        self.over_limit = Counter(
            "allaboard_over_limit", "Objects that exceeded a limit of the operator, by limit.", ["what"], registry=self.registry
        )
        self.reloads = Counter(
            "allaboard_configuration_reloads", "Reloads of the changed configuration file, by result.", ["result"], registry=self.registry
        )
        self.strategy_failures = Counter(
            "allaboard_strategy_failures", "Placements at which a strategy failed, by strategy.", ["strategy"], registry=self.registry
        )
        self.preemptions = Counter("allaboard_preemption_attempts", "Gangs for which pods were evicted.", registry=self.registry)
        self.victims = Counter("allaboard_preemption_victims", "Pods evicted for gangs of higher priority.", registry=self.registry)
        self.releases = Counter("allaboard_released_pods", "Bound pods deleted to release a partially bound gang.", registry=self.registry)

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

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value ``read`` returns at each scrape."""
        Gauge(f"allaboard_{name}", text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """Add a gauge with one label; each function of ``reads`` returns the value for one value of the label, at each scrape."""
        gauge = Gauge(f"allaboard_{name}", text, [label], registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)


def size_class(members: int) -> str:
    """Return the class of a gang with so many members: a label value, of which there are few."""
    return next((name for most, name in _SIZES if members <= most), f"{_SIZES[-1][0] + 1}+")


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
