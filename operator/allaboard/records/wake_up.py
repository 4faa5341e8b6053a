"""The changes that wake a refused gang."""

from collections.abc import Iterable
from dataclasses import dataclass

from allaboard.model.constraints import SchedulingSpec

GPU_CHANGES = "cards"
"""Wake-up key of gangs blocked by GPU model, health or free memory instead of a countable resource. No resource is called so."""


@dataclass(frozen=True, slots=True)
class WakeUpOn:
    """The changes that wake a refused gang: the resources that were short. ``anything``: a change of any kind could help."""

    resources: frozenset[str] = frozenset()
    anything: bool = False

    def joined(self, other: "WakeUpOn") -> "WakeUpOn":
        """Return what wakes either of two gangs."""
        return WakeUpOn(self.resources | other.resources, self.anything or other.anything)

    @property
    def awaited(self) -> Iterable[str | None]:
        """Wake-up keys: each short resource; None for any change; "" if no change is known to help."""
        return (None,) if self.anything else self.resources or ("",)


CapacityNeed = tuple[tuple[SchedulingSpec, int], ...]
"""Kinds of pods, and how many of each must be assigned."""

NOTHING = WakeUpOn()
ANYTHING = WakeUpOn(anything=True)
