"""Tests of the table of metrics, and of the dashboard and alerts that are written from it."""

import re
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from allaboard.report.metric_definitions import DEFINITIONS, Type
from allaboard.report.metrics import Metrics
from tests.monitoring.alerts import ALERTS, Alert
from tests.monitoring.files import written
from tests.monitoring.panels import ROWS, metrics_in

ROOT = Path(__file__).parents[2]
EXPRESSIONS = {
    **{f"alert {alert.name}": alert.expression for alert in ALERTS},
    **{f"panel {query.legend} of {panel.question}": query.expression for row in ROWS for panel in row.panels for query in panel.queries},
}
OF_SCRAPES = {"namespace", "job", "instance", "le"}
"""Labels that Prometheus adds, and the label of a histogram's buckets."""


def test_files_of_dashboard_and_alerts_are_those_that_the_generator_writes() -> None:
    stale = [str(path) for path, content in written().items() if (ROOT / path).read_text(encoding="utf-8") != content]
    assert not stale, f"run python -m tests.monitoring, which writes {', '.join(stale)}"


def test_metric_names_are_unique_and_end_as_prometheus_demands() -> None:
    assert len({each.name for each in DEFINITIONS}) == len(DEFINITIONS)
    for each in DEFINITIONS:
        assert re.fullmatch(r"allaboard_[a-z_]+", each.name), each
        assert each.name.endswith("_total") is (each.type is Type.COUNTER), each
        assert each.name.endswith("_info") is (each.type is Type.INFO), each
        assert bool(each.buckets) is (each.type is Type.HISTOGRAM), each
        assert each.help.endswith("."), each


def test_no_label_names_a_gang_a_pod_a_node_or_a_namespace() -> None:
    assert {each.label for each in DEFINITIONS if each.label} == {
        *("lane", "members", "outcome", "phase", "priority", "queue", "reason", "resource", "result"),
        *("start", "state", "stopped_by", "strategy", "type", "version", "what"),
    }


def test_series_of_counters_and_histograms_with_known_label_values_exist_from_the_start() -> None:
    page = generate_latest(Metrics(["learned"]).registry).decode()
    for each in DEFINITIONS:
        if each.type not in (Type.COUNTER, Type.HISTOGRAM):
            continue
        name = each.name if each.type is Type.COUNTER else f"{each.name}_count"
        values = each.values or ({"strategy": ["learned"]}[each.label] if each.label else [])
        for labels in [f'{{{each.label}="{value}"}}' for value in values] or [""]:
            assert f"\n{name}{labels} 0.0\n" in page


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expression_of_dashboard_and_alerts_uses_only_metrics_and_labels_that_are_defined(expression: str) -> None:
    metrics = metrics_in(expression)
    assert metrics
    assert grouped_by(expression) <= OF_SCRAPES | {each.label for each in metrics}
    for series, label, value in re.findall(r'(allaboard_\w+)\{(\w+)="([^"]*)"\}', expression):
        (metric,) = metrics_in(series)
        assert (label, value in metric.values) == (metric.label, True)


def grouped_by(expression: str) -> set[str]:
    """Return the labels by which an expression groups or joins."""
    return {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in labels.split(", ")}


def test_expression_with_an_unknown_metric_is_refused() -> None:
    with pytest.raises(KeyError, match="allaboard_gpu_count"):
        metrics_in("sum(allaboard_gpu_count)")


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    shown = {each.name for expression in EXPRESSIONS.values() for each in metrics_in(expression)}
    assert {each.name for each in DEFINITIONS} - shown == set()


def test_every_panel_asks_a_question_of_its_own_and_describes_its_metrics() -> None:
    panels = [panel for row in ROWS for panel in row.panels]
    assert len({panel.question for panel in panels}) == len(panels)
    for panel in panels:
        assert panel.question.endswith("?"), panel
        assert panel.unit and panel.description, panel


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {Path(alert.runbook) for alert in ALERTS} == {path.relative_to(ROOT) for path in (ROOT / "docs" / "runbooks").iterdir()}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_runbook_says_what_an_alert_means_how_to_look_and_what_to_do(alert: Alert) -> None:
    text = (ROOT / alert.runbook).read_text(encoding="utf-8")
    assert text.startswith(f"# {alert.name}\n\n<!-- rendered: alert {alert.name} -->\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["What it means", "What users notice", "How to look", "What to do"]
    assert re.search(r"^(kubectl|allaboard) ", text, re.MULTILINE)


def test_documents_name_only_metrics_that_are_defined() -> None:
    pages = [path.read_text(encoding="utf-8") for path in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]]
    named = {name for page in pages for name in re.findall(r"`(allaboard_(?!sandbox)[a-z_]+)(?=[`{])", page)}
    assert named
    assert named <= {name for each in DEFINITIONS for name in (each.name, *each.series)}
