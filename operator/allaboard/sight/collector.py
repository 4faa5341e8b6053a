"""Metrics of the whole cluster that are computed when Prometheus scrapes them, since their labels or values change all the time.

No label names a pod, a gang or a namespace.
"""

import heapq
import time
from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from allaboard.cluster.reservations import Ledger
from allaboard.gangs.phases import Phase
from allaboard.gangs.registry import GangRegistry
from allaboard.model.gpu_sharing import WHOLE
from allaboard.records.record import GangRecords
from allaboard.report.metric_definitions import definition_of
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
        yield self._phases()
        yield self._oldest_waits()

    def _gpus(self) -> Metric:
        found = _family("allaboard_gpus")
        offered, free, stranded = (float(each.sum()) for each in self._stranded.of_nodes())
        states = {"allocatable": offered, "used": offered - free, "free": free, "stranded": stranded}
        for state, number in states.items():
            found.add_metric([state], number)
        return found

    def _reserved(self) -> Metric:
        found = _family("allaboard_reserved_gpus")
        found.add_metric([], sum(sum(each.parts.values()) for each in self._ledger.reservations) / WHOLE)
        return found

    def _phases(self) -> Metric:
        """Count PodGroups by the phase that they show, so that followers and gangs without pods count as well."""
        phases = dict.fromkeys(map(str, Phase), 0)
        for key in self._registry.groups():
            group = self._registry.group(key)
            status = group.status if group is not None and group.status else {}
            # The CRD of scheduler-plugins drops the name of the scheduler; a living pod of ours shows the same.
            is_ours = self._registry.answers_to(status.get("schedulerName")) or self._registry.first_member(key) is not None
            phase = status.get("phase")
            if is_ours and isinstance(phase, str) and phase in phases:
                phases[phase] += 1
        found = _family("allaboard_podgroups")
        for phase, number in phases.items():
            found.add_metric([phase], number)
        return found

    def _oldest_waits(self) -> Metric:
        found = _family("allaboard_oldest_wait_seconds")
        longest: dict[int, float] = {}
        for record in self._records:
            outline = self._registry.outline(record.key) if record.wait and not record.wait.is_for_pods else None
            if record.wait is not None and outline is not None:
                longest[outline.priority] = max(longest.get(outline.priority, 0.0), self._now() - record.wait.started)
        for priority in heapq.nlargest(_MOST_PRIORITIES, longest):
            found.add_metric([str(priority)], longest[priority])
        return found


def _family(name: str) -> GaugeMetricFamily:
    """Return a gauge without values, as the table of metrics defines it."""
    defined = definition_of(name)
    return GaugeMetricFamily(name, defined.help, labels=[defined.label] if defined.label else None)
