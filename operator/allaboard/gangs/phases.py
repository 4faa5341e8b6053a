"""The PHASE of a PodGroup, derived from its members (scheduler-plugins, controllers/podgroup_controller.go).

Conditions are authoritative; the phase is there because users of PodGroups look for it.
"""

from enum import StrEnum

from allaboard.model.gang import Gang


class Phase(StrEnum):
    """Upstream's phases; Unknown is never set."""

    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"


def phase_of(gang: Gang) -> Phase:
    """How far the gang has come."""
    running = sum(1 for pod in gang.members if pod.phase == "Running" and not pod.is_terminating)
    # While anybody lives, those who ended in an earlier run of the job don't count.
    succeeded = gang.succeeded if gang.alive else gang.in_phase("Succeeded")
    failed = gang.in_phase("Failed")
    if succeeded >= gang.min_member:
        return Phase.FINISHED
    if failed and not gang.candidates and failed + running + succeeded >= gang.min_member:
        return Phase.FAILED
    if len(gang.alive) + succeeded < gang.min_member:
        return Phase.PENDING
    return Phase.RUNNING if running + succeeded >= gang.min_member else Phase.SCHEDULING
