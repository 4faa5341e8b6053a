"""Compute the phase of a PodGroup, in the words of scheduler-plugins (apis/scheduling/v1alpha1/types.go).

Conditions are authoritative; the phase exists because users of PodGroups expect it. ``Finished`` and ``Failed`` stay until the gang has a
living member again, even if its pods are deleted. They also survive a restart of the operator, which then reads the phase from the
PodGroup's status.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from allaboard.gangs.endings import Ends
from allaboard.model.gang import Gang

_MOST = 2**31 - 1


class Phase(StrEnum):
    """A phase of scheduler-plugins. ``Unknown`` is left out, since it is never set."""

    PENDING = "Pending"
    """No member is bound: the gang waits for pods or for capacity, or is held until its owner fixes it."""
    SCHEDULING = "Scheduling"
    """Some members are bound, and some members that must start together aren't bound or don't run yet."""
    RUNNING = "Running"
    """All members that must start together are bound and run."""
    FINISHED = "Finished"
    """No member is alive, and enough members have succeeded: as many as must start together, or all that have ended."""
    FAILED = "Failed"
    """No member is alive, a member has failed, and too few have succeeded."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a gang that has no living member: its phase, and the numbers of succeeded and failed members."""

    phase: Phase
    succeeded: int
    failed: int


def phase_of(gang: Gang, ends: Ends | None = None, stated: Mapping[str, Any] | None = None) -> Phase:
    """Return the phase of a gang. ``ends`` and ``stated`` are the arguments of ``ending_of``."""
    if not gang.alive_in_all_runs:
        ending = ending_of(gang, ends, stated)
        return ending.phase if ending else Phase.PENDING
    if not gang.bound_in_all_runs:
        return Phase.PENDING
    running = sum(pod.phase == "Running" for pod in gang.bound)
    needed = min(len(gang.bound), max(0, gang.required - gang.succeeded))
    return Phase.RUNNING if gang.is_whole and running >= needed else Phase.SCHEDULING


def ending_of(gang: Gang, ends: Ends | None = None, stated: Mapping[str, Any] | None = None) -> Ending | None:
    """Return the result of a gang; None while a member is alive, and if no member is known to have ended.

    ``ends`` are the ends of members that this process has seen. If they are None, the result follows from the members that still exist and
    from ``stated``, the PodGroup's status.
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
    """Return the phase of an ended gang, None if no member has succeeded or failed.

    A gang without failed members is finished with any number of successes: a job may complete with fewer successes than members.
    """
    if succeeded >= required or (succeeded and not failed):
        return Phase.FINISHED
    return Phase.FAILED if failed else None


def _count(stated: Mapping[str, Any], field: str) -> int:
    """Return a count from a PodGroup's status. An invalid count is 0, since any client may write the status."""
    value = stated.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else 0
