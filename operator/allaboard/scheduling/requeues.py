"""Decides how a gang goes back to the queue after an attempt, from values alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding import reasons
from allaboard.binding.outcomes import Committed
from allaboard.binding.reasons import Reason
from allaboard.model.gang import Gang
from allaboard.placement import Plan
from allaboard.queueing.order import wakes_up_on
from allaboard.queueing.requeue import Requeue
from allaboard.records.partial_bind import FORWARD_SECONDS
from allaboard.records.wake_up import ANYTHING, NOTHING, CapacityNeed, WakeUpOn

_ENDING_SECONDS = 0.5  # long enough for the watch to deliver which members are bound
_PODGROUP_GRACE_SECONDS = 1.0  # a PodGroup is often created just after its pods
RETRY_SECONDS = 0.5
"""Seconds after which unfinished work is tried again."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that decide how a gang goes back to the queue. Times are seconds of the scheduler's monotonic clock."""

    now: float
    next_attempt: float | None = None
    """When the gang must be attempted even if nothing changes; None if there is no such time."""
    retry_by: float | None = None
    """When a gang without capacity must be attempted again at the latest; None for the queue's own limit."""
    in_grace: bool = False
    """True if the gang's PodGroup is missing, and is given a second to be created."""
    settles_at: float | None = None
    """When a gang that waits for replacements goes on with the replacements that exist; None if it waits for all replacements."""
    next_report: float | None = None
    """Seconds until there is more to report; None if nothing is left to report."""
    wakes_deferred_runs: WakeUpOn | None = None
    """The changes that wake the gang's deferred runs; None if no run was deferred."""
    need: CapacityNeed | None = None
    """The capacity that the gang needs; None if it can't be counted."""
    pause: float = 0.0
    """The least backoff in seconds: the time that the API server asked for, or the time for which the gang held capacity in vain."""


def of_wait(gang: Gang, because: Reason, facts: Facts) -> Sequence[Requeue]:
    """Return how a gang that waits goes back to the queue."""
    attempt = () if facts.next_attempt is None else (Requeue.again(facts.next_attempt - facts.now),)
    match because:
        case reasons.Held() if facts.in_grace:
            return (Requeue.again(_PODGROUP_GRACE_SECONDS),)
        case reasons.Held():
            return (Requeue.waiting(NOTHING), *attempt)
        case reasons.MembersMissing():
            settles = () if facts.settles_at is None else (Requeue.again(max(0.0, facts.settles_at - facts.now)),)
            report = () if facts.next_report is None else (Requeue.again(facts.next_report),)
            return (*attempt, *settles, *report)
        case reasons.LostSoon(until=until):
            return (Requeue.waiting(NOTHING, retry_by=until), *attempt)
        case reasons.NoCapacity(plan=plan):
            wake_on, need = wakes_up_on(plan.explanation, gang.candidates), facts.need
            if facts.wakes_deferred_runs is not None:
                wake_on, need = wake_on.joined(facts.wakes_deferred_runs), None  # capacity for any run of the gang may help
            return (Requeue.refused(wake_on, retry_by=facts.retry_by, need=need),)
    return (Requeue.failed(retry_by=facts.now, at_least=facts.pause),)


def wakes_of(gang: Gang, because: Reason) -> WakeUpOn:
    """Return the changes that wake the current run of ``gang`` while that run is deferred."""
    return wakes_up_on(because.plan.explanation, gang.candidates) if isinstance(because, reasons.NoCapacity) else ANYTHING


def of_search(gang: Gang, plan: Plan | None, facts: Facts) -> Sequence[Requeue]:
    """Return how a gang that needs a long search goes back to the queue.

    ``plan`` is the result of the short search; None if that search took too long.
    """
    wake_on = wakes_up_on(plan.explanation, gang.candidates) if plan else ANYTHING
    return (Requeue.searching(wake_on, retry_by=facts.retry_by),)


def of_whole(gang: Gang, plan: Plan, outcome: Committed, now: float, *, has_surplus: bool, was_brief: bool) -> Sequence[Requeue]:
    """Return how a gang whose quorum is bound goes back to the queue; ``has_surplus``: the plan leaves surplus members out.

    Surplus members that are refused again and again are tried less and less often.
    """
    has_failed = bool(outcome.failed or outcome.dropped)
    settled = (Requeue.settled(),) if gang.missing or not has_failed else ()
    if has_failed:
        return (*settled, Requeue.failed(retry_by=now, at_least=outcome.retry_after))
    if not has_surplus:
        return settled
    # After a long transaction the plan may no longer describe the cluster.
    again = Requeue.failed(wakes_up_on(plan.explanation, gang.candidates)) if was_brief else Requeue.now()
    return (*settled, again)


def of_stay_open(outcome: Committed, now: float, *, is_due: bool) -> Sequence[Requeue]:
    """Return how a gang that stays partially bound goes back to the queue.

    ``is_due``: the next attempt decides something other than a search, such as a release; no backoff delays that.
    """
    failed = Requeue.failed(retry_by=now, at_least=outcome.retry_after)
    return (failed, Requeue.again(_ENDING_SECONDS)) if is_due else (failed,)


def of_finish(outcome: Committed) -> Sequence[Requeue]:
    """Return how a gang whose missing members are to be bound around the bound members goes back to the queue."""
    pause = min(max(RETRY_SECONDS, outcome.retry_after), FORWARD_SECONDS)
    return (Requeue.again(pause, is_hard=outcome.retry_after > 0),)


def of_release(facts: Facts, *, has_released: bool, is_unfinished: bool, is_paced: bool) -> Sequence[Requeue]:
    """Return how a gang goes back to the queue after a release.

    ``is_paced``: the gang is released for its own sake, at most once in each time-out. Then no failure is counted if no member may be
    released.
    """
    if is_paced and not (has_released or is_unfinished):
        return (Requeue.resumed(RETRY_SECONDS),)
    return (Requeue.again(RETRY_SECONDS),) if is_unfinished else (Requeue.failed(retry_by=facts.now, at_least=facts.pause),)
