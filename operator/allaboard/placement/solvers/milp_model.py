"""State a gang and its nodes as a mixed-integer linear program (MILP), in numbers that a floating-point solver handles exactly enough.

A variable is the number of pods of a role on a node, a whole number. A row bounds what the pods take of one capacity of one node. Each row
is divided by the greatest common divisor of its demands, which is exact in integers: 4Gi and 6Gi of memory become 2 and 3. If a row is
still large, it is divided by a power of two, which is exact in floating point.
A capacity of a node is contended if all pods that could be assigned to the node would exceed it together. Nodes without contended
capacities share one variable for each role, since it doesn't matter how such nodes are filled.
"""

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.highs import Matrix, Status, minimize
from allaboard.placement.problem.problem import Problem
from allaboard.placement.rules.program import AssignmentVariables, Rows

_LARGEST = 1024  # Rows with larger coefficients are divided by powers of two.


def contended(demand: Integers, slots: Integers, free: Integers) -> Mask:
    """Return the capacities that all pods that could be assigned to a node would exceed together: bool[capacities, nodes]."""
    wanted: Integers = np.einsum("rc,rn->cn", demand, slots)
    return wanted > free


def assignment_variables(problem: Problem, slots: Integers, where: Mask, domains: Integers | None = None) -> AssignmentVariables:
    """Return the variables for ``slots``: int64[roles, nodes].

    ``where``: bool[nodes], the nodes that get variables of their own. ``domains``: int64[roles, nodes], the domain of each node; None if
    all nodes are in one domain.
    """
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
        most=joined(slots[role, node], [int(min(slots[other, rows].sum(), problem.count[other])) for other, rows in pools]),
        pools=tuple(rows for _, rows in pools),
    )


def add_capacity(rows: Rows, problem: Problem, where: Mask, variables: AssignmentVariables) -> None:
    """Add a row for each contended capacity of a node: the pods on the node take no more of the capacity than is free.

    ``where``: bool[capacities, nodes], the contended capacities; no other capacity can be exceeded.
    """
    role, node = variables.role[: variables.single], variables.node[: variables.single]
    variable = np.full(problem.slots.shape, -1)
    variable[role, node] = np.arange(len(role))
    for column in np.flatnonzero(where.any(axis=1)).tolist():
        nodes = np.flatnonzero(where[column])
        asked = np.where(variable[:, nodes] >= 0, problem.demand[:, column, None], 0)
        common = np.gcd.reduce(asked, axis=0)
        asked, free = asked // common, problem.free[column, nodes] // common
        scale = power_of_two(np.maximum(asked.max(axis=0), free))
        asking, at = np.nonzero(asked)
        rows.add(at, variable[asking, nodes[at]], asked[asking, at] / scale[at], np.full(len(nodes), -np.inf), free / scale)


def add_members(rows: Rows, problem: Problem, variables: AssignmentVariables) -> None:
    """Add rows for the least and the most pods of each role, the minimum of the gang, and the minimums of several roles together."""
    role = variables.role
    all_variables, ones = np.arange(len(role)), np.ones(len(role))
    least = problem.count if problem.minimum >= problem.total else problem.least
    rows.add(role, all_variables, ones, least.astype(np.float64), problem.count.astype(np.float64))
    if problem.minimum < problem.total:
        rows.add(np.zeros_like(role), all_variables, ones, np.array([float(problem.minimum)]), np.array([np.inf]))
    for roles, number in problem.sums:
        some = np.flatnonzero(np.isin(role, roles))
        rows.add(np.zeros_like(some), some, np.ones(len(some)), np.array([float(number)]), np.array([np.inf]))


def power_of_two(largest: Integers) -> Floats:
    """Return the powers of two that bring ``largest`` down to at most 1024. Dividing a float by a power of two is exact."""
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
) -> tuple[Status, Floats | None]:
    """Run the solver for at most ``seconds``. Return its status, and the values of the variables; None if it has none.

    A value is between 0 and ``upper``. ``node_limit``: the most branches. ``cost``: what is minimized, nothing if None. ``whole``: 1 for
    each variable that must be a whole number; None if all variables must be. ``is_any``: the first values that the solver finds will do.
    """
    found = minimize(
        np.zeros(len(upper)) if cost is None else cost,
        upper,
        Matrix.of(np.concatenate(rows.row), np.concatenate(rows.column), np.concatenate(rows.value), rows.size),
        np.concatenate(rows.low),
        np.concatenate(rows.high),
        whole=np.ones(len(upper)) if whole is None else whole,
        branches=node_limit,
        presolve=presolve,
        seconds=seconds,
        is_any=is_any,
    )
    return found.status, found.values
