"""Turns the panels and alerts into the files of config/: a dashboard of Grafana, and a PrometheusRule of prometheus-operator."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, StackingMode, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef

from tests.monitoring.alerts import ALERTS, Alert
from tests.monitoring.panels import ROWS, Panel

DASHBOARD = Path("config/components/dashboard/allaboard.json")
RULES = Path("config/components/alerts/prometheus-rule.yaml")

_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT, _SPAN = 8, 12  # of a panel; a row is 24 wide
_WIDTH = 140  # of lines in YAML


def written() -> Mapping[Path, str]:
    """Return the content of each file, by its path in the repository."""
    return {DASHBOARD: dashboard_json(), RULES: rules_yaml()}


def dashboard_json() -> str:
    """Return the dashboard as Grafana imports it. The panels read the Prometheus that the user chooses at the top."""
    built = (
        dashboard.Dashboard("Allaboard")
        .uid("allaboard")
        .tags(["scheduler"])
        .editable()
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    )
    for row in ROWS:
        built.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            built.with_panel(_panel(panel))
    shown = built.build()
    for number, each in enumerate(shown.panels or (), start=1):
        each.id_val = number
    return json.dumps(shown, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _panel(panel: Panel) -> timeseries.Panel:
    stacking = common.StackingConfig().mode(StackingMode.NORMAL if panel.is_stacked else StackingMode.NONE)
    built = (
        timeseries.Panel()
        .title(panel.question)
        .description(panel.description)
        .unit(panel.unit)
        .min(0)
        .datasource(_SOURCE)
        .height(_HEIGHT)
        .span(_SPAN)
        .stacking(stacking)
        .fill_opacity(30 if panel.is_stacked else 0)
        .legend(common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).show_legend(True))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        built.with_target(prometheus.Dataquery().ref_id(letter).expr(query.expression).legend_format(query.legend).range())
    return built


def rules_yaml() -> str:
    """Return the PrometheusRule with all alerts."""
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "allaboard", "namespace": "allaboard-system"},
        "spec": {"groups": groups()},
    }
    return "# Written by `python -m tests.monitoring`.\n" + yaml.safe_dump(rule, sort_keys=False, width=_WIDTH)


def groups() -> list[dict[str, Any]]:
    """Return the groups of rules, as Prometheus reads them from a file."""
    return [{"name": "allaboard", "rules": list(map(_rule, ALERTS))}]


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        **({"for": alert.lasts} if alert.lasts else {}),
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.description, "runbook_url": alert.runbook},
    }
