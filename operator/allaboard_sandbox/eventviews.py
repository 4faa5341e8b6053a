"""The two Event APIs, core/v1 and events.k8s.io/v1, are two views of one store: this translates between them.

Stored is the core form, as in a real cluster (kubernetes pkg/apis/events/v1/conversion.go).
"""

from typing import Any

Body = dict[str, Any]

# events.k8s.io/v1 name -> core/v1 name
RENAMED = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
BACK = {core: new for new, core in RENAMED.items()}


def to_core(body: Body) -> Body:
    """Return an events.k8s.io/v1 Event as core/v1 has it."""
    renamed = {RENAMED.get(field, field): value for field, value in body.items()}
    return {"source": {}, "firstTimestamp": None, "lastTimestamp": None, **renamed, "apiVersion": "v1"}


def from_core(body: Body) -> Body:
    """Return a core/v1 Event as events.k8s.io/v1 has it."""
    renamed = {BACK.get(field, field): value for field, value in body.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}
