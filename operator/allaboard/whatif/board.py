"""Shows gangs, the queue and nodes of a cluster as the operator would, from its objects alone: without the operator's memory."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from allaboard.cluster.reservations import Ledger
from allaboard.model.reasons import Code
from allaboard.queueing.ranks import ranks_by
from allaboard.records.record import GangRecords
from allaboard.records.report_state import GangStatus
from allaboard.settings.options import Settings
from allaboard.sight.board import Board
from allaboard.whatif.applied import applied
from allaboard.whatif.manifests import Manifests
from allaboard.whatif.records import records_of
from allaboard.whatif.snapshots import Cluster


def board_of(cluster: Cluster, settings: Settings) -> Board:
    """Return the board of a cluster. The reason why a gang waits is that of its PodGroup's status, or that of its pod's condition.

    There are no reservations and no decisions, which only the operator remembers.
    """
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

    ranks = ranks_by(settings, registry, records, view)
    return Board(registry, records, Ledger(view.running, ranks.place, now), view, settings.levels, now)


def _status_from(status: Mapping[str, Any] | None) -> GangStatus | None:
    """Return what the operator has written to a PodGroup; None if it has written nothing that can be read."""
    with suppress(ValueError, TypeError, AttributeError):
        reason, message = (status or {}).get("reason"), (status or {}).get("message")
        if isinstance(reason, str) and isinstance(message, str):
            return GangStatus(Code(reason), message, expected_start=str((status or {}).get("expectedStart") or ""))
    return None
