"""What is to be done about a gang, from what is known of it. Values go in and a decision comes out: no clock, no loop, no server.

Three questions are asked in the life of an attempt: at the look (``at_look``), when a plan is there (``on_plan``, and ``when_nowhere`` if
nobody can be seated by it), and when the binds have been answered (``on_reply``). Whoever asks carries the answer out.
"""

from enum import Enum, auto

from allaboard.binding.outcomes import Committed, Refused
from allaboard.model.gang import Gang, OnMemberLost, Undo
from allaboard.placement import Plan
from allaboard.records.record import PartialBind


class Look(Enum):
    """What a look at a gang comes to."""

    UNDO = auto()
    """It was left half bound, and finishing it has had its time."""
    GIVE_UP = auto()
    """It has lost members, and wants to be released when they can't be replaced in its time, which is over."""
    RESTART_JOBS = auto()
    """It is kept open by its Jobs, which may be suspended by now."""
    HOLD = auto()
    """Somebody must mend it first."""
    REST = auto()
    """It is whole and nobody waits, or all of it has ended."""
    AWAIT_MEMBERS = auto()
    """Too few pods exist."""
    BACK_OFF = auto()
    """Members were lost soon after they were bound, again and again: the next are bound later."""
    PLACE = auto()
    """Seats are to be found."""


class Found(Enum):
    """What is done with a plan."""

    BIND = auto()
    SEARCH_LONGER = auto()
    """Beside the others: neither seats nor a proof that there are none were found in short."""
    MAKE_WAY = auto()
    """There is no room: half gangs may give theirs up."""
    UNDO = auto()
    """There is none for the rest of one that was left half bound."""
    GIVE_UP = auto()
    """Release the gang: lost members could not be replaced before its time-out."""
    RESTART_JOBS = auto()
    """Suspend the Jobs that keep the gang open, before its members are placed anew."""
    REFUSE = auto()
    """It is told why, and waits for what it lacks."""


class Reply(Enum):
    """What has become of a gang once its binds were answered."""

    FAILED = auto()
    """Nobody was bound."""
    FAILED_IN_DOUBT = auto()
    """Nobody was, as far as it is known: it may turn out to be half bound."""
    STAYS_OPEN = auto()
    """It was half bound before, and isn't ours to finish: it was whole once, or nobody of it may be released."""
    FINISH = auto()
    """It is half bound: the rest is bound around the others, before anybody else."""
    UNDO = auto()
    """It is half bound, and a member was refused for good."""
    WHOLE = auto()


def at_look(gang: Gang, half: PartialBind | None, now: float, backs_off_until: float = 0.0) -> Look:
    """What is to be done about a gang that is due. What was left half done is undone before anything else.

    One whose own time is over is looked for seats once more before it is released: they may have come free just now. Nobody of it is bound
    before ``backs_off_until``, unless it was left half bound.
    """
    if half is not None and gang.is_open and half.is_overdue(now):
        return Look.UNDO
    look = _look(gang)
    if half is not None and (look is not Look.PLACE or half.was_tried) and (ending := _ending(gang, half, now)):
        return Look[ending.name]
    if look is Look.PLACE and now < backs_off_until and not (half and half.is_finishing):
        return Look.BACK_OFF
    return look


def _look(gang: Gang) -> Look:
    if gang.hold and (gang.candidates or gang.is_open):
        return Look.HOLD
    if not gang.candidates and (gang.is_whole or not gang.alive):
        return Look.REST
    return Look.AWAIT_MEMBERS if gang.awaits_pods else Look.PLACE


def _ending(gang: Gang, half: PartialBind, now: float) -> Found | None:
    """How a half gang is released whose own time is over."""
    if not (half.has_timed_out(now) and now >= half.restarts_at):
        return None
    if not half.is_finishing and gang.on_member_lost is OnMemberLost.RELEASE:
        return Found.GIVE_UP
    return Found.RESTART_JOBS if half.is_kept_open and gang.undo is Undo.SUSPEND else None


def is_enough(plan: Plan) -> bool:
    """Whether the gang may start on the seats that were found."""
    return bool(plan.feasible and plan.assignments)


def on_plan(gang: Gang, plan: Plan, half: PartialBind | None) -> Found:
    """What a short search's plan is good for."""
    if is_enough(plan):
        return Found.BIND
    if plan.feasible is None and not (half and half.is_finishing):  # one that is half bound has no time for that
        return Found.SEARCH_LONGER
    return Found.MAKE_WAY


def when_nowhere(gang: Gang, half: PartialBind | None, now: float, *, is_settled: bool, is_served: bool = False) -> Found:
    """There is no room for it.

    ``is_settled``: it has been found out whether half gangs can make way for it, which takes a search for each of them. ``is_served``: some
    are making way just now.
    """
    if gang.missing and half is not None and half.is_finishing:
        return Found.UNDO
    if not is_settled:
        return Found.SEARCH_LONGER
    return Found.REFUSE if half is None or is_served else _ending(gang, half, now) or Found.REFUSE


def on_reply(gang: Gang, outcome: Committed | Refused, half: PartialBind | None) -> Reply:
    """What the answers to its binds have made of a gang, which was ``gang`` before."""
    if isinstance(outcome, Refused):
        return Reply.FAILED
    if not outcome.missing:
        return Reply.WHOLE
    if not outcome.bound and not gang.bound:
        return Reply.FAILED_IN_DOUBT if outcome.in_doubt else Reply.FAILED
    if (gang.is_open and not (half and half.is_finishing)) or (half and half.is_kept_open):
        return Reply.STAYS_OPEN
    return Reply.UNDO if outcome.is_final else Reply.FINISH
