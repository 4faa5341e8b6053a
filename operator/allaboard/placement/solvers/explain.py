"""Explain why members are unassigned: count the nodes by the first filter that refuses one more member beside the plan's own pods.

The plan's own pods must count, or there might be no reason. Example: four of five members fit; if the nodes were empty, no node would
refuse a member.
"""

from collections.abc import Iterator

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.reasons import Counted, Reason
from allaboard.placement.problem.plan import Explanation, RoleExplanation
from allaboard.placement.problem.problem import LATE_FILTERS, Problem, capacity_refusals
from allaboard.placement.solvers.bounds import Bounds

_ORDER = [kind for plugin in LATE_FILTERS for kinds in plugin for kind in kinds]


def explain(problem: Problem, counts: Integers, bounds: Bounds) -> Explanation:
    """Return the explanation of the placement ``counts``: int64[roles, nodes]."""
    placed = counts.sum(axis=1)
    left = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
    on_devices = problem.left_on_devices(counts)
    fits = np.array(bounds.most) > 0
    can_spare = not problem.lacking(np.where(fits, problem.count, 0))
    return Explanation(
        total_nodes=problem.total_nodes,
        minimum=problem.minimum,
        placeable=int(placed.sum()),
        roles=tuple(
            RoleExplanation(
                pods=role.pods,
                unplaced=unplaced,
                most=bounds.most[position],
                reasons=_reasons(problem, position, counts, left, None if on_devices is None else on_devices[position]) if unplaced else (),
                is_spare=can_spare and not fits[position],
            )
            for position, (role, unplaced) in enumerate(zip(problem.roles, (problem.count - placed).tolist(), strict=True))
        ),
        shortage=bounds.shortage,
        lacking=max(0, int(problem.lacking(placed))),
    )


def _reasons(problem: Problem, role: int, counts: Integers, left: Integers, on_devices: Integers | None) -> Counted:
    """Return how many nodes refuse one more pod of ``role``, by reason.

    These nodes are counted: nodes that aren't in the problem, nodes outside the chosen domains, nodes with too little left, and nodes that
    a rule between members excludes. ``left``: int64[capacities, nodes], what is free beside the plan's pods ``counts``. ``on_devices``:
    int64[nodes], pods of the role that the GPUs can take.
    """
    reasons = dict(problem.roles[role].refusals)
    if problem.outside:
        reasons |= dict(problem.outside[role])
    here = capacity_refusals(problem.reasons, problem.demand[role], left, problem.admits[role], on_devices)
    for reason, nodes in (*here, *_coupled(problem, role, counts, left)):
        reasons[reason] = reasons.get(reason, 0) + nodes
    return tuple(sorted(reasons.items()))


def _coupled(problem: Problem, role: int, counts: Integers, left: Integers) -> Iterator[tuple[Reason, int]]:
    """Yield how many of the nodes with enough left are excluded by each rule between members."""
    where = problem.admits[role] & (problem.demand[role][:, None] <= left).all(axis=0)
    for coupling in sorted(problem.couplings, key=lambda each: _ORDER.index(each.reason.kind)):
        excluded = where & ~coupling.allows(counts, role)
        if nodes := int(np.count_nonzero(excluded)):
            yield coupling.reason, nodes
        where &= ~excluded
