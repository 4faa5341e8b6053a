"""Seats one gang after another, fast: what an order of gangs comes to. The joint search tries hundreds of orders.

What each node could take is kept for all roles, and reckoned anew only for the nodes that a gang has touched. A single pod goes where it
costs least; what pods cost on a node depends on who was seated there since the start, and is remembered by that from order to order.
A larger gang fills nodes along one of a few rules, with its scarce or its plentiful roles first, and where none of them seats it, takes the
seats that were found for it beforehand, if they are still free.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.gpu_sharing import SHARES
from allaboard.placement.contest.contest import Contender, Contest, ContestState, as_it_stands
from allaboard.placement.problem.objectives import requested_to_capacity_ratio
from allaboard.placement.problem.prices import gap_worth
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import MOST_SLOTS, fill, slots_for
from allaboard.placement.rules.devices import GPU, assign_devices, slots_on_devices, whole_devices
from allaboard.placement.solvers.greedy import best_first, scarce_first

RULES = 6
"""Ways to seat a larger gang: three rules, each with the scarce and with the plentiful roles first."""

_PACKED, _BEST_FIT, _SPREAD = range(3)
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Where a gang sits: ``taken``: int64[own roles, k] pods on the nodes ``rows``: int64[k]. ``cost`` is known of single pods."""

    rows: Integers
    taken: Integers
    cost: float = 0.0


@dataclass(slots=True)
class Table:
    """A standing with what single pods cost there: float64[single roles, nodes]. ``stale`` are nodes to look up anew.

    ``past`` says who was seated on a node since the start.
    """

    standing: ContestState
    costs: Floats
    past: dict[int, tuple[int, ...]] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)

    def copy(self) -> "Table":
        """The same, to be changed apart."""
        return Table(self.standing.copy(), self.costs.copy(), dict(self.past), set(self.stale))


class Decoder:
    """Seats the gangs of one contest. It remembers what pods cost, so keep it as long as the search."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._problem = problem = contest.problem
        singles = sorted({int(gang.roles[0]) for gang in contest.gangs if gang.is_single})
        self._singles = np.array(singles, dtype=np.int64)
        self._single_of = {role: position for position, role in enumerate(singles)}
        self._known: dict[tuple[int, tuple[int, ...]], Floats] = {}
        self._demands = [(column, np.flatnonzero(problem.demand[:, column])) for column in range(len(problem.columns))]
        self._is_unlimited = ~problem.demand.any(axis=1)
        self._shared = np.flatnonzero(problem.shares.any(axis=1))
        self._whole = problem.columns.index(GPU) if GPU in problem.columns else -1
        self._sum = problem.columns.index(SHARES) if SHARES in problem.columns else -1
        self._gaps = gap_worth(problem.fragmentation.prices, problem.weights) if problem.fragmentation else None
        self._scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
        self._orders = [self._role_orders(gang) for gang in contest.gangs]
        self._found: dict[int, list[Slots]] = {}
        standing = ContestState.of(problem)
        self.start = Table(standing, np.full((len(singles), len(problem.nodes)), np.inf))
        if singles:
            every = np.arange(len(problem.nodes))
            self.start.costs[:] = self._costs(standing, every)

    def learn(self, position: int, slots: Slots) -> None:
        """Seats to fall back on for a gang."""
        self._found.setdefault(position, []).append(slots)

    def find(self, table: Table, position: int, rule: int = 0) -> Slots | None:
        """Seats for the minimum of a gang; ``None`` when none are found."""
        gang = self._contest.gangs[position]
        return self._single(table, gang) if gang.is_single else self._larger(table, gang, position, rule)

    def more(self, table: Table, position: int, sitting: Integers) -> list[Slots]:
        """Seat members beyond the minimum, and change ``table`` so. ``sitting``: int64[own roles], members that have seats."""
        gang, parts = self._contest.gangs[position], list[Slots]()
        if gang.rule_arrays.has_couplings:
            return parts  # who knows where they may
        for own in self._orders[position][0]:
            role = int(gang.roles[own])
            rows = np.flatnonzero(table.standing.slots[role])
            room = table.standing.slots[role, rows]
            wanted = min(int(gang.count[own] - sitting[own]), int(room.sum()))
            if wanted > 0:
                order = self._node_order(role, _PACKED, table.standing.free[:, rows], table.standing.used[:, rows], rows, None)
                taken = np.zeros((len(gang.roles), len(rows)), dtype=np.int64)
                taken[own] = fill(np.minimum(room, wanted), wanted, order)
                is_used = taken[own] > 0
                parts.append(Slots(rows[is_used], taken[:, is_used]))
                self.take(table, gang, parts[-1])
        return parts

    def are_free(self, standing: ContestState, gang: Contender, slots: Slots) -> bool:
        """Whether nothing is taken twice; of GPUs that are shared that isn't known."""
        load = np.einsum("rc,rk->ck", self._problem.demand[gang.roles], slots.taken)
        return standing.devices is None and bool((load <= standing.free[:, slots.rows]).all())

    def take(self, table: Table, gang: Contender, slots: Slots) -> None:
        """Take seats, which must be free."""
        standing, problem, rows = table.standing, self._problem, slots.rows
        demand = problem.demand[gang.roles]
        standing.free[:, rows] -= np.einsum("rc,rk->ck", demand, slots.taken)
        step = problem.scoring.step[gang.roles[:, None], :, rows[None, :]]
        standing.used[:, rows] += np.einsum("rks,rk->sk", step, slots.taken)
        if standing.devices is not None:
            shares = problem.shares[gang.roles][:, rows]
            shared = np.flatnonzero(problem.shares[gang.roles].any(axis=1))
            whole = demand[:, self._whole] @ slots.taken if self._whole >= 0 else np.zeros(len(rows), dtype=np.int64)
            left, _ = assign_devices(standing.devices[rows], whole, slots.taken[shared].T, shares[shared].T, self._gaps)
            standing.devices[rows] = left
            if self._whole >= 0:
                standing.free[self._whole, rows] = np.minimum(standing.free[self._whole, rows], whole_devices(left))
            standing.free[self._sum, rows] = left.sum(axis=1)
        standing.slots[:, rows] = self._slots(standing, rows)
        if len(self._singles):
            roles, places = np.nonzero(slots.taken)
            for role, place in zip(roles.tolist(), places.tolist(), strict=True):
                row, kind, pods = int(rows[place]), int(gang.roles[role]), int(slots.taken[role, place])
                table.past[row] = (*table.past.get(row, ()), kind, pods)
                table.stale.add(row)

    def _slots(self, standing: ContestState, rows: Integers) -> Integers:
        """What each of ``rows`` takes of every role alone: int64[roles, k]."""
        problem = self._problem
        slots = np.where(problem.admits[:, rows], np.int64(MOST_SLOTS), np.int64(0))
        for column, roles in self._demands:
            if len(roles):
                slots[roles] = np.minimum(slots[roles], standing.free[column, rows] // problem.demand[roles, column, None])
        slots[self._is_unlimited] = np.minimum(slots[self._is_unlimited], 1)
        if standing.devices is not None:
            for role in self._shared.tolist():
                slots[role] = np.minimum(slots[role], slots_on_devices(standing.devices[rows], problem.shares[role, rows]))
        return slots

    def _single(self, table: Table, gang: Contender) -> Slots | None:
        """The cheapest node; ties go to the fuller one, then by name."""
        if table.stale:
            self._look_up(table)
        costs = table.costs[self._single_of[int(gang.roles[0])]]
        least = costs.min(initial=np.inf)
        if least == np.inf:
            return None
        near = np.flatnonzero(costs <= least + _EQUAL)
        row = near[np.argmax(table.standing.used[:, near].sum(axis=0).round(9))] if len(near) > 1 else near[0]
        return Slots(np.array([row]), np.ones((1, 1), dtype=np.int64), float(costs[row]))

    def _look_up(self, table: Table) -> None:
        rows = sorted(table.stale)
        new = [row for row in rows if (row, table.past[row]) not in self._known]
        if new:
            costs = self._costs(table.standing, np.array(new, dtype=np.int64))
            for place, row in enumerate(new):
                self._known[row, table.past[row]] = costs[:, place]
        for row in rows:
            table.costs[:, row] = self._known[row, table.past[row]]
        table.stale.clear()

    def _costs(self, standing: ContestState, rows: Integers) -> Floats:
        """What one more pod of each single role costs on each of ``rows``: float64[single roles, k], inf where it doesn't fit."""
        costs = np.full((len(self._singles), len(rows)), np.inf)
        roles, places = np.nonzero(standing.slots[np.ix_(self._singles, rows)] > 0)
        if len(roles):
            now = as_it_stands(self._problem, standing, self._singles, rows, is_relative=True)
            patterns = np.zeros((len(roles) + len(rows), len(self._singles)), dtype=np.int64)
            patterns[np.arange(len(roles)), roles] = 1
            found = Valuation(now).node_costs(np.concatenate([places, np.arange(len(rows))]), patterns)
            costs[roles, places] = found[: len(roles)] - found[len(roles) :][places]
        return costs

    def _larger(self, table: Table, gang: Contender, position: int, rule: int) -> Slots | None:
        rooms = table.standing.slots[gang.roles]
        if not self._may_fit(table.standing, gang, rooms):
            return None
        if not gang.is_coupled:
            orders = self._orders[position]
            tries = list(dict.fromkeys((choice % 3, orders[choice // 3 % len(orders)]) for choice in (rule, *range(RULES))))
            for way, order in tries if len(orders) > 1 or gang.domains is not None else tries[:1]:
                slots = self._along(table.standing, gang, way, order, rooms)
                if slots is not None:
                    return slots
        known = self._found.get(position, ())
        return next((slots for slots in known if self.are_free(table.standing, gang, slots)), None)

    def _may_fit(self, standing: ContestState, gang: Contender, rooms: Integers) -> bool:
        """Whether it isn't plain that the gang doesn't fit, from each role alone and each resource alone."""
        most = np.minimum(rooms.sum(axis=1), gang.count)
        if (most < gang.rule_arrays.least).any() or most.sum() < gang.minimum:
            return False
        if gang.minimum < gang.total or len(gang.roles) == 1:
            return True
        usable = rooms.any(axis=0)
        asked = gang.count @ self._problem.demand[gang.roles]
        return bool((asked <= standing.free[:, usable].sum(axis=1)).all())

    def _along(self, standing: ContestState, gang: Contender, way: int, order: Sequence[int], rooms: Integers) -> Slots | None:
        """Fill nodes role by role. As many of each as there must be, then of each as many as there are, up to the minimum."""
        problem = self._problem
        rows = np.flatnonzero(rooms.any(axis=0))
        free = standing.free[:, rows]
        used = standing.used[:, rows]
        devices = None if standing.devices is None else standing.devices[rows]
        taken = np.zeros((len(gang.roles), len(rows)), dtype=np.int64)
        ranks = None if gang.domains is None else _by_domain(gang.domains[rows], rooms[:, rows])
        rest = gang.minimum - int(gang.rule_arrays.least.sum())
        is_first = True
        for own in order:
            wanted = int(gang.rule_arrays.least[own]) + min(max(rest, 0), int(gang.count[own] - gang.rule_arrays.least[own]))
            rest -= wanted - int(gang.rule_arrays.least[own])
            if not wanted:
                continue
            role = int(gang.roles[own])
            demand = problem.demand[role]
            room = rooms[own, rows] if is_first else slots_for(demand, free, problem.admits[role, rows])
            is_part = devices is not None and bool(problem.shares[role].any())
            if devices is not None and is_part and not is_first:
                room = np.minimum(room, slots_on_devices(devices, problem.shares[role, rows]))
            is_first = False
            room = np.minimum(room, wanted)
            if room.sum() < wanted:
                return None
            slots = fill(room, wanted, self._node_order(role, way, free, used, rows, ranks))
            taken[own] = slots
            free = free - demand[:, None] * slots
            used = used + problem.scoring.step[role][:, rows] * slots
            if devices is not None:
                whole = slots * demand[self._whole] if self._whole >= 0 else np.zeros_like(slots)
                parts = [role] if is_part else []
                devices, fits = assign_devices(
                    devices, whole, slots[:, None][:, : len(parts)], problem.shares[parts][:, rows].T, self._gaps
                )
                if not fits.all():
                    return None
                free[self._sum] = devices.sum(axis=1)
                if self._whole >= 0:
                    free[self._whole] = np.minimum(free[self._whole], whole_devices(devices))
        is_used = taken.any(axis=0)
        return Slots(rows[is_used], taken[:, is_used])

    def _node_order(self, role: int, way: int, free: Integers, used: Floats, rows: Integers, ranks: Integers | None) -> Integers:
        if way == _BEST_FIT:
            score = -(self._scale @ free)
        else:
            scoring = self._problem.scoring
            step, weight = scoring.step[role][:, rows], scoring.weight[role][:, rows]
            score = requested_to_capacity_ratio(used + step, weight) * (1.0 if way == _PACKED else -1.0)
        order = best_first(score, used)
        return order if ranks is None else order[np.argsort(ranks[order], kind="stable")]

    def _role_orders(self, gang: Contender) -> list[tuple[int, ...]]:
        """The scarce roles first, and last."""
        scarce = scarce_first(self._problem, gang.roles)
        return [scarce, scarce[::-1]] if len(scarce) > 1 else [scarce]


def _by_domain(domains: Integers, rooms: Integers) -> Integers:
    """The rank of each node's domain, those with the most room first: int64[k]."""
    room = np.bincount(domains, weights=rooms.sum(axis=0))
    rank = np.empty(len(room), dtype=np.int64)
    rank[np.argsort(-room, kind="stable")] = np.arange(len(room))
    ranks: Integers = rank[domains]
    return ranks
