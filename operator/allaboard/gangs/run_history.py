"""Tells whether a run was ever whole. A partially bound gang that was is healed; one that never was may be released for other gangs.

A gang counts as never whole only if its pods and its PodGroup prove it.
"""

from dataclasses import replace

from allaboard.gangs.podgroup import PodGroup, scheduled_since
from allaboard.model.gang import Gang
from allaboard.records.record import GangRecord

SETTLE_SECONDS = 5.0
"""How long a run that has been whole waits for the replacements of all members that it has lost, before it takes those that exist."""


def may_settle(gang: Gang, record: GangRecord | None) -> bool:
    """Return whether a gang may be placed with fewer pods than its minimum, since they replace members of a run that was whole.

    The controller may create fewer pods than the minimum: it was scaled down, or members that had succeeded were deleted.
    """
    return bool(gang.candidates) and (gang.may_replace or (gang.is_partially_bound and run_was_whole(gang, record)))


def settled(gang: Gang, record: GangRecord | None, now: float) -> Gang:
    """Return the gang; if it has waited long enough for replacements, its ``settles`` is set, and it takes those that exist."""
    if record is None or record.short_since is None or now < record.short_since + SETTLE_SECONDS or not may_settle(gang, record):
        return gang
    return replace(gang, settles=True)


def was_cut_off(gang: Gang, group: PodGroup | None) -> bool:
    """Return whether a transaction of this or an earlier leader left the gang partially bound, and the gang was never whole.

    Example: of four members two are bound and two wait. If the bound two had been whole with two others, controllers would have replaced
    the others after the last bind. So the gang was never whole if at most one waiting pod is younger than the last bind. If both are
    younger, or one of them is missing, the gang may have been whole.
    """
    if not (gang.is_partially_bound and gang.missing_of_stamped) or was_whole(gang):
        return False
    members = gang.members_bound_in_run()
    last = max(pod.bound_at for pod in members)
    stamped_min_member = min(pod.stamped_min_member for pod in members)
    replaced = sum(1 for pod in gang.alive if not pod.node_name and pod.created > last)
    return len(members) + replaced < stamped_min_member <= len(gang.alive) + gang.succeeded and not _says_whole(gang, group)


def was_whole(gang: Gang) -> bool:
    """Return whether the pods show that the run was whole: a later bind says so, or as many were bound as their stamps ask for."""
    members = gang.members_bound_in_run()
    return any(pod.was_whole or len(members) >= pod.stamped_min_member for pod in members)


def run_was_whole(gang: Gang, record: GangRecord | None) -> bool:
    """Return whether the gang's current run was whole, as far as its record or its pods show. Later binds are stamped with that."""
    return bool(gang.run) and ((record is not None and gang.run in record.whole_runs) or was_whole(gang))


def _says_whole(gang: Gang, group: PodGroup | None) -> bool:
    """Return whether the status of the PodGroup says that the current run was whole."""
    whole_since = scheduled_since(group.status or {}) if group else None
    return whole_since is not None and min(pod.created for pod in gang.bound) <= whole_since
