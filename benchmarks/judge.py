"""Whether a gang fits, by a solver that the search knows nothing of: OR-tools' CP-SAT, which reckons in integers and is patient.

Its formulation is its own, too: one whole number for each role and node, a row for each node and resource; nothing is pooled, scaled to
floating point or left out.
"""

import numpy as np
from ortools.sat.python import cp_model

from allaboard.placement import Problem

SECONDS = 20.0
_VERDICTS = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}


def fits(problem: Problem, seconds: float = SECONDS) -> bool | None:
    """Whether all pods of ``problem`` can be placed at once; ``None`` when that isn't known after so many seconds.

    Of rules between members it knows nothing: a problem that has any is refused with ``ValueError``.
    """
    if problem.together or problem.sums or problem.devices is not None:
        raise ValueError("the judge knows of no rules between members, and of no shared GPUs")
    model = cp_model.CpModel()
    slots = {
        (role, node): model.new_int_var(0, int(min(problem.slots[role, node], problem.count[role])), "")
        for role, node in np.argwhere(problem.slots > 0).tolist()
    }
    for role, count in enumerate(problem.count.tolist()):
        model.add(sum(seat for (who, _), seat in slots.items() if who == role) == count)
    for column in range(len(problem.columns)):
        demand = problem.demand[:, column]
        if not demand.any():
            continue
        common = int(np.gcd.reduce(demand[demand > 0]))
        for node in range(len(problem.nodes)):
            asked = [(int(demand[role]) // common, slots[role, node]) for role in np.flatnonzero(demand).tolist() if (role, node) in slots]
            if len(asked) > 1:  # of one role alone the seats are the bound
                model.add(sum(amount * seat for amount, seat in asked) <= int(problem.free[column, node]) // common)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    return _VERDICTS.get(solver.solve(model))
