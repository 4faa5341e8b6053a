"""Asks an exact solver whether a gang fits: a placement, a proof that there is none, or neither in the work allowed.

The solver is HiGHS. It reckons in floating point and to a tolerance, so nothing is taken on trust: a placement is counted again in
integers, and that there is none must be found twice, with presolve and without. The tolerance only ever lets rows take a little
more, so it can't make a gang impossible that isn't.
Where GPUs are shared, a row says what all devices of a node give together, which is more than they do: a proof stands, and a placement that
doesn't hold device by device is no answer.

The work is bounded by branches of the search tree and by size, never by the clock: the same question has the same answer everywhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.problem.problem import Problem, Together
from allaboard.placement.rules.capacity import first_slots, slots_for
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.milp_model import (
    INFEASIBLE,
    AssignmentVariables,
    Rows,
    add_capacity,
    add_members,
    assignment_variables,
    contended,
    optimize,
)

NODE_LIMIT = 200
"""Branches after which a question is given up: enough for gangs as they are, and seldom a second."""

_SMALL = 2_000  # variables up to which it is worth while to begin anew
_RESTARTS = 2
_LAST = 30  # times the branches of a large program: one in a hundred tight gangs wants more than 4,000
_PROOFS = 2
_LARGE = 2_000  # variables from which on presolve mostly costs more than it saves
_MOST_VARIABLES = 60_000  # the first relaxation of more would take seconds
_EFFORT_PER_VARIABLE = 200  # microseconds for each role: measured on three-partitions, what is hardest of all for the solver


class Finding(StrEnum):
    """What the solver says of a gang."""

    FITS = "fits"
    CANNOT_FIT = "cannot-fit"
    NOT_FOUND = "not-found"
    """Neither a placement nor a proof was found: nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """``counts``: int64[roles, nodes], a placement of the minimum and of what more fits beside it; only with FITS."""

    finding: Finding
    counts: Integers | None = None


def solve(
    problem: Problem,
    branches: int = NODE_LIMIT,
    together: Sequence[Together] = (),
    *,
    is_patient: bool = False,
    budget: Budget | None = None,
) -> Answer:
    """Whether the minimum of ``problem`` fits, each of ``together`` within one domain. A role may be in one of ``together`` only.

    Where it ``is_patient`` a small program is tried several times, ``branches`` being those of a large one. What may take more effort than
    the ``budget`` has isn't asked: branches alone don't bound the first of them.
    """
    budget = budget or Budget()
    if problem.minimum > problem.total or (problem.least > problem.count).any():
        return Answer(Finding.CANNOT_FIT)
    # 1. The program, unless it is plain that nothing can come of it.
    domains = np.zeros_like(problem.slots)
    for group in together:
        domains[list(group.roles)] = group.domains
    slots = np.where(domains >= 0, np.minimum(problem.slots, problem.count[:, None]), 0)
    alone = np.minimum(slots.sum(axis=1), problem.count)
    if (alone < _needed(problem)).any() or problem.lacking(alone) > 0:
        return Answer(Finding.CANNOT_FIT)
    where = contended(problem.demand, slots, problem.free)
    variables = assignment_variables(problem, slots, np.asarray(where.any(axis=0)), domains)
    if len(variables.role) > _MOST_VARIABLES or is_long(len(slots), len(variables.role), budget.left):
        return Answer(Finding.NOT_FOUND)
    if not len(variables.role):
        return Answer(Finding.FITS, np.zeros_like(slots))
    rows = Rows()
    add_capacity(rows, problem, where, variables)
    add_members(rows, problem, variables)
    choices = 0
    for group in together:
        added = _add_domains(rows, problem, group, variables, len(variables.role) + choices)
        if added is None:
            return Answer(Finding.CANNOT_FIT)
        choices += added
    upper = np.concatenate([variables.most, np.ones(choices)]).astype(np.float64)
    # 2. A placement, if it holds; that there is none is believed when it is found twice, with presolve and without.
    is_large = len(variables.role) > _LARGE
    for limit, cost in _tries(branches, len(upper)) if is_patient else [(branches, None)]:
        refuted = 0
        for presolve in (not is_large, is_large):
            status, values = optimize(rows, upper, limit, cost=cost, presolve=presolve, seconds=budget.wall_seconds, is_any=True)
            if values is None and status != INFEASIBLE:
                break
            if values is None:
                refuted += 1
                continue
            counts = variables.counts(slots, np.rint(values[: len(variables.role)]).astype(np.int64))
            if satisfies(problem, counts, together):
                return Answer(Finding.FITS, _completed(problem, counts, together))
            # By its tolerance too much; the other way may find one that holds.
        if refuted == _PROOFS:
            return Answer(Finding.CANNOT_FIT)
    return Answer(Finding.NOT_FOUND)


def _tries(branches: int, variables: int) -> Iterator[tuple[int, Floats | None]]:
    """How many branches to look at, and what to minimize: nothing at first; then, of a small program, costs that mean nothing.

    Where all placements are as good there are very many ways to go, and whether it takes a second or a minute is a matter of luck. With
    costs there is one best way to go at each branch, and with others another. The last try is for the proof.
    """
    yield branches, None
    if variables <= _SMALL:
        chance = np.random.default_rng(variables)
        for _ in range(_RESTARTS):
            yield branches, chance.random(variables)
        yield _LAST * branches, None


def is_long(roles: int, variables: int, effort: float) -> bool:
    """Whether a program with so many variables of so many roles may take more than ``effort`` microseconds."""
    return roles * variables * _EFFORT_PER_VARIABLE > effort


def holds(problem: Problem, counts: Integers) -> bool:
    """Whether ``counts``: int64[roles, nodes] takes no more than there is, of nodes and of pods, and only where it may."""
    load = np.einsum("rc,rn->cn", problem.demand, counts)
    return bool(
        (counts >= 0).all()
        and (load <= problem.free).all()
        and not counts[~problem.admits].any()
        and (counts.sum(axis=1) <= problem.count).all()
        and (problem.trimmed(counts[None]) == counts).all()
    )


def satisfies(problem: Problem, counts: Integers, together: Sequence[Together] = ()) -> bool:
    """Whether ``counts``: int64[roles, nodes] is a placement of the minimum, counted in integers."""
    is_enough = problem.lacking(counts.sum(axis=1)) <= 0
    return bool(is_enough) and holds(problem, counts) and all(_is_together(counts, group) for group in together)


def _is_together(counts: Integers, group: Together) -> bool:
    used = np.unique(group.domains[counts[list(group.roles)].any(axis=0)])
    return len(used) <= 1 and -1 not in used


def _needed(problem: Problem) -> Integers:
    """How many of each role there must be when all others are placed: int64[roles]."""
    needed: Integers = np.maximum(problem.least, problem.minimum - (problem.total - problem.count))
    return needed


def _add_domains(rows: Rows, problem: Problem, group: Together, variables: AssignmentVariables, first: int) -> int | None:
    """One variable from ``first`` on for each domain that could take the group; how many, ``None`` when none could but one must.

    Only in the domain chosen may its roles sit, and what must be placed of each is placed there; the second follows from the first,
    but not in fractions, which is what the solver starts from.
    """
    roles = np.array(group.roles)
    needed = _needed(problem)[roles]
    mine = np.flatnonzero(np.isin(variables.role, roles))
    known, domain = np.unique(variables.domain[mine], return_inverse=True)
    position = np.searchsorted(np.sort(roles), variables.role[mine])
    room = np.zeros((len(roles), len(known)), dtype=np.int64)
    np.add.at(room, (np.argsort(roles)[position], domain), variables.most[mine])
    possible = np.flatnonzero((room >= needed[:, None]).all(axis=0))
    if not len(possible) and needed.any():
        return None
    choice = np.full(len(known), -1)
    choice[possible] = np.arange(len(possible)) + first
    allowed = np.flatnonzero(choice[domain] >= 0)
    rows.add(
        np.concatenate([np.arange(len(mine)), allowed]),
        np.concatenate([mine, choice[domain[allowed]]]),
        np.concatenate([np.ones(len(mine)), -variables.most[mine[allowed]].astype(np.float64)]),
        np.full(len(mine), -np.inf),
        np.zeros(len(mine)),
    )
    for role, least in zip(roles.tolist(), needed.tolist(), strict=True):
        ours = allowed[variables.role[mine[allowed]] == role]
        if least > 0:
            rows.add(
                np.concatenate([choice[domain[ours]] - first, np.arange(len(possible))]),
                np.concatenate([mine[ours], choice[possible]]),
                np.concatenate([np.ones(len(ours)), np.full(len(possible), -float(least))]),
                np.zeros(len(possible)),
                np.full(len(possible), np.inf),
            )
    if len(possible):
        rows.add(np.zeros_like(possible), choice[possible], np.ones(len(possible)), np.array([float((needed > 0).any())]), np.ones(1))
    return len(possible)


def _completed(problem: Problem, counts: Integers, together: Sequence[Together]) -> Integers:
    """As many pods beyond the minimum as fit beside ``counts``, role by role, first by name."""
    if (counts.sum(axis=1) == problem.count).all() or problem.devices is not None:
        return counts
    counts = counts.copy()
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    for role in range(len(counts)):
        wanted = int(problem.count[role] - counts[role].sum())
        room = np.minimum(slots_for(problem.demand[role], left, problem.admits[role] & _allowed(counts, role, together)), wanted)
        taken = first_slots(room, wanted)
        counts[role] += taken
        left -= problem.demand[role][:, None] * taken
    return counts


def _allowed(counts: Integers, role: int, together: Sequence[Together]) -> Mask:
    """The nodes of the domain that the role's group sits in: bool[nodes]; the first there is when nobody of it is seated."""
    allowed = np.ones(counts.shape[1], dtype=np.bool_)
    for group in together:
        if role in group.roles:
            used = group.domains[counts[list(group.roles)].any(axis=0)]
            allowed &= (group.domains == (used[0] if len(used) else 0)) & (group.domains >= 0)
    return allowed
