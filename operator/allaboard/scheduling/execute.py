"""Carries out decisions: the only module that changes the queue, the records, the cluster and the reported state of a gang.

``Executor.begin`` and ``Executor.after_bind`` have a case for each decision of ``decide``. Work that sends requests to the API server runs
in a task of the gang, beside the cycle.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from allaboard.binding import reasons
from allaboard.binding.outcomes import Committed, Refused
from allaboard.binding.preempting import Evictions
from allaboard.binding.reasons import Reason
from allaboard.binding.transaction import Transaction, Transactions
from allaboard.cluster.reservations import Ledger
from allaboard.gangs.run_history import SETTLE_SECONDS, may_settle, run_was_whole, was_cut_off
from allaboard.model.disruption import mark_of
from allaboard.model.gang import Gang, GangKey
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.planning.advice import Advisor
from allaboard.planning.answers import Placed
from allaboard.planning.known_gangs import KnownGangs
from allaboard.planning.preemption import Preemption, Preemptions
from allaboard.queueing.capacity_waitlist import need_of
from allaboard.queueing.queue import GangQueue
from allaboard.queueing.requeue import Requeue, Returned
from allaboard.records.growth import asked_by
from allaboard.records.history import PlanSummary, Transition
from allaboard.records.partial_bind import FORWARD_SECONDS
from allaboard.records.wake_up import WakeUpOn
from allaboard.report import messages
from allaboard.report.reporter import ReportedWait, Reporter
from allaboard.scheduling import decide, requeues
from allaboard.scheduling.attempt import Attempt
from allaboard.scheduling.decide import Decision
from allaboard.scheduling.nodes_wanted import GiveUp, Step
from allaboard.scheduling.partial_binds import PartialBinds
from allaboard.scheduling.provisioning import Provisionings
from allaboard.scheduling.requeues import Facts
from allaboard.scheduling.tasks import GangTasks
from allaboard.scheduling.unresolved_binds import UnresolvedBinds

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.02  # long enough for the watch to deliver the change that made the plan invalid.
_FENCED_SECONDS = 1.0  # the longest wait for the watch to deliver fenced pods; mostly it does so much earlier.

_EXPECTED = reasons.Held | reasons.MembersMissing | reasons.LostSoon | reasons.NoCapacity
"""Reasons to wait that aren't failures of the attempt."""

_OUTCOMES = {decide.Wait: "refused", decide.Whole: "whole"}
"""The outcome of a transaction in the metrics, by the decision after it; the outcome is "open" for all other decisions."""


@dataclass(slots=True)
class Executor:
    """Carries out decisions about gangs."""

    gangs: KnownGangs
    queue: GangQueue
    reporter: Reporter
    partial_binds: PartialBinds
    transactions: Transactions
    unresolved: UnresolvedBinds
    advisor: Advisor
    tasks: GangTasks
    ledger: Ledger
    preemptions: Preemptions
    evictions: Evictions
    provisionings: Provisionings
    _resolving: set[asyncio.Task[None]] = field(default_factory=set)

    def carry_out(self, attempt: Attempt, decision: Decision) -> None:
        """Carry out a decision about a gang: at once, or in a task of the gang."""
        key = attempt.gang.key
        if (work := self.begin(attempt, decision)) is not None:
            self.tasks.start(key, self.guarded(key, work))

    def begin(self, attempt: Attempt, decision: Decision) -> Coroutine[None, None, None] | None:
        """Carry out a decision as far as that takes no requests. Return the remaining work as a coroutine; None if nothing remains."""
        if not isinstance(decision, decide.Wait | decide.Search):
            self._record(attempt.gang, decision)
        match decision:
            case decide.Bind(placed):
                return self._bind(attempt, placed.plan, self._transaction(attempt, placed))
            case decide.FenceOff(pods):
                return self._fence_off(attempt, pods)
            case decide.Release():
                return self._release(attempt, decision)
            case decide.Preempt(preemption, because):
                self.preemptions.begin(preemption)
                self._wait(attempt, because)
                return self._preempt(attempt, preemption)
            case decide.Provision(step, because):
                self._wait(attempt, because)
                return self._provision(attempt, step, because)
            case decide.SuspendJobs(because):
                return self._release(attempt, decide.Release(attempt.gang.bound, because), is_paced=True)
            case decide.Wait(because):
                self._wait(attempt, because)
            case decide.LookAgain(unfit):
                logger.info("gang %s: %s; trying again", attempt.gang.key, messages.not_bound(unfit))
                self._requeue(attempt, [Requeue.again(_LOOK_AGAIN_SECONDS)])
            case decide.Done():
                self._requeue_done(attempt)
            case decide.Search() if attempt.gang.missing:
                self.gangs.waits.of(attempt.gang)
        return None

    async def guarded(self, key: GangKey, work: Coroutine[None, None, None]) -> None:
        """Run ``work`` for a gang, so that a defect in ``work`` affects this gang alone."""
        try:
            await work
        except Exception as error:
            self.handle_defect(key, error)

    def observe(self, gang: Gang) -> bool:
        """Record what the gang's current state shows.

        Return True if another run of the gang may go first now. Then the gang is due again.
        """
        if self.partial_binds.observe(gang) and gang.others:
            self.gangs.registry.choose_again(gang.key)  # a run that was whole and waits for pods must not delay the other runs
            self.queue.mark(gang.key)
            return True
        if gang.others:
            self.reporter.waits_behind(gang)
        if not (gang.settles or gang.awaits_pods):
            self.gangs.records.of(gang.key).short_since = None
        return False

    def requeue_for_search(self, attempt: Attempt, plan: Plan | None, because: reasons.NoCapacity | None) -> None:
        """Requeue a gang that needs a long search. Report ``because``, which the short search found, unless it is None."""
        self._record(attempt.gang, decide.SearchLonger(plan))
        if because is not None:
            self._report_wait(attempt, because)
        self._requeue(attempt, requeues.of_search(attempt.gang, plan, self._facts(attempt.gang, lacks_capacity=True)))

    def release_for(self, gang: Gang, victims: Iterable[Gang]) -> None:
        """Release the members of ``victims``, whose capacity ``gang`` needs."""
        for victim in victims:
            because = reasons.CapacityNeeded(gang.key, victim.timeout_seconds, len(victim.bound))
            release = decide.Release(victim.bound, because, force=True, for_gang=gang.key)
            self.carry_out(Attempt(victim, self.gangs.clock(), self.queue.changes), release)

    def forget(self, key: GangKey) -> None:
        """Forget a gang that no longer exists."""
        self.partial_binds.close(key)
        self.preemptions.give_up(key)
        self.provisionings.settle(key)
        self.queue.requeue(key, Requeue.gone())
        self.gangs.records.forget(key)

    def handle_defect(self, key: GangKey, error: BaseException) -> None:
        """Report a defect that concerns one gang, and retry the gang later. Other gangs go on."""
        logger.error("gang %s: the attempt failed by a defect; other gangs go on", key, exc_info=error)
        self.preemptions.give_up(key)
        self.queue.requeue(key, Requeue.failed(retry_by=self.gangs.clock()))
        try:
            gang = self.gangs.registry.gang(key)
            if gang is not None:
                if was_cut_off(gang, self.gangs.registry.group(key)):
                    self.partial_binds.add(gang)
                self.reporter.report_wait(gang, reasons.Defect(), 0.0)
        except Exception:
            logger.exception("gang %s: the defect can't be reported", key)

    async def inherit(self) -> None:
        """Make every gang due. Gangs that an earlier leader left partially bound go first."""
        async for key in self.partial_binds.inherited():
            self.queue.mark(key)

    async def stop(self, seconds: float) -> None:
        """Wait at most ``seconds`` for the tasks of gangs, then cancel those that still run."""
        try:
            async with asyncio.timeout(seconds):
                await self.tasks.wait_until_idle()
        except TimeoutError:
            logger.warning("transactions take longer than %g s to end: they are cut off", seconds)
        for task in (*self._resolving, *self.tasks.tasks()):
            task.cancel()

    # Bind

    def _transaction(self, attempt: Attempt, placed: Placed) -> Transaction:
        """Begin the transaction that binds a gang.

        Its capacity is assumed from here on, so nothing may fail before the transaction's ``commit`` is called.
        """
        attempt.gang, key = placed.gang, placed.gang.key
        self.reporter.mark_being_bound(placed.gang)
        # After a rollback each member is dry-run: otherwise one refused pod would roll the gang back again and again.
        was_whole = run_was_whole(placed.gang, self.gangs.records.find(key))
        refresh, tries_all = partial(self.gangs.current, key), self.partial_binds.was_undone(key)
        return self.transactions.begin(placed.gang, placed.assignments, refresh, tries_all=tries_all, was_whole=was_whole)

    async def _bind(self, attempt: Attempt, plan: Plan, transaction: Transaction) -> None:
        gang, began = attempt.gang, self.gangs.clock()
        outcome = await transaction.commit()
        attempt.held_seconds = self.gangs.clock() - began
        if isinstance(outcome, Committed) and outcome.in_doubt:
            self._resolve(gang.key, outcome)
        await self.after_bind(attempt, plan, outcome)

    async def after_bind(self, attempt: Attempt, plan: Plan, outcome: Committed | Refused) -> None:
        """Decide what follows from the answers to a gang's binds, and carry the decision out."""
        gang, now = attempt.gang, self.gangs.clock()
        decision = decide.after_bind(gang, outcome, self.partial_binds.find(gang.key))
        self.reporter.committed(outcome, _OUTCOMES.get(type(decision), "open"))
        if isinstance(outcome, Refused) or outcome.failed or outcome.dropped:
            self.queue.observe(Returned())
        if isinstance(outcome, Refused) or isinstance(decision, decide.Wait):
            if isinstance(outcome, Committed) and outcome.in_doubt:
                self.partial_binds.suspect(gang.key)  # the watch may show that the gang is partially bound after all
            self._wait(attempt, reasons.NotBound(outcome), outcome.retry_after)
            return
        self._record(gang, decision)
        surplus = messages.surplus_refusals(plan) if isinstance(decision, decide.Whole) else {}
        waiting_since = self.gangs.waits.of(gang).since
        self.reporter.report_bound(gang, outcome, plan.search, now - attempt.started, surplus if attempt.was_brief else {})
        match decision:
            case decide.Release():
                self.partial_binds.add(gang)
                await self._release(attempt, decision)
            case decide.Finish():
                self.partial_binds.add(gang)
                self._requeue(attempt, requeues.of_finish(outcome))
            case decide.StayOpen():
                self.partial_binds.failed(gang.key)
                is_due = decide.before_search(gang, self.partial_binds.find(gang.key), now) != decide.Search()
                self._requeue(attempt, requeues.of_stay_open(outcome, now, is_due=is_due))
            case decide.Whole():
                self._close(gang.key)
                self._undefer_runs(gang.key)
                self.gangs.losses.observe_bind(gang, [assignment.pod for assignment in outcome.bound], waiting_since)
                whole = requeues.of_whole(gang, plan, outcome, now, has_surplus=bool(surplus), was_brief=attempt.was_brief)
                self._requeue(attempt, whole)

    def _resolve(self, key: GangKey, outcome: Committed) -> None:
        task = asyncio.create_task(self.guarded(key, self._resolved(key, outcome)), name=f"unresolved binds of {key}")
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolved(self, key: GangKey, outcome: Committed) -> None:
        """Wait until the unanswered binds are resolved, then make their gang due."""
        await self.unresolved.resolve(outcome.in_doubt)
        self.partial_binds.renew(key)
        self.queue.observe(Returned())
        self.queue.mark(key)

    async def _fence_off(self, attempt: Attempt, pods: Iterable[Pod]) -> None:
        problem = await self.unresolved.fence_off(list(pods))
        if problem is not None:
            self._wait(attempt, problem)
        else:
            self._requeue(attempt, [Requeue.again(_FENCED_SECONDS)])

    # Release

    async def _release(self, attempt: Attempt, release: decide.Release, *, is_paced: bool = False) -> None:
        """Release bound members, and requeue the gang with a backoff.

        ``is_paced``: the gang is released for its own sake, at most once in each time-out. Between two such releases the gang is planned
        like other gangs.
        """
        gang, other = attempt.gang, release.for_gang
        is_paced |= release.force and other is None
        released = await self.partial_binds.release(gang, release.pods, force=release.force, other=other, is_paced=is_paced)
        undone, attempt.changes = released.undone, self.queue.changes
        kept = reasons.Kept(release.because, release.pods, released.problem) if released.is_kept_open else None
        self.reporter.report_release(gang, undone.released, release.because, kept)
        facts = Facts(self.gangs.clock(), pause=release.pause)
        if other is None:
            is_unfinished = undone.is_unfinished and not release.force
            after = requeues.of_release(facts, has_released=bool(undone.released), is_unfinished=is_unfinished, is_paced=is_paced)
            self._requeue(attempt, after)
        else:
            self._requeue(attempt, [Requeue.failed(retry_by=facts.now)] if undone.released else [])
            if undone.is_unfinished or not undone.released:
                self.queue.requeue(other, Requeue.again(FORWARD_SECONDS))

    # Preempt

    async def _preempt(self, attempt: Attempt, preemption: Preemption) -> None:
        """Evict the victims of a preemption. If any of them stays, the gang's reservation is given up, and the gang is attempted again."""
        gang = attempt.gang
        evicted = await self.evictions.carry_out(preemption.pods, mark_of(*gang.key[:2]), partial(self._still_fits, gang, preemption))
        gone, kept = {pod.uid for pod in evicted.gone}, {pod.uid for pod in evicted.kept}
        for victim in preemption.victims:
            if pods := [pod for pod in victim.pods if pod.uid in gone]:
                because = reasons.Preempted(gang.key, gang.priority, len(pods), is_whole=not victim.is_broken)
                self.reporter.report_preempted(victim.gang, pods, because)
                self._note(victim.gang.key, Transition.of(self.gangs.waits.now(), "Evict", "Preempted", messages.why(victim.gang, because)))
        if len(gone) == len(preemption.pods):
            self.reporter.report_preempting(gang, dict(preemption.plan.assignments))
        else:
            keeping = [victim.gang for victim in preemption.victims if any(pod.uid in kept for pod in victim.pods)]
            logger.info("gang %s: %d pods can't be evicted for it; giving up this preemption", gang.key, len(preemption.pods) - len(gone))
            self.preemptions.give_up(gang.key, keeping)
            self._requeue(attempt, [Requeue.again(requeues.RETRY_SECONDS)])

    def _still_fits(self, gang: Gang, preemption: Preemption) -> bool:
        """Return whether a gang still waits for the capacity of the victims, and all of these still run as they did."""
        now = self.gangs.registry.gang(gang.key)
        if now is None or not now.can_act or now.missing != gang.missing or self.ledger.find(gang.key) is None:
            return False
        found = [(pod, self.gangs.view.pod(pod.key)) for pod in preemption.pods]
        return all(here is not None and here.uid == pod.uid and here.is_alive for pod, here in found)

    # Provision

    async def _provision(self, attempt: Attempt, step: Step, because: reasons.NoCapacity) -> None:
        """Do a step towards the nodes that an autoscaler may add, and report how far they are then."""
        gang = attempt.gang
        shown, again_seconds = await self.provisionings.carry_out(gang, step)
        if (now := self.gangs.registry.gang(gang.key)) is None or not now.can_act:
            return
        if isinstance(step, GiveUp) and shown is not None:
            self.reporter.report_given_up(gang, shown.note)
        self.reporter.report_progress(gang, replace(because, provisioning=shown))
        if again_seconds is not None:
            self._requeue(attempt, [Requeue.again(again_seconds)])

    # Wait

    def _wait(self, attempt: Attempt, because: Reason, retry_after: float = 0.0) -> None:
        """Report why a gang waits, and requeue it; or defer this run for another run of the gang.

        ``retry_after``: the seconds for which the API server asks to get no more requests.
        """
        gang, key, has_failed = attempt.gang, attempt.gang.key, not isinstance(because, _EXPECTED)
        record = self.gangs.records.of(key)
        in_grace = isinstance(because, reasons.Held) and because.hold.reason == "PodGroupNotFound" and not record.had_grace
        record.had_grace |= in_grace
        if has_failed:
            self.partial_binds.failed(key)
        if not isinstance(because, reasons.NoCapacity):
            self.preemptions.give_up(key)
        settles_at = self._settles_at(gang) if isinstance(because, reasons.MembersMissing) else None
        # A gang that held capacity in vain leaves the capacity to other gangs for as long.
        pause = max(retry_after, 0.0 if attempt.was_brief else attempt.held_seconds)
        reported = ReportedWait() if in_grace else self._report_wait(attempt, because)
        self._record(gang, decide.Wait(because), reported.message)
        wakes_deferred_runs = None
        if not isinstance(because, reasons.Held | reasons.MembersMissing):
            must_wait = has_failed and (pause > 0 or self.gangs.records.is_finishing(key))
            if not must_wait and self._defer_run(gang, because):
                self._requeue(attempt, [Requeue.now()])
                return
            wakes_deferred_runs = self._undefer_runs(key)
        facts = replace(
            self._facts(gang, lacks_capacity=isinstance(because, reasons.NoCapacity)),
            in_grace=in_grace,
            settles_at=settles_at,
            next_report=reported.next_seconds,
            wakes_deferred_runs=wakes_deferred_runs,
            need=need_of(gang) if isinstance(because, reasons.NoCapacity) else None,
            pause=pause,
        )
        self._requeue(attempt, requeues.of_wait(gang, because, facts))

    def _report_wait(self, attempt: Attempt, because: Reason) -> ReportedWait:
        """Report why a gang waits, and request advice on what would let the gang fit, if such advice is possible."""
        gang = attempt.gang
        if isinstance(because, reasons.MembersMissing):
            because = reasons.MembersMissing(run_was_whole(gang, self.gangs.records.find(gang.key)))
        reported = self.reporter.report_wait(gang, because, self.gangs.clock() - attempt.started)
        if reported.to_advise:
            self.advisor.want(gang.key, reported.to_advise)
        return reported

    def _settles_at(self, gang: Gang) -> float | None:
        """Return when a gang that has lost members goes on with the replacements that exist, though they are too few.

        None if the gang waits for all members: its run wasn't whole, and its pods aren't replacements.
        """
        record = self.gangs.records.of(gang.key)
        if not may_settle(gang, record):
            record.short_since = None
            return None
        record.short_since = self.gangs.clock() if record.short_since is None else record.short_since
        return record.short_since + SETTLE_SECONDS

    def _facts(self, gang: Gang, *, lacks_capacity: bool) -> Facts:
        next_attempt = self.gangs.next_attempt(gang)
        times = (self.gangs.waits.retry_by(gang, next_attempt), self.provisionings.retry_at(gang.key)) if lacks_capacity else ()
        retry_by = min((when for when in times if when is not None), default=None)
        return Facts(self.gangs.clock(), next_attempt, retry_by)

    def _requeue(self, attempt: Attempt, after: Iterable[Requeue]) -> None:
        for requeue in after:
            self.queue.requeue(attempt.gang.key, requeue, seen=attempt.changes)

    def _requeue_done(self, attempt: Attempt) -> None:
        """Requeue a gang that needs nothing: it is whole, or all its members have ended."""
        gang = attempt.gang
        self._close(gang.key)
        if gang.bound:
            self.gangs.records.of(gang.key).held = asked_by(gang.bound)
        self._requeue(attempt, [Requeue.settled()])
        self.reporter.unchanged(gang)

    def _defer_run(self, gang: Gang, because: Reason) -> bool:
        """Defer this run of the gang, if no member is bound, so that another run goes first. Return whether another run can be bound now.

        Each run that can't be bound is deferred once. When no run is left, the gang counts as refused, and the first run goes first again.
        """
        if gang.bound or not self.gangs.registry.defer_run(gang):
            return False
        record, wake_on = self.gangs.records.of(gang.key), requeues.wakes_of(gang, because)
        record.wakes_deferred_runs = wake_on.joined(record.wakes_deferred_runs) if record.wakes_deferred_runs else wake_on
        return True

    def _undefer_runs(self, key: GangKey) -> WakeUpOn | None:
        """Let the first run that can act go first again. Return what wakes the deferred runs; None if no run was deferred."""
        self.gangs.registry.defer_no_run(key)
        record = self.gangs.records.find(key)
        if record is None:
            return None
        wake_on, record.wakes_deferred_runs = record.wakes_deferred_runs, None
        return wake_on

    def _close(self, key: GangKey) -> None:
        """Delete the records of a gang that are needed only until the gang is whole or absent."""
        self.partial_binds.close(key)
        self.advisor.forget(key)
        self.provisionings.settle(key)
        if (record := self.gangs.records.find(key)) is not None:
            record.had_grace = False

    def _record(self, gang: Gang, decision: Decision, message: str = "") -> None:
        """Add a decision to the history of its gang and to the history of all gangs; ``message`` is its report, empty without one."""
        because, now = getattr(decision, "because", None), self.gangs.waits.now()
        reason = "" if because is None else type(because).__name__
        if isinstance(because, reasons.NoCapacity) and because.cause is not None:
            reason = str(because.cause.code)
        if not isinstance(decision, decide.Done):  # which says that nothing had to be decided
            self._note(gang.key, Transition.of(now, type(decision).__name__, reason, message))
        if (plan := plan_of(decision)) is not None:
            self.gangs.records.of(gang.key).history.plan = summary_of(now, plan)

    def _note(self, key: GangKey, entry: Transition) -> None:
        self.gangs.records.of(key).history.add(entry)
        self.gangs.records.decisions.add(key, entry)


def summary_of(now: float, plan: Plan) -> PlanSummary:
    """Return the summary of a plan that is made ``now``, in seconds since the epoch."""
    search = plan.search
    numbers = len(plan.assignments), len(plan.unplaced), search.score, search.generations
    return PlanSummary(now, plan.feasible, *numbers, search.stopped_by, search.found_by)


def plan_of(decision: Decision) -> Plan | None:
    """Return the plan that a decision is based on; None if there is no plan."""
    match decision:
        case decide.Bind(placed):
            return placed.plan
        case decide.SearchLonger(plan):
            return plan
        case (
            decide.Provision(because=reasons.NoCapacity(plan=plan))
            | decide.Wait(reasons.NoCapacity(plan=plan))
            | decide.Release(because=reasons.NoCapacity(plan=plan))
        ):
            return plan
    return None
