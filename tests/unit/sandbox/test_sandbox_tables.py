"""Tables show the cells that kubectl shows, and printer columns find their values by JSONPath."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allaboard_sandbox import jsonpath
from allaboard_sandbox.kinds import BUILT_IN, Resource
from allaboard_sandbox.tables import human_duration, layout_of

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600, "9h"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_ages_are_printed_as_by_kubectl(seconds: int, text: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        ("{.a.b}", 1),
        (".list[0].type", "x"),
        (".list[-1:].type", "y"),
        (".list[-1].type", "y"),
        ('.list[?(@.type=="y")].status', "True"),
        (".list[*].type", "x"),
        (r".labels.example\.com/name", "n"),
        (".labels['example.com/name']", "n"),
        (".absent.b", None),
        (".list[7]", None),
        ("(((", None),
    ],
)
def test_printer_columns_find_their_values(path: str, value: Any) -> None:
    body = {"a": {"b": 1}, "list": [{"type": "x"}, {"type": "y", "status": "True"}], "labels": {"example.com/name": "n"}}
    assert jsonpath.first(path, body) == value


@pytest.mark.parametrize("resource", BUILT_IN, ids=lambda resource: resource.qualified)
def test_a_row_of_a_minimal_object_has_a_cell_for_each_column(resource: Resource) -> None:
    template = {"spec": {"containers": []}}
    body: dict[str, Any] = {
        "metadata": {"name": "x", "creationTimestamp": "2026-01-01T11:00:00Z"},
        "spec": {"replicas": 1, "containers": [], "template": template},
        "status": {},
    }
    layout = layout_of(resource)
    assert len(layout.cells(body, NOW)) == len(layout.columns)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "Pending"),
        ({"status": {"phase": "Failed", "reason": "OutOfcpu"}}, "OutOfcpu"),
        (
            {"status": {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}},
            "CrashLoopBackOff",
        ),
        ({"status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]}}, "Completed"),
        ({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}}, "SchedulingGated"),
        ({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T11:00:00Z"}, "status": {"phase": "Running"}}, "Terminating"),
    ],
)
def test_the_status_of_a_pod_is_what_kubectl_shows(change: dict[str, Any], state: str) -> None:
    pods = next(resource for resource in BUILT_IN if resource.table == "pods")
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{}]}, "status": {"phase": "Pending"}, **change}
    assert layout_of(pods).cells(body, NOW)[2] == state
