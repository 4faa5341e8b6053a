"""Gauges of the present state, each of which is read when Prometheus scrapes it."""

from collections.abc import Callable, Mapping
from functools import partial

from allaboard.cluster.view import ClusterView
from allaboard.kube.reflector import Reflector
from allaboard.model.reasons import Code
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecords
from allaboard.report.metrics import Metrics
from allaboard.report.writer import Writer


def add_gauges(
    metrics: Metrics,
    queue: GangQueue,
    records: GangRecords,
    view: ClusterView,
    reflectors: Mapping[str, Reflector],
    writer: Writer,
    leads: Callable[[], bool],
) -> None:
    """Add the gauges of one operator to ``metrics``."""

    def waiting(code: Code) -> float:
        return sum(record.report.opinion is not None and record.report.opinion.code is code for record in records)

    def queued(name: str) -> float:
        return queue.sizes()[name]

    def cached(name: str) -> float:
        return view.counts[name]

    metrics.gauges("pending_podgroups", {name: partial(queued, name) for name in queue.sizes()})
    metrics.gauges("waiting_podgroups", {str(code): partial(waiting, code) for code in Code if code.is_waiting})
    metrics.gauges("cache_size", {name: partial(cached, name) for name in view.counts})
    for name, field in (("cache_age", "age"), ("watch_silence", "silence"), ("watch_lag", "lag")):
        seconds = {resource: partial(getattr, reflector, f"{field}_seconds") for resource, reflector in reflectors.items()}
        metrics.gauges(f"{name}_seconds", seconds)
    metrics.gauge("leader", lambda: float(leads()))
    metrics.gauge("writes_waiting", lambda: writer.waiting)
    metrics.gauge("writes_dropped", lambda: writer.dropped)
