"""Gangs that are half bound: finished forward while there is hope, undone when there is none, healed when they were whole before.

Only gangs that a transaction of ours left half bound are undone, and by whom that was doesn't matter: the pods say so. One that was
whole and has lost a member since is healed, however long that takes, unless it has asked for less.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from allaboard.binding.bind import Binder
from allaboard.binding.job_suspension import JobKeptError, JobRestarter
from allaboard.binding.outcomes import Committed, Undone
from allaboard.binding.transaction import undo
from allaboard.gangs.registry import GangRegistry
from allaboard.kube.client import ApiError
from allaboard.leadership.lease import LeaseLostError
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.queueing.queue import GangQueue
from allaboard.records.record import GangRecords, PartialBind
from allaboard.records.wake_up import ANYTHING
from allaboard.report import messages
from allaboard.report.metrics import Metrics
from allaboard.report.reporter import Reporter
from allaboard.scheduling.run_history import was_cut_off
from allaboard.scheduling.victims import UNASKED_SECONDS, leaving_of, may_suspend

logger = logging.getLogger(__name__)

FORWARD_SECONDS = 5.0
"""How long the missing members may take to be bound around the bound ones."""

_RETRY_SECONDS = 0.5
_SLICE = 100  # gangs that are looked at in a row: some milliseconds
_LEAVING_SECONDS = 40.0
"""How long seats that were given up may take to be free before others are asked for theirs."""
_ASKED_SECONDS = 10.0
"""How long it is waited for whether a half gang can be released, before others are asked."""


@dataclass(slots=True)
class PartialBinds:
    """What we left half bound, and how far each has come: being finished, undone, or kept open because nobody may be released."""

    registry: GangRegistry
    records: GangRecords
    queue: GangQueue
    binder: Binder
    restarter: JobRestarter
    reporter: Reporter
    metrics: Metrics
    clock: Callable[[], float] = time.monotonic

    def __contains__(self, key: GangKey) -> bool:
        """Whether the gang is being finished."""
        half = self.records.find_partial_bind(key)
        return half is not None and half.deadline is not None

    async def inherit(self) -> None:
        """See what a scheduler before us left half done: it goes first. Other work goes on in between."""
        for number, gang in enumerate(self.registry.gangs()):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            self.records.of(gang.key).is_inherited = True
            if was_cut_off(gang, self.registry.group(gang.key)):
                self.add(gang)
            self.queue.mark(gang.key)

    def was_undone(self, key: GangKey) -> bool:
        """Whether the gang was undone before, so that every member is to be tried beforehand."""
        record = self.records.find(key)
        return record is not None and record.was_undone

    def add(self, gang: Gang) -> None:
        """The gang was left half bound just now; its time runs from the first time that is said."""
        self.suspect(gang)
        self._times_out(gang, self.records.partial_bind(gang.key))

    def suspect(self, gang: Gang) -> None:
        """Some of a gang may turn out to be bound: then it is finished. Until then its time-out doesn't run."""
        half = self.records.partial_bind(gang.key)
        if half.deadline is None:
            half.deadline = self.clock() + FORWARD_SECONDS

    def _times_out(self, gang: Gang, half: PartialBind) -> None:
        """Its time-out runs from the first time that it was found half bound."""
        if half.expires is None:
            half.expires = self.clock() + gang.timeout_seconds

    def renew(self, key: GangKey) -> None:
        """Restart the finish deadline once unanswered binds are resolved; at most once, or every attempt would extend it."""
        half = self.records.find_partial_bind(key)
        if half is not None and half.deadline is not None and not half.is_renewed:
            half.is_renewed = True
            half.deadline = self.clock() + FORWARD_SECONDS

    def close(self, key: GangKey) -> None:
        """The gang is whole or absent."""
        for other, each in self.records.partial_binds():
            if key in (other, each.made_way_for):
                each.made_way_for = None
        if (half := self.records.find_partial_bind(key)) is not None:
            half.deadline = half.expires = None
            half.is_renewed = half.is_kept_open = half.was_tried = False
            half.restarts_at = -math.inf

    def observe(self, gang: Gang) -> bool:
        """Note, at a look, whether whoever was before us left it half done, which run has been whole, and since when it is half bound.

        Return whether the run is known only now to have been whole.
        """
        record = self.records.of(gang.key)
        if record.is_inherited:  # no earlier leader can bind its members any more
            record.is_inherited = False
            if was_cut_off(gang, self.registry.group(gang.key)):
                logger.info("gang %s: a transaction was cut off, %d members are missing", gang.key, gang.missing_of_stamped)
                self.add(gang)
                self.records.partial_bind(gang.key).deadline = self.clock() + FORWARD_SECONDS  # until now it could not be looked at
        half = record.partial_bind
        if half is not None and not gang.is_open:
            half.deadline = None
        is_news = False
        if gang.run and not (half and (half.is_finishing or half.is_kept_open)):
            is_news = record.note_whole(gang)  # or it can't be told, and must not be by whoever comes after us either
        if gang.is_open and gang.missing_of_stamped:
            self._times_out(gang, self.records.partial_bind(gang.key))
        elif half is not None:
            half.expires, half.was_tried = None, False
        return is_news

    def failed(self, key: GangKey) -> None:
        """An attempt at the gang has failed: if it is half bound and its time is over, it isn't looked for seats first any more."""
        if (half := self.records.find_partial_bind(key)) is not None:
            half.was_tried = half.has_timed_out(self.clock())

    def next_look(self, gang: Gang) -> float | None:
        """When the gang must be looked at even if nothing happens: its time is over then, or that of a half gang it may wait for.

        Or seats that were given up are waited for no longer: meanwhile fewer are asked for theirs.
        """
        now, mine = self.clock(), self.records.find_partial_bind(gang.key)
        times = [mine.deadline, mine.restarts_at, mine.expires] if mine else []
        for _, half in self.records.partial_binds():
            times += [half.unasked_until, half.asked_until, half.released_until]
            if half.deadline is not None or half.is_kept_open:
                times.append(half.expires)
        return min((when for when in times if when is not None and when > now), default=None)

    def finish(self, gang: Gang, retry_after: float) -> None:
        """Have the missing placed around the bound, before anybody else."""
        self.add(gang)
        pause = min(max(_RETRY_SECONDS, retry_after), FORWARD_SECONDS)
        self.queue.retry(gang.key, pause, is_firm=retry_after > 0)

    async def undo_refused(self, gang: Gang, outcome: Committed) -> None:
        """Undo a gang of which a member was refused for good."""
        self.add(gang)
        pods = [*gang.bound, *(seat.pod for seat in outcome.bound)]
        await self.undo(gang, pods, messages.not_bound(outcome), at_least=outcome.retry_after)

    async def undo_overdue(self, gang: Gang) -> None:
        """Undo a gang whose time is over."""
        text = f"{gang.missing} missing members could not be bound within {FORWARD_SECONDS:g} s"
        await self.undo(gang, gang.bound, text)

    async def give_up(self, gang: Gang) -> None:
        """Release all members of a gang that has lost some and wants that; who is kept is healed as others are, in between."""
        self._began(gang)
        text = f"{gang.missing} lost members could not be replaced within {gang.timeout_seconds} s"
        await self._undo_in_turn(gang, text, even_running=True)

    async def restart_jobs(self, gang: Gang) -> None:
        """Release all members of a half gang that its Jobs have kept open; in between it is looked for seats as others are."""
        self._began(gang)
        await self._undo_in_turn(gang, f"{gang.missing} missing members could not be bound within {gang.timeout_seconds} s")

    def _began(self, gang: Gang) -> None:
        half = self.records.partial_bind(gang.key)
        half.restarts_at, half.was_tried = self.clock() + gang.timeout_seconds, False

    async def yield_to(self, other: Gang, gang: Gang) -> None:
        """Release all members of the half ``gang``, whose seats ``other`` needs."""
        # Names of other namespaces are nobody's business.
        who = f"podgroup {other.key}" if other.key.namespace == gang.key.namespace else "a podgroup of another namespace"
        text = f"not whole within {gang.timeout_seconds} s, and {who} needs the seats of its {len(gang.bound)} bound members"
        # One that is kept open all the same is looked at when it would have been: those who ask for its seats must not hold up its turn.
        half = self.records.partial_bind(gang.key)
        half.made_way_for = other.key
        undone = await self._release(gang, gang.bound, text, even_running=True, is_wanted=lambda: self._waits(other.key))
        if undone.released:
            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock())
        else:
            half.made_way_for = None
            half.unasked_until = self.clock() + UNASKED_SECONDS
        if undone.is_unfinished or not undone.released:
            self.queue.retry(other.key, FORWARD_SECONDS)

    async def undo(self, gang: Gang, pods: Sequence[Pod], message: str, *, at_least: float = 0.0) -> None:
        """Release the bound ``pods`` that may be released; the gang is placed anew after a pause, of ``at_least`` so many seconds."""
        self._again(gang, await self._release(gang, pods, message), at_least=at_least)

    async def _undo_in_turn(self, gang: Gang, message: str, *, even_running: bool = False) -> None:
        """As ``undo``, of all that are bound. If nobody may be released no failure is counted, and seats are looked for in a moment."""
        undone = await self._release(gang, gang.bound, message, even_running=even_running)
        if undone.released or undone.is_unfinished:
            self._again(gang, undone, even_running=even_running)
        else:
            self.queue.resume(gang.key, _RETRY_SECONDS)

    def _again(self, gang: Gang, undone: Undone, *, even_running: bool = False, at_least: float = 0.0) -> None:
        if undone.is_unfinished and not even_running:
            self.records.partial_bind(gang.key).deadline = self.clock()
            self.queue.retry(gang.key, _RETRY_SECONDS)
        else:
            self.queue.fail(gang.key, ANYTHING, seen=self.queue.changes, retry_by=self.clock(), at_least=at_least)

    def _waits(self, key: GangKey) -> bool:
        """Whether a gang lacks seats still, and hasn't made way for others meanwhile."""
        gang, half = self.registry.gang(key), self.records.find_partial_bind(key)
        return gang is not None and bool(gang.missing) and not (half is not None and half.is_going(self.clock()))

    async def _release(
        self, gang: Gang, pods: Sequence[Pod], message: str, *, even_running: bool = False, is_wanted: Callable[[], bool] = lambda: True
    ) -> Undone:
        """Release ``pods``, and note and tell what has become of them. Jobs are suspended if that ``is_wanted`` once they may."""
        half, began = self.records.partial_bind(gang.key), self.clock()
        before = leaving_of(gang, half, began)
        half.asked_until = began + _ASKED_SECONDS
        try:
            undone, problem = await undo(pods, self.binder, even_running=even_running), ""
            if not undone.is_unfinished and may_suspend(gang, half, self.clock()):
                # A pod that was released may be seen for a while yet: its Job isn't suspended for it.
                leaves = {pod.uid for pod in (*before, *undone.released)}
                kept = [pod for pod in pods if pod.uid not in leaves]
                undone, problem = await self._suspended(gang, kept, undone, even_running, is_wanted)
        finally:
            half.asked_until = -math.inf
        half.released, half.released_until = (*before, *undone.released), began + min(gang.timeout_seconds, _LEAVING_SECONDS)
        if undone.released:
            self.records.of(gang.key).was_undone = True
            self.metrics.transactions.labels("undone").inc()
            self.reporter.undone(gang, undone.released, message)
        if undone.is_unfinished and not even_running:
            return undone
        if {pod.uid for pod in pods} - {pod.uid for pod in half.released}:
            half.deadline, half.is_kept_open = None, True
            self.reporter.kept_open(gang, messages.kept_open(gang, pods, message, problem))
        else:
            # Should the next look find one that was said to be gone, it is undone again.
            half.deadline, half.is_kept_open = self.clock(), False
        return undone

    async def _suspended(
        self, gang: Gang, kept: Sequence[Pod], undone: Undone, even_running: bool, is_wanted: Callable[[], bool]
    ) -> tuple[Undone, str]:
        """What is undone once the Jobs of the ``kept`` were suspended and resumed, if all are Jobs' pods; else why not."""
        if not kept or not all(pod.is_of_job for pod in kept):
            return undone, ""
        half = self.records.partial_bind(gang.key)
        before, half.restarts_at = half.restarts_at, self.clock() + gang.timeout_seconds
        try:
            await self.restarter.restart(kept, even_running=even_running, is_wanted=lambda: bool(undone.released) or is_wanted())
        except JobKeptError as error:
            if not is_wanted():
                half.restarts_at = before  # its own time isn't put off by others'
            return undone, str(error)
        except (ApiError, LeaseLostError) as error:
            logger.warning("gang %s: its jobs could not be suspended: %s; trying again", gang.key, error)
            return Undone(undone.released, is_unfinished=True), str(error)
        return Undone((*undone.released, *kept)), ""
