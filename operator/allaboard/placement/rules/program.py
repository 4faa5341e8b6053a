"""The parts of a mixed-integer program to which the rules between members add rows and variables (``placement.solvers.milp_model``)."""

from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.rules.capacity import first_slots


@dataclass(slots=True)
class Rows:
    """Collects the rows of a program, which are added one kind at a time."""

    size: int = 0
    row: list[Integers] = field(default_factory=list)
    column: list[Integers] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)

    def add(self, row: Integers, column: Integers, value: Floats, low: Floats, high: Floats) -> None:
        """Add rows by their entries, with the least and the greatest value of each row: ``low`` and ``high``.

        An entry is the ``value`` of the variable ``column`` in the row ``row``; the new rows are numbered from 0.
        """
        self.row.append(row + self.size)
        self.column.append(column)
        self.value.append(value)
        self.low.append(low)
        self.high.append(high)
        self.size += len(low)


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentVariables:
    """The first variables of a program: each is the number of pods of ``role`` on ``node``, at most ``most``; all int64[variables].

    From position ``single`` on, a variable stands for several nodes of one domain: all nodes without a contended capacity. Its ``node`` is
    -1, and ``pools`` has the positions of these nodes.
    """

    role: Integers
    node: Integers
    most: Integers
    pools: tuple[Integers, ...]

    @property
    def single(self) -> int:
        """Number of variables that stand for one node."""
        return len(self.role) - len(self.pools)

    def in_domains(self, domains: Integers) -> Integers:
        """Return the domain of each variable: int64[variables]. ``domains``: int64[nodes], equal for all nodes of one variable."""
        first = np.concatenate([self.node[: self.single], np.array([rows[0] for rows in self.pools], dtype=np.int64)])
        found: Integers = domains[first]
        return found

    def counts(self, slots: Integers, taken: Integers) -> Integers:
        """Return the placement that the values ``taken`` of the variables stand for: int64[roles, nodes].

        ``slots``: int64[roles, nodes], the slots that the variables were made for.
        """
        counts = np.zeros_like(slots)
        counts[self.role[: self.single], self.node[: self.single]] = taken[: self.single]
        for rows, role, wanted in zip(self.pools, self.role[self.single :], taken[self.single :], strict=True):
            counts[role, rows] = first_slots(slots[role, rows], wanted)
        return counts
