"""Greedy placements, one role after another, as other schedulers make them: the seeds of the search, and the baseline for its gain.

Each placement is the one that placing the pods of a role one by one would give, without the loop over pods. Some rules prefer a node more
the fuller it gets. Such a rule fills that node, so it is enough to sort the nodes once (*fill*). If a rule's preference for a node falls
linearly with every pod, the rule takes the best slots of all nodes, which a bisection on the preference finds (*level*). Ties go to the
fuller node, then by name.

Rules: MostAllocated (binpack) and LeastAllocated (spread) are kube-scheduler's scores. Dot-product is Panigrahy et al., Heuristics for
Vector Bin Packing, 2011. Best-fit takes the node with the least left over, first-fit the first node by name. Thrifty takes the node where
the objective costs least.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.objectives import fullness_with_one
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.attraction import added_costs
from allaboard.placement.rules.capacity import fill, slots_for

Seed = tuple[str, Integers]

_MOST_BISECTIONS = 48
_EQUAL = 1e-9
# With more roles, further rules cost more than they gain.
_MANY_ROLES = 24


@dataclass(slots=True)
class _Cluster:
    """The nodes while a seed is built.

    ``free``: int64[capacities, nodes]. ``used``: float64[scored resources, nodes]. ``scale``: float64[capacities], 1 divided by the free
    amount of the node with the most. ``counts``: int64[roles, nodes], the pods assigned so far.
    """

    free: Integers
    used: Floats
    scale: Floats
    counts: Integers
    valuation: Valuation


Rule = Callable[[Problem, int, _Cluster, Integers, int], Integers]


def greedy_seeds(
    problem: Problem, valuation: Valuation | None = None, names: Sequence[str] = (), *, goes_on: Callable[[], bool] = lambda: True
) -> list[Seed]:
    """Return the placements of greedy rules by name (such as ``binpack/large-first``), each int64[roles, nodes].

    Pods that attract or repel each other are also placed one by one.

    Each placement has as many pods as its rule can assign. ``names``: the rules to follow; if empty, all rules, or only two of them for a
    gang of many roles. ``goes_on``: called before each rule but the first; once it returns False, no further rule is followed.
    """
    orders = _role_orders(problem)
    rules = names or (_RULES if len(problem.roles) <= _MANY_ROLES else ("binpack", "spread"))
    valuation = valuation or Valuation(problem)
    seeds: list[Seed] = []
    for rule, (name, order) in itertools.product(rules, orders.items()):
        if seeds and not goes_on():
            break
        seeds.append((f"{rule}/{name}", _place(problem, valuation, order, _RULES[rule])))
    if problem.attractions and not names and goes_on():
        seeds.append(("one by one", _place(problem, valuation, next(iter(orders.values())), _one_by_one)))
    return seeds


def _role_orders(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Return the orders in which a greedy rule takes the roles, by name. Of equal orders only the first is returned."""
    given = tuple(range(len(problem.roles)))
    large = scarce_first(problem, np.array(given, dtype=np.int64))
    orders = {"given": given, "large-first": large, "small-first": large[::-1], "reversed": given[::-1]}
    distinct: dict[tuple[int, ...], str] = {}
    for name, order in orders.items():
        distinct.setdefault(order, name)
    return {name: order for order, name in distinct.items()}


def scarce_first(problem: Problem, roles: Integers) -> tuple[int, ...]:
    """Return the positions in ``roles``, sorted: roles with the fewest slots first, and among equals the largest roles.

    A role may have few slots because of its size or because of its constraints. ``roles``: int64[k], positions in ``problem``.
    """
    slots = problem.slots[roles].sum(axis=1).tolist()
    size = (problem.demand[roles] / np.maximum(problem.free.sum(axis=1, dtype=np.float64), 1.0)).max(axis=1, initial=0.0).tolist()
    return tuple(sorted(range(len(roles)), key=lambda own: (slots[own], -size[own])))


def _place(problem: Problem, valuation: Valuation, order: tuple[int, ...], rule: Rule) -> Integers:
    """Return the placement that ``rule`` makes, taking the roles in ``order``: int64[roles, nodes]."""
    nodes = len(problem.nodes)
    counts = np.zeros((len(problem.roles), nodes), dtype=np.int64)
    scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
    cluster = _Cluster(problem.free.copy(), problem.scoring.used.copy(), scale, counts, valuation)
    for role in order:
        wanted = int(problem.count[role])
        demand = problem.demand[role]
        slots = np.minimum(slots_for(demand, cluster.free, problem.admits[role]), wanted)
        counts[role] = rule(problem, role, cluster, slots, wanted)
        if problem.devices is not None:
            # Pods that no single device can take are unassigned, whether of this role or of one before it.
            counts[:] = problem.trimmed(counts[None])[0]
            cluster.free[:] = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
            cluster.used[:] = problem.scoring.used + np.einsum("rn,rsn->sn", counts, problem.scoring.step)
            continue
        taken = counts[role]
        cluster.free -= demand[:, None] * taken
        cluster.used += problem.scoring.step[role] * taken
    return counts


def _binpack(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    return _fill_best(slots, wanted, fullness_with_one(problem.scoring, role, cluster.used), cluster)


def _spread(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    growth = 100.0 * np.einsum("sn,sn->n", problem.scoring.weight[role], problem.scoring.step[role])
    return _level(slots, wanted, -fullness_with_one(problem.scoring, role, cluster.used), growth, cluster)


def _thrifty(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    """Fill first the nodes that cost least per pod once they are full."""
    rows = np.flatnonzero(slots)
    before = cluster.counts[:, rows].T
    after = before.copy()
    after[:, role] += slots[rows]
    costs = np.zeros(len(slots))
    costs[rows] = (cluster.valuation.node_costs(rows, after) - cluster.valuation.node_costs(rows, before)) / slots[rows]
    return _fill_best(slots, wanted, -costs, cluster)


def _one_by_one(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    """Place one pod after another on the node where it costs least beside the pods that are placed."""
    taken, rows, counts = np.zeros_like(slots), np.flatnonzero(slots), cluster.counts.copy()

    def of_one_more(rows: Integers) -> Floats:
        before = counts[:, rows].T
        after = before.copy()
        after[:, role] += 1
        return cluster.valuation.node_costs(rows, after) - cluster.valuation.node_costs(rows, before)

    added = of_one_more(rows)
    for _ in range(min(wanted, int(slots.sum()))):
        costs = added + added_costs(problem.attractions_in_domains, counts, role)[rows]
        best = int(np.argmin(np.where(taken[rows] < slots[rows], costs, np.inf)))
        taken[rows[best]] += 1
        counts[role, rows[best]] += 1
        added[best] = of_one_more(rows[best : best + 1])[0]
    return taken


def _dot_product(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    demand = problem.demand[role] * cluster.scale
    alignment = np.einsum("c,cn->n", demand * cluster.scale, cluster.free)
    return _level(slots, wanted, alignment, np.full(len(slots), float((demand * demand).sum())), cluster)


def _best_fit(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    return _fill_best(slots, wanted, -np.einsum("c,cn->n", cluster.scale, cluster.free), cluster)


def _first_fit(problem: Problem, role: int, cluster: _Cluster, slots: Integers, wanted: int) -> Integers:
    return fill(slots, wanted, np.arange(len(slots)))


_RULES: dict[str, Rule] = {
    "thrifty": _thrifty,
    "binpack": _binpack,
    "spread": _spread,
    "dot-product": _dot_product,
    "best-fit": _best_fit,
    "first-fit": _first_fit,
}


def _fill_best(slots: Integers, wanted: int, score: Floats, cluster: _Cluster) -> Integers:
    """Fill nodes by falling score; of equal nodes the fuller one first, then by name."""
    if wanted == 1:
        return _one_slot(slots, score, cluster.used)
    return fill(slots, wanted, best_first(score, cluster.used))


def best_first(score: Floats, used: Floats) -> Integers:
    """Return the positions of nodes by falling score; of equal nodes the fuller one first, then by name.

    Scores that differ by rounding are equal. ``used``: float64[scored resources, nodes].
    """
    return np.lexsort((-used.sum(axis=0).round(9), -score.round(9)))


def _one_slot(slots: Integers, score: Floats, used: Floats) -> Integers:
    """Take the slot for a single pod that ``_fill_best`` would take after sorting the nodes, but without sorting them."""
    taken = np.zeros_like(slots)
    rows = np.flatnonzero(slots)
    if len(rows):
        near = rows[score[rows] >= score[rows].max() - _EQUAL]
        taken[near[np.argmax(used[:, near].sum(axis=0).round(9))]] = 1
    return taken


def _level(slots: Integers, wanted: int, first: Floats, loss: Floats, cluster: _Cluster) -> Integers:
    """Take the ``wanted`` best slots: a node's j-th slot (from 0) is worth ``first - j * loss``.

    The worth never rises with j, so no slot of a node is skipped.
    """
    if wanted >= int(slots.sum()):
        return slots
    if wanted == 1:
        return _one_slot(slots, first, cluster.used)
    has_slots = slots > 0
    step = np.maximum(loss, 1e-12)
    low, high = float((first - step * (slots - 1))[has_slots].min()), float(first[has_slots].max())

    def slots_worth(value: float) -> Integers:
        taken: Floats = np.clip(np.floor((first - value) / step) + 1, 0, slots)
        return taken.astype(np.int64)

    # The worth of the last slot taken lies between ``low`` and ``high``, each of which is the worth of some slot.
    for _ in range(_MOST_BISECTIONS):
        if high - low <= _margin(high):
            break
        taken = slots_worth((low + high) / 2)
        number = int(taken.sum())
        if number == wanted:
            return taken
        if number > wanted:
            low = float((first - step * (taken - 1))[taken > 0].min())
        else:
            high = float((first - step * taken)[taken < slots].max())
    certain = slots_worth(high + _margin(high))
    spare = np.maximum(slots_worth(low - _margin(low)) - certain, 0)
    return certain + fill(spare, wanted - int(certain.sum()), best_first(np.zeros(len(slots)), cluster.used))


def _margin(value: float) -> float:
    """Return the difference in worth up to which two slots count as equal.

    The margin grows with ``value``: if a node has next to nothing of a resource that the pod doesn't request, a slot is worth billions.
    """
    return _EQUAL * max(1.0, abs(value))
