"""Was a half bound gang ever whole? That decides whether it is healed for ever, or undone and made to yield.

It has never been only when that is certain from what can be seen; when it can't be told, it was. And has it grown since?
"""

from dataclasses import replace

from allaboard.gangs.podgroup import PodGroup, scheduled_since
from allaboard.model.gang import Gang
from allaboard.records.record import GangRecord

SETTLE_SECONDS = 5.0
"""How long a run that has been whole waits for the replacements of all members that it has lost, before it takes those that exist."""


def may_settle(gang: Gang, record: GangRecord | None) -> bool:
    """Return whether a gang that waits for pods may do with those that exist, since they replace members of a run that has been whole.

    Its controller may have fewer to make than the minimum says: it was scaled down, or members that have succeeded were deleted.
    """
    return bool(gang.candidates) and (gang.may_replace or (gang.is_open and run_was_whole(gang, record)))


def settled(gang: Gang, record: GangRecord | None, now: float) -> Gang:
    """Return the gang, content with the replacements that exist if it has waited long enough for more."""
    if record is None or record.short_since is None or now < record.short_since + SETTLE_SECONDS or not may_settle(gang, record):
        return gang
    return replace(gang, settles=True)


def was_cut_off(gang: Gang, group: PodGroup | None) -> bool:
    """Whether a transaction of ours was left half done, by whoever was the scheduler then: nothing but the pods is needed to tell.

    Two of four are bound, and two are waiting. If the first two had been whole with two others, these would have been replaced, by pods
    that were made after the last bind: so when at most one of the waiting is younger than that bind, the gang has never been whole.
    When both are, or when one of them is missing, it may have been.
    """
    if not (gang.is_open and gang.missing_of_stamped) or was_whole(gang):
        return False
    members = gang.of_this_run()
    last = max(pod.bound_at for pod in members)
    stamped_min_member = min(pod.stamped_min_member for pod in members)
    replaced = sum(1 for pod in gang.alive if not pod.node_name and pod.created > last)
    return len(members) + replaced < stamped_min_member <= len(gang.alive) + gang.succeeded and not _says_whole(gang, group)


def was_whole(gang: Gang) -> bool:
    """Whether the pods themselves say that the run has been whole: a later bind did, or as many as were promised have been bound."""
    members = gang.of_this_run()
    return any(pod.was_whole or len(members) >= pod.stamped_min_member for pod in members)


def run_was_whole(gang: Gang, record: GangRecord | None) -> bool:
    """Whether the run that is going on has been whole, as far as it is known or told, so that all later binds are to say so."""
    return bool(gang.run) and ((record is not None and gang.run in record.whole_runs) or was_whole(gang))


def _says_whole(gang: Gang, group: PodGroup | None) -> bool:
    """Whether its PodGroup says that it was whole, and not of an earlier run."""
    whole_since = scheduled_since(group.status or {}) if group else None
    return whole_since is not None and min(pod.created for pod in gang.bound) <= whole_since
