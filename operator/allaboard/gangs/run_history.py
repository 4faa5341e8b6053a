"""Decide whether the current run of a gang was ever whole.

A partially bound gang that was whole is healed. A partially bound gang that was never whole may be released for other gangs. A gang counts
as never whole only if its pods and its PodGroup prove that.
"""

from dataclasses import replace

from allaboard.gangs.podgroup import PodGroup, scheduled_since
from allaboard.model.gang import Gang
from allaboard.records.record import GangRecord

SETTLE_SECONDS = 5.0
"""Seconds for which a run that was whole waits for the replacements of all lost members. After that the pods that exist are placed."""


def may_settle(gang: Gang, record: GangRecord | None) -> bool:
    """Return whether the gang may be placed with fewer pods than its minimum, since they replace members of a run that was whole.

    The controller may create fewer replacements than members were lost: it was scaled down, or succeeded members were deleted.
    """
    return bool(gang.candidates) and (gang.may_replace or (gang.is_partially_bound and run_was_whole(gang, record)))


def settled(gang: Gang, record: GangRecord | None, now: float) -> Gang:
    """Return the gang, with ``settles`` set if it has waited long enough for replacements: then the pods that exist are enough."""
    if record is None or record.short_since is None or now < record.short_since + SETTLE_SECONDS or not may_settle(gang, record):
        return gang
    return replace(gang, settles=True)


def was_cut_off(gang: Gang, group: PodGroup | None) -> bool:
    """Return whether the gang was never whole: it is partially bound because a transaction of this or an earlier leader was cut off.

    Example: two members of four are bound (A, B) and two wait (C, D). Had the gang been whole, two other members would have been lost, and
    their controllers would have created C and D after the last bind. So if C or D is older than the last bind, the gang was never whole.
    If both are younger, or one doesn't exist, the gang may have been whole, and the answer is False.
    """
    if not (gang.is_partially_bound and gang.missing_of_stamped) or was_whole(gang):
        return False
    members = gang.members_bound_in_run()
    last = max(pod.bound_at for pod in members)
    stamped_min_member = min(pod.stamped_min_member for pod in members)
    replaced = sum(1 for pod in gang.alive if not pod.node_name and pod.created > last)
    return len(members) + replaced < stamped_min_member <= len(gang.alive) + gang.succeeded and not _says_whole(gang, group)


def was_whole(gang: Gang) -> bool:
    """Return whether the pods show that the run was whole: a stamp says so, or as many members were bound as a stamp requires."""
    members = gang.members_bound_in_run()
    return any(pod.was_whole or len(members) >= pod.stamped_min_member for pod in members)


def run_was_whole(gang: Gang, record: GangRecord | None) -> bool:
    """Return whether the gang's record or its pods show that the current run was whole.

    Once a run was whole, the stamps of its later binds say so.
    """
    return bool(gang.run) and ((record is not None and gang.run in record.whole_runs) or was_whole(gang))


def _says_whole(gang: Gang, group: PodGroup | None) -> bool:
    """Return whether the PodGroup's status says that the current run was whole, and not only an earlier run."""
    whole_since = scheduled_since(group.status or {}) if group else None
    return whole_since is not None and min(pod.created for pod in gang.bound) <= whole_since
