"""Assigns gangs to nodes one after another, fast, because the joint search tries hundreds of orders of the gangs.

The decoder keeps the slots of all roles on all nodes, and recomputes the slots only on nodes to which it has assigned pods. A gang of a
single pod goes to the node where the pod costs least. The cost of a pod on a node depends on the pods assigned to that node since the
start. Costs are cached by these pods, so that other orders of the gangs use the costs again.
A larger gang fills nodes by one of six filling rules (``RULES``). If no filling rule places the gang, it gets slots that a search has found
before (``learn``), provided that these slots are free.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.model.gpu_sharing import SHARES
from allaboard.placement.contest.contest import Contender, Contest, ContestState, problem_in_state
from allaboard.placement.problem.objectives import requested_to_capacity_ratio
from allaboard.placement.problem.prices import gap_worth
from allaboard.placement.problem.valuation import Valuation
from allaboard.placement.rules.capacity import MOST_SLOTS, fill, slots_for
from allaboard.placement.rules.devices import GPU, assign_devices, slots_on_devices, whole_devices
from allaboard.placement.solvers.greedy import best_first, scarce_first

RULES = 6
"""Number of filling rules for a larger gang: three orders of the nodes, each with the scarce roles first or with the plentiful roles first.
"""

_PACKED, _BEST_FIT, _SPREAD = range(3)
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """The slots that one gang takes.

    ``rows``: int64[k], positions of the k nodes. ``taken``: int64[own roles, k], pods of each of the gang's roles on each of these nodes.
    ``cost``: cost of the pod if the gang is a single pod; 0 for larger gangs.
    """

    rows: Integers
    taken: Integers
    cost: float = 0.0


@dataclass(slots=True)
class Table:
    """A state of the contest, and what the pods of single-pod gangs cost in this state.

    ``costs``: float64[single roles, nodes], by roles that single-pod gangs have; infinite where the pod doesn't fit. ``stale``: nodes whose
    costs are out of date. ``history``: by node, the pods assigned since the start, as role, number, role, number and so on.
    """

    state: ContestState
    costs: Floats
    history: dict[int, tuple[int, ...]] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)

    def copy(self) -> "Table":
        """Return a copy that can be changed independently."""
        return Table(self.state.copy(), self.costs.copy(), dict(self.history), set(self.stale))


class Decoder:
    """Places the gangs of one contest fast, one gang after another.

    A decoder caches what pods cost, so one decoder serves a whole joint search.
    """

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._problem = problem = contest.problem
        singles = sorted({int(gang.roles[0]) for gang in contest.gangs if gang.is_single})
        self._singles = np.array(singles, dtype=np.int64)
        self._single_of = {role: position for position, role in enumerate(singles)}
        self._known_costs: dict[tuple[int, tuple[int, ...]], Floats] = {}
        self._demands = [(column, np.flatnonzero(problem.demand[:, column])) for column in range(len(problem.columns))]
        self._is_unlimited = ~problem.demand.any(axis=1)
        self._shared = np.flatnonzero(problem.shares.any(axis=1))
        self._whole = problem.columns.index(GPU) if GPU in problem.columns else -1
        self._sum = problem.columns.index(SHARES) if SHARES in problem.columns else -1
        self._gaps = gap_worth(problem.fragmentation.prices, problem.weights) if problem.fragmentation else None
        self._scale = 1.0 / np.maximum(problem.free.max(axis=1, initial=0), 1)
        self._orders = [self._role_orders(gang) for gang in contest.gangs]
        self._found: dict[int, list[Slots]] = {}
        state = ContestState.of(problem)
        self.start = Table(state, np.full((len(singles), len(problem.nodes)), np.inf))
        if singles:
            every = np.arange(len(problem.nodes))
            self.start.costs[:] = self._costs(state, every)

    def learn(self, position: int, slots: Slots) -> None:
        """Remember ``slots`` for the gang at ``position``; ``find`` returns these slots if no filling rule places the gang."""
        self._found.setdefault(position, []).append(slots)

    def find(self, table: Table, position: int, rule: int = 0) -> Slots | None:
        """Return slots for the minimum of the gang at ``position``, trying the filling rule ``rule`` first; None if no slots are found."""
        gang = self._contest.gangs[position]
        return self._single(table, gang) if gang.is_single else self._larger(table, gang, position, rule)

    def take_surplus(self, table: Table, position: int, assigned: Integers) -> list[Slots]:
        """Take slots for members of the gang at ``position`` beyond its minimum from what is free in ``table``, and return these slots.

        ``assigned``: int64[own roles], members of each of the gang's roles that have slots already.
        """
        gang, parts = self._contest.gangs[position], list[Slots]()
        if gang.rule_arrays.has_couplings:
            return parts  # rules may forbid these nodes to further members
        for own in self._orders[position][0]:
            role = int(gang.roles[own])
            rows = np.flatnonzero(table.state.slots[role])
            available = table.state.slots[role, rows]
            wanted = min(int(gang.count[own] - assigned[own]), int(available.sum()))
            if wanted > 0:
                order = self._node_order(role, _PACKED, table.state.free[:, rows], table.state.used[:, rows], rows, None)
                taken = np.zeros((len(gang.roles), len(rows)), dtype=np.int64)
                taken[own] = fill(np.minimum(available, wanted), wanted, order)
                is_used = taken[own] > 0
                parts.append(Slots(rows[is_used], taken[:, is_used]))
                self.take(table, gang, parts[-1])
        return parts

    def are_free(self, state: ContestState, gang: Contender, slots: Slots) -> bool:
        """Return whether all of ``slots`` are free in ``state``. Always False if GPUs are shared.

        The function compares sums of amounts, and by such sums a part of a GPU may fit on a node although it fits on no device.
        """
        load = np.einsum("rc,rk->ck", self._problem.demand[gang.roles], slots.taken)
        return state.devices is None and bool((load <= state.free[:, slots.rows]).all())

    def take(self, table: Table, gang: Contender, slots: Slots) -> None:
        """Take ``slots``, which must be free, from ``table``. If no GPUs are shared, a negative number of pods gives slots back."""
        state, problem, rows = table.state, self._problem, slots.rows
        demand = problem.demand[gang.roles]
        state.free[:, rows] -= np.einsum("rc,rk->ck", demand, slots.taken)
        step = problem.scoring.step[gang.roles[:, None], :, rows[None, :]]
        state.used[:, rows] += np.einsum("rks,rk->sk", step, slots.taken)
        if state.devices is not None:
            shares = problem.shares[gang.roles][:, rows]
            shared = np.flatnonzero(problem.shares[gang.roles].any(axis=1))
            whole = demand[:, self._whole] @ slots.taken if self._whole >= 0 else np.zeros(len(rows), dtype=np.int64)
            left, _ = assign_devices(state.devices[rows], whole, slots.taken[shared].T, shares[shared].T, self._gaps)
            state.devices[rows] = left
            if self._whole >= 0:
                state.free[self._whole, rows] = np.minimum(state.free[self._whole, rows], whole_devices(left))
            state.free[self._sum, rows] = left.sum(axis=1)
        state.slots[:, rows] = self._slots(state, rows)
        if len(self._singles):
            roles, places = np.nonzero(slots.taken)
            for role, place in zip(roles.tolist(), places.tolist(), strict=True):
                row, kind, pods = int(rows[place]), int(gang.roles[role]), int(slots.taken[role, place])
                table.history[row] = (*table.history.get(row, ()), kind, pods)
                table.stale.add(row)

    def _slots(self, state: ContestState, rows: Integers) -> Integers:
        """Return how many pods of one role each of the k nodes ``rows`` can take, by role: int64[roles, k]."""
        problem = self._problem
        slots = np.where(problem.admits[:, rows], np.int64(MOST_SLOTS), np.int64(0))
        for column, roles in self._demands:
            if len(roles):
                slots[roles] = np.minimum(slots[roles], state.free[column, rows] // problem.demand[roles, column, None])
        slots[self._is_unlimited] = np.minimum(slots[self._is_unlimited], 1)
        if state.devices is not None:
            for role in self._shared.tolist():
                slots[role] = np.minimum(slots[role], slots_on_devices(state.devices[rows], problem.shares[role, rows]))
        return slots

    def _single(self, table: Table, gang: Contender) -> Slots | None:
        """Return a slot for a single-pod gang on the cheapest node; among equals the fullest node, then the first by name."""
        if table.stale:
            self._update_costs(table)
        costs = table.costs[self._single_of[int(gang.roles[0])]]
        least = costs.min(initial=np.inf)
        if least == np.inf:
            return None
        cheapest = np.flatnonzero(costs <= least + _TOLERANCE)
        row = cheapest[np.argmax(table.state.used[:, cheapest].sum(axis=0).round(9))] if len(cheapest) > 1 else cheapest[0]
        return Slots(np.array([row]), np.ones((1, 1), dtype=np.int64), float(costs[row]))

    def _update_costs(self, table: Table) -> None:
        rows = sorted(table.stale)
        new = [row for row in rows if (row, table.history[row]) not in self._known_costs]
        if new:
            costs = self._costs(table.state, np.array(new, dtype=np.int64))
            for place, row in enumerate(new):
                self._known_costs[row, table.history[row]] = costs[:, place]
        for row in rows:
            table.costs[:, row] = self._known_costs[row, table.history[row]]
        table.stale.clear()

    def _costs(self, state: ContestState, rows: Integers) -> Floats:
        """Return what one more pod costs on the nodes ``rows``: float64[single roles, k], inf where it doesn't fit.

        The single roles are the roles that single-pod gangs have.
        """
        costs = np.full((len(self._singles), len(rows)), np.inf)
        roles, places = np.nonzero(state.slots[np.ix_(self._singles, rows)] > 0)
        if len(roles):
            now = problem_in_state(self._problem, state, self._singles, rows, is_relative=True)
            patterns = np.zeros((len(roles) + len(rows), len(self._singles)), dtype=np.int64)
            patterns[np.arange(len(roles)), roles] = 1
            found = Valuation(now).node_costs(np.concatenate([places, np.arange(len(rows))]), patterns)
            costs[roles, places] = found[: len(roles)] - found[len(roles) :][places]
        return costs

    def _larger(self, table: Table, gang: Contender, position: int, rule: int) -> Slots | None:
        available_slots = table.state.slots[gang.roles]
        if not self._may_fit(table.state, gang, available_slots):
            return None
        if not gang.is_coupled:
            orders = self._orders[position]
            tries = list(dict.fromkeys((number % 3, orders[number // 3 % len(orders)]) for number in (rule, *range(RULES))))
            for node_rule, order in tries if len(orders) > 1 or gang.domains is not None else tries[:1]:
                slots = self._filled(table.state, gang, node_rule, order, available_slots)
                if slots is not None:
                    return slots
        known = self._found.get(position, ())
        return next((slots for slots in known if self.are_free(table.state, gang, slots)), None)

    def _may_fit(self, state: ContestState, gang: Contender, available_slots: Integers) -> bool:
        """Return False if the gang can't fit, by the slots for one of its roles or by the free amounts of one resource; else True."""
        most = np.minimum(available_slots.sum(axis=1), gang.count)
        if (most < gang.rule_arrays.least).any() or most.sum() < gang.minimum:
            return False
        if gang.minimum < gang.total or len(gang.roles) == 1:
            return True
        usable = available_slots.any(axis=0)
        asked = gang.count @ self._problem.demand[gang.roles]
        return bool((asked <= state.free[:, usable].sum(axis=1)).all())

    def _filled(
        self, state: ContestState, gang: Contender, node_rule: int, order: Sequence[int], available_slots: Integers
    ) -> Slots | None:
        """Return slots found by filling nodes role by role, in ``order``; None if a role doesn't fit.

        Each role gets the pods that the rules between members require of it. If the minimum needs more pods, the first roles in ``order``
        add them.
        """
        problem = self._problem
        rows = np.flatnonzero(available_slots.any(axis=0))
        free = state.free[:, rows]
        used = state.used[:, rows]
        devices = None if state.devices is None else state.devices[rows]
        taken = np.zeros((len(gang.roles), len(rows)), dtype=np.int64)
        domain_ranks = None if gang.domains is None else _domain_ranks(gang.domains[rows], available_slots[:, rows])
        rest = gang.minimum - int(gang.rule_arrays.least.sum())
        is_first = True
        for own in order:
            wanted = int(gang.rule_arrays.least[own]) + min(max(rest, 0), int(gang.count[own] - gang.rule_arrays.least[own]))
            rest -= wanted - int(gang.rule_arrays.least[own])
            if not wanted:
                continue
            role = int(gang.roles[own])
            demand = problem.demand[role]
            available = available_slots[own, rows] if is_first else slots_for(demand, free, problem.admits[role, rows])
            is_part = devices is not None and bool(problem.shares[role].any())
            if devices is not None and is_part and not is_first:
                available = np.minimum(available, slots_on_devices(devices, problem.shares[role, rows]))
            is_first = False
            available = np.minimum(available, wanted)
            if available.sum() < wanted:
                return None
            slots = fill(available, wanted, self._node_order(role, node_rule, free, used, rows, domain_ranks))
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

    def _node_order(
        self, role: int, node_rule: int, free: Integers, used: Floats, rows: Integers, domain_ranks: Integers | None
    ) -> Integers:
        if node_rule == _BEST_FIT:
            score = -(self._scale @ free)
        else:
            scoring = self._problem.scoring
            step, weight = scoring.step[role][:, rows], scoring.weight[role][:, rows]
            score = requested_to_capacity_ratio(used + step, weight) * (1.0 if node_rule == _PACKED else -1.0)
        order = best_first(score, used)
        return order if domain_ranks is None else order[np.argsort(domain_ranks[order], kind="stable")]

    def _role_orders(self, gang: Contender) -> list[tuple[int, ...]]:
        """Return the orders in which the roles of ``gang`` are placed: scarce roles first, and scarce roles last."""
        scarce = scarce_first(self._problem, gang.roles)
        return [scarce, scarce[::-1]] if len(scarce) > 1 else [scarce]


def _domain_ranks(domains: Integers, slots: Integers) -> Integers:
    """Return the rank of the domain of each of k nodes, 0 for the domain with the most slots: int64[k]."""
    in_domain = np.bincount(domains, weights=slots.sum(axis=0))
    rank = np.empty(len(in_domain), dtype=np.int64)
    rank[np.argsort(-in_domain, kind="stable")] = np.arange(len(in_domain))
    domain_ranks: Integers = rank[domains]
    return domain_ranks
