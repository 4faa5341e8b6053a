"""Shows gangs, the queue and nodes of a cluster as the operator would, from its objects alone: without the operator's memory."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from allaboard.cluster.reservations import Ledger
from allaboard.model.gang import GangKey
from allaboard.model.reasons import Code
from allaboard.queueing.ranks import ranks_by
from allaboard.records.advice import Advice
from allaboard.records.record import GangRecords
from allaboard.records.report_state import GangStatus
from allaboard.report.messages import with_advice
from allaboard.settings.options import Settings
from allaboard.sight.board import Allows, Board, anywhere
from allaboard.sight.values import Gang, Status
from allaboard.whatif.applied import applied
from allaboard.whatif.forecast import Decision, Forecast
from allaboard.whatif.manifests import Manifests
from allaboard.whatif.records import records_of
from allaboard.whatif.snapshots import Cluster


@dataclass(slots=True, kw_only=True)
class StoredBoard(Board):
    """The board of a cluster's objects.

    The reason why a gang waits is that of its PodGroup's status, or of its pod's condition. Only the operator has decisions and samples.
    One gang is shown as the scheduler would decide about it now, beside all gangs that wait.
    """

    cluster: Cluster
    settings: Settings
    _forecast: Forecast | None = None
    _foreseen: Mapping[GangKey, Decision] | None = None

    @classmethod
    def of(cls, cluster: Cluster, settings: Settings) -> "StoredBoard":
        """Return the board of ``cluster``."""
        after = applied(Manifests(), cluster, settings.scheduler_names, [])
        view, registry = records_of(cluster, settings, after)
        records = GangRecords()
        for group in after.groups:
            if (status := _status_from(group.status)) is not None:
                records.of(group.key).report.opinion = status
        for key in registry.known():
            if key.kind == "Pod" and (message := cluster.refused.get(f"{key.namespace}/{key.name}")):
                records.of(key).report.opinion = GangStatus(Code.INSUFFICIENT, message)

        def now() -> float:
            return cluster.now

        ledger = Ledger(view.running, ranks_by(settings, registry, records, view).place, now)
        return cls(registry, records, ledger, view, settings.levels, now, cluster=cluster, settings=settings)

    def status(self) -> Status:
        """Return the state of a cluster of which no operator was asked."""
        return Board.status(self).model_copy(update={"source": "objects"})

    async def gang(self, namespace: str, name: str, allows: Allows = anywhere) -> Gang | None:
        """Return a gang; None if there is none. If it waits, a search says why, and what would help."""
        found = await Board.gang(self, namespace, name, allows)  # dataclasses with slots have no super()
        if found is None or found.row.position is None:
            return found
        key = GangKey(namespace, found.row.name, found.row.kind)
        decision, forecast = await self._foresee(key)
        if decision is None:
            return found
        if decision.feasible:
            # The time of a file's objects isn't known; a cluster that was just read should have an operator that places the gang.
            missing = "" if self.cluster.read_at is None else "No operator was found that would place it. "
            row = found.row.model_copy(update={"state": "", "message": f"{missing}It fits now: {decision.message}."})
            return found.model_copy(update={"row": row})
        record = self.records.of(key)
        gang = self.registry.gang(key)
        advised = await forecast.advice(gang) if gang and decision.plan else None
        text, nearest = advised or ("", None)
        record.advice = Advice(text=text, nearest=nearest)
        record.report.opinion = GangStatus(decision.reason or Code.INSUFFICIENT, with_advice(decision.message, text))
        return await Board.gang(self, namespace, name, allows)

    async def _foresee(self, key: GangKey) -> tuple[Decision | None, Forecast]:
        """Return what the scheduler would decide about a gang if all gangs that wait were due now."""
        if self._forecast is None or self._foreseen is None:
            # In copies of the records: a forecast assigns the pods of gangs that fit.
            after = applied(Manifests(), self.cluster, self.settings.scheduler_names, [])
            view, registry = records_of(self.cluster, self.settings, after)
            self._forecast = Forecast(
                view, registry, self.settings, lambda *warning: None, self.cluster.now, has_storage=self.cluster.storage.is_known
            )
            waiting = [gang for gang in registry.gangs() if gang.alive and not gang.is_whole]
            self._foreseen = await self._forecast.decide(waiting)
            self.ledger.replace_all(self._forecast.reservations)
        return self._foreseen.get(key), self._forecast


def _status_from(status: Mapping[str, Any] | None) -> GangStatus | None:
    """Return what the operator has written to a PodGroup; None if it has written nothing that can be read."""
    with suppress(ValueError, TypeError, AttributeError):
        reason, message = (status or {}).get("reason"), (status or {}).get("message")
        if isinstance(reason, str) and isinstance(message, str):
            return GangStatus(Code(reason), message, expected_start=str((status or {}).get("expectedStart") or ""))
    return None
