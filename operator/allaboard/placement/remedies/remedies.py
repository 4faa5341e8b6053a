"""What would make room for a gang that can't be placed: a little more of one resource, more nodes, or the leaving of another gang.

A search leaves out nodes that can take nobody now, and here they matter most: so this works on every node that could take a member if
it were empty (``reach``). More of a resource means freed or added on such nodes, up to what each has when it is empty.
For a gang of one role the answer is counted out exactly; otherwise the solver finds it, to its tolerance (a millionth of what one
node has), within bounded work. What is named has been counted in integers to be enough, whoever found it.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, freed, with_domains
from allaboard.placement.rules.capacity import fill
from allaboard.placement.solvers.bounds import bounds_of
from allaboard.placement.solvers.milp import Finding, satisfies, solve
from allaboard.placement.solvers.milp_model import (
    OPTIMAL,
    Rows,
    add_capacity,
    add_members,
    assignment_variables,
    contended,
    optimize,
    power_of_two,
)

_NODE_LIMIT = 30
_MOST_VARIABLES = 3_000  # of a program with a cost; more would take longer than an answer is worth
_MOST_ASKED = 20  # questions to the solver of a kind; the bounds rule most out
_CELLS = 40_000  # roles times nodes of all questions of a kind together
_MOST_CELLS = 10_000  # of one question
_MOST_KINDS = 3
_MOST_DOMAINS = 8  # for which it is asked what would help there


@dataclass(frozen=True, slots=True)
class More:
    """``amount`` more of ``resource``, in the units of ``model.requests``: ``where`` has (node, amount). ``pod`` is one that needs it.

    ``is_least``: less of this resource would not do. ``domain`` is the one that roles would share then, as ``label=value``.
    """

    resource: str
    amount: int
    where: tuple[tuple[str, int], ...]
    pod: str
    is_least: bool
    domain: str = ""


@dataclass(frozen=True, slots=True)
class MoreNodes:
    """So many more nodes like the one that is named, empty, in the ``domain`` that roles would share then, as ``label=value``."""

    number: int
    like: str
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Remedies:
    """What would help, each by itself: at most one of ``more`` and ``nodes``; ``blocker`` is a gang, by the key it was given with."""

    more: More | None = None
    nodes: MoreNodes | None = None
    blocker: str | None = None


def find_remedies(around: EmptiedProblem) -> Remedies:
    """What would make the minimum fit, of each kind the least; nothing when nothing would, or it wasn't found."""
    if not around.problem.nodes or not around.problem.total:
        return Remedies()
    within, are_all = with_domains(around, _MOST_DOMAINS)
    amounts = [least for each in within if (least := _least_more(each))]
    more = min(amounts, key=lambda one: one[:2])[2] if amounts else None
    if more and not are_all:
        more = replace(more, is_least=False)
    nodes = [] if more else [number for each in within if (number := _more_nodes(each))]
    blockers = [blocker for each in within if (blocker := _first_blocker(each))]
    return Remedies(
        more,
        min(nodes, key=lambda one: one.number, default=None),
        min(blockers, key=[blocker.key for blocker in around.blockers].index, default=None),
    )


def _first_blocker(around: EmptiedProblem) -> str | None:
    asked, most = 0, _questions(around.problem)
    for blocker in around.blockers:
        slack = around.slack.copy()
        slack[:, blocker.rows] += blocker.frees
        problem = freed(around.problem, slack)
        if not _may_fit(problem):
            continue
        if asked == most:
            return None
        asked += 1
        if _fits(problem):
            return blocker.key
    return None


def _questions(problem: Problem) -> int:
    return max(1, min(_MOST_ASKED, _CELLS // max(1, problem.slots.size)))


def _may_fit(problem: Problem) -> bool:
    if not problem.slots.any():
        return bool(problem.lacking(np.zeros_like(problem.count)) <= 0)
    most = bounds_of(problem)
    return most.placeable >= problem.minimum and bool(problem.lacking(np.array(most.most)) <= 0)


def _fits(problem: Problem) -> bool:
    """Of what may fit, whether it is known to: of one role it is, of several the solver must say so."""
    if len(problem.roles) == 1:
        return True
    return problem.slots.size <= _MOST_CELLS and solve(problem, _NODE_LIMIT).finding is Finding.FITS


def _least_more(around: EmptiedProblem) -> tuple[Fraction, int, More] | None:
    """The resource of which the least is lacking, measured by what the gang asks of it in all: that part of it, and its column."""
    problem = around.problem
    found = []
    for column in range(problem.resources):
        wanted = int((problem.count * problem.demand[:, column]).sum())
        if not wanted:
            continue
        raised = around.slack.copy()
        raised[column] = around.ceiling[column]
        roomy = freed(problem, raised)
        if not _may_fit(roomy):
            continue
        more = _counted_out(around, roomy, column) if len(problem.roles) == 1 else _solved(around, roomy, column)
        if more is not None:
            found.append((Fraction(more.amount, wanted), column, more))
    return min(found, key=lambda one: one[:2], default=None)


def _counted_out(around: EmptiedProblem, roomy: Problem, column: int) -> More | None:
    """For one role: a node's next seat costs what is lacking of one pod there, each further one a whole pod's worth.

    The next seat of a node never costs more than its further ones, so taking the cheapest seats first is the least there is.
    """
    problem = around.problem
    demand = int(problem.demand[0, column])
    now = problem.slots[0]
    lacking = max(problem.minimum, int(problem.least[0])) - int(now.sum())
    room = np.minimum(roomy.slots[0] - now, lacking)
    first = demand * (now + 1) - around.slack[column]
    order = np.argsort(np.where(room > 0, first, np.iinfo(np.int64).max), kind="stable")
    taken = np.zeros_like(now)
    taken[order[: min(lacking, np.count_nonzero(room))]] = 1
    taken += fill(room - taken, lacking - int(taken.sum()), order)
    return _more(around, (now + taken)[None], column, is_least=True)


def _solved(around: EmptiedProblem, roomy: Problem, column: int) -> More | None:
    """By the solver: the least that must be added of one column, summed over the nodes."""
    problem = around.problem
    slots = np.minimum(roomy.slots, problem.count[:, None])
    free = problem.free[column]
    where = contended(problem.demand, slots, problem.free)
    variables = assignment_variables(problem, slots, np.asarray(where.any(axis=0)))
    if len(variables.role) > _MOST_VARIABLES:
        return None
    rows = Rows()
    others = where.copy()
    others[column] = False
    add_capacity(rows, problem, others, variables)
    add_members(rows, problem, variables)
    # What is added, one variable for each node that could run out of the column, and no more than the node has when it is empty.
    nodes = np.flatnonzero(where[column])
    count = len(variables.role)
    ceiling = np.maximum(around.ceiling[column, nodes], 0)
    common = int(np.gcd.reduce(np.concatenate([problem.demand[:, column], free[nodes], ceiling])))
    scale = common * float(power_of_two(np.array([int(ceiling.max(initial=1)) // common]))[0])
    role, node = variables.role[: variables.single], variables.node[: variables.single]
    mine = np.flatnonzero(where[column, node] & (problem.demand[role, column] > 0))
    rows.add(
        np.concatenate([np.searchsorted(nodes, node[mine]), np.arange(len(nodes))]),
        np.concatenate([mine, count + np.arange(len(nodes))]),
        np.concatenate([problem.demand[role[mine], column] / scale, -np.ones(len(nodes))]),
        np.full(len(nodes), -np.inf),
        free[nodes] / scale,
    )
    upper = np.concatenate([variables.most.astype(np.float64), (ceiling - free[nodes]) / scale])
    added = np.concatenate([np.zeros(count), np.ones(len(nodes))])
    status, values = optimize(rows, upper, _NODE_LIMIT, cost=added, whole=1.0 - added)
    if values is None:
        return None
    counts = variables.counts(slots, np.rint(values[:count]).astype(np.int64))
    return _more(around, counts, column, is_least=status == OPTIMAL)


def _more(around: EmptiedProblem, counts: Integers, column: int, *, is_least: bool) -> More | None:
    """What ``counts``: int64[roles, nodes] needs more of a column, if that is all it needs."""
    problem = around.problem
    added = np.maximum(np.einsum("r,rn->n", problem.demand[:, column], counts) - problem.free[column], 0)
    enough = problem.free.copy()
    enough[column] += added
    if not added.any() or (enough[column] > np.maximum(around.ceiling[column], 0)).any():
        return None
    if not satisfies(replace(problem, free=enough), counts):
        return None
    rows = np.flatnonzero(added)
    needing = int(np.argmax((counts[:, rows] * problem.demand[:, column, None]).sum(axis=1)))
    where = tuple((problem.nodes[row], int(added[row])) for row in rows.tolist())
    return More(problem.columns[column], int(added.sum()), where, problem.roles[needing].pods[0], is_least, around.where)


def _more_nodes(around: EmptiedProblem) -> MoreNodes | None:
    """The fewest nodes of one kind that, added empty, are found to be enough. Kinds that take most pods come first."""
    problem = around.problem
    empty = freed(problem, around.empty)
    kinds = np.unique(np.concatenate([around.empty, problem.admits]), axis=1, return_index=True)[1]
    taking = np.minimum(empty.slots[:, kinds], problem.count[:, None]).sum(axis=0)
    found = [
        MoreNodes(number, problem.nodes[row], around.where)
        for row in kinds[np.argsort(-taking, kind="stable")][:_MOST_KINDS].tolist()
        if (number := _nodes_needed(around, row)) is not None
    ]
    return min(found, key=lambda one: one.number, default=None)


def _nodes_needed(around: EmptiedProblem, row: int) -> int | None:
    """How many more of the node at ``row``: the fewest that the bounds allow, or not many more."""

    low, high, most = 0, 1, around.problem.total
    while high < most and not _may_fit(_extended(around, row, high)):
        low, high = high, 2 * high
    if not _may_fit(_extended(around, row, high := min(high, most))):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _may_fit(_extended(around, row, middle)) else (middle, high)
    for extra in (0, 1, 2, 4, 8)[: max(1, _questions(around.problem) // _MOST_KINDS)]:
        if _fits(_extended(around, row, high + extra)):
            return high + extra
    return None


def _extended(around: EmptiedProblem, row: int, number: int) -> Problem:
    """The problem with more nodes like that at ``row``; only what says whether it fits."""
    problem = around.problem

    def joined(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        return np.concatenate([old, np.repeat(new[:, None], number, axis=1)], axis=1)

    return freed(
        replace(
            problem,
            nodes=problem.nodes + (problem.nodes[row],) * number,
            admits=joined(problem.admits, problem.admits[:, row]),
        ),
        joined(np.maximum(around.slack, 0), around.empty[:, row]),
    )
