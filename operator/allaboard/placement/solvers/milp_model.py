"""A gang and its nodes as a mixed-integer program, in numbers that a solver of floating-point numbers can be trusted with.

How many pods of a role sit on a node is a whole number, and what they take of it is a row. Each row is divided by what all its demands
have in common (exact in integers: 4Gi and 6Gi of memory are 2 and 3), and what is still large by a power of two (exact in floating
point). Seats that nobody else contends for are one variable for all such nodes of a role, since any way to fill them will do.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import first_slots

OPTIMAL, INFEASIBLE = 0, 2
"""What ``optimize`` says when it is certain (``scipy.optimize.milp``)."""

_ANY_GAP = 1e9
_LARGEST = 1024  # coefficients of larger rows are divided by powers of two


@dataclass(slots=True)
class Rows:
    """Rows of a program, collected one kind at a time."""

    size: int = 0
    row: list[Integers] = field(default_factory=list)
    column: list[Integers] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)

    def add(self, row: Integers, column: Integers, value: Floats, low: Floats, high: Floats) -> None:
        """Entries of rows that are numbered from 0 in ``row``, and the bounds of each row."""
        self.row.append(row + self.size)
        self.column.append(column)
        self.value.append(value)
        self.low.append(low)
        self.high.append(high)
        self.size += len(low)

    def constraint(self, variables: int) -> LinearConstraint:
        """All rows."""
        places = (np.concatenate(self.row), np.concatenate(self.column))
        matrix = csr_array((np.concatenate(self.value), places), shape=(self.size, variables))
        return LinearConstraint(matrix, np.concatenate(self.low), np.concatenate(self.high))


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentVariables:
    """The first variables of a program: pods of a ``role`` on a ``node``, at most ``most``; all int64[variables].

    From ``single`` on, a variable stands for all nodes of a role (and domain) that nobody contends for: ``node`` is -1, and ``pools``
    has the rows of those nodes. ``domain`` is that of the node.
    """

    role: Integers
    node: Integers
    domain: Integers
    most: Integers
    pools: tuple[Integers, ...]

    @property
    def single(self) -> int:
        """How many variables are of one node."""
        return len(self.role) - len(self.pools)

    def counts(self, slots: Integers, taken: Integers) -> Integers:
        """What values of the variables mean: int64[roles, nodes]. ``slots``: int64[roles, nodes], those there were."""
        counts = np.zeros_like(slots)
        counts[self.role[: self.single], self.node[: self.single]] = taken[: self.single]
        for rows, role, wanted in zip(self.pools, self.role[self.single :], taken[self.single :], strict=True):
            room = slots[role, rows]
            counts[role, rows] = first_slots(room, wanted)
        return counts


def contended(demand: Integers, slots: Integers, free: Integers) -> Mask:
    """Where all who could sit on a node would take more of a column than is free: bool[columns, nodes]."""
    wanted: Integers = np.einsum("rc,rn->cn", demand, slots)
    return wanted > free


def assignment_variables(problem: Problem, slots: Integers, where: Mask, domains: Integers | None = None) -> AssignmentVariables:
    """The variables for ``slots``: int64[roles, nodes], single ones ``where``: bool[nodes]; ``domains``: int64[roles, nodes]."""
    domains = np.zeros_like(slots) if domains is None else domains
    role, node = np.nonzero((slots > 0) & where)
    pools = [
        (other, rows[domains[other, rows] == domain])
        for other in range(len(slots))
        for rows in (np.flatnonzero((slots[other] > 0) & ~where),)
        for domain in np.unique(domains[other, rows]).tolist()
    ]

    def joined(single: Integers, pooled: list[int]) -> Integers:
        return np.concatenate([single, np.array(pooled, dtype=np.int64)])

    return AssignmentVariables(
        role=joined(role, [other for other, _ in pools]),
        node=joined(node, [-1] * len(pools)),
        domain=joined(domains[role, node], [int(domains[other, rows[0]]) for other, rows in pools]),
        most=joined(slots[role, node], [int(min(slots[other, rows].sum(), problem.count[other])) for other, rows in pools]),
        pools=tuple(rows for _, rows in pools),
    )


def add_capacity(rows: Rows, problem: Problem, where: Mask, variables: AssignmentVariables) -> None:
    """What sits on a node takes no more of it than is free, ``where``: bool[columns, nodes] that isn't so anyhow."""
    role, node = variables.role[: variables.single], variables.node[: variables.single]
    place = np.full(problem.slots.shape, -1)
    place[role, node] = np.arange(len(role))
    for column in np.flatnonzero(where.any(axis=1)).tolist():
        nodes = np.flatnonzero(where[column])
        asked = np.where(place[:, nodes] >= 0, problem.demand[:, column, None], 0)
        common = np.gcd.reduce(asked, axis=0)
        asked, free = asked // common, problem.free[column, nodes] // common
        scale = power_of_two(np.maximum(asked.max(axis=0), free))
        who, at = np.nonzero(asked)
        rows.add(at, place[who, nodes[at]], asked[who, at] / scale[at], np.full(len(nodes), -np.inf), free / scale)


def add_members(rows: Rows, problem: Problem, variables: AssignmentVariables) -> None:
    """As many of each role as there must be and no more than there are, and the minimum in all."""
    role = variables.role
    everybody, ones = np.arange(len(role)), np.ones(len(role))
    least = problem.count if problem.minimum >= problem.total else problem.least
    rows.add(role, everybody, ones, least.astype(np.float64), problem.count.astype(np.float64))
    if problem.minimum < problem.total:
        rows.add(np.zeros_like(role), everybody, ones, np.array([float(problem.minimum)]), np.array([np.inf]))
    for roles, number in problem.sums:
        some = np.flatnonzero(np.isin(role, roles))
        rows.add(np.zeros_like(some), some, np.ones(len(some)), np.array([float(number)]), np.array([np.inf]))


def power_of_two(largest: Integers) -> Floats:
    """What to divide by so that ``largest`` is at most 1024; dividing a float by it loses nothing."""
    powers: Floats = np.exp2(np.maximum(np.ceil(np.log2(np.maximum(largest, 1) / _LARGEST)), 0.0))
    return powers


def optimize(
    rows: Rows,
    upper: Floats,
    node_limit: int,
    *,
    cost: Floats | None = None,
    whole: Floats | None = None,
    presolve: bool = True,
    seconds: float = np.inf,
    is_any: bool = False,
) -> tuple[int, Floats | None]:
    """The solver's status and the values of the variables, 0 to ``upper``, that it found in at most ``seconds``.

    ``whole``: 1 for those that must be. With ``is_any`` the first values that it finds will do.
    """
    with _silent():
        result = milp(
            np.zeros(len(upper)) if cost is None else cost,
            integrality=np.ones(len(upper)) if whole is None else whole,
            bounds=Bounds(np.zeros(len(upper)), upper),
            constraints=rows.constraint(len(upper)),
            options={
                "node_limit": node_limit,
                "presolve": presolve,
                "mip_rel_gap": _ANY_GAP if is_any else 0.0,
                "time_limit": max(0.0, seconds),
            },
        )
    return int(result.status), result.x


@contextmanager
def _silent() -> Iterator[None]:
    """HiGHS is C++ and may write to descriptor 1, which belongs to whoever reads our answer."""
    try:
        kept = os.dup(1)
    except OSError:  # there is no stdout
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 1)
        yield
    finally:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # what C's library still holds back would come out later
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)
