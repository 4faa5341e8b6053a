"""One-role-at-a-time placements, as today's schedulers make them: the seeds of the search, and the measure of its gain.

Each is exactly what placing the pods of a role one by one would give, without the loop over pods: a rule that prefers a node the
more the fuller it gets fills it up, so sorting the nodes once is enough (*fill*); a rule whose preference falls linearly with every
pod takes the best seats of all nodes, which a bisection on the preference finds (*level*). Ties go to the fuller node, then by name.

Rules: MostAllocated and LeastAllocated are kube-scheduler's scores; dot-product is Panigrahy et al., Heuristics for Vector Bin
Packing, 2011; best-fit takes the node with the least left over; first-fit the first by name.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.objectives import fullness_with_one
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import fill, slots_for

Seed = tuple[str, Integers]

_BISECTIONS = 48  # at most
_EQUAL = 1e-9
# With many roles the variants cost more than they find.
_MANY_ROLES = 24


@dataclass(slots=True)
class _Cluster:
    """What is left while a seed is built. ``free``: int64[columns, nodes]; ``used``: float64[scored resources, nodes].

    ``counts``: int64[roles, nodes], who sits there already.
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
    """Placements by name (``binpack/large-first``), each int64[roles, nodes] and as many pods as its rule seats.

    ``names`` are the rules to follow; without any, all that pay. After the first it ``goes_on`` as long as that holds.
    """
    orders = _role_orders(problem)
    rules = names or (_RULES if len(problem.roles) <= _MANY_ROLES else ("binpack", "spread"))
    valuation = valuation or Valuation(problem)
    seeds: list[Seed] = []
    for rule, (name, order) in itertools.product(rules, orders.items()):
        if seeds and not goes_on():
            break
        seeds.append((f"{rule}/{name}", _place(problem, valuation, order, _RULES[rule])))
    return seeds


def _role_orders(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Distinct orders of the roles."""
    given = tuple(range(len(problem.roles)))
    large = scarce_first(problem, np.array(given, dtype=np.int64))
    orders = {"given": given, "large-first": large, "small-first": large[::-1], "reversed": given[::-1]}
    distinct: dict[tuple[int, ...], str] = {}
    for name, order in orders.items():
        distinct.setdefault(order, name)
    return {name: order for order, name in distinct.items()}


def scarce_first(problem: Problem, roles: Integers) -> tuple[int, ...]:
    """Positions in ``roles``: int64[k]. Few seats for its pods make a role scarce, be it by size or by constraint; then size counts."""
    room = problem.slots[roles].sum(axis=1).tolist()
    size = (problem.demand[roles] / np.maximum(problem.free.sum(axis=1, dtype=np.float64), 1.0)).max(axis=1, initial=0.0).tolist()
    return tuple(sorted(range(len(roles)), key=lambda own: (room[own], -size[own])))


def _place(problem: Problem, valuation: Valuation, order: tuple[int, ...], rule: Rule) -> Integers:
    nodes = len(problem.nodes)
    counts = np.zeros((len(problem.roles), nodes), dtype=np.int64)
    scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
    cluster = _Cluster(problem.free.copy(), problem.scoring.used.copy(), scale, counts, valuation)
    for role in order:
        wanted = int(problem.count[role])
        demand = problem.demand[role]
        room = np.minimum(slots_for(demand, cluster.free, problem.admits[role]), wanted)
        counts[role] = rule(problem, role, cluster, room, wanted)
        if problem.devices is not None:
            # Whom no single device takes isn't seated, be it of this role or of one before.
            counts[:] = problem.trimmed(counts[None])[0]
            cluster.free[:] = problem.free - np.einsum("rc,rn->cn", problem.demand, counts)
            cluster.used[:] = problem.scoring.used + np.einsum("rn,rsn->sn", counts, problem.scoring.step)
            continue
        taken = counts[role]
        cluster.free -= demand[:, None] * taken
        cluster.used += problem.scoring.step[role] * taken
    return counts


def _binpack(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    return _fill_best(room, wanted, fullness_with_one(problem.scoring, role, cluster.used), cluster)


def _spread(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    growth = 100.0 * np.einsum("sn,sn->n", problem.scoring.weight[role], problem.scoring.step[role])
    return _level(room, wanted, -fullness_with_one(problem.scoring, role, cluster.used), growth, cluster)


def _thrifty(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    """Fill the nodes first that cost least per pod when they are filled to the brim."""
    rows = np.flatnonzero(room)
    before = cluster.counts[:, rows].T
    after = before.copy()
    after[:, role] += room[rows]
    costs = np.zeros(len(room))
    costs[rows] = (cluster.valuation.node_costs(rows, after) - cluster.valuation.node_costs(rows, before)) / room[rows]
    return _fill_best(room, wanted, -costs, cluster)


def _dot_product(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    demand = problem.demand[role] * cluster.scale
    alignment = np.einsum("c,cn->n", demand * cluster.scale, cluster.free)
    return _level(room, wanted, alignment, np.full(len(room), float((demand * demand).sum())), cluster)


def _best_fit(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    return _fill_best(room, wanted, -np.einsum("c,cn->n", cluster.scale, cluster.free), cluster)


def _first_fit(problem: Problem, role: int, cluster: _Cluster, room: Integers, wanted: int) -> Integers:
    return fill(room, wanted, np.arange(len(room)))


_RULES: dict[str, Rule] = {
    "thrifty": _thrifty,
    "binpack": _binpack,
    "spread": _spread,
    "dot-product": _dot_product,
    "best-fit": _best_fit,
    "first-fit": _first_fit,
}


def _fill_best(room: Integers, wanted: int, score: Floats, cluster: _Cluster) -> Integers:
    """Fill by falling score, the fuller node first among equals, then by name."""
    if wanted == 1:
        return _one_seat(room, score, cluster.used)
    return fill(room, wanted, best_first(score, cluster.used))


def best_first(score: Floats, used: Floats) -> Integers:
    """Positions by falling score, the fuller node first among equals, then by name. Scores that differ by rounding only are equal.

    ``used``: float64[scored resources, nodes].
    """
    return np.lexsort((-used.sum(axis=0).round(9), -score.round(9)))


def _one_seat(room: Integers, score: Floats, used: Floats) -> Integers:
    """What filling by ``best_first`` gives a single pod, without the sort."""
    taken = np.zeros_like(room)
    rows = np.flatnonzero(room)
    if len(rows):
        near = rows[score[rows] >= score[rows].max() - _EQUAL]
        taken[near[np.argmax(used[:, near].sum(axis=0).round(9))]] = 1
    return taken


def _level(room: Integers, wanted: int, first: Floats, loss: Floats, cluster: _Cluster) -> Integers:
    """The ``wanted`` best seats, where a node's j-th seat (from 0) is worth ``first - j * loss``; worth never rises, so none is skipped."""
    if wanted >= int(room.sum()):
        return room
    if wanted == 1:
        return _one_seat(room, first, cluster.used)
    has_room = room > 0
    step = np.maximum(loss, 1e-12)
    low, high = float((first - step * (room - 1))[has_room].min()), float(first[has_room].max())

    def seats_worth(value: float) -> Integers:
        slots: Floats = np.clip(np.floor((first - value) / step) + 1, 0, room)
        return slots.astype(np.int64)

    # What the last seat is worth lies between the two, each of which is what some seat is worth.
    for _ in range(_BISECTIONS):
        if high - low <= _margin(high):
            break
        slots = seats_worth((low + high) / 2)
        number = int(slots.sum())
        if number == wanted:
            return slots
        if number > wanted:
            low = float((first - step * (slots - 1))[slots > 0].min())
        else:
            high = float((first - step * slots)[slots < room].max())
    certain = seats_worth(high + _margin(high))
    spare = np.maximum(seats_worth(low - _margin(low)) - certain, 0)
    return certain + fill(spare, wanted - int(certain.sum()), best_first(np.zeros(len(room)), cluster.used))


def _margin(value: float) -> float:
    """Within which seats are worth the same; on a node with next to none of what isn't asked for they are worth billions."""
    return _EQUAL * max(1.0, abs(value))
