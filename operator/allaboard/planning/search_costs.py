"""Counts the time of searches, in the metrics and as search time of the gangs' namespaces."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from allaboard.model.gang import Gang
from allaboard.queueing.search_time import SearchTime
from allaboard.report.metrics import Metrics


@dataclass(frozen=True, slots=True)
class SearchCosts:
    """Charges search time to namespaces, and counts it in the metrics; ``clock`` is monotonic, in seconds."""

    metrics: Metrics
    by_namespace: SearchTime
    clock: Callable[[], float]

    @contextmanager
    def brief(self, gangs: Sequence[Gang]) -> Iterator[Callable[[], float]]:
        """Charge the time of the ``with`` block to the namespaces of ``gangs``, in proportion to each gang's number of kinds of pods.

        Yield a function that returns the seconds so far.
        """
        started = self.clock()
        try:
            yield lambda: self.clock() - started
        finally:
            seconds = self.clock() - started
            self.metrics.search_seconds.labels("short").inc(seconds)
            kinds = [len({id(pod.spec) for pod in gang.candidates}) for gang in gangs]
            for gang, number in zip(gangs, kinds, strict=True):
                self.by_namespace.charge(gang.key.namespace, seconds * number / max(1, sum(kinds)))

    @contextmanager
    def long(self) -> Iterator[Callable[[], float]]:
        """Count the time of the ``with`` block in the metrics, as a long search; ``long_searches`` charges it to the namespace.

        Yield a function that returns the seconds so far.
        """
        started = self.clock()
        try:
            yield lambda: self.clock() - started
        finally:
            self.metrics.search_seconds.labels("long").inc(self.clock() - started)
