"""The changes of the cluster that wake a refused gang."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.walltime import UNKNOWN

GPU_CHANGES = "cards"
"""Wake-up key of gangs that are blocked by GPU model, health or free memory, and not by a countable resource. No resource has this name."""


@dataclass(frozen=True, slots=True)
class WakeUpOn:
    """The changes that wake a refused gang: more of the ``resources`` that were short, or any change at all if ``anything`` is set."""

    resources: frozenset[str] = frozenset()
    anything: bool = False

    def joined(self, other: "WakeUpOn") -> "WakeUpOn":
        """Return the changes of this object and of ``other`` together."""
        return WakeUpOn(self.resources | other.resources, self.anything or other.anything)

    @property
    def awaited(self) -> Iterable[str | None]:
        """The wake-up keys: each short resource; None if any change could help; "" if no change is known to help."""
        return (None,) if self.anything else self.resources or ("",)


class CapacityNeed(NamedTuple):
    """The capacity that a gang needs, and what decides which reservations bind the gang.

    ``pods``: (kind of pods, number of them that must be assigned) for each kind. ``priority`` and ``walltime`` are the gang's.
    """

    pods: tuple[tuple[SchedulingSpec, int], ...]
    priority: int = 0
    walltime: float = UNKNOWN


NOTHING = WakeUpOn()
ANYTHING = WakeUpOn(anything=True)
