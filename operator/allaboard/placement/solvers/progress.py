"""The course of a search: the placements found so far, best first, and what each step brought."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.plan import Step
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import ObjectiveValue, Valuation
from allaboard.placement.solvers.greedy import Seed

_KEPT = 32


@dataclass(frozen=True, slots=True)
class Found:
    """One placement, ``counts``: int64[roles, nodes], and the rule or the step that it is from."""

    name: str
    counts: Integers
    worth: ObjectiveValue


@dataclass(slots=True)
class Progress:
    """``found`` is sorted, best first; among equals the one that was found first.

    ``history`` is (placed, best score) by generation. ``found_by`` is the first step after which all that are
    needed sat; empty as long as there is none.
    """

    problem: Problem
    valuation: Valuation
    found: list[Found] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    history: list[tuple[int, float]] = field(default_factory=list)
    found_by: str = ""

    @property
    def best(self) -> Found:
        """The best so far. Raises ``IndexError`` before the first step."""
        return self.found[0]

    @property
    def lacks(self) -> bool:
        """Whether somebody who is needed has no seat."""
        return self.best.worth.missing > 0

    def add(self, step: str, seeds: Sequence[Seed], generations: int = 0) -> None:
        """A step has ended, and these are what it found."""
        worths = self.valuation.objective_values(np.stack([counts for _, counts in seeds])) if seeds else []
        new = [Found(name, counts, worth) for (name, counts), worth in zip(seeds, worths, strict=True)]
        self.found = sorted([*self.found, *new], key=lambda found: found.worth)[:_KEPT]
        if not self.lacks and not self.found_by:
            self.found_by = step
        placed = int(self.best.counts.sum())
        self.steps.append(Step(step, placed, self.best.worth.score, generations))
