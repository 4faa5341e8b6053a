"""Runs the scheduling cycle from the beginning of a leader's term to its end."""

import asyncio
import logging
from dataclasses import dataclass

from allaboard.binding.job_suspension import JobRestarter
from allaboard.leadership.takeover import TakeoverReservation
from allaboard.planning.gang_problem import Packings
from allaboard.queueing.batch_window import BatchWindow
from allaboard.scheduling.cycle import Cycle

logger = logging.getLogger(__name__)

_STOP_SECONDS = 10.0  # the longest wait for running transactions when the scheduler stops


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The scheduling cycle, and the work that starts and stops with it."""

    cycle: Cycle
    window: BatchWindow
    takeover: TakeoverReservation
    restarter: JobRestarter

    def apply(self, packings: Packings) -> None:
        """Use ``packings`` to score nodes from now on."""
        self.cycle.round.planner.packings = packings

    async def run(self) -> None:
        """Schedule until cancelled. An error in one gang's handling affects that gang alone."""
        cycle = self.cycle
        await cycle.executor.inherit()
        takeover = asyncio.create_task(self.takeover.run(), name="takeover reservation")
        try:
            while True:
                await cycle.queue.wait()
                await self.window.gather()
                await cycle.run()
        finally:
            cycle.longer.long.stop()
            await cycle.advisor.stop()
            # A transaction that is cut off would leave its gang partially bound.
            self.restarter.hurry()
            await cycle.executor.stop(_STOP_SECONDS)
            takeover.cancel()
