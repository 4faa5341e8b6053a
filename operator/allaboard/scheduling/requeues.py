"""How a gang goes back to the queue after a decision, from values alone."""

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

_ENDING_SECONDS = 0.5  # after which the watch has delivered which members are bound
_PODGROUP_GRACE_SECONDS = 1.0  # a PodGroup is often created just after its pods
RETRY_SECONDS = 0.5
"""After so many seconds unfinished work is tried again."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when a gang goes back to the queue. Times are on the clock, in seconds."""

    now: float
    next_look: float | None = None
    """When the gang must be attempted even if nothing changes; None if it needn't be."""
    retry_by: float | None = None
    """When a gang without capacity must be attempted again at the latest; None for the queue's own limit."""
    in_grace: bool = False
    """Whether the gang's PodGroup may still be created."""
    settles_at: float | None = None
    """When a gang that waits for replacements goes on with those that exist; None if it doesn't."""
    next_report: float | None = None
    """Seconds until there is more to report; None if there isn't."""
    wakes_deferred_runs: WakeUpOn | None = None
    """What wakes the gang's deferred runs; None if no run was deferred."""
    need: CapacityNeed | None = None
    is_capacity_assumed: bool = False
    pause: float = 0.0
    """The least backoff: what the API server wants, or as long as the gang has held capacity in vain."""


def of_wait(gang: Gang, because: Reason, facts: Facts) -> Sequence[Requeue]:
    """Return how a waiting gang goes back."""
    look = () if facts.next_look is None else (Requeue.again(facts.next_look - facts.now),)
    match because:
        case reasons.Held() if facts.in_grace:
            return (Requeue.again(_PODGROUP_GRACE_SECONDS),)
        case reasons.Held():
            return (Requeue.waiting(NOTHING), *look)
        case reasons.MembersMissing():
            settles = () if facts.settles_at is None else (Requeue.again(max(0.0, facts.settles_at - facts.now)),)
            report = () if facts.next_report is None else (Requeue.again(facts.next_report),)
            return (*look, *settles, *report)
        case reasons.LostSoon(until=until):
            return (Requeue.waiting(NOTHING, retry_by=until), *look)
        case reasons.NoCapacity(plan=plan):
            wake_on, need = wakes_up_on(plan.explanation, gang.candidates), facts.need
            if facts.wakes_deferred_runs is not None:
                wake_on, need = wake_on.joined(facts.wakes_deferred_runs), None  # capacity for any of its runs may help
            assumed = facts.is_capacity_assumed
            return (Requeue.refused(wake_on, is_capacity_assumed=assumed, retry_by=facts.retry_by, need=need),)
    return (Requeue.failed(retry_by=facts.now, at_least=facts.pause),)


def wakes_of(gang: Gang, because: Reason) -> WakeUpOn:
    """Return what wakes a deferred run of a gang."""
    return wakes_up_on(because.plan.explanation, gang.candidates) if isinstance(because, reasons.NoCapacity) else ANYTHING


def of_search(gang: Gang, plan: Plan | None, facts: Facts) -> Sequence[Requeue]:
    """Return how a gang goes back that needs a long search; ``plan`` is the short search's, None if the short search took too long."""
    wake_on = wakes_up_on(plan.explanation, gang.candidates) if plan else ANYTHING
    return (Requeue.searching(wake_on, retry_by=facts.retry_by),)


def of_whole(gang: Gang, plan: Plan, outcome: Committed, now: float, *, has_surplus: bool, was_brief: bool) -> Sequence[Requeue]:
    """Return how a gang goes back whose quorum is bound. ``has_surplus``: the plan leaves surplus members out.

    Surplus members that are refused again and again are tried less and less often.
    """
    has_failed = bool(outcome.failed or outcome.dropped)
    settled = (Requeue.settled(),) if gang.missing or not has_failed else ()
    if has_failed:
        return (*settled, Requeue.failed(retry_by=now, at_least=outcome.retry_after))
    if not has_surplus:
        return settled
    # After a long transaction what was known of capacity may not hold any more.
    again = Requeue.failed(wakes_up_on(plan.explanation, gang.candidates)) if was_brief else Requeue.now()
    return (*settled, again)


def of_open(outcome: Committed, now: float, *, is_due: bool) -> Sequence[Requeue]:
    """Return how a gang goes back that stays partially bound. ``is_due``: its time-out is over, and no backoff delays what follows."""
    failed = Requeue.failed(retry_by=now, at_least=outcome.retry_after)
    return (failed, Requeue.again(_ENDING_SECONDS)) if is_due else (failed,)


def of_finish(outcome: Committed) -> Sequence[Requeue]:
    """Return how a gang goes back whose missing members are bound around the bound ones."""
    pause = min(max(RETRY_SECONDS, outcome.retry_after), FORWARD_SECONDS)
    return (Requeue.again(pause, is_hard=outcome.retry_after > 0),)


def of_release(facts: Facts, *, has_released: bool, is_unfinished: bool, is_paced: bool) -> Sequence[Requeue]:
    """Return how a gang goes back after a release. ``is_paced``: released for its own sake, at most once in each time-out.

    No failure is counted if no member may be released.
    """
    if is_paced and not (has_released or is_unfinished):
        return (Requeue.resumed(RETRY_SECONDS),)
    return (Requeue.again(RETRY_SECONDS),) if is_unfinished else (Requeue.failed(retry_by=facts.now, at_least=facts.pause),)
