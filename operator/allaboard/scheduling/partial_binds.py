"""Records which gangs are partially bound, and releases their bound members when the missing members can't be bound.

Only a gang that a transaction of this or an earlier leader left partially bound is released; annotations of the pods show that. A gang that
was whole and has lost a member is healed, however long that takes, unless it asks for a release. ``records.partial_bind`` has the states.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from allaboard.binding.bind import Binder
from allaboard.binding.job_suspension import JobKeptError, JobRestarter
from allaboard.binding.outcomes import Undone
from allaboard.binding.transaction import undo
from allaboard.gangs.run_history import was_cut_off
from allaboard.kube.client import ApiError
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.planning.known_gangs import KnownGangs
from allaboard.records.partial_bind import Event, Leaving, PartialBind
from allaboard.scheduling.victims import NO_VICTIM_SECONDS, leaving_of, may_suspend

logger = logging.getLogger(__name__)

_SLICE = 100  # gangs that are checked before other tasks run: some milliseconds
_LEAVING_SECONDS = 40.0
"""Seconds that the capacity of released members may take to be free, before other gangs' members are released instead."""


@dataclass(frozen=True, slots=True)
class Released:
    """The result of a release.

    ``is_kept_open``: some members stay bound. ``problem`` says why their Jobs weren't suspended; empty if there is no such reason.
    """

    undone: Undone
    is_kept_open: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PartialBinds:
    """Updates the partial binds in the gangs' records, and releases the bound members of partially bound gangs."""

    gangs: KnownGangs
    binder: Binder
    restarter: JobRestarter

    def of(self, key: GangKey) -> PartialBind:
        """Return the partial bind of a gang; an empty one is added if there is none."""
        return self.gangs.records.partial_bind(key)

    def find(self, key: GangKey) -> PartialBind | None:
        """Return the partial bind of a gang, None if there is none."""
        return self.gangs.records.find_partial_bind(key)

    async def inherited(self) -> AsyncGenerator[GangKey, None]:
        """Yield every gang. Record the gangs that an earlier leader left partially bound: these go first. Other tasks run in between."""
        registry, records = self.gangs.registry, self.gangs.records
        for number, gang in enumerate(registry.gangs()):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            records.of(gang.key).is_inherited = True
            if was_cut_off(gang, registry.group(gang.key)):
                self.add(gang)
            yield gang.key

    def was_undone(self, key: GangKey) -> bool:
        """Return whether members of the gang were released before; then every member is dry-run before the next bind."""
        record = self.gangs.records.find(key)
        return record is not None and record.was_undone

    def add(self, gang: Gang) -> None:
        """Record that the gang was left partially bound just now. Its time-out runs from the first such record."""
        self.suspect(gang.key)
        self._start_timeout(gang)

    def suspect(self, key: GangKey) -> None:
        """Record that members of a gang may turn out to be bound: the gang is to be finished.

        Its time-out begins when it is seen partially bound.
        """
        self.of(key).move(Event.LEFT_IN_PART, self.gangs.clock())

    def _start_timeout(self, gang: Gang) -> None:
        partial = self.of(gang.key)
        if partial.expires is None:
            partial.expires = self.gangs.clock() + gang.timeout_seconds

    def renew(self, key: GangKey) -> None:
        """Restart the finish deadline once unanswered binds are resolved; at most once, or every attempt would extend it."""
        if (partial := self.find(key)) is not None:
            partial.move(Event.ANSWERED, self.gangs.clock())

    def close(self, key: GangKey) -> None:
        """Record that the gang is whole, absent or gone."""
        for other, each in self.gangs.records.partial_binds():
            if key in (other, each.released_for):
                each.released_for = None
        if (partial := self.find(key)) is not None:
            partial.close(self.gangs.clock())

    def observe(self, gang: Gang) -> bool:
        """Record what the gang's state shows: whether and since when it is partially bound, and whether its run has been whole.

        Return True if the run wasn't known to have been whole before.
        """
        record, now = self.gangs.records.of(gang.key), self.gangs.clock()
        if record.is_inherited:  # an earlier leader can no longer bind its members
            record.is_inherited = False
            if was_cut_off(gang, self.gangs.registry.group(gang.key)):
                logger.info("gang %s: a transaction was cut off, %d members are missing", gang.key, gang.missing_of_stamped)
                self.add(gang)
                self.of(gang.key).move(Event.INHERITED, now)  # the deadline runs from now: the gang could not be attempted before
        partial = record.partial_bind
        if partial is not None and not gang.is_partially_bound:
            partial.move(Event.SEEN_CLOSED, now)
        is_new = False
        if gang.run and not (partial and (partial.is_finishing or partial.is_kept_open)):
            is_new = record.note_whole(gang)  # also a run that may have been whole: no leader may release that run
        if gang.is_partially_bound and gang.missing_of_stamped:
            self._start_timeout(gang)
        elif partial is not None:
            partial.expires, partial.was_tried = None, False
        return is_new

    def failed(self, key: GangKey) -> None:
        """Record that an attempt has failed. If the gang's time-out is over, the gang is released before another search."""
        if (partial := self.find(key)) is not None:
            partial.was_tried = partial.has_timed_out(self.gangs.clock())

    def pace(self, gang: Gang) -> None:
        """Record that the gang is released for its own sake. The next such release is a time-out later, after another search."""
        partial = self.of(gang.key)
        partial.restarts_at, partial.was_tried = self.gangs.clock() + gang.timeout_seconds, False

    def is_waiting(self, key: GangKey) -> bool:
        """Return whether a gang lacks members, and isn't being released for another gang."""
        gang, partial = self.gangs.registry.gang(key), self.find(key)
        return gang is not None and bool(gang.missing) and not (partial is not None and partial.is_going(self.gangs.clock()))

    async def release(
        self, gang: Gang, pods: Sequence[Pod], *, force: bool = False, other: GangKey | None = None, is_paced: bool = False
    ) -> Released:
        """Release the bound ``pods`` of a gang, and record the result; ``force`` also evicts running pods.

        ``other`` is the gang that needs the capacity; None if the pods are released for their own gang's sake. A Job that would count a
        lost pod as a failure is suspended if that is allowed, and if ``other`` still needs the capacity.
        """
        partial, clock = self.of(gang.key), self.gangs.clock
        if is_paced:
            self.pace(gang)
        if other is not None:
            partial.released_for = other
        began = clock()
        before = leaving_of(gang, partial, began)
        partial.move(Event.RELEASE_BEGAN, began)
        try:
            undone, problem = await undo(pods, self.binder, even_running=force), ""
            if not undone.is_unfinished and may_suspend(gang, partial, clock()):
                # A released pod may stay visible for a while; that is no reason to suspend its Job.
                leaves = {pod.uid for pod in (*before, *undone.released)}
                kept = [pod for pod in pods if pod.uid not in leaves]
                undone, problem = await self._suspended(gang, kept, undone, force, lambda: other is None or self.is_waiting(other))
        finally:
            partial.move(Event.RELEASE_FAILED, clock())
        partial.leaving = Leaving((*before, *undone.released), began + min(gang.timeout_seconds, _LEAVING_SECONDS))
        if undone.released:
            self.gangs.records.of(gang.key).was_undone = True
        elif other is not None:
            # The failed release for ``other`` must not delay the next attempt at a gang that stays partially bound.
            partial.released_for, partial.no_victim_until = None, clock() + NO_VICTIM_SECONDS
        if undone.is_unfinished and not force:
            partial.move(Event.RELEASE_UNFINISHED, clock())
            return Released(undone)
        if {pod.uid for pod in pods} - {pod.uid for pod in partial.leaving.members}:
            partial.move(Event.SOME_KEPT, clock())
            return Released(undone, is_kept_open=True, problem=problem)
        partial.move(Event.ALL_RELEASED, clock())
        return Released(undone)

    async def _suspended(
        self, gang: Gang, kept: Sequence[Pod], undone: Undone, force: bool, is_wanted: Callable[[], bool]
    ) -> tuple[Undone, str]:
        """Suspend and resume the Jobs of the ``kept`` pods, if Jobs own all of them.

        Return what was released, and the problem that kept the Jobs from being suspended; empty without a problem.
        """
        if not kept or not all(pod.is_of_job for pod in kept):
            return undone, ""
        partial = self.of(gang.key)
        before, partial.restarts_at = partial.restarts_at, self.gangs.clock() + gang.timeout_seconds
        try:
            await self.restarter.restart(kept, even_running=force, is_wanted=lambda: bool(undone.released) or is_wanted())
        except JobKeptError as error:
            if not is_wanted():
                partial.restarts_at = before  # a release for another gang must not delay a release for the gang's own sake
            return undone, str(error)
        except (ApiError, LeaseLostError) as error:
            logger.warning("gang %s: its jobs could not be suspended: %s; trying again", gang.key, error)
            return Undone(undone.released, is_unfinished=True), str(error)
        return Undone((*undone.released, *kept)), ""
