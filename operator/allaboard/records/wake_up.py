"""What a gang that was refused waits for: what may wake it."""

from collections.abc import Iterable
from dataclasses import dataclass

from allaboard.model.constraints import SchedulingSpec

CARDS = "cards"
"""What those lack, beside resources, who are kept off by what GPUs are or how much of their memory is free; no resource is called so."""


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a refusal was for: resources that were short. ``anything`` when a change of any kind could help."""

    resources: frozenset[str] = frozenset()
    anything: bool = False

    def joined(self, other: "Lacks") -> "Lacks":
        """What either lacks."""
        return Lacks(self.resources | other.resources, self.anything or other.anything)

    @property
    def awaited(self) -> Iterable[str | None]:
        """What may help when it comes free: each of the resources; ``None`` where a change of any kind could, "" where none is known to."""
        return (None,) if self.anything else self.resources or ("",)


Need = tuple[tuple[SchedulingSpec, int], ...]
"""Kinds of pods, and how many of each must be seated."""

NOTHING = Lacks()
ANYTHING = Lacks(anything=True)
