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

    metrics.gauges(
        "pending_podgroups",
        "Gangs by the part of the queue in which they wait.",
        "queue",
        {name: partial(queued, name) for name in queue.sizes()},
    )
    reasons = {str(code): partial(waiting, code) for code in Code if code.is_waiting}
    metrics.gauges("waiting_podgroups", "Gangs that wait, by the reason in the status of their PodGroup.", "reason", reasons)
    metrics.gauges("cache_size", "Cached objects by type.", "type", {name: partial(cached, name) for name in view.counts})
    silences = {name: partial(getattr, reflector, "silence_seconds") for name, reflector in reflectors.items()}
    lags = {name: partial(getattr, reflector, "lag_seconds") for name, reflector in reflectors.items()}
    metrics.gauges("watch_silence_seconds", "Seconds since the API server last sent data on the watch.", "resource", silences)
    metrics.gauges("watch_lag_seconds", "Seconds for which the oldest event of the watch has waited to be processed.", "resource", lags)
    metrics.gauge("leader", "1 if this replica schedules, else 0.", lambda: float(leads()))
    metrics.gauge("writes_waiting", "Events and statuses that wait to be written.", lambda: writer.waiting)
    metrics.gauge("writes_dropped", "Events and statuses that were dropped.", lambda: writer.dropped)
