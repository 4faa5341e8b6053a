"""Finds what would let a refused gang fit: more of one resource, more nodes, or the release of another gang.

All nodes are considered that could take a member if they were empty (``emptied_problem``). A search leaves out nodes that can take no
member now, but capacity freed on such nodes may help most. An amount of a resource is freed or added on a node, and then no more is free on
the node than if it were empty.
For a gang of one role, the amount is computed exactly. For other gangs, the solver finds the amount within bounded work and to its
tolerance (a millionth of what one node has). In both cases, counting in integers proves that the named amount suffices.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from allaboard.model.arrays import Integers
from allaboard.model.node import HOSTNAME
from allaboard.model.reasons import Kind
from allaboard.placement.highs import Status
from allaboard.placement.problem.problem import Problem
from allaboard.placement.remedies.emptied_problem import EmptiedProblem, with_chosen_domains, with_free
from allaboard.placement.rules.capacity import fill
from allaboard.placement.rules.program import Rows
from allaboard.placement.solvers.bounds import may_fit
from allaboard.placement.solvers.milp import Finding, satisfies, solve
from allaboard.placement.solvers.milp_model import (
    add_capacity,
    add_members,
    assignment_variables,
    contended,
    optimize,
    power_of_two,
)

_NODE_LIMIT = 30
_MOST_VARIABLES = 3_000  # of a MILP with a cost. A larger one would take longer than advice is worth.
_MOST_QUESTIONS = 20  # to the solver, for one kind of remedy. The bounds rule out most others.
_CELLS = 40_000  # roles times nodes, of all questions for one kind of remedy together.
_MOST_CELLS = 10_000  # roles times nodes, of one question.
_MOST_KINDS = 3  # of nodes that may be added.
_MOST_DOMAINS = 8  # in which remedies are looked for.


@dataclass(frozen=True, slots=True)
class More:
    """An amount of one resource that would let the gang fit.

    ``amount``: total, in the units of ``model.requests``. ``where``: (node, amount) of each node that needs more. ``pod``: uid of a pod
    that needs the amount. ``is_least``: no smaller amount of this resource suffices. ``domain``: the domain that roles would share, as
    ``label=value``; empty if no roles must share a domain. ``placement``: where the gang would then be placed, as (node, uid of a pod,
    number of pods of its role).
    """

    resource: str
    amount: int
    where: tuple[tuple[str, int], ...]
    pod: str
    is_least: bool
    domain: str = ""
    placement: tuple[tuple[str, str, int], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MoreNodes:
    """A number of new, empty nodes that would let the gang fit, if they are equal to the node ``like``.

    ``domain``: the domains in which the new nodes must be, as ``label=value``, if there are rules between members; else empty.
    """

    number: int
    like: str
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Remedies:
    """The remedies that were found, each of which would let the gang fit by itself; None for a kind of which none was found.

    At most one of ``more`` and ``nodes`` is set. ``blocker``: key of a bound gang whose release would suffice.
    """

    more: More | None = None
    nodes: MoreNodes | None = None
    blocker: str | None = None


def find_remedies(emptied: EmptiedProblem) -> Remedies:
    """Return the smallest remedy of each kind that lets the minimum fit; None for a kind if none is found."""
    if not emptied.problem.nodes or not emptied.problem.total:
        return Remedies()
    by_domain, are_all = with_chosen_domains(emptied, _MOST_DOMAINS)
    amounts = [least for each in by_domain if (least := _least_more(each))]
    more = min(amounts, key=lambda one: one[:2])[2] if amounts else None
    if more and not are_all:
        more = replace(more, is_least=False)
    nodes = [] if more else [number for each in by_domain if (number := _more_nodes(each))]
    blockers = [blocker for each in by_domain if (blocker := _first_blocker(each))]
    return Remedies(
        more,
        min(nodes, key=lambda one: one.number, default=None),
        min(blockers, key=[blocker.key for blocker in emptied.blockers].index, default=None),
    )


def _first_blocker(emptied: EmptiedProblem) -> str | None:
    asked, most = 0, _questions(emptied.problem)
    for blocker in emptied.blockers:
        slack = emptied.slack.copy()
        slack[:, blocker.rows] += blocker.frees
        problem = with_free(emptied.problem, slack)
        if not may_fit(problem):
            continue
        if asked == most:
            return None
        asked += 1
        if _fits(problem):
            return blocker.key
    return None


def _questions(problem: Problem) -> int:
    return max(1, min(_MOST_QUESTIONS, _CELLS // max(1, problem.slots.size)))


def _fits(problem: Problem) -> bool:
    """Return whether a gang that the bounds don't exclude is known to fit.

    For a gang of one role without rules between its members the bounds are exact. For other gangs the solver must find a placement.
    """
    if len(problem.roles) == 1 and not problem.couplings:
        return True
    return problem.slots.size <= _MOST_CELLS and solve(problem, _NODE_LIMIT).finding is Finding.FITS


def _least_more(emptied: EmptiedProblem) -> tuple[Fraction, int, More] | None:
    """Return the remedy that adds the smallest amount of one resource, as a share of what the gang requests of this resource.

    The result is (that share, the resource's position, the remedy).
    """
    problem = emptied.problem
    found = []
    for column in range(problem.resources):
        requested = int((problem.count * problem.demand[:, column]).sum())
        if not requested:
            continue
        slack = emptied.slack.copy()
        slack[column] = emptied.ceiling[column]
        raised = with_free(problem, slack)
        if not may_fit(raised):
            continue
        more = _computed(emptied, raised, column) if len(problem.roles) == 1 else _solved(emptied, raised, column)
        if more is not None:
            found.append((Fraction(more.amount, requested), column, more))
    return min(found, key=lambda one: one[:2], default=None)


def _computed(emptied: EmptiedProblem, raised: Problem, column: int) -> More | None:
    """Return the least amount of the resource at ``column`` that lets a gang of one role fit.

    The next slot of a node costs what the node lacks for one more pod; each further slot costs the request of a whole pod. The next slot
    never costs more than further slots, so taking the cheapest slots first gives the least amount.
    """
    problem = emptied.problem
    demand = int(problem.demand[0, column])
    now = problem.slots[0]
    lacking = max(problem.minimum, int(problem.least[0])) - int(now.sum())
    extra = np.minimum(raised.slots[0] - now, lacking)
    first = demand * (now + 1) - emptied.slack[column]
    order = np.argsort(np.where(extra > 0, first, np.iinfo(np.int64).max), kind="stable")
    taken = np.zeros_like(now)
    taken[order[: min(lacking, np.count_nonzero(extra))]] = 1
    taken += fill(extra - taken, lacking - int(taken.sum()), order)
    return _more_for(emptied, (now + taken)[None], column, is_least=True)


def _solved(emptied: EmptiedProblem, raised: Problem, column: int) -> More | None:
    """Return the least amount of the resource at ``column``, summed over the nodes, that lets the gang fit, as the solver finds it."""
    problem = emptied.problem
    slots = np.minimum(raised.slots, problem.count[:, None])
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
    # One variable for the amount added on each node that could run out of the column, at most what the node has when empty.
    nodes = np.flatnonzero(where[column])
    count = len(variables.role)
    ceiling = np.maximum(emptied.ceiling[column, nodes], 0)
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
    return _more_for(emptied, counts, column, is_least=status == Status.OPTIMAL)


def _more_for(emptied: EmptiedProblem, counts: Integers, column: int, *, is_least: bool) -> More | None:
    """Return how much more of the resource at ``column`` the placement ``counts`` needs. ``counts``: int64[roles, nodes].

    None if the placement needs no more of this resource, or if more of this resource doesn't suffice.
    """
    problem = emptied.problem
    added = np.maximum(np.einsum("r,rn->n", problem.demand[:, column], counts) - problem.free[column], 0)
    enough = problem.free.copy()
    enough[column] += added
    if not added.any() or (enough[column] > np.maximum(emptied.ceiling[column], 0)).any():
        return None
    if not satisfies(replace(problem, free=enough), counts):
        return None
    rows = np.flatnonzero(added)
    needing = int(np.argmax((counts[:, rows] * problem.demand[:, column, None]).sum(axis=1)))
    where = tuple((problem.nodes[row], int(added[row])) for row in rows.tolist())
    role, node = np.nonzero(counts)
    placement = tuple(
        (problem.nodes[row], problem.roles[of].pods[0], int(counts[of, row])) for of, row in zip(role.tolist(), node.tolist(), strict=True)
    )
    return More(problem.columns[column], int(added.sum()), where, problem.roles[needing].pods[0], is_least, emptied.where, placement)


def _more_nodes(emptied: EmptiedProblem) -> MoreNodes | None:
    """Return the fewest empty nodes of one kind that are known to suffice; None if none are.

    Only the kinds of nodes that take most pods are tried. No number is found if members depend on each other's hosts, unless each of them
    needs a host of its own.
    """
    problem = emptied.problem
    if any(each.label == HOSTNAME for each in problem.couplings):
        return None
    empty = with_free(problem, emptied.empty)
    kinds = np.unique(np.concatenate([emptied.empty, problem.admits]), axis=1, return_index=True)[1]
    taking = np.minimum(empty.slots[:, kinds], problem.count[:, None]).sum(axis=0)
    found = [
        MoreNodes(number, problem.nodes[row], emptied.domain_of(row))
        for row in kinds[np.argsort(-taking, kind="stable")][:_MOST_KINDS].tolist()
        if (number := _nodes_needed(emptied, row)) is not None
    ]
    return min(found, key=lambda one: one.number, default=None)


def _nodes_needed(emptied: EmptiedProblem, row: int) -> int | None:
    """Return how many more nodes like the one at ``row`` suffice; None if no number is found.

    The fewest nodes that the bounds allow are tried first, then up to 8 nodes more.
    """
    low, high, most = 0, 1, emptied.problem.total
    while high < most and not may_fit(_extended(emptied, row, high)):
        low, high = high, 2 * high
    if not may_fit(_extended(emptied, row, high := min(high, most))):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if may_fit(_extended(emptied, row, middle)) else (middle, high)
    for extra in (0, 1, 2, 4, 8)[: max(1, _questions(emptied.problem) // _MOST_KINDS)]:
        if _fits(_extended(emptied, row, high + extra)):
            return high + extra
    return None


def _extended(emptied: EmptiedProblem, row: int, number: int) -> Problem:
    """Return the problem with ``number`` more nodes like the one at ``row``: with its labels, but without the volumes that are free there.

    Only the fields that decide whether the gang fits are extended.
    """
    problem = emptied.problem
    rows = np.concatenate([np.arange(len(problem.nodes)), np.full(number, row)])
    offered = emptied.empty[:, row].copy()
    for column, reason in enumerate(problem.reasons):
        # Where volumes are provisioned, the column counts as many as the gang can need.
        is_local = reason.kind is Kind.NO_VOLUME and offered[column] < emptied.empty[column].max(initial=1)
        # A domain that has had one node would have more nodes. Only a host is a domain of its own.
        is_shared = reason.kind is Kind.ANTI_AFFINITY and reason.subject != HOSTNAME
        if is_local or is_shared:
            offered[column] = 0
    return with_free(
        replace(
            problem,
            nodes=tuple(problem.nodes[each] for each in rows.tolist()),
            admits=problem.admits[:, rows],
            couplings=tuple(each.restricted_to(rows) for each in problem.couplings),
        ),
        np.concatenate([np.maximum(emptied.slack, 0), np.repeat(offered[:, None], number, axis=1)], axis=1),
    )
