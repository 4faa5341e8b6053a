"""Selects the gangs of a contest that are best placed together, by a mixed-integer linear program (MILP).

The relaxation of the program bounds the value of every selection; the solver finds one selection. Pods of one role are interchangeable,
even if they belong to different gangs. So the program has a variable for the pods of each role on each node, as the program of a single
gang has (``milp_model``). Further variables say whether each gang is placed, and how many pods of each of its roles are placed. Which
gang's pods are on a node needs no variables.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.contest.contest import Contest, ContestState, problem_in_state
from allaboard.placement.highs import Status
from allaboard.placement.rules.program import AssignmentVariables, Rows
from allaboard.placement.solvers.milp_model import add_capacity, assignment_variables, contended, optimize

_MOST_VARIABLES = 8000  # with more, the relaxation would take longer than the search
_BOUND_MICROSECONDS = 100  # of the relaxation, estimated for one variable
_SELECTION_MICROSECONDS = 4  # of the program, estimated for one variable and one role
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """The gangs that the solver has selected, and the nodes of their pods.

    ``placed``: positions of these gangs. ``members``: for each gang int64[own roles], how many pods of each of its roles are placed.
    ``counts``: int64[roles, nodes], the pods of all these gangs together.
    """

    placed: tuple[int, ...]
    members: tuple[Integers, ...]
    counts: Integers


class Selection:
    """Selects the best of ``gangs`` (positions in ``contest``) for the capacity that is free in ``state``, by a linear program.

    ``gang_values``: float64[gangs], the value of placing each gang, not negative. The value doesn't depend on which members make up the
    minimum. With ``effort``, in microseconds, the solver isn't run if its estimated time is longer.
    """

    def __init__(self, contest: Contest, gangs: Sequence[int], state: ContestState, gang_values: Floats, effort: int = 0) -> None:
        self._contest, self._gangs, self._gang_values = contest, gangs, gang_values
        problem = contest.problem
        now = problem_in_state(problem, state, np.arange(len(problem.roles)), np.arange(len(problem.nodes)), is_relative=True)
        self._count = np.zeros(len(problem.roles), dtype=np.int64)
        for position in gangs:
            np.add.at(self._count, contest.gangs[position].roles, contest.gangs[position].count)
        self._slots = np.minimum(state.slots, self._count[:, None])
        where = contended(problem.demand, self._slots, now.free)
        self._variables = assignment_variables(now, self._slots, np.asarray(where.any(axis=0)))
        self._rows = Rows()
        self._upper = np.zeros(0)
        self._members: list[slice] = []
        variables = len(self._variables.role)
        most = min(_MOST_VARIABLES, effort // _BOUND_MICROSECONDS) if effort else _MOST_VARIABLES
        self.is_usable = problem.devices is None and 0 < variables <= most
        self._can_select = not effort or variables * len(problem.roles) * _SELECTION_MICROSECONDS <= effort
        if self.is_usable:
            add_capacity(self._rows, now, where, self._variables)
            self._add_gangs(self._variables)

    def _add_gangs(self, variables: AssignmentVariables) -> None:
        """Add variables for whether each gang is placed, and for how many pods of each of its roles are placed.

        For each role, these pods of all gangs are as many as the pods on all nodes.
        """
        gangs = [self._contest.gangs[position] for position in self._gangs]
        first = len(variables.role)
        after = first + len(gangs)
        upper = [variables.most.astype(np.float64), np.ones(len(gangs))]
        row, column, value = [variables.role], [np.arange(first)], [np.ones(first)]
        for number, gang in enumerate(gangs):
            own = np.arange(after, after + len(gang.roles))
            self._members.append(slice(after, after + len(gang.roles)))
            after += len(gang.roles)
            upper.append(gang.count.astype(np.float64))
            row.append(gang.roles)
            column.append(own)
            value.append(-np.ones(len(own)))
            placed, each, ones = np.full(len(own), first + number), np.arange(len(own)), np.ones(len(own))
            for bound, low, high in ((gang.rule_arrays.least, 0.0, np.inf), (gang.count, -np.inf, 0.0)):
                # Each role has at least the pods that rules require and at most its pods, and no pods unless the gang is placed.
                entries = np.concatenate([ones, -bound.astype(np.float64)])
                limits = (np.full(len(own), low), np.full(len(own), high))
                self._rows.add(np.concatenate([each, each]), np.concatenate([own, placed]), entries, *limits)
            members = np.append(ones, -float(gang.minimum))
            self._rows.add(np.zeros(len(members), dtype=np.int64), np.append(own, first + number), members, np.zeros(1), np.zeros(1))
        roles = len(self._count)
        self._rows.add(np.concatenate(row), np.concatenate(column), np.concatenate(value), np.zeros(roles), np.zeros(roles))
        self._upper = np.concatenate(upper)
        self._cost = np.zeros(len(self._upper))
        self._cost[first : first + len(gangs)] = -self._gang_values

    def bound(self) -> float:
        """Return a value that no selection exceeds."""
        total = float(self._gang_values.sum())
        if not self.is_usable:
            return total
        status, values = optimize(self._rows, self._upper, 1, cost=self._cost, whole=np.zeros(len(self._upper)))
        return min(total, -float(self._cost @ values) + _EPSILON) if status == Status.OPTIMAL and values is not None else total

    def best(self, branches: int, seconds: float = np.inf) -> Selected | None:
        """Return the best selection found within ``branches`` and ``seconds``; None if none is found.

        The caller counts the selection again in integers, since the solver has tolerances.
        """
        if not (self.is_usable and self._can_select):
            return None
        _, values = optimize(self._rows, self._upper, branches, cost=self._cost, seconds=seconds)
        if values is None:
            return None
        whole = np.rint(values).astype(np.int64)
        first = len(self._variables.role)
        placed = [number for number in range(len(self._gangs)) if whole[first + number]]
        return Selected(
            placed=tuple(self._gangs[number] for number in placed),
            members=tuple(whole[self._members[number]] for number in placed),
            counts=self._variables.counts(self._slots, whole[:first]),
        )
