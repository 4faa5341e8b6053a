"""Run the exact solver to decide whether a gang fits. The answer is a placement, a proof that there is none, or neither.

The answer is neither if the solver reaches its limit of work first. The solver is HiGHS. It computes in floating point and with a
tolerance, so its answers are checked. A placement is counted again in integers. An answer that there is no placement counts only if the
solver gives it twice, with presolve and without. The tolerance only lets pods take a little more than is free, so it can't make a gang that
fits seem not to fit. If GPUs are shared, the program only knows the sum of a node's devices, by which more pods fit than by the single
devices. So a proof that the gang doesn't fit holds, and a placement that doesn't fit device by device is discarded. The work is bounded by
branches of the search tree and by size, so the same question has the same answer everywhere. The clock matters only for a search that
reaches its time limit.
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
"""Branches of the search tree after which the solver gives up. They are enough for usual gangs, and seldom take a second."""

_SMALL = 2_000  # Up to so many variables a program is tried several times.
_RESTARTS = 2
_LAST = 30  # Times as many branches for the last try: one in a hundred tight gangs needs more than 4,000.
_PROOFS = 2
_LARGE = 2_000  # With more variables presolve mostly costs more than it saves.
_MOST_VARIABLES = 60_000  # With more variables the first relaxation takes seconds.
_EFFORT_PER_VARIABLE = 200  # Microseconds for each role, measured on three-partitions, the hardest gangs for the solver.


class Finding(StrEnum):
    """The solver's answer to whether a gang fits."""

    FITS = "fits"
    CANNOT_FIT = "cannot-fit"
    NOT_FOUND = "not-found"
    """Neither a placement nor a proof was found."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The solver's finding, with the placement if the gang fits.

    ``counts``: int64[roles, nodes], a placement of the minimum and of as many further pods as fit; None unless the gang fits.
    """

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
    """Find out whether the minimum of ``problem`` fits, with each set of roles of ``together`` within one domain.

    A role may be in one set only. ``branches``: the most branches of one try. ``is_patient``: a small program is tried several times, the
    last time with 30 times as many branches. A program that may take more effort than ``budget`` has left isn't tried: the work before the
    first branch isn't bounded by ``branches``.
    """
    budget = budget or Budget()
    if problem.minimum > problem.total or (problem.least > problem.count).any():
        return Answer(Finding.CANNOT_FIT)
    # 1. Build the program, unless counting shows that the gang can't fit.
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
    # 2. Solve it. A placement must hold in integers; that there is none must be found twice, with presolve and without.
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
                return Answer(Finding.FITS, _with_surplus(problem, counts, together))
            # The placement takes too much, within the tolerance. With the other presolve the solver may find one that holds.
        if refuted == _PROOFS:
            return Answer(Finding.CANNOT_FIT)
    return Answer(Finding.NOT_FOUND)


def _tries(branches: int, variables: int) -> Iterator[tuple[int, Floats | None]]:
    """Yield the most branches and the costs of each try: the first without costs, the next ones with random costs if the program is small.

    If all placements are equally good, there are very many ways to branch, and it is a matter of luck whether the solver takes a second or
    a minute. With costs there is one best way at each branch, and with other costs another way. The last try has no costs and more
    branches: it is for the proof.
    """
    yield branches, None
    if variables <= _SMALL:
        rng = np.random.default_rng(variables)
        for _ in range(_RESTARTS):
            yield branches, rng.random(variables)
        yield _LAST * branches, None


def is_long(roles: int, variables: int, effort: float) -> bool:
    """Return whether a program with ``variables`` variables for ``roles`` roles may take more than ``effort`` microseconds."""
    return roles * variables * _EFFORT_PER_VARIABLE > effort


def holds(problem: Problem, counts: Integers) -> bool:
    """Return whether the placement ``counts`` is possible. ``counts``: int64[roles, nodes].

    A possible placement puts pods only on nodes that admit them, takes no more than is free, and has no more pods of a role than there are.
    """
    load = np.einsum("rc,rn->cn", problem.demand, counts)
    return bool(
        (counts >= 0).all()
        and (load <= problem.free).all()
        and not counts[~problem.admits].any()
        and (counts.sum(axis=1) <= problem.count).all()
        and (problem.trimmed(counts[None]) == counts).all()
    )


def satisfies(problem: Problem, counts: Integers, together: Sequence[Together] = ()) -> bool:
    """Return whether the placement ``counts`` is possible and places the minimum, with each set of roles of ``together`` in one domain.

    Everything is counted in integers. ``counts``: int64[roles, nodes].
    """
    is_enough = problem.lacking(counts.sum(axis=1)) <= 0
    return bool(is_enough) and holds(problem, counts) and all(_is_together(counts, group) for group in together)


def _is_together(counts: Integers, group: Together) -> bool:
    """Return whether all pods of ``group`` are within one domain, and none is on a node without a domain."""
    used = np.unique(group.domains[counts[list(group.roles)].any(axis=0)])
    return len(used) <= 1 and -1 not in used


def _needed(problem: Problem) -> Integers:
    """Return how many pods of each role must be placed even if all pods of the other roles are placed: int64[roles]."""
    needed: Integers = np.maximum(problem.least, problem.minimum - (problem.total - problem.count))
    return needed


def _add_domains(rows: Rows, problem: Problem, group: Together, variables: AssignmentVariables, first: int) -> int | None:
    """Add a variable, numbered from ``first`` on, for each domain that could take ``group``. Return how many were added.

    Return None if the group needs a domain and no domain is large enough. The group's roles may be assigned to the chosen domain only, and
    the needed pods of each role must be placed in this domain. For whole numbers the second condition follows from the first. For
    fractions, with which the solver begins, it doesn't.
    """
    roles = np.array(group.roles)
    needed = _needed(problem)[roles]
    of_group = np.flatnonzero(np.isin(variables.role, roles))
    domains, domain = np.unique(variables.domain[of_group], return_inverse=True)
    position = np.searchsorted(np.sort(roles), variables.role[of_group])
    capacity = np.zeros((len(roles), len(domains)), dtype=np.int64)
    np.add.at(capacity, (np.argsort(roles)[position], domain), variables.most[of_group])
    possible = np.flatnonzero((capacity >= needed[:, None]).all(axis=0))
    if not len(possible) and needed.any():
        return None
    choice_of = np.full(len(domains), -1)
    choice_of[possible] = np.arange(len(possible)) + first
    allowed = np.flatnonzero(choice_of[domain] >= 0)
    rows.add(
        np.concatenate([np.arange(len(of_group)), allowed]),
        np.concatenate([of_group, choice_of[domain[allowed]]]),
        np.concatenate([np.ones(len(of_group)), -variables.most[of_group[allowed]].astype(np.float64)]),
        np.full(len(of_group), -np.inf),
        np.zeros(len(of_group)),
    )
    for role, least in zip(roles.tolist(), needed.tolist(), strict=True):
        of_role = allowed[variables.role[of_group[allowed]] == role]
        if least > 0:
            rows.add(
                np.concatenate([choice_of[domain[of_role]] - first, np.arange(len(possible))]),
                np.concatenate([of_group[of_role], choice_of[possible]]),
                np.concatenate([np.ones(len(of_role)), np.full(len(possible), -float(least))]),
                np.zeros(len(possible)),
                np.full(len(possible), np.inf),
            )
    if len(possible):
        rows.add(np.zeros_like(possible), choice_of[possible], np.ones(len(possible)), np.array([float((needed > 0).any())]), np.ones(1))
    return len(possible)


def _with_surplus(problem: Problem, counts: Integers, together: Sequence[Together]) -> Integers:
    """Return ``counts`` with pods beyond the minimum added where they fit, role by role, on the first nodes by name."""
    if (counts.sum(axis=1) == problem.count).all() or problem.devices is not None:
        return counts
    counts = counts.copy()
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    for role in range(len(counts)):
        wanted = int(problem.count[role] - counts[role].sum())
        slots = np.minimum(slots_for(problem.demand[role], left, problem.admits[role] & _allowed(counts, role, together)), wanted)
        taken = first_slots(slots, wanted)
        counts[role] += taken
        left -= problem.demand[role][:, None] * taken
    return counts


def _allowed(counts: Integers, role: int, together: Sequence[Together]) -> Mask:
    """Return the nodes to which more pods of ``role`` may be assigned without leaving the domain of the role's group: bool[nodes].

    If no pod of the group is assigned, its domain is the domain numbered 0.
    """
    allowed = np.ones(counts.shape[1], dtype=np.bool_)
    for group in together:
        if role in group.roles:
            used = group.domains[counts[list(group.roles)].any(axis=0)]
            allowed &= (group.domains == (used[0] if len(used) else 0)) & (group.domains >= 0)
    return allowed
