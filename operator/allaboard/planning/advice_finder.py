"""Finds advice for refused gangs with a search, and hands it to the reporter."""

from dataclasses import dataclass

from allaboard.model.gang import GangKey
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.planner import Planner
from allaboard.planning.prepared import prepared
from allaboard.records.advice import Advised
from allaboard.report.reporter import Reporter


@dataclass(frozen=True, slots=True)
class AdviceFinder:
    """Finds and reports advice when an ``advice.Advisor`` asks for it."""

    gangs: KnownGangs
    planner: Planner
    reporter: Reporter

    async def find(self, key: GangKey) -> Advised:
        """Return what would let a refused gang fit; empty if nothing would, or the gang needs no placement now."""
        gang = self.gangs.current(key)
        if gang is None or not gang.can_act or not gang.missing:
            return Advised()
        return await self.planner.advice(prepared(gang), self.gangs.registry.bound_gangs())

    def report(self, key: GangKey, message: str, advised: str) -> None:
        """Report ``advised`` instead of ``message``, if ``message`` is still the gang's last report."""
        gang = self.gangs.registry.gang(key)
        if gang is not None:
            self.reporter.advised(gang, message, advised)
