"""Preferences of pods about other pods: pods attract or repel each other within topology domains.

Preferred affinity, preferred anti-affinity and preferred topology spread (``ScheduleAnyway``) are one thing here. What a member costs on a
node depends on the bound pods in the node's domains, and falls or rises by the same amount with each further member there. Bound pods are
part of what a node costs a member. Members are pairs: each member that states a preference costs so much for each other member in its
domain that the preference selects.

Without other members the cost of a pod is kube-scheduler's score: 1 for 0 points, and 0 for 100 points (interpodaffinity/scoring.go,
podtopologyspread/scoring.go, 1.37). Costs aren't rounded to whole points. kube-scheduler relates the scores of a pod to the best and the
worst node. In a gang they are also related to the domain in which all members would be together.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import Neighbours, SchedulingSpec
from allaboard.model.podterms import SpreadConstraint
from allaboard.placement.rules.coupling import RolesOf

AmountsOf = Callable[[str, Mapping[str, int]], tuple[Integers, Integers]]
"""Returns the domain of each node by a label, -1 without it, and the amount for the label's value: int64[nodes] each."""


@dataclass(frozen=True, slots=True, eq=False)
class NeighbourDislikes:
    """The costs of a pod on each node by its preferences about other pods, 0..1: ``pods`` and ``spread``, float64[nodes] each.

    ``pods`` are preferred affinity and anti-affinity, and ``spread`` is preferred topology spread. Only bound pods count here. ``span`` is
    the difference between the raw scores of affinity that cost 0 and 1. ``steps`` has for each spread constraint the cost of each further
    pod in a domain.
    """

    pods: Floats
    spread: Floats
    span: float
    steps: tuple[float, ...]


def neighbour_dislikes(
    neighbours: Neighbours, constraints: Sequence[SpreadConstraint], amounts_of: AmountsOf, may_use: Mask
) -> NeighbourDislikes:
    """Return what preferences about other pods cost on each node, relative to the nodes that the pod ``may_use``: bool[nodes]."""
    scores = np.zeros(len(may_use))
    for label, by_value in neighbours.scores:
        _, amounts = amounts_of(label, dict(by_value))
        scores += amounts
    worst, best = _range(scores, may_use)
    span = best - worst + neighbours.attracting + neighbours.repelling
    pods = np.clip((best + neighbours.attracting - scores) / span, 0.0, 1.0) if span else np.zeros(len(scores))
    spread, steps = _spread_dislikes(neighbours, constraints, amounts_of, may_use)
    return NeighbourDislikes(pods, spread, float(span), steps)


def _spread_dislikes(
    neighbours: Neighbours, constraints: Sequence[SpreadConstraint], amounts_of: AmountsOf, may_use: Mask
) -> tuple[Floats, tuple[float, ...]]:
    found = [amounts_of(each.topology_key, dict(counts)) for each, counts in zip(constraints, neighbours.counts, strict=True)]
    # A node that lacks one of the labels has the worst score.
    has_labels = np.array([domains >= 0 for domains, _ in found]).reshape(-1, len(may_use)).all(axis=0)
    scored = may_use & has_labels
    scores, largest, steps = np.zeros(len(may_use)), 0.0, []
    for each, (domains, counts), members in zip(constraints, found, neighbours.members, strict=True):
        # kube-scheduler weighs a constraint by the number of domains: otherwise a label with many domains would have no influence.
        weight = math.log(len(np.unique(domains[scored])) + 2)
        scores += counts * weight + (each.max_skew - 1)
        largest += members * weight
        steps.append(weight)
    least, most = _range(scores, scored)
    largest += most
    if largest <= 0:
        return np.where(has_labels, 0.0, 1.0), (0.0,) * len(steps)
    spread = np.where(has_labels, np.clip((scores - least) / largest, 0.0, 1.0), 1.0)
    return spread, tuple(step / largest for step in steps)


def _range(values: Floats, where: Mask) -> tuple[float, float]:
    """Return the smallest and the largest of ``values`` at ``where``; zeros if there is none."""
    return (float(values[where].min()), float(values[where].max())) if where.any() else (0.0, 0.0)


class Nodes(Protocol):
    """The nodes of a problem, as preferences between members see them."""

    def domains(self, label: str) -> Integers:
        """Return the domain of each node by a node label: int64[nodes], -1 for a node without the label."""

    def neighbour_dislikes(self, spec: SchedulingSpec) -> NeighbourDislikes | None:
        """Return what the preferences of ``spec`` about other pods cost on each node; None without any."""


@dataclass(frozen=True, slots=True)
class AttractionRule:
    """A preference of the members ``holders``, whose pods have ``spec``, about the members ``matched``. Members are given by UID.

    ``weight`` is the weight of a preferred affinity, negative for anti-affinity. For a preferred topology spread it is None, and
    ``constraint`` is the position of the constraint in the spec.
    """

    label: str
    holders: Collection[str]
    matched: Collection[str]
    spec: SchedulingSpec
    weight: int | None = None
    constraint: int = 0

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the preference distinguishes."""
        return self.holders, self.matched

    def arrays(self, roles_of: RolesOf, roles: int, nodes: Nodes) -> "Attraction | None":
        """Return the preference by roles and nodes; None if it concerns none of the ``roles`` roles, or costs nothing."""
        holders, matched = roles_of(self.holders), roles_of(self.matched)
        dislikes = nodes.neighbour_dislikes(self.spec)
        if not holders or not matched or dislikes is None:
            return None
        is_spread = self.weight is None
        cost = dislikes.steps[self.constraint] if self.weight is None else -self.weight / dislikes.span if dislikes.span else 0.0
        domains = nodes.domains(self.label)
        for constraint in self.spec.preferred_spread if is_spread else ():
            domains = np.where(nodes.domains(constraint.topology_key) >= 0, domains, -1)  # the pods of other nodes don't count
        if not cost or not (domains >= 0).any():
            return None
        pairs = np.zeros((roles, roles))
        pairs[np.ix_(list(holders), list(matched))] = cost
        return Attraction(domains, pairs, is_spread)


@dataclass(frozen=True, eq=False)  # without slots, so that properties are cached: a search asks for them with each pod and each move
class Attraction:
    """The costs of members for each other in the domains of a label.

    ``domains``: int64[nodes], the domain of each node, -1 for a node whose pods don't count. ``pairs``: float64[roles, roles]. A member of
    the first role costs so much for each other member of the second role in its domain. The cost is negative if the members attract each
    other. ``is_spread``: whether the preference is a topology spread.
    """

    domains: Integers
    pairs: Floats
    is_spread: bool = False

    @cached_property
    def is_per_node(self) -> bool:
        """Return whether each domain is one node, as that of ``kubernetes.io/hostname``."""
        known = self.domains[self.domains >= 0]
        return len(np.unique(known)) == len(known)

    @property
    def classes(self) -> Integers:
        """A number for each node: int64[nodes]. Nodes with equal numbers are alike for the attraction."""
        has_domain = np.asarray(self.domains >= 0, dtype=np.int64)
        return has_domain if self.is_per_node else self.domains

    def times(self, factor: float) -> "Attraction":
        """Return the attraction with costs ``factor`` times as large."""
        return replace(self, pairs=self.pairs * factor)

    def restricted_to(self, rows: Integers) -> "Attraction":
        """Return the attraction on some of the nodes, given by position."""
        return replace(self, domains=self.domains[rows])

    def of_roles(self, roles: Integers) -> "Attraction":
        """Return the attraction of some of the roles, given by position. A role may occur several times, as parts of the role."""
        return replace(self, pairs=self.pairs[np.ix_(roles, roles)])

    def costs(self, counts: Integers) -> Floats:
        """Return what the members cost each other in each placement: float64[plans]. ``counts``: int64[plans, roles, nodes]."""
        costs: Floats = pair_costs(self.pairs, self.in_domains(counts).astype(np.float64)).sum(axis=-1)
        return costs

    def in_domains(self, counts: Integers) -> Integers:
        """Return the members of each role in each domain: int64[..., roles, domains]. ``counts``: int64[..., roles, nodes].

        The domains are numbered as by ``positions``.
        """
        order, starts = self._by_domain
        if not len(order):
            return np.zeros((*counts.shape[:-1], 0), dtype=np.int64)
        found: Integers = np.add.reduceat(counts[..., order], starts, axis=-1)
        return found

    @cached_property
    def _by_domain(self) -> tuple[Integers, Integers]:
        """The nodes that are in domains, domain by domain, and the position of the first node of each domain: int64[*] each."""
        order = np.argsort(self.domains, kind="stable")[np.count_nonzero(self.domains < 0) :]
        return order, np.flatnonzero(np.diff(self.domains[order], prepend=-1))

    @cached_property
    def positions(self) -> Integers:
        """The position of each node's domain among the domains that any node has: int64[nodes], -1 for a node without a domain."""
        known = np.unique(self.domains[self.domains >= 0])
        return np.where(self.domains >= 0, np.searchsorted(known, self.domains), -1)


def pair_costs(pairs: Floats, members: Floats) -> Floats:
    """Return what the members of each place cost each other: float64[..., places].

    ``pairs``: float64[roles, roles]. ``members``: float64[..., roles, places], how many members of each role are there. No member is a pair
    with itself.
    """
    costs: Floats = (members * (pairs @ members)).sum(axis=-2) - np.diagonal(pairs) @ members
    return costs


def moved_costs(attraction: Attraction, counts: Integers, moving: Integers, sources: Integers, targets: Integers) -> Floats:
    """Return what the members ``moving`` add to the cost if they move from each of ``sources`` to each of ``targets``.

    ``counts``: int64[roles, nodes], the placement before. ``moving``: int64[roles, sources], the members that leave each source.
    ``sources``, ``targets``: positions of nodes. The result is float64[sources, targets].
    """
    each_way = attraction.pairs + attraction.pairs.T
    members, positions = attraction.in_domains(counts), attraction.positions
    # The column for nodes without a domain, in which members cost each other nothing, is the last one.
    met = np.concatenate([(moving.T @ each_way) @ members, np.zeros((moving.shape[1], 1))], axis=1)
    among = np.einsum("rk,rs,sk->k", moving, attraction.pairs, moving)
    alone = np.diagonal(attraction.pairs) @ moving
    from_, to = positions[sources], positions[targets]
    left = np.where(from_ >= 0, among + alone - met[np.arange(len(sources)), from_], 0.0)
    come = np.where(to >= 0, (among - alone)[:, None] + met[:, to], 0.0)
    return np.where(from_[:, None] == to, 0.0, left[:, None] + come)


def added_costs(attractions: Sequence[Attraction], counts: Integers, role: int) -> Floats:
    """Return what one more member of ``role`` on each node costs beside the placement ``counts``: float64[nodes].

    Only what ``attractions`` cost is counted. ``counts``: int64[roles, nodes].
    """
    total = np.zeros(counts.shape[1])
    for each in attractions:
        added = np.append((each.pairs[role] + each.pairs[:, role]) @ each.in_domains(counts), 0.0)
        total += added[each.positions]
    return total
