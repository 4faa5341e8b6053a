"""Decides whether a gang fits, independently of the search (the judge of the benchmarks).

The solver is OR-tools' CP-SAT, which computes in integers and may take longer than the search. The formulation is different as well: one
integer variable for each role and node, and one row for each node and resource. Nothing is pooled, scaled to floating point or left out.
"""

import numpy as np
from ortools.sat.python import cp_model

from allaboard.placement import Problem

SECONDS = 20.0
_VERDICTS = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}


def fits(problem: Problem, seconds: float = SECONDS) -> bool | None:
    """Return whether all pods of ``problem`` can be placed at once; None if that isn't known after ``seconds``.

    Raises ``ValueError`` for a problem with rules between members or with shared GPUs, which the formulation can't state.
    """
    if problem.together or problem.sums or problem.devices is not None:
        raise ValueError("the judge supports no rules between members and no shared GPUs")
    model = cp_model.CpModel()
    pods = {
        (role, node): model.new_int_var(0, int(min(problem.slots[role, node], problem.count[role])), "")
        for role, node in np.argwhere(problem.slots > 0).tolist()
    }
    for role, count in enumerate(problem.count.tolist()):
        model.add(sum(variable for (of_role, _), variable in pods.items() if of_role == role) == count)
    for column in range(len(problem.columns)):
        demand = problem.demand[:, column]
        if not demand.any():
            continue
        common = int(np.gcd.reduce(demand[demand > 0]))
        for node in range(len(problem.nodes)):
            asked = [(int(demand[role]) // common, pods[role, node]) for role in np.flatnonzero(demand).tolist() if (role, node) in pods]
            if len(asked) > 1:  # a single role is bounded by its slots already
                model.add(sum(amount * variable for amount, variable in asked) <= int(problem.free[column, node]) // common)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    solver.parameters.random_seed = 1
    return _VERDICTS.get(solver.solve(model))
