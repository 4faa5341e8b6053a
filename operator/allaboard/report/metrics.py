"""Prometheus metrics: kube-scheduler's suffixes and label values under our own prefix. No names of pods or gangs in labels."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

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
            "Score points gained over the best greedy seed.",
            buckets=(0, 0.5, 1, 2, 5, 10, 20, 50),
            registry=self.registry,
        )
        self.searches = Counter("allaboard_searches", "Searches, by what stopped them.", ["stopped_by"], registry=self.registry)
        self.binds = Counter("allaboard_binds", "Binds, by result.", ["result"], registry=self.registry)
        self.transactions = Counter("allaboard_transactions", "Transactions, by outcome.", ["outcome"], registry=self.registry)
        self.releases = Counter("allaboard_released_pods", "Bound pods deleted to undo a partial gang.", registry=self.registry)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is scraped."""
        Gauge(f"allaboard_{name}", text, registry=self.registry).set_function(read)

    def gauges(self, name: str, text: str, label: str, reads: Mapping[str, Callable[[], float]]) -> None:
        """Gauges of one name that differ in one label, read when they are scraped."""
        gauge = Gauge(f"allaboard_{name}", text, [label], registry=self.registry)
        for value, read in reads.items():
            gauge.labels(value).set_function(read)


@contextmanager
def serve(metrics: Metrics, port: int) -> Iterator[None]:
    """Serve ``/metrics`` on ``port`` while the context lasts; 0 serves nothing. Raises ``OSError`` when the port is taken."""
    if not port:
        yield
        return
    server: WSGIServer
    try:
        server, thread = start_http_server(port, registry=metrics.registry)
    except OSError as error:
        text = f"metrics can't be served on port {port}: {error.strerror}; choose another with ALLABOARD_METRICS_PORT, or 0 for none"
        raise OSError(error.errno, text) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
