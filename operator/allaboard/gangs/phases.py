"""Compute the PHASE of a PodGroup, in the words of scheduler-plugins (apis/scheduling/v1alpha1/types.go).

Conditions are authoritative; the phase is there because users of PodGroups look for it. ``Finished`` and ``Failed`` stay until a member
lives again, also when the pods are deleted and when the operator restarts: then the PodGroup's own status says which phase it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from allaboard.gangs.endings import Ends
from allaboard.model.gang import Gang

_MOST = 2**31 - 1


class Phase(StrEnum):
    """The phases of scheduler-plugins; Unknown is never set."""

    PENDING = "Pending"
    """No member is bound: the gang waits for pods or for capacity, or must be fixed by its owner."""
    SCHEDULING = "Scheduling"
    """Members are bound, and members that must start together are not bound or don't run yet."""
    RUNNING = "Running"
    """The members that must start together are bound and run."""
    FINISHED = "Finished"
    """No member lives, and the members have succeeded."""
    FAILED = "Failed"
    """No member lives, and a member has failed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a gang without living members: its phase, and the numbers of succeeded and failed members."""

    phase: Phase
    succeeded: int
    failed: int


def phase_of(gang: Gang, ends: Ends | None = None, stated: Mapping[str, Any] | None = None) -> Phase:
    """Return the phase of a gang; ``ends`` and ``stated`` are as for ``ending_of``."""
    if not gang.alive_in_all_runs:
        ending = ending_of(gang, ends, stated)
        return ending.phase if ending else Phase.PENDING
    if not gang.bound_in_all_runs:
        return Phase.PENDING
    running = sum(pod.phase == "Running" for pod in gang.bound)
    needed = min(len(gang.bound), max(0, gang.required - gang.succeeded))
    return Phase.RUNNING if gang.is_whole and running >= needed else Phase.SCHEDULING


def ending_of(gang: Gang, ends: Ends | None = None, stated: Mapping[str, Any] | None = None) -> Ending | None:
    """Return how a gang has ended; None while a member lives, and if all members were deleted before they ended.

    ``ends`` are the ends of members that this process has seen. If it has seen none, the remaining members and the PodGroup's status
    (``stated``) are used.
    """
    if gang.alive_in_all_runs:
        return None
    succeeded, failed = gang.in_phase("Succeeded"), gang.in_phase("Failed")
    if ends is not None:
        phase = _phase(ends.succeeded, ends.failed, gang.required)
        return Ending(phase, max(succeeded, ends.succeeded), max(failed, ends.failed)) if phase else None
    stated = stated or {}
    succeeded, failed = max(succeeded, _count(stated, "succeeded")), max(failed, _count(stated, "failed"))
    before = next((phase for phase in (Phase.FINISHED, Phase.FAILED) if stated.get("phase") == phase), None)
    phase = before or _phase(succeeded, failed, gang.required)
    return Ending(phase, succeeded, failed) if phase else None


def _phase(succeeded: int, failed: int, required: int) -> Phase | None:
    """Return how a gang has ended by the ends of its members. Fewer successes than members may complete a job."""
    if succeeded >= required or (succeeded and not failed):
        return Phase.FINISHED
    return Phase.FAILED if failed else None


def _count(stated: Mapping[str, Any], field: str) -> int:
    """Return a count of a PodGroup's status; 0 if it is no valid count, since any client may write the status."""
    value = stated.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else 0
