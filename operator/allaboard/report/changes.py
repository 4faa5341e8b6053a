"""Reports by events why a gang waits, when the reason changes: on its PodGroup and on its first members, for ``kubectl describe``.

Reasons are compared by topic (``Insufficient``), not by message: the numbers in a message change with every pod that comes or goes. Events
of members are written after everything else; a later member gets its event at the gang's next attempt.
"""

from collections.abc import Callable, Sequence

from allaboard.kube.paths import POD_GROUPS
from allaboard.model.gang import Gang
from allaboard.model.pod import Pod
from allaboard.model.reasons import Code
from allaboard.records.record import GangRecords
from allaboard.report.events import EventRecorder, ObjectReference
from allaboard.report.pods import FAILED

MEMBERS_TOLD = 64
"""The most members of a gang that get events; the others have the condition PodScheduled."""


def reference_of(gang: Gang) -> ObjectReference | None:
    """Return the object of events about the whole gang: its PodGroup, or one of its pods if it has none."""
    if gang.is_single or not gang.uid:
        return ObjectReference.of_pod(gang.members[0]) if gang.members else None
    return ObjectReference(POD_GROUPS.api_version, POD_GROUPS.kind, gang.key.namespace, gang.key.name, gang.uid)


class ChangeReporter:
    """Reports each change of the reason for which a gang waits. Pods that are no gang have events of their own."""

    def __init__(self, events: EventRecorder, records: GangRecords) -> None:
        self._events = events
        self._records = records

    def waits(
        self,
        gang: Gang,
        topic: str,
        message: str,
        members: Sequence[Pod] = (),
        message_of: Callable[[Pod], str] | None = None,
        *,
        beside: ObjectReference | None = None,
    ) -> None:
        """Report that a gang waits, to its PodGroup and to those of its waiting ``members`` that have no event for this reason.

        The PodGroup gets an event when the reason is new, or when the PodGroup is new. The object ``beside`` has its event already.
        """
        about = reference_of(gang)
        if about is None or gang.is_single:
            return
        change = self._records.report_state(gang.key).change
        reported = {about.uid, beside.uid if beside else ""}
        if (change.topic, change.about) != (topic, about.uid):
            change.topic, change.about = topic, about.uid
            if beside is None or beside.uid != about.uid:
                self._events.warning(about, FAILED, "Scheduling", message)
        first = members[:MEMBERS_TOLD]
        for pod in first:
            if change.members.get(pod.uid) != topic and pod.uid not in reported:
                self._events.warning(
                    ObjectReference.of_pod(pod), FAILED, "Scheduling", message_of(pod) if message_of else message, is_low=True
                )
        change.members = {pod.uid: topic for pod in first}

    def scheduled(self, gang: Gang, message: str) -> None:
        """Report that a gang is whole, unless that was the last report."""
        about, change = reference_of(gang), self._records.report_state(gang.key).change
        change.members = {}
        if about is None or gang.is_single or change.topic == Code.SCHEDULED:
            return
        change.topic, change.about = Code.SCHEDULED, about.uid
        self._events.normal(about, "Scheduled", "Binding", message)

    def ended(self, gang: Gang) -> None:
        """Record that a gang has ended: the first report of its next run is news."""
        change = self._records.report_state(gang.key).change
        change.topic, change.members = "", {}
