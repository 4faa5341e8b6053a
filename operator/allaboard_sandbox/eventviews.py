"""Translate Events between core/v1 and events.k8s.io/v1, two APIs that show the same stored objects.

Events are stored in the core form, as in a real cluster (kubernetes pkg/apis/events/v1/conversion.go).
"""

from typing import Any

Body = dict[str, Any]

# events.k8s.io/v1 name -> core/v1 name
CORE_NAMES = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
EVENTS_NAMES = {core: new for new, core in CORE_NAMES.items()}


def to_core(body: Body) -> Body:
    """Return an events.k8s.io/v1 Event in its core/v1 form."""
    renamed = {CORE_NAMES.get(field, field): value for field, value in body.items()}
    return {"source": {}, "firstTimestamp": None, "lastTimestamp": None, **renamed, "apiVersion": "v1"}


def from_core(body: Body) -> Body:
    """Return a core/v1 Event in its events.k8s.io/v1 form."""
    renamed = {EVENTS_NAMES.get(field, field): value for field, value in body.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}
