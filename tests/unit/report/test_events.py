"""Tests that events are queued by namespace, and that repeats are counted at most once a minute."""

from typing import Any

from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.writer import Writer


class RecordingWriter(Writer):
    """Records the tenants of queued writes instead of writing."""

    def __init__(self) -> None:
        super().__init__()
        self.tenants: list[str] = []

    def put(self, key: str, job: Any, tenant: str = "", *, is_low: bool = False) -> bool:
        self.tenants.append(tenant)
        return True


def test_event_that_repeats_is_written_at_most_once_a_minute_and_queued_for_its_namespace() -> None:
    clock, writer = [0.0], RecordingWriter()
    events = EventRecorder(None, writer, "c", "i", clock=lambda: clock[0])  # type: ignore[arg-type]
    about = ObjectReference("v1", "Pod", "team", "a", "u")
    for clock[0] in (0.0, 30.0, 61.0, 62.0, 90.0, 122.0):
        events.warning(about, "r", "a", "note")
    assert writer.tenants == ["team"] * 3
