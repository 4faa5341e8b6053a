"""Run the exact solver to decide whether a gang fits. The answer is a placement, a proof that there is none, or neither.

The answer is neither if the solver reaches its limit of work first. The solver is HiGHS. It computes in floating point and with a
tolerance, so its answers are checked. A placement is counted again in integers. An answer that there is no placement counts only if the
solver gives it twice, with presolve and without. The tolerance only lets pods take a little more than is free, so it can't make a gang that
fits seem not to fit. If GPUs are shared, the program only knows the sum of a node's devices, by which more pods fit than by the single
devices. So a proof that the gang doesn't fit holds, and a placement that doesn't fit device by device is discarded. Whether the single
devices hold the gang is asked first (`device_patterns.py`). The work is bounded by
branches of the search tree and by size, so the same question has the same answer everywhere. The clock matters only for a search that
reaches its time limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.highs import Status
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.capacity import first_slots, slots_for
from allaboard.placement.rules.program import Rows
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.device_patterns import excluded_by_devices
from allaboard.placement.solvers.milp_model import add_capacity, add_members, assignment_variables, contended, optimize

NODE_LIMIT = 200
"""Branches of the search tree after which the solver gives up. They are enough for usual gangs, and seldom take a second."""

_SMALL = 2_000  # Up to so many variables a program is tried several times.
_MOST_REFUSED = 64  # nodes that are tried in vain for the surplus pods of a role
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
    *,
    is_patient: bool = False,
    budget: Budget | None = None,
) -> Answer:
    """Find out whether the minimum of ``problem`` fits, by all its rules.

    ``branches``: the most branches of one try. ``is_patient``: a small program is tried several times, the
    last time with 30 times as many branches. A program that may take more effort than ``budget`` has left isn't tried: the work before the
    first branch isn't bounded by ``branches``.
    """
    budget = budget or Budget()
    if problem.minimum > problem.total or (problem.least > problem.count).any():
        return Answer(Finding.CANNOT_FIT)
    # 1. Build the program, unless counting shows that the gang can't fit.
    slots = np.where(_admitted(problem), np.minimum(problem.slots, problem.count[:, None]), 0)
    alone = np.minimum(slots.sum(axis=1), problem.count)
    if (alone < _needed(problem)).any() or problem.lacking(alone) > 0:
        return Answer(Finding.CANNOT_FIT)
    if excluded_by_devices(problem, slots, budget.wall_seconds):
        return Answer(Finding.CANNOT_FIT)
    where = contended(problem.demand, slots, problem.free)
    variables = assignment_variables(problem, slots, np.asarray(where.any(axis=0)), problem.coupled_classes())
    if len(variables.role) > _MOST_VARIABLES or is_long(len(slots), len(variables.role), budget.left):
        return Answer(Finding.NOT_FOUND)
    if not len(variables.role):
        return Answer(Finding.FITS, np.zeros_like(slots))
    rows = Rows()
    add_capacity(rows, problem, where, variables)
    add_members(rows, problem, variables)
    upper = variables.most.astype(np.float64)
    for coupling in problem.couplings:
        added = coupling.add_rows(rows, variables, _needed(problem), len(upper))
        if added is None:
            return Answer(Finding.CANNOT_FIT)
        upper = np.concatenate([upper, added])
    # 2. Solve it. A placement must hold in integers; that there is none must be found twice, with presolve and without.
    is_large = len(variables.role) > _LARGE
    for limit, cost in _tries(branches, len(upper)) if is_patient else [(branches, None)]:
        refuted = 0
        for presolve in (not is_large, is_large):
            status, values = optimize(rows, upper, limit, cost=cost, presolve=presolve, seconds=budget.wall_seconds, is_any=True)
            if values is None and status != Status.INFEASIBLE:
                break
            if values is None:
                refuted += 1
                continue
            counts = variables.counts(slots, np.rint(values[: len(variables.role)]).astype(np.int64))
            if satisfies(problem, counts):
                return Answer(Finding.FITS, _with_surplus(problem, counts))
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


def satisfies(problem: Problem, counts: Integers) -> bool:
    """Return whether the placement ``counts`` is possible, places the minimum, and keeps all couplings.

    Everything is counted in integers. ``counts``: int64[roles, nodes].
    """
    is_enough = problem.lacking(counts.sum(axis=1)) <= 0
    return bool(is_enough) and holds(problem, counts) and all(each.holds(counts) for each in problem.couplings)


def _needed(problem: Problem) -> Integers:
    """Return how many pods of each role must be placed even if all pods of the other roles are placed: int64[roles]."""
    needed: Integers = np.maximum(problem.least, problem.minimum - (problem.total - problem.count))
    return needed


def _with_surplus(problem: Problem, counts: Integers) -> Integers:
    """Return ``counts`` with pods beyond the minimum added where they fit, role by role, on the first nodes by name.

    Each pod may change which nodes the couplings allow to the next one, so pods with couplings are added one by one. A coupling may allow
    a node to a pod although another coupling, or the pod's role in the same coupling, then breaks: so each addition is checked.
    """
    if (counts.sum(axis=1) == problem.count).all() or problem.devices is not None:
        return counts
    counts = counts.copy()
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    for role in range(len(counts)):
        wanted = int(problem.count[role] - counts[role].sum())
        at_once = 1 if any(role in each.roles for each in problem.couplings) else wanted
        admits, refused = problem.admits[role], 0
        while wanted > 0 and refused < _MOST_REFUSED:
            slots = slots_for(problem.demand[role], left, admits & problem.allowed(counts, role))
            taken = first_slots(np.minimum(slots, at_once), at_once)
            if not (number := int(taken.sum())):
                break
            counts[role] += taken
            if not all(each.holds(counts) for each in problem.couplings):
                counts[role] -= taken
                admits, refused = admits & (taken == 0), refused + 1
                continue
            left -= problem.demand[role][:, None] * taken
            wanted -= number
    return counts


def _admitted(problem: Problem) -> Mask:
    """Return the nodes that each role may use, wherever other members are: bool[roles, nodes]."""
    admits = problem.admits.copy()
    for coupling in problem.couplings:
        for role, (excluded, _) in coupling.excluded.items():
            admits[role] &= ~excluded
    return admits
