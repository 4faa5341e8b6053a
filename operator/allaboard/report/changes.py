"""Posts an event when the reason for which a gang waits changes: on its PodGroup and its first members, for ``kubectl describe``.

Reasons are compared by topic (``Insufficient``), not by message: the numbers in a message change with every pod that is created or deleted.
Events of members are written after all other reports. A member that is created later gets its event at the gang's next attempt.
"""

from collections.abc import Callable, Sequence

from allaboard.kube.paths import POD_GROUPS
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.records.record import GangRecords
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.pods import FAILED

MEMBERS_WITH_EVENTS = 64
"""The most members of a gang that get events; each further member only gets the condition PodScheduled."""


def reference_of(gang: Gang) -> ObjectReference | None:
    """Return the object of events on the whole gang: its PodGroup, or its first pod if it has no PodGroup; None if it has neither."""
    if gang.is_single or not gang.uid:
        return ObjectReference.of_pod(gang.members[0]) if gang.members else None
    return ObjectReference(POD_GROUPS.api_version, POD_GROUPS.kind, gang.key.namespace, gang.key.name, gang.uid)


class ChangeReporter:
    """Reports each change of the reason for which a gang waits. Pods without a gang get their events from ``PodReporter``."""

    def __init__(self, events: EventRecorder, records: GangRecords) -> None:
        self._events = events
        self._records = records

    def report_wait(
        self,
        gang: Gang,
        topic: str,
        message: str,
        members: Sequence[Pod] = (),
        message_of: Callable[[Pod], str] | None = None,
        *,
        reported: ObjectReference | None = None,
    ) -> None:
        """Report that a gang waits by an event on its PodGroup, and on each of its waiting ``members`` without an event for this ``topic``.

        The PodGroup gets an event if the topic or the PodGroup is new. The object ``reported`` already has its event.
        """
        about = reference_of(gang)
        if about is None or gang.is_single:
            return
        change = self._records.report_state(gang.key).change
        done = {about.uid, reported.uid if reported else ""}
        if (change.topic, change.about) != (topic, about.uid):
            change.topic, change.about = topic, about.uid
            if reported is None or reported.uid != about.uid:
                self._events.warning(about, FAILED, "Scheduling", message)
        first = members[:MEMBERS_WITH_EVENTS]
        for pod in first:
            if change.members.get(pod.uid) != topic and pod.uid not in done:
                self._events.warning(
                    ObjectReference.of_pod(pod), FAILED, "Scheduling", message_of(pod) if message_of else message, is_low=True
                )
        change.members = {pod.uid: topic for pod in first}

    def report_scheduled(self, gang: Gang, message: str) -> None:
        """Report by an event that a gang is whole, unless the last event said so."""
        about, change = reference_of(gang), self._records.report_state(gang.key).change
        change.members = {}
        if about is None or gang.is_single or change.topic == Code.SCHEDULED:
            return
        change.topic, change.about = Code.SCHEDULED, about.uid
        self._events.normal(about, "Scheduled", "Binding", message)

    def record_end(self, gang: Gang) -> None:
        """Record that a gang has ended, so that the first report of its next run gets an event again."""
        change = self._records.report_state(gang.key).change
        change.topic, change.members = "", {}
