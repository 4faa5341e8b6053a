"""The panels of the dashboard as data. The title of a panel is the question that the panel answers."""

import re
from dataclasses import dataclass

from allaboard.report.metric_definitions import DEFINITIONS, Definition

_SERIES = re.compile(r"allaboard_\w+")
_OF_SERIES = {series: definition for definition in DEFINITIONS for series in definition.series}


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series in Grafana's form."""

    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its question, Grafana's name of its unit, and its queries."""

    question: str
    unit: str
    queries: tuple[Query, ...]
    is_stacked: bool = False
    """True if the series add up to a whole."""

    @property
    def description(self) -> str:
        """The help of the metrics that the panel shows."""
        return "\n\n".join(dict.fromkeys(each.help for query in self.queries for each in metrics_in(query.expression)))


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels with a title."""

    title: str
    panels: tuple[Panel, ...]


def metrics_in(expression: str) -> list[Definition]:
    """Return the definitions of the metrics that a PromQL expression reads. Raises ``KeyError`` for a series that isn't defined."""
    return [_OF_SERIES[series] for series in _SERIES.findall(expression)]


def _quantile(quantile: float, histogram: str, window: str, label: str = "") -> Query:
    by, suffix = (f"le, {label}", f" {{{{{label}}}}}") if label else ("le", "")
    expression = f"histogram_quantile({quantile}, sum by ({by}) (rate({histogram}_bucket[{window}])))"
    return Query(expression, f"p{round(100 * quantile)}{suffix}")


def _rate(counter: str, label: str) -> Query:
    return Query(f"sum by ({label}) (rate({counter}[5m]))", f"{{{{{label}}}}}")


_START = "allaboard_podgroup_scheduling_sli_duration_seconds"
_START_ERROR = "allaboard_expected_start_error_seconds"
_SEARCH = "allaboard_podgroup_scheduling_algorithm_duration_seconds"
_ATTEMPT = "allaboard_podgroup_scheduling_attempt_duration_seconds"

ROWS = (
    Row(
        "GPUs",
        (
            # Each replica counts the GPUs, so that the numbers of several replicas are no sum.
            Panel("How many GPUs are used, free and stranded?", "short", (Query("max by (state) (allaboard_gpus)", "{{state}}"),)),
            Panel("How many GPUs are reserved for waiting gangs?", "short", (Query("max(allaboard_reserved_gpus)", "reserved"),)),
        ),
    ),
    Row(
        "Gangs",
        (
            Panel(
                "How many gangs are in each phase?",
                "short",
                (Query("max by (phase) (allaboard_podgroups)", "{{phase}}"),),
                is_stacked=True,
            ),
            Panel(
                "Why do gangs wait?",
                "short",
                (Query("sum by (reason) (allaboard_waiting_podgroups)", "{{reason}}"),),
                is_stacked=True,
            ),
            Panel(
                "For how long has the oldest gang of each priority waited?",
                "s",
                (Query("max by (priority) (allaboard_oldest_wait_seconds)", "priority {{priority}}"),),
            ),
            Panel(
                "In which part of the queue do gangs wait?",
                "short",
                (
                    Query("sum by (queue) (allaboard_pending_podgroups)", "{{queue}}"),
                    Query("sum(allaboard_long_searches_waiting)", "for a long search"),
                ),
            ),
            Panel(
                "How long do gangs of each size take to start?",
                "s",
                (_quantile(0.5, _START, "1h", "members"), _quantile(0.9, _START, "1h", "members")),
            ),
            Panel(
                "How far from the expected start do gangs start?",
                "s",
                (_quantile(0.5, _START_ERROR, "1d", "start"), _quantile(0.9, _START_ERROR, "1d", "start")),
            ),
        ),
    ),
    Row(
        "Attempts and searches",
        (
            Panel(
                "How do attempts to schedule gangs end?",
                "ops",
                (_rate("allaboard_podgroup_schedule_attempts_total", "result"),),
                is_stacked=True,
            ),
            Panel("How many pods are part of attempts?", "ops", (_rate("allaboard_schedule_attempts_total", "result"),), is_stacked=True),
            Panel("How long does an attempt take?", "s", (_quantile(0.5, _ATTEMPT, "5m"), _quantile(0.99, _ATTEMPT, "5m"))),
            Panel("How long does a search take?", "s", (_quantile(0.5, _SEARCH, "5m"), _quantile(0.99, _SEARCH, "5m"))),
            Panel(
                "How much better are searched placements than the best greedy ones?",
                "short",
                (
                    Query("sum(rate(allaboard_search_gain_sum[1h])) / sum(rate(allaboard_search_gain_count[1h]))", "mean"),
                    _quantile(0.9, "allaboard_search_gain", "1h"),
                ),
            ),
            Panel(
                "How many generations does a search take?",
                "short",
                (_quantile(0.5, "allaboard_search_generations", "1h"), _quantile(0.9, "allaboard_search_generations", "1h")),
            ),
            Panel("Why do searches stop?", "ops", (_rate("allaboard_searches_total", "stopped_by"),), is_stacked=True),
            Panel("How busy are searches?", "percentunit", (_rate("allaboard_search_seconds_total", "lane"),)),
            Panel(
                "How many searches and strategies failed in the last hour?",
                "short",
                (
                    Query("sum by (reason) (increase(allaboard_search_failures_total[1h]))", "{{reason}}"),
                    Query("sum by (strategy) (increase(allaboard_strategy_failures_total[1h]))", "strategy {{strategy}}"),
                ),
            ),
        ),
    ),
    Row(
        "Binds and evictions",
        (
            Panel("How do binds of pods end?", "ops", (_rate("allaboard_binds_total", "result"),), is_stacked=True),
            Panel("How do transactions end?", "ops", (_rate("allaboard_transactions_total", "outcome"),), is_stacked=True),
            Panel(
                "How many pods were evicted or released in the last hour?",
                "short",
                (
                    Query("sum(increase(allaboard_preemption_victims_total[1h]))", "evicted by preemption"),
                    Query("sum(increase(allaboard_preemption_attempts_total[1h]))", "gangs that preempted"),
                    Query("sum(increase(allaboard_released_pods_total[1h]))", "released"),
                ),
            ),
        ),
    ),
    Row(
        "The operator",
        (
            Panel("Which replica schedules?", "short", (Query("allaboard_leader", "{{pod}} {{instance}}"),)),
            Panel("Which versions run?", "short", (Query("count by (version) (allaboard_build_info)", "{{version}}"),)),
            Panel(
                "How old is the known state of the cluster?",
                "s",
                (Query("max by (resource) (allaboard_cache_age_seconds)", "{{resource}}"),),
            ),
            Panel(
                "Are watches silent, or is the operator behind them?",
                "s",
                (
                    Query("max(allaboard_watch_silence_seconds)", "silence"),
                    Query("max(allaboard_watch_lag_seconds)", "lag"),
                ),
            ),
            Panel(
                "Do events and statuses wait, or get lost?",
                "short",
                (Query("sum(allaboard_writes_waiting)", "waiting"), Query("sum(allaboard_writes_dropped)", "dropped")),
            ),
            Panel(
                "How many objects does the operator know?",
                "short",
                (Query("max by (type) (allaboard_cache_size)", "{{type}}"),),
            ),
            Panel(
                "Which limits were exceeded in the last hour?",
                "short",
                (Query("topk(5, sum by (what) (increase(allaboard_over_limit_total[1h])))", "{{what}}"),),
            ),
            Panel(
                "Was the configuration changed in the last hour?",
                "short",
                (Query("sum by (result) (increase(allaboard_configuration_reloads_total[1h]))", "{{result}}"),),
            ),
        ),
    ),
    Row(
        "GPU metrics",
        (
            Panel("How old are GPU metrics?", "s", (Query("max(allaboard_gpu_metrics_age_seconds)", "age"),)),
            Panel(
                "Which GPU metrics are missing?",
                "short",
                (
                    Query("max(allaboard_gpu_metrics_cards)", "GPUs with fresh metrics"),
                    Query("max(allaboard_gpu_metrics_stale_nodes)", "nodes with old metrics"),
                    Query("sum(delta(allaboard_gpu_metrics_errors[5m]))", "failed readings"),
                    Query("sum(delta(allaboard_gpu_metrics_left_out[5m]))", "left out"),
                ),
            ),
        ),
    ),
)
