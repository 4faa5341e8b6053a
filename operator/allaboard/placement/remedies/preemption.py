"""Chooses the bound pods to evict so that a gang of higher priority fits: the choice that costs least.

The cost of a choice has five parts, of which an earlier part outweighs all later ones:

- the highest priority among the gangs that lose pods;
- the evictions beyond disruption budgets;
- the number of gangs that are broken, since they lose more pods than their surplus; all pods of such a gang are evicted;
- the number of pods;
- the work that is lost.

The choice is made in three steps:

1. Bisection finds the lowest priority such that the gang fits once all pods of this priority and below are gone.
2. A mixed-integer program over these pods and the gang's placement finds the least cost, one part after another.
3. The answer is checked in integers. If the program is too large or finds nothing, gangs are chosen by what they free for each pod, and
   each gang that isn't needed is left out again.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.placement.highs import Status
from allaboard.placement.problem.problem import Problem
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, with_chosen_domains, with_free
from allaboard.placement.rules.capacity import fill, slots_for
from allaboard.placement.rules.program import AssignmentVariables, Rows
from allaboard.placement.solvers.bounds import may_fit
from allaboard.placement.solvers.budget import Budget
from allaboard.placement.solvers.milp import Finding, satisfies, solve
from allaboard.placement.solvers.milp_model import add_members, assignment_variables, optimize, power_of_two

_MOST_DOMAINS = 8  # in which the gang is placed, if roles must share a domain.
_BRANCHES = 200  # of the program, for each part of the cost.
_FIT_BRANCHES = 50  # of one question whether the gang fits.
_MOST_VARIABLES = 6_000  # of the program. A larger one would take longer than a preemption is worth.
_MOST_GANGS = 100  # in the program beyond those that suffice.
_MOST_REPRIEVES = 64  # gangs that are tried to be left out.


@dataclass(frozen=True, slots=True, eq=False)
class Evictable:
    """The bound pods that may be evicted for a gang.

    Gangs: ``priority``: int64[gangs]. ``surplus``: int64[gangs], the pods that a gang can lose without being broken.
    Batches: pods of one gang on one node that free equal amounts. ``gang``: int64[batches]. ``node``: int64[batches], the position among
    the problem's nodes, -1 for a node that the problem leaves out. ``pods``: int64[batches], the number of pods. ``frees``:
    int64[capacities, batches], what one pod frees. ``lost``: int64[batches], the work that is lost with one pod, in GPU seconds.
    Budgets: ``allowed``: int64[budgets], the evictions that each disruption budget allows. ``budgeted``: bool[budgets, batches], the pods
    that each budget protects. ``may_exceed``: evictions beyond the budgets cost, but aren't forbidden.
    """

    priority: Integers
    surplus: Integers
    gang: Integers
    node: Integers
    pods: Integers
    frees: Integers
    lost: Integers
    allowed: Integers
    budgeted: Mask
    may_exceed: bool = False

    @property
    def total(self) -> Integers:
        """The number of each gang's pods: int64[gangs]."""
        return self.sums(self.pods)

    def sums(self, amounts: Integers) -> Integers:
        """Return the sum of ``amounts``, which are by batch, for each gang: int64[gangs]."""
        return np.bincount(self.gang, weights=amounts, minlength=len(self.priority)).astype(np.int64)

    def of_gangs(self, gangs: Mask) -> Mask:
        """Return which batches belong to ``gangs``: bool[batches]. ``gangs``: bool[gangs]."""
        found: Mask = gangs[self.gang]
        return found

    def freed(self, taken: Integers, nodes: int) -> Integers:
        """Return what the eviction of ``taken`` pods of each batch frees: int64[capacities, nodes]. ``taken``: int64[batches]."""
        freed = np.zeros((len(self.frees), nodes), dtype=np.int64)
        here = np.flatnonzero((self.node >= 0) & (taken > 0))
        np.add.at(freed.T, self.node[here], (self.frees[:, here] * taken[here]).T)
        return freed

    def confined(self, names: tuple[str, ...], kept: tuple[str, ...]) -> "Evictable":
        """Return the same pods, with the positions of their nodes among ``kept`` instead of among ``names``."""
        if names == kept:
            return self
        place = {name: position for position, name in enumerate(kept)}
        positions = np.array([*(place.get(name, -1) for name in names), -1], dtype=np.int64)
        return replace(self, node=positions[self.node])


class Cost(NamedTuple):
    """The cost of a choice of pods: an earlier field outweighs all later ones."""

    priority: int
    violations: int
    broken: int
    pods: int
    lost: int


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The pods to evict. ``taken``: int64[batches], pods of each batch. ``is_least``: it is proved that no choice costs less."""

    taken: Integers
    cost: Cost
    is_least: bool


def choose_victims(emptied: EmptiedProblem, evictable: Evictable, budget: Budget | None = None) -> Choice | None:
    """Return the pods to evict so that the minimum of ``emptied`` fits; None if no such choice is found.

    The choice is empty if the gang fits as things are. A choice that is made after the end of ``budget`` may cost more than the least.
    """
    budget = budget or Budget()
    if not emptied.problem.nodes or not emptied.problem.total:
        return None
    by_domain, are_all = with_chosen_domains(emptied, _MOST_DOMAINS)
    found: list[Choice] = []
    for each in by_domain:
        if budget.is_over:
            are_all = False
            break
        choice = _Chooser(each, evictable.confined(emptied.problem.nodes, each.problem.nodes), budget).chosen()
        found += [choice] if choice is not None else []
    best = min(found, key=lambda choice: choice.cost, default=None)
    return best if best is None or are_all else replace(best, is_least=False)


def cost_of(evictable: Evictable, taken: Integers) -> Cost:
    """Return the cost of evicting ``taken`` pods of each batch: int64[batches]."""
    if not taken.any():
        return Cost(0, 0, 0, 0, 0)
    lost_pods = evictable.sums(taken)
    beyond = np.maximum(evictable.budgeted @ taken - evictable.allowed, 0)
    return Cost(
        priority=int(evictable.priority[lost_pods > 0].max()),
        violations=int(beyond.sum()),
        broken=int(np.count_nonzero(lost_pods > evictable.surplus)),
        pods=int(taken.sum()),
        lost=int(evictable.lost @ taken),
    )


@dataclass(slots=True)
class _Chooser:
    """Chooses victims in one choice of domains."""

    emptied: EmptiedProblem
    evictable: Evictable
    budget: Budget

    def chosen(self) -> Choice | None:
        """Return the choice of least cost; None if there is none."""
        nothing = np.zeros_like(self.evictable.pods)
        if self._fits(nothing):
            return Choice(nothing, cost_of(self.evictable, nothing), is_least=True)
        levels = np.unique(self.evictable.priority)
        if not len(levels) or not self._fits(self._all_up_to(int(levels[-1]))):
            return None
        too_low, enough = -1, len(levels) - 1
        while enough - too_low > 1:
            middle = (too_low + enough) // 2
            too_low, enough = (too_low, middle) if self._fits(self._all_up_to(int(levels[middle]))) else (middle, enough)
        # Disruption budgets may forbid what would be enough, so that victims of a higher priority are needed.
        for level in levels[enough:].tolist():
            if (choice := self._chosen_at(level)) is not None:
                return choice
        return None

    def _all_up_to(self, priority: int) -> Integers:
        return np.where(self.evictable.of_gangs(self.evictable.priority <= priority), self.evictable.pods, 0)

    def _problem(self, taken: Integers) -> Problem:
        """Return the problem once ``taken`` pods of each batch are gone."""
        problem = self.emptied.problem
        return with_free(problem, self.emptied.slack + self.evictable.freed(taken, len(problem.nodes)))

    def _fits(self, taken: Integers) -> bool:
        """Return whether the gang is known to fit once ``taken`` pods of each batch are gone."""
        problem = self._problem(taken)
        if not may_fit(problem):
            return False
        if len(problem.roles) == 1 or _fits_in_turn(problem):
            return True
        return solve(problem, _FIT_BRANCHES, budget=self.budget).finding is Finding.FITS

    def _chosen_at(self, priority: int) -> Choice | None:
        """Return the choice of least cost among pods of ``priority`` and below; None if no choice is found that the budgets allow."""
        order = self._by_efficiency(priority)
        enough = self._enough_of(order)
        if enough is None:
            return None
        candidates = order[: enough + max(_MOST_GANGS, enough)]
        program = _Program(self.emptied, self.evictable, candidates)
        found = program.solved(self.budget) if program.size <= _MOST_VARIABLES else None
        if found is not None:
            taken, is_optimal = found
            is_least = is_optimal and len(candidates) == len(order)
            if self._is_allowed(taken) and self._holds(taken, program):
                taken = taken if is_least else self._without_the_unneeded(taken)
                return Choice(taken, cost_of(self.evictable, taken), is_least)
        elif program.is_refuted and len(candidates) == len(order):
            return None
        taken = self._without_the_unneeded(self._whole(order[:enough]))
        return Choice(taken, cost_of(self.evictable, taken), is_least=False) if self._is_allowed(taken) else None

    def _holds(self, taken: Integers, program: "_Program") -> bool:
        """Return whether the placement that the program has found is possible in integers."""
        return program.counts is not None and satisfies(self._problem(taken), program.counts)

    def _is_allowed(self, taken: Integers) -> bool:
        each = self.evictable
        lost = each.sums(taken)
        is_whole_or_surplus = bool(((lost <= each.surplus) | (lost == each.total)).all())
        return is_whole_or_surplus and (each.may_exceed or bool((each.budgeted @ taken <= each.allowed).all()))

    def _whole(self, gangs: Integers) -> Integers:
        chosen = np.zeros(len(self.evictable.priority), dtype=bool)
        chosen[gangs] = True
        return np.where(self.evictable.of_gangs(chosen), self.evictable.pods, 0)

    def _by_efficiency(self, priority: int) -> Integers:
        """Return the gangs of ``priority`` and below whose eviction may help: those first that help most for each pod that they lose.

        A gang helps by the slots that it frees; if no role gets a slot, since the roles lack capacity together, by the amounts that it
        frees.
        """
        each, problem = self.evictable, self.emptied.problem
        here = np.flatnonzero(each.of_gangs(each.priority <= priority) & (each.node >= 0))
        # 1. The slots that each role would get on a node, divided among the gangs there.
        now, then = self._problem(np.zeros_like(each.pods)), self._problem(self._all_up_to(priority))
        gain = (np.minimum(then.slots, problem.count[:, None]) - np.minimum(now.slots, problem.count[:, None])) / problem.count[:, None]
        of_node = np.maximum(gain, 0.0).sum(axis=0)
        gangs, nodes = np.unique(np.stack([each.gang[here], each.node[here]]), axis=1)
        slots = np.zeros(len(each.priority))
        np.add.at(slots, gangs, (of_node / np.maximum(np.bincount(nodes, minlength=len(of_node)), 1))[nodes])
        # 2. The amounts, as parts of what the waiting gang requests of each capacity.
        requested = (problem.count @ problem.demand).astype(np.float64)
        share = np.divide(1.0, requested, out=np.zeros_like(requested), where=requested > 0.0)
        amounts = np.zeros(len(each.priority))
        np.add.at(amounts, each.gang[here], share @ (each.frees[:, here] * each.pods[here]))
        useful = np.flatnonzero(amounts > 0.0)
        total, lost = each.total[useful], each.sums(each.lost * each.pods)[useful]
        by_slots = np.divide(total, slots[useful], out=np.full(len(useful), np.inf), where=slots[useful] > 0.0)
        # A gang that a budget protects can't be evicted as a whole; it may still lose surplus.
        order = np.lexsort((useful, lost, total / amounts[useful], by_slots, self._exceeds(useful)))
        found: Integers = useful[order]
        return found

    def _exceeds(self, gangs: Integers) -> Mask:
        each = self.evictable
        if not len(each.allowed):
            return np.zeros(len(gangs), dtype=bool)
        of_gangs = np.zeros((len(each.allowed), len(each.priority)), dtype=np.int64)
        np.add.at(of_gangs.T, each.gang, (each.budgeted * each.pods).T)
        exceeds: Mask = np.any(of_gangs[:, gangs] > each.allowed[:, None], axis=0)
        return exceeds

    def _enough_of(self, order: Integers) -> int | None:
        """Return how many of the first gangs in ``order`` are enough if all their pods are gone; None if all are too few."""
        if not len(order) or not self._fits(self._whole(order)):
            return None
        too_few, enough = 0, len(order)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (too_few, middle) if self._fits(self._whole(order[:middle])) else (middle, enough)
        return enough

    def _without_the_unneeded(self, taken: Integers) -> Integers:
        """Return ``taken`` without gangs that aren't needed: those of high priority and with many pods are left out first."""
        each = self.evictable
        lost = each.sums(taken)
        gangs = np.flatnonzero(lost)
        order = gangs[np.lexsort((gangs, -lost[gangs], lost[gangs] <= each.surplus[gangs], -each.priority[gangs]))]
        for gang in order[:_MOST_REPRIEVES].tolist():
            rest = np.where(each.gang == gang, 0, taken)
            if self._fits(rest):
                taken = rest
        return taken


def _fits_in_turn(problem: Problem) -> bool:
    """Return whether the minimum fits if one role is placed after another, each on the nodes that take the fewest of its pods.

    The roles that fit least often go first. This takes a millisecond, and the exact solver fifty.
    """
    counts, left = np.zeros_like(problem.slots), problem.free.copy()
    for role in np.argsort(problem.slots.sum(axis=1), kind="stable").tolist():
        slots = slots_for(problem.demand[role], left, problem.admits[role])
        counts[role] = fill(slots, int(problem.count[role]), np.argsort(slots, kind="stable"))
        left -= problem.demand[role][:, None] * counts[role]
    return satisfies(problem, counts)


class _Program:
    """The mixed-integer program for the least cost: which pods of ``gangs`` go, and how the waiting gang is placed then.

    Its variables are, in this order:

    - the pods of each role on each node;
    - for each gang, whether all its pods go;
    - for each batch of a gang with surplus, the pods that go;
    - for each disruption budget, the evictions beyond it.
    """

    def __init__(self, emptied: EmptiedProblem, evictable: Evictable, gangs: Integers) -> None:
        self._emptied, self._evictable = emptied, evictable
        self.counts: Integers | None = None
        """The placement that was found: int64[roles, nodes]."""
        self.is_refuted = False
        """True if the solver has proved that there is no choice."""
        chosen = np.zeros(len(evictable.priority), dtype=bool)
        chosen[gangs] = True
        self._batches = np.flatnonzero(evictable.of_gangs(chosen))
        everything = np.zeros_like(evictable.pods)
        everything[self._batches] = evictable.pods[self._batches]
        problem = emptied.problem
        freed = evictable.freed(everything, len(problem.nodes))
        # On a node that is over-committed, evictions may free less than they seem to: such nodes count as they are.
        free = np.where((emptied.slack < 0).any(axis=0), np.maximum(emptied.slack, 0), emptied.slack + freed)
        self._freed = with_free(problem, free)
        self._slots = np.minimum(self._freed.slots, problem.count[:, None])
        wanted = np.einsum("rc,rn->cn", problem.demand, self._slots)
        self._contended: Mask = np.greater(wanted, np.maximum(emptied.slack, 0))
        self._assignments: AssignmentVariables = assignment_variables(self._freed, self._slots, np.asarray(self._contended.any(axis=0)))
        breakable = gangs[evictable.surplus[gangs] < evictable.total[gangs]]
        first = len(self._assignments.role)
        self._whole = np.full(len(evictable.priority), -1, dtype=np.int64)
        self._whole[breakable] = first + np.arange(len(breakable))
        first += len(breakable)
        owner = evictable.gang[self._batches]
        has_surplus = evictable.surplus[owner] > 0
        self._variable = self._whole[owner]  # of each batch
        self._variable[has_surplus] = first + np.arange(np.count_nonzero(has_surplus))
        self._each = np.where(has_surplus, 1, evictable.pods[self._batches])  # pods for each unit of the batch's variable
        first += int(np.count_nonzero(has_surplus))
        self._beyond = first + np.arange(len(evictable.allowed) if evictable.may_exceed else 0)
        self.size = first + len(self._beyond)
        self._breakable, self._has_surplus = breakable, has_surplus

    def solved(self, budget: Budget) -> tuple[Integers, bool] | None:
        """Return the pods to evict of each batch, and whether no choice costs less; None if the solver finds no choice."""
        rows = Rows()
        self._add_capacity(rows)
        add_members(rows, self._freed, self._assignments)
        self._add_surplus(rows)
        self._add_budgets(rows)
        upper = self._upper()
        values: Floats | None = None
        is_optimal = True
        for cost in self._costs():
            if not cost.any():
                continue
            status, found = optimize(rows, upper, _BRANCHES, cost=cost, seconds=budget.wall_seconds)
            if found is None:
                self.is_refuted |= values is None and status == Status.INFEASIBLE
                is_optimal = False
                break
            values = found
            is_optimal &= status == Status.OPTIMAL
            used = np.flatnonzero(cost)
            least = np.round(cost[used] @ np.round(values[used]))
            rows.add(np.zeros_like(used), used, cost[used], np.array([-np.inf]), np.array([least]))
        if values is None:
            return None
        whole = np.rint(values).astype(np.int64)
        self.counts = self._assignments.counts(self._freed.slots, whole[: len(self._assignments.role)])
        taken = np.zeros_like(self._evictable.pods)
        taken[self._batches] = whole[self._variable] * self._each
        return taken, is_optimal

    def _costs(self) -> list[Floats]:
        """Return the coefficients of each part of the cost, the most important part first: float64[variables]."""
        beyond, broken, pods, lost = (np.zeros(self.size) for _ in range(4))
        beyond[self._beyond] = 1.0
        broken[self._whole[self._breakable]] = 1.0
        np.add.at(pods, self._variable, self._each)
        np.add.at(lost, self._variable, self._each * self._evictable.lost[self._batches])
        # The solver is exact to a millionth only, so large numbers are rounded to thousandths of the largest.
        scale = max(1.0, float(lost.max(initial=0.0)) / 1000.0)
        return [beyond, broken, pods, np.round(lost / scale)]

    def _upper(self) -> Floats:
        each = self._evictable
        upper = np.ones(self.size)
        upper[: len(self._assignments.role)] = self._assignments.most
        upper[self._variable[self._has_surplus]] = each.pods[self._batches[self._has_surplus]]
        upper[self._beyond] = (each.budgeted @ each.pods)[: len(self._beyond)]
        return upper

    def _add_capacity(self, rows: Rows) -> None:
        """Add a row for each contended capacity of a node: the pods there take no more than is free and than the evictions free."""
        problem, each, single = self._freed, self._evictable, self._assignments.single
        role, node = self._assignments.role[:single], self._assignments.node[:single]
        at_node = each.node[self._batches]
        is_usable = np.append(~(self._emptied.slack < 0).any(axis=0), False)
        here = np.flatnonzero((at_node >= 0) & is_usable[at_node])
        for column in np.flatnonzero(self._contended.any(axis=1)).tolist():
            nodes = np.flatnonzero(self._contended[column])
            place = np.full(len(problem.nodes), -1, dtype=np.int64)
            place[nodes] = np.arange(len(nodes))
            asking = np.flatnonzero((place[node] >= 0) & (problem.demand[role, column] > 0))
            giving = here[(place[at_node[here]] >= 0) & (each.frees[column, self._batches[here]] > 0)]
            row = np.concatenate([place[node[asking]], place[at_node[giving]]])
            amount = np.concatenate([problem.demand[role[asking], column], -each.frees[column, self._batches[giving]] * self._each[giving]])
            free = np.maximum(self._emptied.slack[column, nodes], 0)
            common = np.zeros(len(nodes), dtype=np.int64)
            np.gcd.at(common, row, np.abs(amount))
            common = np.maximum(common, 1)
            largest = free // common
            np.maximum.at(largest, row, np.abs(amount) // common[row])
            scale = power_of_two(largest)
            variable = np.concatenate([asking, self._variable[giving]])
            rows.add(row, variable, amount / common[row] / scale[row], np.full(len(nodes), -np.inf), free // common / scale)

    def _add_surplus(self, rows: Rows) -> None:
        """Add rows for gangs with surplus: either all pods of a gang go, or no more than its surplus."""
        each = self._evictable
        for gang in self._breakable[each.surplus[self._breakable] > 0].tolist():
            whole = int(self._whole[gang])
            mine = np.flatnonzero(each.gang[self._batches] == gang)
            pods, variables = each.pods[self._batches[mine]], self._variable[mine]
            numbers = np.arange(len(mine))
            rows.add(
                np.concatenate([numbers, numbers]),
                np.concatenate([variables, np.full(len(mine), whole)]),
                np.concatenate([np.ones(len(mine)), -1.0 * pods]),
                np.zeros(len(mine)),
                np.full(len(mine), np.inf),
            )
            surplus, total = float(each.surplus[gang]), float(pods.sum())
            rows.add(
                np.zeros(len(mine) + 1, dtype=np.int64),
                np.append(variables, whole),
                np.append(np.ones(len(mine)), -(total - surplus)),
                np.array([-np.inf]),
                np.array([surplus]),
            )

    def _add_budgets(self, rows: Rows) -> None:
        """Add a row for each disruption budget: no more evictions than it allows, or than are counted beyond it."""
        each = self._evictable
        for number, allowed in enumerate(each.allowed.tolist()):
            mine = np.flatnonzero(each.budgeted[number, self._batches])
            if not len(mine):
                continue
            # Several batches may have one variable, such as all batches of a gang without surplus.
            variables, position = np.unique(self._variable[mine], return_inverse=True)
            pods: Floats = np.bincount(position.ravel(), weights=self._each[mine]).astype(np.float64)
            if len(self._beyond):
                variables, pods = np.append(variables, self._beyond[number]), np.append(pods, -1.0)
            rows.add(np.zeros(len(variables), dtype=np.int64), variables, pods, np.array([-np.inf]), np.array([float(max(0, allowed))]))
