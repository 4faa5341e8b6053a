"""Keeps PodGroup objects in step with their gangs: creates the PodGroups of gangs that only have labels, and writes statuses.

Nothing is decided here, and no decision depends on a status that was written. With the CRD of scheduler-plugins the API server drops
our extra status fields. Without any CRD gangs that only have labels are scheduled as well.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from allaboard.gangs.endings import Endings
from allaboard.gangs.phases import Ending, ending_of, phase_of
from allaboard.gangs.podgroup import PodGroup, implicit_pod_group, owner_references, pod_group_from
from allaboard.gangs.podgroup_reader import PodGroupReader
from allaboard.kube.client import ApiError
from allaboard.kube.paths import POD_GROUPS, ApiPath
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.model.times import api_time
from allaboard.records.record import GangRecords
from allaboard.records.report_state import GangStatus, ReportState, Written
from allaboard.report.status import pod_group_status
from allaboard.report.writer import Writer


def utc_now() -> str:
    """Return the current time as the Kubernetes API writes it."""
    return api_time(time.time())


class PodGroupWriter:
    """Creates and updates PodGroups through a ``Writer``. The ``reader`` records the answers of the API server."""

    def __init__(self, reader: PodGroupReader, records: GangRecords, writer: Writer, now: Callable[[], str] = utc_now) -> None:
        self._reader = reader
        self._server = reader.server
        self._registry = registry = reader.registry
        self._records = records
        self._writer = writer
        self._now = now
        self._endings = Endings(registry)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Record whether a changed pod has succeeded or failed; the record is kept when the pod is deleted."""
        self._endings.observe_pod(old, new)

    def write_missing(self) -> None:
        """Write the status of each PodGroup that doesn't show its gang's last report.

        Reasons: the CRD was installed, or a PodGroup of ours was deleted, after the report; or the API server refused the write.
        """
        for key, state in self._records.report_states():
            if state.opinion and (state.is_unwritten or self._registry.needs_group(key) or self._is_overwritten(key, state)):
                self._write(key)

    def report(self, gang: Gang, opinion: GangStatus | None = None) -> None:
        """Queue a write of the status of the gang's PodGroup; without an ``opinion`` the last reported one is written.

        A pod that is in no gang has no PodGroup: why it waits is only remembered.
        """
        if gang.is_single:
            self._remember(gang.key, opinion)
            return
        if self._is_foreign(gang):
            return
        if opinion is not None:
            self._records.report_state(gang.key).opinion = opinion
        if self.opinion(gang.key) is not None:
            self._write(gang.key)

    def _remember(self, key: GangKey, opinion: GangStatus | None) -> None:
        """Remember why a pod that is in no gang waits; forget it once the pod waits no longer."""
        if opinion is not None and opinion.code.is_waiting:
            self._records.report_state(key).opinion = opinion
        elif opinion is not None and (state := self._records.find_report_state(key)) is not None:
            state.opinion = None

    def mark_being_bound(self, gang: Gang) -> None:
        """Mark the gang as being bound, so that PartiallyBound isn't set during its first binds. No effect if a member is bound."""
        if (opinion := self.opinion(gang.key)) is not None and not gang.bound and not gang.is_single:
            self._records.report_state(gang.key).opinion = replace(opinion, is_being_bound=True)

    def opinion(self, key: GangKey) -> GangStatus | None:
        """Return the last reported status of a gang; None if nothing was reported."""
        state = self._records.find_report_state(key)
        return state.opinion if state else None

    def ending(self, gang: Gang) -> Ending | None:
        """Return how a gang has ended; None while a member is alive, or if its members were deleted before they succeeded or failed."""
        return ending_of(gang, self._endings.find(gang.key), self._stated(gang.key))

    def is_known(self, gang: Gang) -> bool:
        """Return whether the gang has or had pods of our scheduler, as our records or the status of its PodGroup show."""
        scheduler = self._stated(gang.key).get("schedulerName")
        return bool(gang.members) or self.opinion(gang.key) is not None or self._registry.answers_to(scheduler)

    def _stated(self, key: GangKey) -> Mapping[str, Any]:
        """Return the status of a PodGroup as the API server has it; empty without a PodGroup or a status."""
        group = self._registry.group(key)
        return group.status or {} if group else {}

    def _is_foreign(self, gang: Gang) -> bool:
        """Return whether the PodGroup is another scheduler's: no pod of ours has named the PodGroup, and we didn't write its status."""
        return bool(self._stated(gang.key)) and not self.is_known(gang)

    def _write(self, key: GangKey) -> None:
        self._records.report_state(key).is_unwritten = True
        self._writer.put(f"podgroup {key}", partial(self._bring_up_to_date, key), key.namespace)

    async def _bring_up_to_date(self, key: GangKey) -> None:
        if (state := self._records.find_report_state(key)) is None:
            return
        state.is_unwritten = True  # until the write succeeds
        gang, opinion = self._registry.gang(key), state.opinion
        if gang is not None and opinion is not None and opinion.is_being_bound and gang.is_whole:
            state.opinion = opinion = replace(opinion, is_being_bound=False)
        await asyncio.sleep(0)  # let other tasks run: assembling a gang of thousands of members takes long
        group = await self._group_of(gang) if gang is not None and opinion is not None else None
        if gang is not None and opinion is not None and group is not None:
            stated, endings = group.status or {}, self._endings.find(key)
            status = pod_group_status(gang, phase_of(gang, endings, stated), opinion, stated, self._now(), ending_of(gang, endings, stated))
            if status == group.status:
                state.written = Written(group.uid, status, status)
            elif state.written != Written(group.uid, status, group.status):
                gone = {name: None for name in ("expectedStart",) if name in stated and name not in status}
                raw = await self._server.patch(_path(key, "status"), {"status": {**status, **gone}})
                state.written = Written(group.uid, status, pod_group_from(raw).status)
                self._reader.observe(raw)
        state.is_unwritten = False

    def _is_overwritten(self, key: GangKey, state: ReportState) -> bool:
        """Return whether another client has changed the status that we wrote, e.g. a late request of an earlier leader."""
        group, written = self._registry.group(key), state.written
        return group is not None and written is not None and group.uid == written.uid and group.status != written.kept

    async def _group_of(self, gang: Gang) -> PodGroup | None:
        """Return the PodGroup of a gang, after creating or correcting it if it is ours; None if there is none."""
        group = self._registry.group(gang.key)
        if group is None:
            if not self._registry.needs_group(gang.key) or not gang.alive:
                return None
            await self._create(gang)
            return self._registry.group(gang.key)
        if group.is_ours and gang.alive:
            await self._fix(gang, group)
        return group

    async def _create(self, gang: Gang) -> None:
        try:
            self._reader.observe(
                await self._server.post(
                    POD_GROUPS.within(gang.key.namespace), implicit_pod_group(gang.key, gang.min_member, gang.alive_in_all_runs)
                )
            )
        except ApiError as error:
            if error.status != 409:
                raise
            self._reader.observe(await self._server.get(_path(gang.key)))

    async def _fix(self, gang: Gang, group: PodGroup) -> None:
        """Patch a PodGroup that we created, so that ``minMember`` and owners are those of its gang."""
        references = owner_references(gang.alive_in_all_runs)
        patch: dict[str, Any] = {}
        if not {str(reference["uid"]) for reference in references} <= group.owner_uids:
            patch["metadata"] = {"ownerReferences": references}
        if group.min_member != gang.min_member:
            patch["spec"] = {"minMember": gang.min_member}
        if patch:
            self._reader.observe(await self._server.patch(_path(gang.key), patch))


def _path(key: GangKey, subresource: str = "") -> ApiPath:
    return POD_GROUPS.named(key.namespace, key.name, subresource)
