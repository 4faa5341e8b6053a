"""Causes of alerts, as series that an operator would write, for `promtool test rules`.

A value such as ``0x10 1x5`` is Prometheus' notation: 0 once and ten times more, then 1 once and five times more, a minute apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.monitoring.alerts import ALERTS, Alert

_OF_AN_INSTALLATION = {"namespace": "allaboard-system", "job": "allaboard-metrics"}


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one series of the operator ``instance``, from minute 0 on."""

    name: str
    values: str
    labels: Mapping[str, str] = field(default_factory=dict)
    instance: str = "a"

    def as_input(self) -> dict[str, str]:
        """Return the series in promtool's form."""
        labels = {**_OF_AN_INSTALLATION, "instance": self.instance, **self.labels}
        listed = ",".join(f'{name}="{value}"' for name, value in labels.items())
        return {"series": f"{self.name}{{{listed}}}", "values": self.values}


@dataclass(frozen=True, slots=True)
class Case:
    """A cause of an alert, and the time of its first firing.

    At ``quiet`` the alert doesn't fire yet, at ``fires`` it does. The fired alert has ``labels`` in addition to those of the installation,
    unless it is of ``no_installation``, and the ``summary``.
    """

    alert: str
    series: Sequence[Series]
    quiet: str
    fires: str
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    no_installation: bool = False


def _histogram(name: str, labels: Mapping[str, str], counts: Mapping[str, str]) -> tuple[Series, ...]:
    buckets = [Series(f"{name}_bucket", values, {**labels, "le": bound}) for bound, values in counts.items()]
    return *buckets, Series(f"{name}_count", counts["+Inf"], labels)


_GPUS = (Series("allaboard_gpus", "100x180", {"state": "allocatable"}), Series("allaboard_gpus", "0x30 25x150", {"state": "stranded"}))

CASES = (
    Case(
        "AllaboardHasNoLeader",
        (Series("allaboard_leader", "1x5 0x10"), Series("allaboard_leader", "0x15", instance="b")),
        quiet="6m",
        fires="8m",
        summary="No replica of Allaboard decides; nothing is scheduled by it.",
    ),
    Case(
        "AllaboardHasNoLeader",
        (Series("allaboard_leader", "1x5 stale"),),
        quiet="6m",
        fires="8m",
        summary="No replica of Allaboard decides; nothing is scheduled by it.",
        no_installation=True,
    ),
    Case(
        "AllaboardStateIsOld",
        (
            Series("allaboard_cache_age_seconds", "2x5 40 100 160 220", {"resource": "pods"}),
            Series("allaboard_cache_age_seconds", "2x10", {"resource": "pods"}, instance="b"),
        ),
        quiet="6m",
        fires="8m",
        labels={"instance": "a", "resource": "pods"},
        summary="What a knows of pods is 2m 40s old.",
    ),
    Case(
        "AllaboardGangWaitsVeryLong",
        (
            Series("allaboard_oldest_wait_seconds", "86280+60x30", {"priority": "0"}),
            Series("allaboard_oldest_wait_seconds", "0+60x30", {"priority": "1000"}),
        ),
        quiet="10m",
        fires="13m",
        labels={"priority": "0"},
        summary="A gang of priority 0 has waited for capacity for 1d 0h 11m 0s.",
    ),
    Case(
        "AllaboardGpusAreStranded",
        (*_GPUS, Series("allaboard_oldest_wait_seconds", "0+60x180", {"priority": "0"})),
        quiet="89m",
        fires="92m",
        summary="25% of the GPUs are free but can't be used, and a gang has waited for more than an hour.",
    ),
    Case(
        "AllaboardExpectedStartsAreWrong",
        _histogram(
            "allaboard_expected_start_error_seconds",
            {"start": "late"},
            {"900.0": "0+1x120", "3600.0": "0+1x120", "14400.0": "0+2x120", "+Inf": "0+2x120"},
        ),
        quiet="30m",
        fires="90m",
        summary="One gang in ten starts more than 3h 24m 0s earlier or later than expected.",
    ),
    Case(
        "AllaboardReleasesPods",
        (Series("allaboard_released_pods_total", "0x10 4x10"),),
        quiet="10m",
        fires="12m",
        summary="Bound pods were deleted since their gang couldn't be bound whole.",
    ),
    Case(
        "AllaboardGangsNeedSomebody",
        (Series("allaboard_waiting_podgroups", "3x40", {"reason": "Held"}), Series("allaboard_waiting_podgroups", "9x40", {"reason": "X"})),
        quiet="29m",
        fires="31m",
        summary="3 gangs are held until their labels or specs are fixed.",
    ),
    Case(
        "AllaboardSearchesFail",
        (
            Series("allaboard_search_failures_total", "0x10 1x10", {"reason": "overrun"}),
            Series("allaboard_search_failures_total", "0x20", {"reason": "died"}),
        ),
        quiet="10m",
        fires="12m",
        labels={"reason": "overrun"},
        summary="Searches for placements end without an answer: overrun.",
    ),
    Case(
        "AllaboardWritesAreDropped",
        (Series("allaboard_writes_dropped", "0x10 7x10"),),
        quiet="10m",
        fires="12m",
        summary="Events and statuses couldn't be written and were dropped.",
    ),
    Case(
        "AllaboardConfigurationIsRefused",
        (
            Series("allaboard_configuration_reloads_total", "0x10 1x10", {"result": "refused"}),
            Series("allaboard_configuration_reloads_total", "0x5 1x15", {"result": "applied"}),
        ),
        quiet="10m",
        fires="12m",
        summary="A changed configuration file is refused; the previous one stays in force.",
    ),
    Case(
        "AllaboardLimitsAreExceeded",
        (
            Series("allaboard_over_limit_total", "0x10 1x10", {"what": "labels"}),
            Series("allaboard_over_limit_total", "0x20", {"what": "members"}),
        ),
        quiet="10m",
        fires="12m",
        labels={"what": "labels"},
        summary="Objects have more labels than Allaboard reads.",
    ),
    Case(
        "AllaboardGpuMetricsAreOld",
        (Series("allaboard_gpu_metrics_age_seconds", "0+60x30"),),
        quiet="15m",
        fires="17m",
        summary="GPU metrics haven't been read for ten minutes.",
    ),
    Case(
        "AllaboardGpuMetricsAreMissing",
        (Series("allaboard_gpu_metrics_stale_nodes", "0x5 2x30"),),
        quiet="20m",
        fires="22m",
        summary="The exporters of 2 nodes with GPUs no longer report.",
    ),
    Case(
        "AllaboardGpuMetricsAreCutOff",
        (Series("allaboard_gpu_metrics_left_out", "0x10 5x10"),),
        quiet="10m",
        fires="12m",
        summary="More GPU metrics are exported, or longer ones, than the limits allow; some are left out.",
    ),
)


def unit_tests(rules: str) -> dict[str, Any]:
    """Return all cases as the file that `promtool test rules` reads; ``rules`` is the name of the file with the alerts."""
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": list(map(_unit_test, CASES))}


def _unit_test(case: Case) -> dict[str, Any]:
    (alert,) = (each for each in ALERTS if each.name == case.alert)
    expected = [
        *_expected_of_others(case, case.quiet),
        {"eval_time": case.quiet, "alertname": case.alert, "exp_alerts": []},
        {"eval_time": case.fires, "alertname": case.alert, "exp_alerts": [_fired(case, alert)]},
        *_expected_of_others(case, case.fires),
    ]
    return {"interval": "1m", "input_series": [each.as_input() for each in case.series], "alert_rule_test": expected}


def _expected_of_others(case: Case, at: str) -> Iterator[dict[str, Any]]:
    """Yield that the other alerts don't fire; without any metric of a leader, AllaboardHasNoLeader does."""
    for alert in ALERTS:
        if alert.name not in (case.alert, "AllaboardHasNoLeader"):
            yield {"eval_time": at, "alertname": alert.name, "exp_alerts": []}


def _fired(case: Case, alert: Alert) -> dict[str, Any]:
    installation = {} if case.no_installation else _OF_AN_INSTALLATION
    annotations = {"summary": case.summary, "description": alert.description, "runbook_url": alert.runbook}
    return {"exp_labels": {"severity": alert.severity, **installation, **case.labels}, "exp_annotations": annotations}
