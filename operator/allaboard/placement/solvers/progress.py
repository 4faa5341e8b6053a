"""The progress of a search: the placements found so far, best first, and the result of each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Step
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import ObjectiveValue, Valuation
from allaboard.placement.solvers.greedy import Seed

_MOST_KEPT = 32


@dataclass(frozen=True, slots=True)
class FoundPlacement:
    """A placement, ``counts``: int64[roles, nodes], and its objective value.

    ``name``: the greedy rule or the step that built the placement. A placement that a local search improves keeps its name.
    """

    name: str
    counts: Integers
    value: ObjectiveValue


@dataclass(slots=True)
class Progress:
    """Holds the placements that one search has found, and the result of each step.

    ``placements``: the best 32, best first; of equally good ones the one found first comes first. ``history``: (members placed, best score)
    of each generation. ``found_by``: the first step after which every needed member was placed; empty as long as there is none.
    """

    problem: Problem
    valuation: Valuation
    placements: list[FoundPlacement] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    history: list[tuple[int, float]] = field(default_factory=list)
    found_by: str = ""

    @property
    def best(self) -> FoundPlacement:
        """The best placement so far. Raises ``IndexError`` before the first step."""
        return self.placements[0]

    @property
    def is_incomplete(self) -> bool:
        """True while the best placement leaves a needed member unassigned."""
        return self.best.value.missing > 0

    def add(self, step: str, seeds: Sequence[Seed], generations: int = 0) -> None:
        """Record that ``step`` has ended, and the placements that it found.

        ``generations``: the number of generations, if the step was a genetic search.
        """
        values = self.valuation.objective_values(np.stack([counts for _, counts in seeds])) if seeds else []
        new = [FoundPlacement(name, counts, value) for (name, counts), value in zip(seeds, values, strict=True)]
        self.placements = sorted([*self.placements, *new], key=lambda placement: placement.value)[:_MOST_KEPT]
        if not self.is_incomplete and not self.found_by:
            self.found_by = step
        placed = int(self.best.counts.sum())
        self.steps.append(Step(step, placed, self.best.value.score, generations))
