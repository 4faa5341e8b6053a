"""Which gangs of a contest could be placed together at best: a bound by linear relaxation, and the solver's own choice.

Pods of one role are alike, whoever's they are. So the program has one variable for the pods of a role on a node, one for whether a gang is
placed, and nothing for which of them sits where: it is hardly larger than that of a single gang (``program``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.contest.contest import Contest, ContestState, as_it_stands
from allaboard.placement.solvers.milp_model import (
    OPTIMAL,
    AssignmentVariables,
    Rows,
    add_capacity,
    assignment_variables,
    contended,
    optimize,
)

_MOST_VARIABLES = 8000  # the relaxation of more would take longer than the search
_BOUND = 100  # microseconds of one variable, about
_CHOICE = 4  # and of one variable and role
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """``placed`` are positions of gangs; ``counts``: int64[roles, nodes], pods of all of them together, as many of each gang's roles as
    ``members``: int64[own roles] says.
    """

    placed: tuple[int, ...]
    members: tuple[Integers, ...]
    counts: Integers


class Selection:
    """The choice among ``gangs``, positions in ``contest``, once others sit as in ``standing``; by ``worth``: float64[gangs], not negative.

    The worth of a gang is that of all its members that must be placed, whichever these are. With ``effort`` it isn't asked for what may
    take more microseconds than that.
    """

    def __init__(self, contest: Contest, gangs: Sequence[int], standing: ContestState, worth: Floats, effort: int = 0) -> None:
        self._contest, self._gangs, self._worth = contest, gangs, worth
        problem = contest.problem
        now = as_it_stands(problem, standing, np.arange(len(problem.roles)), np.arange(len(problem.nodes)), is_relative=True)
        self._count = np.zeros(len(problem.roles), dtype=np.int64)
        for position in gangs:
            np.add.at(self._count, contest.gangs[position].roles, contest.gangs[position].count)
        self._slots = np.minimum(standing.slots, self._count[:, None])
        where = contended(problem.demand, self._slots, now.free)
        self._variables = assignment_variables(now, self._slots, np.asarray(where.any(axis=0)))
        self._rows = Rows()
        self._upper = np.zeros(0)
        self._members: list[slice] = []
        variables = len(self._variables.role)
        most = min(_MOST_VARIABLES, effort // _BOUND) if effort else _MOST_VARIABLES
        self.is_usable = problem.devices is None and 0 < variables <= most
        self._is_choosable = not effort or variables * len(problem.roles) * _CHOICE <= effort
        if self.is_usable:
            add_capacity(self._rows, now, where, self._variables)
            self._add_gangs(self._variables)

    def _add_gangs(self, variables: AssignmentVariables) -> None:
        """Variables for whether gangs are placed, then for how many of each of their roles are; their pods are those that sit."""
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
                # No fewer of each role than there must be, no more than there are, and nobody unless the gang is placed.
                entries = np.concatenate([ones, -bound.astype(np.float64)])
                limits = (np.full(len(own), low), np.full(len(own), high))
                self._rows.add(np.concatenate([each, each]), np.concatenate([own, placed]), entries, *limits)
            members = np.append(ones, -float(gang.minimum))
            self._rows.add(np.zeros(len(members), dtype=np.int64), np.append(own, first + number), members, np.zeros(1), np.zeros(1))
        roles = len(self._count)
        self._rows.add(np.concatenate(row), np.concatenate(column), np.concatenate(value), np.zeros(roles), np.zeros(roles))
        self._upper = np.concatenate(upper)
        self._cost = np.zeros(len(self._upper))
        self._cost[first : first + len(gangs)] = -self._worth

    def bound(self) -> float:
        """The worth that no choice exceeds."""
        total = float(self._worth.sum())
        if not self.is_usable:
            return total
        status, values = optimize(self._rows, self._upper, 1, cost=self._cost, whole=np.zeros(len(self._upper)))
        return min(total, -float(self._cost @ values) + _EPSILON) if status == OPTIMAL and values is not None else total

    def best(self, branches: int, seconds: float = np.inf) -> Selected | None:
        """The best choice found within so many branches, and in so much time, which is to be counted again in integers."""
        if not (self.is_usable and self._is_choosable):
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
