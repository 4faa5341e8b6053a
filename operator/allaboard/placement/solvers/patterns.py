"""The patterns of nodes: which numbers of pods of each role fit on a node together, and what they cost there.

Nodes that are equal in all that a search sees are of one *kind*: they have the same patterns, at the same costs.
"""

from typing import NamedTuple

import numpy as np

from allaboard.model.arrays import Floats, Integers
from allaboard.placement.problem.problem import Problem
from allaboard.placement.problem.valuation import Valuation

_DIGITS = 10  # Costs that differ by rounding only are equal.


class Kinds(NamedTuple):
    """The kinds of nodes, in the order in which equally good nodes are preferred: fuller nodes first, then by name.

    ``members``: int64[nodes], the positions of the nodes, by kind and in the same order. ``starts``: int64[kinds], the place of the first
    node of each kind among ``members``. ``sizes``: int64[kinds], the number of nodes. ``domains``: int64[kinds], their topology domain; 0
    if domains don't count.
    """

    members: Integers
    starts: Integers
    sizes: Integers
    domains: Integers


class Patterns(NamedTuple):
    """The patterns of one node of each kind, ordered by kind. The first pattern of each kind is empty.

    ``kind``: int64[patterns]. ``pods``: int64[patterns, roles]. ``costs``: float64[patterns]. ``starts``: int64[kinds], the position of the
    first pattern of each kind.
    """

    kind: Integers
    pods: Integers
    costs: Floats
    starts: Integers


def kinds_of(problem: Problem) -> Kinds:
    """Return the kinds of the nodes of ``problem``."""
    preferred = np.argsort(-problem.scoring.used.sum(axis=0).round(9), kind="stable")
    rows = np.ascontiguousarray(problem.node_table(with_dislike=True).T[preferred])
    whole_rows = rows.view([("", rows.dtype)] * rows.shape[1]).ravel()
    _, first, kind_of = np.unique(whole_rows, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    kind_of = rank[kind_of.ravel()]
    sizes = np.bincount(kind_of)
    members, starts = preferred[np.argsort(kind_of, kind="stable")], np.cumsum(sizes) - sizes
    return Kinds(members, starts, sizes, np.zeros_like(sizes) if problem.domains is None else problem.domains[members[starts]])


def patterns_of(problem: Problem, valuation: Valuation, kinds: Kinds, roles: Integers, limit: int) -> Patterns | None:
    """Return the patterns of one node of each kind; None if more than ``limit`` are possible.

    ``roles``: int64[roles], the order of their columns.
    """
    rows = kinds.members[kinds.starts]
    most = np.minimum(problem.slots[roles][:, rows], problem.count[roles][:, None])
    if (most + 1.0).prod(axis=0).sum() > limit:
        return None
    kind, pods, left = np.arange(len(rows)), np.zeros((len(rows), 0), dtype=np.int64), problem.free[:, rows]
    for role, limits in zip(roles.tolist(), most, strict=True):
        ways = limits[kind] + 1
        source = np.repeat(np.arange(len(kind)), ways)
        taken = np.arange(len(source)) - np.repeat(np.cumsum(ways) - ways, ways)
        left = left[:, source] - problem.demand[role][:, None] * taken
        fits = (left >= 0).all(axis=0)
        kind, left, pods = kind[source[fits]], left[:, fits], np.column_stack([pods[source], taken])[fits]
    by_role = np.empty_like(pods)
    by_role[:, roles] = pods
    if problem.devices is not None:
        _, fits = problem.assigned_on_devices(rows[kind], by_role)
        kind, pods, by_role = kind[fits], pods[fits], by_role[fits]
    costs = valuation.node_costs(rows[kind], by_role).round(_DIGITS)
    return Patterns(kind, pods, costs, np.flatnonzero(~pods.any(axis=1)))
