"""The alerts as data. Each of them has a runbook, docs/runbooks/NAME.md, and asks an administrator to do something."""

from dataclasses import dataclass
from typing import Literal

RUNBOOKS = "docs/runbooks"
"""The folder of the runbooks in the repository. The chart's value ``alerts.runbooks`` replaces it by an address."""

_BY = "by (namespace, job)"
"""The labels of one installation."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A PromQL query, and the comparison that its value must meet, such as ``> 0``."""

    query: str
    comparison: str

    def __str__(self) -> str:
        return f"{self.query} {self.comparison}"


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert, which fires when all its conditions hold for the time ``lasts``.

    The first condition gives ``$value`` and the labels. If a metric ``absent`` is named, the alert also fires while it has no series.
    """

    name: str
    severity: Literal["critical", "warning", "info"]
    conditions: tuple[Condition, ...]
    summary: str
    description: str
    lasts: str = ""
    """The time in PromQL's form; empty to fire at once."""
    absent: str = ""

    @property
    def expression(self) -> str:
        """The PromQL expression of the alert."""
        met = " and on (namespace, job) ".join(map(str, self.conditions))
        return f"{met} or absent({self.absent})" if self.absent else met

    @property
    def runbook(self) -> str:
        """The path of the runbook in the repository."""
        return f"{RUNBOOKS}/{self.name}.md"


def _of_gpus(state: str) -> str:
    return f'max {_BY} (allaboard_gpus{{state="{state}"}})'


ALERTS = (
    Alert(
        "AllaboardHasNoLeader",
        "critical",
        (Condition(f"sum {_BY} (allaboard_leader)", "< 1"),),
        "No replica of Allaboard decides; nothing is scheduled by it.",
        "Look at the replicas' logs and at the Lease, and whether /readyz says that what they know is too old.",
        lasts="1m",
        absent="allaboard_leader",
    ),
    Alert(
        "AllaboardStateIsOld",
        "critical",
        (Condition("max by (namespace, job, instance, resource) (allaboard_cache_age_seconds)", "> 30"),),
        "What {{ $labels.instance }} knows of {{ $labels.resource }} is {{ $value | humanizeDuration }} old.",
        "A replica with such an old state decides nothing. The API server doesn't answer its watch, or the replica is too slow.",
        lasts="1m",
    ),
    Alert(
        "AllaboardGangWaitsVeryLong",
        "warning",
        (Condition("max by (namespace, job, priority) (allaboard_oldest_wait_seconds)", "> 86400"),),
        "A gang of priority {{ $labels.priority }} has waited for capacity for {{ $value | humanizeDuration }}.",
        "allaboard queue shows which gang it is, and why it waits.",
        lasts="10m",
    ),
    Alert(
        "AllaboardGpusAreStranded",
        "warning",
        (
            Condition(f"{_of_gpus('stranded')} / {_of_gpus('allocatable')}", "> 0.1"),
            Condition(f"max {_BY} (allaboard_oldest_wait_seconds)", "> 3600"),
        ),
        "{{ $value | humanizePercentage }} of the GPUs are free but can't be used, and a gang has waited for more than an hour.",
        "The free GPUs are on nodes that lack cpu or memory, or in pieces too small for the jobs. allaboard top shows these nodes.",
        lasts="30m",
    ),
    Alert(
        "AllaboardExpectedStartsAreWrong",
        "info",
        (
            Condition(
                "histogram_quantile(0.9, sum by (namespace, job, le) (rate(allaboard_expected_start_error_seconds_bucket[1d])))", "> 3600"
            ),
            Condition(f"sum {_BY} (increase(allaboard_expected_start_error_seconds_count[1d]))", "> 10"),
        ),
        "One gang in ten starts more than {{ $value | humanizeDuration }} earlier or later than expected.",
        "The walltimes that jobs state, or that are guessed, are far from the real ones, so that reservations begin at the wrong time.",
        lasts="1h",
    ),
    Alert(
        "AllaboardReleasesPods",
        "warning",
        (Condition(f"sum {_BY} (increase(allaboard_released_pods_total[15m]))", "> 0"),),
        "Bound pods were deleted since their gang couldn't be bound whole.",
        "Binds of some members fail. The events of the gangs' PodGroups and allaboard_binds_total by result say why.",
    ),
    Alert(
        "AllaboardGangsNeedSomebody",
        "info",
        (Condition(f'sum {_BY} (allaboard_waiting_podgroups{{reason="Held"}})', "> 0"),),
        "{{ $value }} gangs are held until their labels or specs are fixed.",
        "kubectl get podgroups -A says which, and why.",
        lasts="30m",
    ),
    Alert(
        "AllaboardSearchesFail",
        "warning",
        (Condition("sum by (namespace, job, reason) (increase(allaboard_search_failures_total[15m]))", "> 0"),),
        "Searches for placements end without an answer: {{ $labels.reason }}.",
        "A search process died, mostly for lack of memory, or a search took too long. The gangs are tried again.",
    ),
    Alert(
        "AllaboardWritesAreDropped",
        "warning",
        (Condition(f"sum {_BY} (delta(allaboard_writes_dropped[15m]))", "> 0"),),
        "Events and statuses couldn't be written and were dropped.",
        "The API server is too slow for them. Decisions don't depend on them; reports about decisions are late or missing.",
    ),
    Alert(
        "AllaboardConfigurationIsRefused",
        "warning",
        (Condition(f'sum {_BY} (increase(allaboard_configuration_reloads_total{{result="refused"}}[15m]))', "> 0"),),
        "A changed configuration file is refused; the previous one stays in force.",
        "The log names the setting. Try the file beforehand: allaboard config check FILE",
    ),
    Alert(
        "AllaboardLimitsAreExceeded",
        "info",
        (Condition("sum by (namespace, job, what) (increase(allaboard_over_limit_total[1h]))", "> 0"),),
        "Objects have more {{ $labels.what }} than Allaboard reads.",
        "The pods are held, or the part beyond the limit is left out. The log and the PodGroups name the objects.",
    ),
    Alert(
        "AllaboardGpuMetricsAreOld",
        "warning",
        (Condition(f"max {_BY} (allaboard_gpu_metrics_age_seconds)", "> 600"),),
        "GPU metrics haven't been read for ten minutes.",
        'Gangs are scheduled by labels and requests alone, and GPUs with errors count as healthy. The log says why ("GPUs:").',
        lasts="5m",
    ),
    Alert(
        "AllaboardGpuMetricsAreMissing",
        "info",
        (Condition(f"max {_BY} (allaboard_gpu_metrics_stale_nodes)", "> 0"),),
        "The exporters of {{ $value }} nodes with GPUs no longer report.",
        "allaboard gpus shows the age of the metrics. Look at the exporters' pods on nodes with a high age.",
        lasts="15m",
    ),
    Alert(
        "AllaboardGpuMetricsAreCutOff",
        "warning",
        (Condition(f"sum {_BY} (delta(allaboard_gpu_metrics_left_out[15m]))", "> 0"),),
        "More GPU metrics are exported, or longer ones, than the limits allow; some are left out.",
        "Name the job that counts: gpu_metrics.matchers.",
    ),
)
