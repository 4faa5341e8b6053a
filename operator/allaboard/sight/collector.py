"""Metrics of the whole cluster that are computed when Prometheus scrapes them, since their labels or values change all the time.

No label names a pod, a gang or a namespace.
"""

import heapq
import time
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allaboard.cluster.reservations import Ledger
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gpu_sharing import WHOLE
from allaboard.records.record import GangRecords
from allaboard.sight.stranded import Stranded

_MOST_PRIORITIES = 16


class ClusterCollector(Collector):
    """The GPUs of the cluster, what is reserved of them, and the longest waits. ``now`` returns seconds since the epoch."""

    def __init__(
        self, registry: GangRegistry, records: GangRecords, ledger: Ledger, stranded: Stranded, now: Callable[[], float] = time.time
    ) -> None:
        self._registry, self._records, self._ledger, self._stranded, self._now = registry, records, ledger, stranded, now

    def describe(self) -> Iterator[Metric]:
        """Return no descriptions, so that registering the collector doesn't compute the metrics."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._gpus()
        yield self._reserved()
        yield self._oldest_waits()

    def _gpus(self) -> Metric:
        found = GaugeMetricFamily(
            "allaboard_gpus", "GPUs by state. Stranded GPUs are free, but the cluster's workload can't use them.", labels=["state"]
        )
        offered, free, stranded = (float(each.sum()) for each in self._stranded.of_nodes())
        states = {"allocatable": offered, "used": offered - free, "free": free, "stranded": stranded}
        for state, number in states.items():
            found.add_metric([state], number)
        return found

    def _reserved(self) -> Metric:
        found = GaugeMetricFamily("allaboard_reserved_gpus", "GPUs that are reserved for waiting gangs.")
        found.add_metric([], sum(sum(each.parts.values()) for each in self._ledger.reservations) / WHOLE)
        return found

    def _oldest_waits(self) -> Metric:
        found = GaugeMetricFamily(
            "allaboard_oldest_wait_seconds", "The longest time for which a gang of a priority has waited for capacity.", labels=["priority"]
        )
        longest: dict[int, float] = {}
        for record in self._records:
            outline = self._registry.outline(record.key) if record.wait and not record.wait.is_for_pods else None
            if record.wait is not None and outline is not None:
                longest[outline.priority] = max(longest.get(outline.priority, 0.0), self._now() - record.wait.started)
        for priority in heapq.nlargest(_MOST_PRIORITIES, longest):
            found.add_metric([str(priority)], longest[priority])
        return found
