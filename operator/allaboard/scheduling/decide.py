"""Decides what to do about a gang, from values alone: no clock, no event loop, no server.

An attempt at a gang takes three decisions: before its search (``before_search``), after the answer of the planning round
(``after_search``), and after the answers to its binds (``after_bind``). ``execute.Executor`` carries out the decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from allaboard.binding import reasons
from allaboard.binding.outcomes import Committed, Refused
from allaboard.binding.reasons import Reason
from allaboard.model.gang import Gang, GangKey, OnMemberLost, Undo
from allaboard.model.pod import Pod
from allaboard.placement import Plan, Violation, Wrong
from allaboard.planning import answers as planned
from allaboard.planning.preemption import Preemption
from allaboard.records.partial_bind import FORWARD_SECONDS, PartialBind
from allaboard.scheduling.nodes_wanted import Progress, Step


@dataclass(frozen=True, slots=True)
class Search:
    """Search for a placement of the gang."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind members to the nodes of their placement."""

    placed: planned.Placed


@dataclass(frozen=True, slots=True)
class SearchLonger:
    """Run a long search for the gang beside the cycle: the short search found neither a placement nor a proof that there is none.

    ``plan`` is the result of the short search; None if that search took too long.
    """

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class FenceOff:
    """Write to pods, so that binds and releases fail that an earlier leader has sent for them.

    The gang is due again when the watch delivers the writes.
    """

    pods: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class Release:
    """Release bound members, so that their controllers recreate them.

    ``force``: also evict running members. ``for_gang`` is the gang that needs the capacity; None if the members are released for their own
    gang's sake. ``pause`` is the least backoff, in seconds.
    """

    pods: Sequence[Pod]
    because: Reason
    force: bool = False
    for_gang: GangKey | None = None
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class Preempt:
    """Evict pods of gangs with lower priority, and reserve their capacity for the gang, which waits ``because`` of a lack of capacity."""

    preemption: Preemption
    because: reasons.NoCapacity


@dataclass(frozen=True, slots=True)
class Provision:
    """Do a step towards the nodes that an autoscaler may add. The gang waits ``because`` of a lack of capacity."""

    step: Step
    because: reasons.NoCapacity


@dataclass(frozen=True, slots=True)
class SuspendJobs:
    """Suspend and resume the Jobs that keep the gang partially bound: that releases all members."""

    because: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing now. The gang goes back to the queue, and ``because`` is reported."""

    because: Reason


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Attempt the gang again in a moment, since its plan no longer fits the gang or the cluster; ``unfit`` says why."""

    unfit: Refused


@dataclass(frozen=True, slots=True)
class Finish:
    """Place the missing members of a partially bound gang around its bound members, before any other gang."""

    because: reasons.NotBound


@dataclass(frozen=True, slots=True)
class StayOpen:
    """Leave the gang partially bound, as before: it was whole once, or its bound members may not be released."""

    because: reasons.NotBound


@dataclass(frozen=True, slots=True)
class Done:
    """Do nothing: no member waits for a node, and the gang is whole or all its members have ended."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Record that the gang is whole after its binds. Surplus members may be unbound: their binds failed, or there was no capacity."""

    outcome: Committed


Decision = (
    Search
    | Bind
    | SearchLonger
    | FenceOff
    | Release
    | Preempt
    | Provision
    | SuspendJobs
    | Wait
    | LookAgain
    | Finish
    | StayOpen
    | Done
    | Whole
)


def before_search(gang: Gang, partial: PartialBind | None, now: float, lost: reasons.LostSoon | None = None) -> Decision:
    """Return what to do about a due gang before any search.

    A gang that a transaction left partially bound, and that is past its finish deadline, is released before anything else. A gang whose
    time-out is over is released after one more search, since capacity may be free now. While ``lost`` is set, no member is bound, unless
    the gang is being finished.
    """
    if partial is not None and gang.is_partially_bound and partial.is_overdue(now):
        return Release(gang.bound, reasons.NotFinished(gang.missing, FORWARD_SECONDS))
    decision = _before_search(gang)
    if partial is not None and (decision != Search() or partial.was_tried) and (ending := _ending(gang, partial, now)):
        return ending
    if decision == Search() and lost is not None and not (partial and partial.is_finishing):
        return Wait(lost)
    return decision


def _before_search(gang: Gang) -> Decision:
    if gang.hold and (gang.candidates or gang.is_partially_bound):
        return Wait(reasons.Held(gang.hold))
    if not gang.candidates and (gang.is_whole or not gang.alive):
        return Done()
    return Wait(reasons.MembersMissing()) if gang.awaits_pods else Search()


def _ending(gang: Gang, partial: PartialBind, now: float) -> Release | SuspendJobs | None:
    """Return how to release a partially bound gang whose time-out is over; None if it isn't over, or no option asks for a release.

    None is also returned if the last such release was less than a time-out ago.
    """
    if not (partial.has_timed_out(now) and now >= partial.restarts_at):
        return None
    if not partial.is_finishing and gang.on_member_lost is OnMemberLost.RELEASE:
        return Release(gang.bound, reasons.NotReplaced(gang.missing, gang.timeout_seconds), force=True)
    if partial.is_kept_open and gang.undo is Undo.SUSPEND:
        return SuspendJobs(reasons.NotFinished(gang.missing, gang.timeout_seconds))
    return None


def after_search(
    gang: Gang,
    answer: planned.Answer,
    partial: PartialBind | None,
    now: float,
    *,
    victims_known: bool = True,
    is_releasing_victims: bool = False,
    progress: Progress | None = None,
) -> Decision:
    """Return what to do with the answer of the planning round.

    ``victims_known`` is False while it is unknown whether releasing partially bound gangs would help this gang: finding that out takes a
    search for each partially bound gang. ``is_releasing_victims``: partially bound gangs are being released for this gang now.
    ``progress`` says how far the nodes are that an autoscaler is asked for; None if none is asked.
    """
    match answer:
        case planned.Placed():
            return Bind(answer)
        case planned.SearchLonger(plan=plan):
            return SearchLonger(plan)
        case planned.Outdated(unfit=unfit):
            # If members' nodes don't agree with each other, the next plan may be the same: a change of the cluster is seldom the cause.
            is_broken = isinstance(unfit.because, Violation) and unfit.because.wrong is Wrong.BROKEN
            return Wait(reasons.NotBound(unfit)) if is_broken else LookAgain(unfit)
        case planned.Failed(error=error):
            return Wait(reasons.SearchFailed(str(error)))
        case planned.Refused(plan=plan, cause=cause, reservation=reservation, preemption=preemption):
            if gang.missing and partial is not None and partial.is_finishing:
                return Release(gang.bound, reasons.NoCapacity(plan))
            if not victims_known:
                return SearchLonger(plan)
            ending = _ending(gang, partial, now) if partial is not None and not is_releasing_victims else None
            if ending is None and preemption is not None and not is_releasing_victims:
                return Preempt(preemption, reasons.NoCapacity(plan, cause, preemption.reservation))
            return ending or _without_capacity(reasons.NoCapacity(plan, cause, reservation), progress)


def _without_capacity(because: reasons.NoCapacity, progress: Progress | None) -> Provision | Wait:
    """Return the decision about a gang for which there is no capacity: it waits, and an autoscaler may be asked for nodes."""
    if progress is None or not because.lacks_nodes:
        return Wait(because)
    because = replace(because, provisioning=progress.shown)
    return Wait(because) if progress.step is None else Provision(progress.step, because)


def after_bind(gang: Gang, outcome: Committed | Refused, partial: PartialBind | None) -> Decision:
    """Return what to do about a gang once its binds are answered; ``gang`` is its state before the binds."""
    because = reasons.NotBound(outcome)
    if isinstance(outcome, Refused):
        return Wait(because)
    if not outcome.missing:
        return Whole(outcome)
    if not outcome.bound and not gang.bound:
        return Wait(because)
    if (gang.is_partially_bound and not (partial and partial.is_finishing)) or (partial and partial.is_kept_open):
        return StayOpen(because)
    if outcome.is_final:
        return Release((*gang.bound, *(assignment.pod for assignment in outcome.bound)), because, pause=outcome.retry_after)
    return Finish(because)
