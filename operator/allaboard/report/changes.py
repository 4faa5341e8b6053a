"""Tells by events why a gang waits, when the reason changes: on its PodGroup and on its first members, for ``kubectl describe``.

A reason is told by its topic (``Insufficient``), not by its words, whose numbers change with every pod that comes or goes. Members are told
behind all else that is written; a member that comes later is told at the gang's next look.
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
"""How many members of a gang are told by events; the others have the condition PodScheduled."""


def reference_of(gang: Gang) -> ObjectReference | None:
    """Return what an event about the whole gang is about: its PodGroup, or one of its pods where there is none."""
    if gang.is_single or not gang.uid:
        return ObjectReference.of_pod(gang.members[0]) if gang.members else None
    return ObjectReference(POD_GROUPS.api_version, POD_GROUPS.kind, gang.key.namespace, gang.key.name, gang.uid)


class ChangeReporter:
    """Tells each change of the reason for which a gang waits. Pods that are no gang have events of their own."""

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
        """Tell that a gang waits, and those of its waiting ``members`` that haven't been told for this reason.

        Its PodGroup is told when the reason is new, or when the PodGroup wasn't there before. The object ``beside`` has been told already.
        """
        about = reference_of(gang)
        if about is None or gang.is_single:
            return
        change = self._records.report_state(gang.key).change
        told = {about.uid, beside.uid if beside else ""}
        if (change.topic, change.about) != (topic, about.uid):
            change.topic, change.about = topic, about.uid
            if beside is None or beside.uid != about.uid:
                self._events.warning(about, FAILED, "Scheduling", message)
        first = members[:MEMBERS_TOLD]
        for pod in first:
            if change.members.get(pod.uid) != topic and pod.uid not in told:
                self._events.warning(
                    ObjectReference.of_pod(pod), FAILED, "Scheduling", message_of(pod) if message_of else message, is_low=True
                )
        change.members = {pod.uid: topic for pod in first}

    def scheduled(self, gang: Gang, message: str) -> None:
        """Tell that a gang is whole, unless that was told last."""
        about, change = reference_of(gang), self._records.report_state(gang.key).change
        change.members = {}
        if about is None or gang.is_single or change.topic == Code.SCHEDULED:
            return
        change.topic, change.about = Code.SCHEDULED, about.uid
        self._events.normal(about, "Scheduled", "Binding", message)

    def ended(self, gang: Gang) -> None:
        """Take that a gang has ended: what is told of its next run is news."""
        change = self._records.report_state(gang.key).change
        change.topic, change.members = "", {}
