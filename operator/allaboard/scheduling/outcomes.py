"""How an attempt at a gang ends: what is counted, what is told, and when the gang is looked at again."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from allaboard.binding.outcomes import Committed, Refused
from allaboard.gangs.registry import OVER_LIMIT, GangRegistry
from allaboard.model.gang import Gang, GangKey, Hold
from allaboard.model.reasons import Cause
from allaboard.placement import Plan
from allaboard.planning.advice import Advisor
from allaboard.queueing.capacity_waitlist import need_of
from allaboard.queueing.order import wakes_up_on
from allaboard.queueing.queue import GangQueue
from allaboard.records.growth import asked_by
from allaboard.records.record import GangRecords
from allaboard.records.waiting import WaitClock
from allaboard.records.wake_up import ANYTHING, NOTHING, WakeUpOn
from allaboard.report import messages
from allaboard.report.metrics import Metrics
from allaboard.report.reporter import Reporter
from allaboard.scheduling.decide import Look, Reply, at_look, on_reply
from allaboard.scheduling.losses import Losses
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.run_history import SETTLE_SECONDS, may_settle, run_was_whole, was_cut_off

logger = logging.getLogger(__name__)

_ENDING_SECONDS = 0.5  # after which the watch has told who is bound
_BRIEF_SECONDS = 1.0  # seats that are held for no longer are missed by nobody
_PODGROUP_GRACE_SECONDS = 1.0  # a PodGroup is often made just after its pods

_COUNTED = {
    Reply.FAILED: "refused",
    Reply.FAILED_IN_DOUBT: "refused",
    Reply.STAYS_OPEN: "open",
    Reply.FINISH: "open",
    Reply.UNDO: "open",
    Reply.WHOLE: "whole",
}
"""Transactions by what has come of them."""


@dataclass(slots=True)
class Attempt:
    """One attempt at one gang: what it started from, and for how long it held seats."""

    gang: Gang
    started: float
    changes: int
    held_seconds: float = 0.0

    @property
    def was_brief(self) -> bool:
        """Whether its seats were promised for a second at most: nobody has missed them, and what was known of the cluster is still so."""
        return self.held_seconds <= _BRIEF_SECONDS


@dataclass(slots=True)
class Outcomes:
    """Every attempt ends in one of these."""

    registry: GangRegistry
    records: GangRecords
    queue: GangQueue
    losses: Losses
    reporter: Reporter
    waits: WaitClock
    metrics: Metrics
    partial_binds: PartialBinds
    advisor: Advisor
    are_seats_promised: Callable[[], bool]
    clock: Callable[[], float]

    async def committed(self, attempt: Attempt, plan: Plan, outcome: Committed | Refused) -> None:
        """The transaction has come to its end."""
        gang, reply = attempt.gang, on_reply(attempt.gang, outcome, self.records.find_partial_bind(attempt.gang.key))
        # 1. What has come of each bind is counted, and seats that weren't taken are others'.
        if isinstance(outcome, Committed):
            for _, each in outcome.failed:
                self.metrics.binds.labels(each.result).inc()
            self.metrics.binds.labels("bound").inc(len(outcome.bound))
        self.metrics.transactions.labels(_COUNTED[reply]).inc()
        if isinstance(outcome, Refused) or outcome.failed or outcome.dropped:
            self.queue.given_back()
        # 2. Nobody was bound.
        if isinstance(outcome, Refused) or reply in (Reply.FAILED, Reply.FAILED_IN_DOUBT):
            if reply is Reply.FAILED_IN_DOUBT:
                self.partial_binds.suspect(gang)  # the watch may tell that it is half bound after all
            self.failed(attempt, messages.not_bound(outcome), outcome.retry_after)
            return
        # 3. It is whole; or half bound, and finished forward, undone, or healed.
        waiting_since = self.waits.of(gang).since
        self.reporter.bound(gang, outcome, plan.search, self.clock() - attempt.started)
        if reply is Reply.WHOLE:
            self._whole(attempt, plan, outcome, waiting_since)
        elif reply is Reply.FINISH:
            self.partial_binds.finish(gang, outcome.retry_after)
        elif reply is Reply.UNDO:
            await self.partial_binds.undo_refused(gang, outcome)
        else:
            self.partial_binds.failed(gang.key)
            self.queue.fail(gang.key, ANYTHING, seen=attempt.changes, retry_by=self.clock(), at_least=outcome.retry_after)
            if at_look(gang, self.records.find_partial_bind(gang.key), self.clock()) is not Look.PLACE:
                self.queue.retry(gang.key, _ENDING_SECONDS)  # its time is over, and it has been looked for seats once more: no pause is due

    def _whole(self, attempt: Attempt, plan: Plan, outcome: Committed, waiting_since: float) -> None:
        """The quorum is bound; of the surplus some may have failed, and some found no room."""
        gang, has_failed = attempt.gang, bool(outcome.failed or outcome.dropped)
        self._close(gang.key)
        self._begin_sweep(gang.key)
        self.losses.observe_bind(gang, [seat.pod for seat in outcome.bound], waiting_since)
        if gang.missing or not has_failed:  # members beyond the quorum that are refused again and again are tried less and less often
            self.queue.settle(gang.key)
        surplus = messages.surplus_refusals(plan)
        if surplus and attempt.was_brief:
            self.reporter.surplus_refused(gang, surplus)
        if has_failed:
            self.queue.fail(gang.key, ANYTHING, seen=attempt.changes, retry_by=self.clock(), at_least=outcome.retry_after)
        elif surplus and attempt.was_brief:
            self.queue.fail(gang.key, wakes_up_on(plan.explanation, gang.candidates), seen=attempt.changes)
        elif surplus:  # what was known of their room isn't so any more
            self.queue.mark(gang.key)

    def refused(self, attempt: Attempt, plan: Plan, why: Cause | None) -> None:
        """There is no room, for the gang (``why``) or for its surplus: it waits for what it lacks."""
        gang = attempt.gang
        seconds = self.clock() - attempt.started
        if why is None:
            self.reporter.surplus_refused(gang, messages.surplus_refusals(plan))
            self.reporter.unchanged(gang)
        else:
            refusal = messages.refused(gang, plan, why)
            if times := self.queue.times_overtaken(gang.key):
                refusal = replace(refusal, message=messages.overtaken(refusal.message, times))
            if plan.feasible is False and not gang.is_single:
                refusal = replace(refusal, message=self.advisor.advised(gang.key, refusal.message))
            self.reporter.refused(gang, refusal, plan.search, seconds)
        lacks, need = wakes_up_on(plan.explanation, gang.candidates), need_of(gang)
        if self._passes_over(gang, lacks):
            return
        if passed := self._begin_sweep(gang.key):
            lacks, need = lacks.joined(passed), None  # room for any of its runs may help
        is_promised, retry_by = self.are_seats_promised(), self.waits.retry_by(gang, self.partial_binds.next_look(gang))
        self.queue.refuse(gang.key, lacks, seen=attempt.changes, is_promised=is_promised, retry_by=retry_by, need=need)

    def _passes_over(self, gang: Gang, lacks: WakeUpOn) -> bool:
        """Give the next run of the gang its turn that can act, if this one hasn't begun; returns whether there is one.

        Each run that can't be bound is passed over once. The gang counts as refused when no run is left, and then the first goes first.
        """
        if gang.bound or not self.registry.pass_over(gang):
            return False
        record = self.records.of(gang.key)
        record.lacks_of_passed = lacks.joined(record.lacks_of_passed) if record.lacks_of_passed else lacks
        self.queue.mark(gang.key)
        return True

    def _begin_sweep(self, key: GangKey) -> WakeUpOn | None:
        """Let the first run go first again of those that can act; returns what those lack that were passed over."""
        self.registry.pass_over_none(key)
        record = self.records.find(key)
        if record is None:
            return None
        passed, record.lacks_of_passed = record.lacks_of_passed, None
        return passed

    def awaits_members(self, gang: Gang) -> None:
        """Too few pods exist. An absent gang holds nothing meanwhile; one that we left open may wait a little for its controller.

        A run that is known to have been whole needs only its lost members: soon it is content with those of them that exist.
        """
        self._look_again_in_time(gang)
        record = self.records.of(gang.key)
        if may_settle(gang, record):
            record.short_since = self.clock() if record.short_since is None else record.short_since
            self.queue.retry(gang.key, max(0.0, record.short_since + SETTLE_SECONDS - self.clock()))
        else:
            record.short_since = None
        message = messages.members_missing(gang, was_whole=run_was_whole(gang, record))
        seconds = self.reporter.members_missing(gang, message, messages.members_missing_in_short(gang))
        if seconds is not None:
            self.queue.retry(gang.key, seconds)

    def backs_off(self, attempt: Attempt) -> None:
        """Members were lost soon after they were bound, again and again: the next are bound when the back-off is over."""
        gang = attempt.gang
        until, losses = self.losses.back_off(gang)
        self.reporter.backs_off(gang, messages.backs_off(gang, losses, self.queue.backoff(losses)))
        if self._passes_over(gang, ANYTHING):
            return
        self._begin_sweep(gang.key)
        self.queue.park(gang.key, NOTHING, seen=attempt.changes, retry_by=until)
        self._look_again_in_time(gang)

    def held(self, attempt: Attempt, hold: Hold) -> None:
        """It must not be scheduled until somebody mends it."""
        key = attempt.gang.key
        record = self.records.of(key)
        if hold.reason == "PodGroupNotFound" and not record.is_given_grace:
            record.is_given_grace = True
            self.queue.retry(key, _PODGROUP_GRACE_SECONDS)
            return
        if hold.reason == OVER_LIMIT:
            self.metrics.over_limit.labels(hold.field).inc()
        self.reporter.held(attempt.gang, hold.reason, hold.message, hold.pod)
        self.queue.park(key, NOTHING, seen=attempt.changes)
        self._look_again_in_time(attempt.gang)

    def _look_again_in_time(self, gang: Gang) -> None:
        if (when := self.partial_binds.next_look(gang)) is not None:
            self.queue.retry(gang.key, when - self.clock())

    def rests(self, gang: Gang) -> None:
        """Nothing is to be done: it is whole, or all of it has ended."""
        self._close(gang.key)
        if gang.bound:
            self.records.of(gang.key).held = asked_by(gang.bound)
        self.queue.settle(gang.key)
        self.reporter.unchanged(gang)

    def failed_now(self, gang: Gang, message: str) -> None:
        """As ``failed``, of a gang that no attempt was begun at."""
        self.failed(Attempt(gang, self.clock(), self.queue.changes), message)

    def failed(self, attempt: Attempt, message: str, retry_after: float = 0.0) -> None:
        """The attempt failed for a reason that isn't the cluster's room; it is tried again after a pause, such as the API server wants."""
        self.reporter.failed(attempt.gang, message, self.clock() - attempt.started)
        self.partial_binds.failed(attempt.gang.key)
        # Whoever has held seats in vain leaves them to others for as long.
        pause = max(retry_after, 0.0 if attempt.was_brief else attempt.held_seconds)
        if not pause and attempt.gang.key not in self.partial_binds and self._passes_over(attempt.gang, ANYTHING):
            return
        self._begin_sweep(attempt.gang.key)
        self.queue.fail(attempt.gang.key, ANYTHING, seen=attempt.changes, retry_by=self.clock(), at_least=pause)

    def settled(self, key: GangKey) -> None:
        """It is known at last what has become of a gang's unanswered binds; the seats of those that came to nothing are free."""
        self.partial_binds.renew(key)
        self.queue.given_back()
        self.queue.mark(key)

    def defect(self, key: GangKey) -> None:
        """A defect of ours met one gang: it is told and tried again, and the others go on."""
        logger.exception("gang %s: the attempt failed by a defect; other gangs go on", key)
        gang = self.registry.gang(key)
        if gang is not None:
            self.reporter.failed(gang, "the scheduler failed on this gang; its log says how", 0.0)
            if was_cut_off(gang, self.registry.group(key)):
                self.partial_binds.add(gang)
        self.queue.fail(key, ANYTHING, seen=self.queue.changes, retry_by=self.clock())

    def _close(self, key: GangKey) -> None:
        """The gang is whole or absent: what it took to get there is forgotten."""
        self.partial_binds.close(key)
        self.advisor.forget(key)
        if (record := self.records.find(key)) is not None:
            record.is_given_grace = False

    def forgotten(self, key: GangKey) -> None:
        """There is no such gang any more."""
        self.partial_binds.close(key)
        self.queue.forget(key)
        self.records.forget(key)
