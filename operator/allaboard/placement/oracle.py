"""Asks an exact solver whether a gang fits: a placement, a proof that there is none, or neither in the work allowed.

How many pods of a role sit on a node is a whole number, what they take of it is a row of a mixed-integer program, and HiGHS decides
those (``scipy.optimize.milp``). Solvers reckon in floating point and to a tolerance, so nothing is taken on trust: each row is divided
by what all its demands have in common (exact in integers: 4Gi and 6Gi of memory are 2 and 3), what is still large is divided by a power
of two (exact in floating point), a placement is counted again in integers, and that there is none must be found twice, the second time
without presolve. The tolerance only ever lets rows take a little more, so it can't make a gang impossible that isn't.

The work is bounded by branches of the search tree and by size, never by the clock: the same question has the same answer everywhere.
"""

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from allaboard.placement.problem import Integers, Problem, seats_for

Floats = NDArray[np.float64]

NODE_LIMIT = 200
"""Branches after which a question is given up: enough for gangs as they are, and seldom a second."""

_LARGEST = 1024  # coefficients of larger rows are divided by powers of two
_MOST_VARIABLES = 60_000  # the first relaxation of more would take seconds
_OPTIMAL, _INFEASIBLE = 0, 2  # of scipy.optimize.milp


class Verdict(StrEnum):
    """What the solver says of a gang."""

    FITS = "fits"
    CANNOT_FIT = "cannot-fit"
    NOT_FOUND = "not-found"
    """Neither a placement nor a proof was found: nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """``counts``: int64[roles, nodes], a placement of the minimum and of what more fits beside it; only with FITS."""

    verdict: Verdict
    counts: Integers | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """``roles`` that must all sit within one topology domain. ``domains``: int64[nodes], the domain of each node, -1 without one."""

    roles: tuple[int, ...]
    domains: Integers


def ask(problem: Problem, node_limit: int = NODE_LIMIT, together: Sequence[Together] = ()) -> Answer:
    """Whether the minimum of ``problem`` fits, each of ``together`` within one domain. A role may be in one of ``together`` only."""
    count, least = problem.count, problem.least
    if problem.minimum > problem.total or (least > count).any():
        return Answer(Verdict.CANNOT_FIT)
    model = _modelled(problem, together)
    if model is None:
        return Answer(Verdict.NOT_FOUND)
    if model.is_impossible:
        return Answer(Verdict.CANNOT_FIT)
    if not len(model.role):
        return Answer(Verdict.FITS, np.zeros_like(problem.seats))
    status, counts = _solved(problem, model, node_limit, together)
    if counts is not None:
        return Answer(Verdict.FITS, _completed(problem, counts, together))
    if status == _INFEASIBLE and _solved(problem, model, node_limit, together, presolve=False)[0] == _INFEASIBLE:
        return Answer(Verdict.CANNOT_FIT)
    return Answer(Verdict.NOT_FOUND)


def satisfies(problem: Problem, counts: Integers, together: Sequence[Together] = ()) -> bool:
    """Whether ``counts``: int64[roles, nodes] is a placement of the minimum, counted in integers."""
    placed = counts.sum(axis=1)
    return bool(
        (counts >= 0).all()
        and (np.einsum("rc,rn->cn", problem.demand, counts) <= problem.free).all()
        and not counts[~problem.admits].any()
        and (placed <= problem.count).all()
        and (placed >= problem.least).all()
        and placed.sum() >= problem.minimum
        and all(_is_together(counts, group) for group in together)
    )


def _is_together(counts: Integers, group: Together) -> bool:
    used = np.unique(group.domains[counts[list(group.roles)].any(axis=0)])
    return len(used) <= 1 and -1 not in used


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The program: the first variables are pods of a ``role`` on a node, at most ``most``; the others choose a domain for a group.

    ``node`` is -1 for variables that stand for all nodes of a role (of a role and domain) whose seats nobody else contends for: they
    are ``pooled``, (variable, rows of nodes).
    """

    role: Integers
    node: Integers
    most: Integers
    pooled: tuple[tuple[int, Integers], ...]
    choices: int
    rows: "_Rows"
    is_impossible: bool = False


@dataclass(slots=True)
class _Rows:
    """Rows of the program, collected one kind at a time."""

    size: int = 0
    row: list[Integers] = field(default_factory=list)
    column: list[Integers] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)
    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)

    def add(self, row: Integers, column: Integers, value: Floats, low: Floats, high: Floats) -> None:
        """Rows numbered from 0 in ``row``, with bounds ``low`` and ``high`` for each."""
        self.row.append(row + self.size)
        self.column.append(column)
        self.value.append(value)
        self.low.append(low)
        self.high.append(high)
        self.size += len(low)

    def constraint(self, variables: int) -> LinearConstraint:
        places = (np.concatenate(self.row), np.concatenate(self.column))
        matrix = csr_array((np.concatenate(self.value), places), shape=(self.size, variables))
        return LinearConstraint(matrix, np.concatenate(self.low), np.concatenate(self.high))


def _modelled(problem: Problem, together: Sequence[Together]) -> _Model | None:
    """The program, ``None`` when it is too large to ask."""
    domains = np.zeros_like(problem.seats)
    for group in together:
        domains[list(group.roles)] = group.domains
    seats = np.where(domains >= 0, np.minimum(problem.seats, problem.count[:, None]), 0)
    needed = np.maximum(problem.least, problem.minimum - (problem.total - problem.count))
    contended = _contended(problem, seats)
    is_tight = contended.any(axis=0)
    role, node = np.nonzero((seats > 0) & is_tight)
    pools = [
        (pool_role, rows[domains[pool_role, rows] == domain])
        for pool_role in range(len(seats))
        for rows in (np.flatnonzero((seats[pool_role] > 0) & ~is_tight),)
        for domain in np.unique(domains[pool_role, rows]).tolist()
    ]
    single = len(role)
    if single + len(pools) > _MOST_VARIABLES:
        return None
    most = np.concatenate([seats[role, node], np.array([min(seats[r, rows].sum(), problem.count[r]) for r, rows in pools], dtype=np.int64)])
    place = np.concatenate([domains[role, node], np.array([domains[r, rows[0]] for r, rows in pools], dtype=np.int64)])
    role = np.concatenate([role, np.array([r for r, _ in pools], dtype=np.int64)])
    node = np.concatenate([node, np.full(len(pools), -1)])
    rows = _Rows()
    _add_capacity(rows, problem, contended, role[:single], node[:single], seats)
    _add_members(rows, problem, role)
    choices = 0
    for group in together:
        added = _add_domains(rows, group, role, place, most, needed, len(role) + choices)
        if added is None:
            return _Model(role, node, most, (), 0, rows, is_impossible=True)
        choices += added
    alone = np.minimum(np.array([most[role == each].sum() for each in range(len(seats))], dtype=np.int64), problem.count)
    is_impossible = bool((alone < needed).any() or alone.sum() < problem.minimum)
    pooled = tuple((single + position, rows_) for position, (_, rows_) in enumerate(pools))
    return _Model(role, node, most, pooled, choices, rows, is_impossible)


def _contended(problem: Problem, seats: Integers) -> NDArray[np.bool_]:
    """Where all who could sit on a node would take more of a column than is free: bool[columns, nodes]."""
    wanted: Integers = np.einsum("rc,rn->cn", problem.demand, seats)
    return wanted > problem.free


def _add_capacity(rows: _Rows, problem: Problem, contended: NDArray[np.bool_], role: Integers, node: Integers, seats: Integers) -> None:
    """What sits on a node takes no more of it than is free."""
    variable = np.full(seats.shape, -1)
    variable[role, node] = np.arange(len(role))
    for column in np.flatnonzero(contended.any(axis=1)).tolist():
        nodes = np.flatnonzero(contended[column])
        asked = np.where(seats[:, nodes] > 0, problem.demand[:, column, None], 0)
        common = np.gcd.reduce(asked, axis=0)
        asked, free = asked // common, problem.free[column, nodes] // common
        scale = _power_of_two(np.maximum(asked.max(axis=0), free))
        who, where = np.nonzero(asked)
        rows.add(where, variable[who, nodes[where]], asked[who, where] / scale[where], np.full(len(nodes), -np.inf), free / scale)


def _power_of_two(largest: Integers) -> Floats:
    """What to divide by so that ``largest`` is at most 1024; dividing a float by it loses nothing."""
    powers: Floats = np.exp2(np.maximum(np.ceil(np.log2(largest / _LARGEST)), 0.0))
    return powers


def _add_members(rows: _Rows, problem: Problem, role: Integers) -> None:
    """As many of each role as there must be and no more than there are, and the minimum in all."""
    everybody = np.arange(len(role))
    low = problem.count if problem.minimum >= problem.total else problem.least
    rows.add(role, everybody, np.ones(len(role)), low.astype(np.float64), problem.count.astype(np.float64))
    if problem.minimum < problem.total:
        rows.add(np.zeros_like(role), everybody, np.ones(len(role)), np.array([float(problem.minimum)]), np.array([np.inf]))


def _add_domains(rows: _Rows, group: Together, role: Integers, place: Integers, most: Integers, needed: Integers, first: int) -> int | None:
    """One binary variable for each domain that could take the group, from ``first``; how many, ``None`` when none could but one must.

    Only in the domain chosen may its roles sit: all of a role there, and (tighter for the solver) each variable alone.
    """
    mine = np.flatnonzero(np.isin(role, group.roles))
    roles = np.array(group.roles)
    known = np.unique(place[mine])
    room = np.array([[most[mine][(role[mine] == r) & (place[mine] == domain)].sum() for domain in known] for r in roles])
    room = room.reshape(len(roles), len(known)).astype(np.int64)
    possible = np.flatnonzero((room >= needed[roles, None]).all(axis=0))
    if not len(possible) and (needed[roles] > 0).any():
        return None
    index = np.full(len(known), -1)
    index[possible] = np.arange(len(possible)) + first
    chosen = index[np.searchsorted(known, place[mine])]
    # Each of the group's variables is at most what it could be, where its domain is the one.
    allowed = chosen >= 0
    number = np.arange(len(mine))
    rows.add(
        np.concatenate([number, number[allowed]]),
        np.concatenate([mine, chosen[allowed]]),
        np.concatenate([np.ones(len(mine)), -most[mine][allowed].astype(np.float64)]),
        np.full(len(mine), -np.inf),
        np.zeros(len(mine)),
    )
    # What must be seated of each role is seated in the domain that is chosen.
    for position, r in enumerate(roles.tolist()):
        ours = np.flatnonzero(role == r)
        for domain in possible.tolist():
            inside = ours[place[ours] == known[domain]]
            if len(inside) and needed[r]:
                rows.add(
                    np.zeros(len(inside) + 1, dtype=np.int64),
                    np.append(inside, index[domain]),
                    np.append(np.ones(len(inside)), -float(min(needed[r], room[position, domain]))),
                    np.zeros(1),
                    np.full(1, np.inf),
                )
    must = 1.0 if (needed[roles] > 0).any() else 0.0
    if len(possible):
        rows.add(np.zeros(len(possible), dtype=np.int64), index[possible], np.ones(len(possible)), np.array([must]), np.ones(1))
    return len(possible)


def _solved(
    problem: Problem, model: _Model, node_limit: int, together: Sequence[Together], *, presolve: bool = True
) -> tuple[int, Integers | None]:
    """The solver's status, and the placement it found if it holds."""
    variables = len(model.role) + model.choices
    upper = np.concatenate([model.most.astype(np.float64), np.ones(model.choices)])
    with _silent():
        result = milp(
            np.zeros(variables),
            integrality=np.ones(variables),
            bounds=Bounds(np.zeros(variables), upper),
            constraints=model.rows.constraint(variables),
            options={"node_limit": node_limit, "presolve": presolve},
        )
    if result.x is None:
        return int(result.status), None
    counts = _counts(problem, model, np.rint(result.x[: len(model.role)]).astype(np.int64))
    return int(result.status), counts if satisfies(problem, counts, together) else None


def _counts(problem: Problem, model: _Model, taken: Integers) -> Integers:
    counts = np.zeros_like(problem.seats)
    single = model.node >= 0
    counts[model.role[single], model.node[single]] = taken[single]
    for variable, rows in model.pooled:
        role = int(model.role[variable])
        room = np.minimum(problem.seats[role, rows], problem.count[role])
        before = np.cumsum(room) - room
        counts[role, rows] = np.clip(taken[variable] - before, 0, room)
    return counts


def _completed(problem: Problem, counts: Integers, together: Sequence[Together]) -> Integers:
    """As many pods beyond the minimum as fit beside ``counts``, role by role, first by name."""
    if (counts.sum(axis=1) == problem.count).all():
        return counts
    counts = counts.copy()
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    for role in range(len(counts)):
        wanted = int(problem.count[role] - counts[role].sum())
        room = seats_for(problem.demand[role], left, problem.admits[role] & _domain_of(counts, role, together))
        before = np.cumsum(np.minimum(room, wanted)) - np.minimum(room, wanted)
        taken = np.clip(wanted - before, 0, np.minimum(room, wanted))
        counts[role] += taken
        left -= problem.demand[role][:, None] * taken
    return counts


def _domain_of(counts: Integers, role: int, together: Sequence[Together]) -> NDArray[np.bool_]:
    """The nodes of the domain that the role's group sits in: bool[nodes]; with nobody seated, the first there is."""
    allowed = np.ones(counts.shape[1], dtype=np.bool_)
    for group in together:
        if role in group.roles:
            used = group.domains[counts[list(group.roles)].any(axis=0)]
            allowed &= (group.domains == (used[0] if len(used) else 0)) & (group.domains >= 0)
    return allowed


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
