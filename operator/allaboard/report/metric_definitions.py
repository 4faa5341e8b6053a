"""The table of all metrics. The operator creates its metrics from the table; ``tests.monitoring`` and docs/metrics.md read it, too.

A metric has at most one label. No label names a pod, a gang, a node or a namespace: the number of series must not grow with the cluster.
Series of counters and histograms whose label values are known exist from the start with the value 0. Otherwise Prometheus would not see
the first increase of a series.
"""

from dataclasses import dataclass
from enum import StrEnum

from allaboard.binding.outcomes import Result
from allaboard.gangs.phases import Phase
from allaboard.model import limits
from allaboard.model.reasons import Code

_MILLISECONDS = tuple(0.001 * 2**power for power in range(16))
_CENTISECONDS = tuple(0.01 * 2**power for power in range(20))
_RESULTS = ("scheduled", "unschedulable", "error")
_STOPPED_BY = (
    *("exact", "optimal", "domain", "joint", "strategy", "patience", "generations"),
    *("bound", "proof", "no-nodes", "effort", "time", "greedy-only"),
)
SIZES = ((1, "1"), (8, "2-8"), (32, "9-32"), (128, "33-128"), (None, "129+"))
"""The size classes of gangs: the most members, None for any number, and the label value."""


class Type(StrEnum):
    """A type of Prometheus metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: its name as Prometheus shows it, its type, its help and its unit."""

    name: str
    type: Type
    help: str
    unit: str = ""
    """The unit of the values in words, such as ``seconds``; empty for a value without a unit."""
    label: str = ""
    """The name of the label; empty without one."""
    values: tuple[str, ...] = ()
    """All values of the label; empty if they aren't known beforehand."""
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the metric's series: three for a histogram."""
        if self.type is Type.HISTOGRAM:
            return f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count"
        return (self.name,)


DEFINITIONS = (
    # GPUs.
    Definition(
        "allaboard_gpus",
        Type.GAUGE,
        "GPUs by state. Allocatable GPUs are used or free. Stranded GPUs are free, but the cluster's pods with GPUs can't use them.",
        "GPUs",
        "state",
        ("allocatable", "used", "free", "stranded"),
    ),
    Definition("allaboard_reserved_gpus", Type.GAUGE, "GPUs that are reserved for waiting gangs.", "GPUs"),
    # Gangs.
    Definition(
        "allaboard_podgroups",
        Type.GAUGE,
        "PodGroups of this scheduler, by the phase in their status.",
        "gangs",
        "phase",
        tuple(map(str, Phase)),
    ),
    Definition(
        "allaboard_waiting_podgroups",
        Type.GAUGE,
        "Gangs that wait, by reason. A pod that is in no gang counts as one.",
        "gangs",
        "reason",
        tuple(str(code) for code in Code if code.is_waiting),
    ),
    Definition(
        "allaboard_pending_podgroups",
        Type.GAUGE,
        "Gangs by the part of the queue in which they wait.",
        "gangs",
        "queue",
        ("active", "backoff", "unschedulable"),
    ),
    Definition(
        "allaboard_oldest_wait_seconds",
        Type.GAUGE,
        "The longest time for which a gang of a priority has waited for capacity. The 16 highest priorities are shown.",
        "seconds",
        "priority",
    ),
    Definition(
        "allaboard_podgroup_scheduling_sli_duration_seconds",
        Type.HISTOGRAM,
        "Time from when the pods of a gang's quorum exist until the gang is whole, by the number of its members.",
        "seconds",
        "members",
        tuple(name for _, name in SIZES),
        _CENTISECONDS,
    ),
    Definition(
        "allaboard_expected_start_error_seconds",
        Type.HISTOGRAM,
        "Difference between the start that a gang was last expected to have and its real start; it was early or late.",
        "seconds",
        "start",
        ("early", "late"),
        (10, 60, 300, 900, 3600, 4 * 3600, 24 * 3600),
    ),
    # Attempts.
    Definition(
        "allaboard_podgroup_schedule_attempts_total",
        Type.COUNTER,
        "Attempts to schedule a gang, by result.",
        "attempts",
        "result",
        _RESULTS,
    ),
    Definition(
        "allaboard_schedule_attempts_total",
        Type.COUNTER,
        "Pods that were part of an attempt, by result of the attempt.",
        "pods",
        "result",
        _RESULTS,
    ),
    Definition(
        "allaboard_podgroup_scheduling_attempt_duration_seconds",
        Type.HISTOGRAM,
        "Duration of one attempt to schedule a gang, from the snapshot to the last reply of the API server.",
        "seconds",
        "result",
        _RESULTS,
        _MILLISECONDS,
    ),
    # Searches.
    Definition(
        "allaboard_podgroup_scheduling_algorithm_duration_seconds",
        Type.HISTOGRAM,
        "Duration of the search for a placement alone.",
        "seconds",
        buckets=_MILLISECONDS,
    ),
    Definition(
        "allaboard_search_generations",
        Type.HISTOGRAM,
        "Generations of the genetic search, per search.",
        "generations",
        buckets=(0, 10, 20, 30, 40, 60, 100, 200, 400),
    ),
    Definition(
        "allaboard_search_gain",
        Type.HISTOGRAM,
        "Points of the score (0 to 100) that a search gained over its best greedy seed.",
        "points",
        buckets=(0, 0.01, 0.1, 0.5, 1, 2, 5, 10, 20, 50),
    ),
    Definition(
        "allaboard_search_seconds_total",
        Type.COUNTER,
        "Seconds spent on searches, by lane: short ones, for which other gangs wait, and long ones, which run beside the cycle.",
        "seconds",
        "lane",
        ("short", "long"),
    ),
    Definition(
        "allaboard_searches_total", Type.COUNTER, "Searches, by the reason why they stopped.", "searches", "stopped_by", _STOPPED_BY
    ),
    Definition(
        "allaboard_search_failures_total",
        Type.COUNTER,
        "Searches without an answer, by reason: the search process died, or the search took too long and was ended.",
        "searches",
        "reason",
        ("died", "overrun"),
    ),
    Definition(
        "allaboard_strategy_failures_total", Type.COUNTER, "Placements at which a strategy failed, by strategy.", "placements", "strategy"
    ),
    Definition("allaboard_long_searches_waiting", Type.GAUGE, "Gangs that wait for a long search.", "gangs"),
    # Binds, releases and evictions.
    Definition("allaboard_binds_total", Type.COUNTER, "Binds of pods, by result.", "pods", "result", tuple(map(str, Result))),
    Definition(
        "allaboard_transactions_total",
        Type.COUNTER,
        "Transactions that bind a gang, by outcome.",
        "transactions",
        "outcome",
        ("whole", "open", "refused", "undone"),
    ),
    Definition("allaboard_released_pods_total", Type.COUNTER, "Bound pods deleted to release a partially bound gang.", "pods"),
    Definition("allaboard_preemption_attempts_total", Type.COUNTER, "Gangs for which pods were evicted.", "gangs"),
    Definition("allaboard_preemption_victims_total", Type.COUNTER, "Pods evicted for gangs of higher priority.", "pods"),
    # The operator.
    Definition("allaboard_build_info", Type.INFO, "Version of the operator.", label="version"),
    Definition("allaboard_leader", Type.GAUGE, "1 if this replica schedules, else 0.", "replicas"),
    Definition("allaboard_cache_size", Type.GAUGE, "Cached objects by type.", "objects", "type", ("nodes", "pods", "assumed_pods")),
    Definition(
        "allaboard_cache_age_seconds",
        Type.GAUGE,
        "Seconds by which the cached objects of a resource may be out of date: the greater of the silence and the lag of its watch.",
        "seconds",
        "resource",
    ),
    Definition(
        "allaboard_watch_silence_seconds", Type.GAUGE, "Seconds since the API server last sent data on the watch.", "seconds", "resource"
    ),
    Definition(
        "allaboard_watch_lag_seconds",
        Type.GAUGE,
        "Seconds for which the oldest event of the watch has waited to be processed.",
        "seconds",
        "resource",
    ),
    Definition("allaboard_writes_waiting", Type.GAUGE, "Events and statuses that wait to be written.", "writes"),
    Definition("allaboard_writes_dropped", Type.GAUGE, "Events and statuses that were dropped since the operator started.", "writes"),
    Definition(
        "allaboard_configuration_reloads_total",
        Type.COUNTER,
        "Reloads of the changed configuration file, by result.",
        "reloads",
        "result",
        ("applied", "refused"),
    ),
    Definition(
        "allaboard_over_limit_total",
        Type.COUNTER,
        "Objects that exceeded a limit of the operator, by limit.",
        "objects",
        "what",
        tuple(each.name for each in vars(limits).values() if isinstance(each, limits.Limit)),
    ),
    # GPU metrics, unless they are switched off.
    Definition("allaboard_gpu_metrics_age_seconds", Type.GAUGE, "Seconds since GPU metrics were read; NaN if they never were.", "seconds"),
    Definition("allaboard_gpu_metrics_cards", Type.GAUGE, "GPUs with fresh metrics.", "GPUs"),
    Definition("allaboard_gpu_metrics_stale_nodes", Type.GAUGE, "Nodes whose GPU metrics are too old.", "nodes"),
    Definition("allaboard_gpu_metrics_errors", Type.GAUGE, "Failed readings of GPU metrics since the operator started.", "readings"),
    Definition(
        "allaboard_gpu_metrics_left_out",
        Type.GAUGE,
        "Series that were too long, and answers that were cut off, since the operator started.",
        "series",
    ),
)

_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


def definition_of(name: str) -> Definition:
    """Return the definition of the metric of this name. Raises ``KeyError`` if there is none."""
    return _BY_NAME[name]
