"""Decides what is done about a gang, from values alone: no clock, no loop, no server.

An attempt has three decisions: before a search (``before_search``), after the planning round has answered (``after_search``), and after the
binds were answered (``after_bind``). ``execute.Executor`` carries out the decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from allaboard.binding import reasons
from allaboard.binding.outcomes import Committed, Refused
from allaboard.binding.reasons import Reason
from allaboard.model.gang import Gang, GangKey, OnMemberLost, Undo
from allaboard.model.pod import Pod
from allaboard.placement import Plan
from allaboard.planning import answers as planned
from allaboard.records.partial_bind import FORWARD_SECONDS, PartialBind


@dataclass(frozen=True, slots=True)
class Search:
    """Search for a placement."""


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind members to the nodes of their placement."""

    placed: planned.Placed


@dataclass(frozen=True, slots=True)
class SearchLonger:
    """Search for the gang beside the cycle: a short search found neither a placement nor a proof that there is none."""

    plan: Plan | None


@dataclass(frozen=True, slots=True)
class FenceOff:
    """Write to pods, so that an earlier leader's binds and releases of them fail. The gang is due when the watch delivers the writes."""

    pods: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class Release:
    """Release bound members, so that their controllers recreate them; ``force`` evicts running members.

    ``for_gang`` is the gang that needs their capacity, None if the gang is released for its own sake. ``pause``: the least backoff, in
    seconds.
    """

    pods: Sequence[Pod]
    because: Reason
    force: bool = False
    for_gang: GangKey | None = None
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class SuspendJobs:
    """Suspend and resume the Jobs that keep the gang open, which releases all members."""

    because: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing now: the gang goes back to the queue, and ``because`` is reported."""

    because: Reason


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Attempt the gang again in a moment: its plan doesn't hold any more."""

    unfit: Refused


@dataclass(frozen=True, slots=True)
class Finish:
    """Place the missing members of a partially bound gang around the bound ones, before any other gang."""

    because: reasons.NotBound


@dataclass(frozen=True, slots=True)
class StayOpen:
    """Leave the gang partially bound, as it was before: it was whole once, or may not be released."""

    because: reasons.NotBound


@dataclass(frozen=True, slots=True)
class Done:
    """Do nothing: the gang is whole without waiting candidates, or all members have ended."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Record that the gang became whole by this bind. Surplus members may have failed, or found no capacity."""

    outcome: Committed


Decision = Search | Bind | SearchLonger | FenceOff | Release | SuspendJobs | Wait | LookAgain | Finish | StayOpen | Done | Whole


def before_search(gang: Gang, partial: PartialBind | None, now: float, lost: reasons.LostSoon | None = None) -> Decision:
    """Decide what is done about a due gang. A gang that was left partially bound is released before anything else.

    A gang whose time-out is over is searched for once more before its release: some capacity may be free now. While ``lost`` is set,
    no member is bound, unless the gang was left partially bound.
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
    """Return how to release a partially bound gang whose time-out is over; None if the time-out isn't over."""
    if not (partial.has_timed_out(now) and now >= partial.restarts_at):
        return None
    if not partial.is_finishing and gang.on_member_lost is OnMemberLost.RELEASE:
        return Release(gang.bound, reasons.NotReplaced(gang.missing, gang.timeout_seconds), force=True)
    if partial.is_kept_open and gang.undo is Undo.SUSPEND:
        return SuspendJobs(reasons.NotFinished(gang.missing, gang.timeout_seconds))
    return None


def after_search(
    gang: Gang, answer: planned.Answer, partial: PartialBind | None, now: float, *, is_settled: bool = True, is_served: bool = False
) -> Decision:
    """Decide what is done with the answer of the planning round.

    ``is_settled``: it is known whether partially bound gangs can be released for this gang, which takes a search for each of them.
    ``is_served``: partially bound gangs are being released for this gang now.
    """
    match answer:
        case planned.Placed():
            return Bind(answer)
        case planned.SearchLonger(plan=plan):
            return SearchLonger(plan)
        case planned.Outdated(unfit=unfit):
            return LookAgain(unfit)
        case planned.Failed(error=error):
            return Wait(reasons.SearchFailed(str(error)))
        case planned.Refused(plan=plan, cause=cause):
            if gang.missing and partial is not None and partial.is_finishing:
                return Release(gang.bound, reasons.NoCapacity(plan))
            if not is_settled:
                return SearchLonger(plan)
            ending = _ending(gang, partial, now) if partial is not None and not is_served else None
            return ending or Wait(reasons.NoCapacity(plan, cause))


def after_bind(gang: Gang, outcome: Committed | Refused, partial: PartialBind | None) -> Decision:
    """Decide what is done about ``gang``, the gang before its binds, once the binds are answered."""
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
        return Release((*gang.bound, *(seat.pod for seat in outcome.bound)), because, pause=outcome.retry_after)
    return Finish(because)
