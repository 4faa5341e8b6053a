"""Required topology spread: the domains of a label have about as many selected pods each (kube-scheduler podtopologyspread)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.podterms import SpreadConstraint
from allaboard.model.reasons import Kind, Reason
from allaboard.placement.rules.coupling import BetweenPods, Places, RolesOf
from allaboard.placement.rules.matching import affinity_matches, untolerated_taint
from allaboard.placement.rules.program import AssignmentVariables, Rows


def is_eligible(node: Node, constraint: SpreadConstraint, keys: Collection[str], spec: SchedulingSpec) -> bool:
    """Return whether the pods of ``node`` count for ``constraint`` of a pod with ``spec``, which is spread by all labels ``keys``."""
    if any(key not in node.labels for key in keys):
        return False
    if constraint.honors_affinity and not affinity_matches(spec, node):
        return False
    return not constraint.honors_taints or untolerated_taint(node.taints, spec.tolerations) is None


@dataclass(frozen=True, slots=True)
class SpreadRule:
    """In a domain with holders are at most ``constraint.max_skew`` selected pods more than in the eligible domain with the fewest.

    ``matched`` are the members that the constraint selects. ``bound``: (value of the label, number) of the selected bound pods. A domain is
    eligible if one of its nodes is. An eligible node has all labels ``keys``. The node affinity and the tolerations of ``spec`` admit it,
    as far as the constraint honours them.
    """

    constraint: SpreadConstraint
    keys: tuple[str, ...]
    holders: Collection[str]
    matched: Collection[str]
    bound: tuple[tuple[str, int], ...]
    spec: SchedulingSpec

    @property
    def label(self) -> str:
        """The node label whose values are the domains."""
        return self.constraint.topology_key

    @property
    def reason(self) -> Reason:
        """The rule as a reason."""
        return Reason(Kind.SPREAD, self.label)

    @property
    def members(self) -> Collection[str]:
        """The members whose nodes the rule restricts."""
        return self.holders

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes."""
        return self.holders, self.matched

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason for the first domain with holders that has too many selected pods."""
        known = {node.labels[self.label] for node in nodes if is_eligible(node, self.constraint, self.keys, self.spec)}
        totals = dict.fromkeys(known, 0) | {value: number for value, number in self.bound if value in known}
        for uid, node in assigned.items():
            if uid in self.matched and is_eligible(node, self.constraint, self.keys, self.spec):
                totals[node.labels[self.label]] += 1
        least = min(totals.values()) if len(totals) >= max(1, self.constraint.min_domains) else 0
        used = {node.labels.get(self.label) for uid, node in assigned.items() if uid in self.holders}
        for value in sorted(used, key=lambda each: (each is not None, each or "")):
            if value is None or totals.get(value, 0) - least > self.constraint.max_skew:
                yield Reason(Kind.SPREAD, self.label, "none" if value is None else value)
                return

    def arrays(self, roles_of: RolesOf, places: Places) -> "Spread | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""
        holders, matched = roles_of(self.holders), roles_of(self.matched)
        if not holders:
            return None
        each, (domains, numbers) = self.constraint, places.amounts(self.label, dict(self.bound))
        eligible = places.eligible(self.spec, by_affinity=each.honors_affinity, by_taints=each.honors_taints)
        for key in self.keys:
            eligible = eligible & (places.domains(key) >= 0)
        known, first = np.unique(domains[eligible], return_index=True)
        bound = numbers[eligible][first]
        has_enough = len(known) >= max(1, each.min_domains)
        return Spread(self.label, holders, matched, domains, eligible, known, bound, each.max_skew, has_enough)


@dataclass(frozen=True, slots=True, eq=False)
class Spread(BetweenPods):
    """Pods of ``holders`` are in domains that don't have too many pods of ``matched`` and bound pods.

    ``eligible``: bool[nodes], the nodes whose pods count. ``known``: int64[*], the eligible domains of the whole cluster, and ``bound``:
    int64[*], the selected bound pods in each. If there are fewer eligible domains than the constraint asks for, ``has_enough`` is false,
    and the fewest pods in a domain count as 0.
    """

    eligible: Mask
    known: Integers
    bound: Integers
    max_skew: int
    has_enough: bool

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""
        return Reason(Kind.SPREAD)

    @property
    def classes(self) -> Integers:
        """The domains, each divided into its eligible nodes and the others: int64[nodes]."""
        return 2 * self.domains + self.eligible

    @property
    def excluded(self) -> Mapping[int, tuple[Mask, Reason]]:
        """The nodes without a domain, for holders."""
        return dict.fromkeys(self.holders, (self.domains < 0, Reason(Kind.UNLABELLED_SPREAD, self.label)))

    def restricted_to(self, rows: Integers) -> "Spread":
        """Return the rule on some of the nodes, given by position. The domains of the other nodes still count."""
        return replace(self, domains=self.domains[rows], eligible=self.eligible[rows])

    def _totals(self, counts: Integers) -> Integers:
        """Return the number of selected pods in each eligible domain: int64[*]."""
        of_roles = counts[list(self.matched)].sum(axis=0) if self.matched else np.zeros(counts.shape[1], dtype=np.int64)
        totals = self.bound.copy()
        np.add.at(totals, np.searchsorted(self.known, self.domains[self.eligible]), of_roles[self.eligible])
        return totals

    def _least(self, totals: Integers) -> int:
        return int(totals.min()) if self.has_enough and len(totals) else 0

    def _of_nodes(self, totals: Integers) -> Integers:
        """Return the number of selected pods in the domain of each node: int64[nodes]; 0 in a domain that isn't eligible."""
        place = np.searchsorted(self.known, self.domains)
        is_known = np.isin(self.domains, self.known)
        found = np.zeros(len(self.domains), dtype=np.int64)
        found[is_known] = totals[place[is_known]]
        return found

    def holds(self, counts: Integers) -> bool:
        """Return whether no domain with holders has too many selected pods."""
        used = counts[list(self.holders)].any(axis=0)
        totals = self._totals(counts)
        return not (used & ((self.domains < 0) | (self._of_nodes(totals) - self._least(totals) > self.max_skew))).any()

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes whose domains may get one more pod of ``role``."""
        if role not in self.holders:
            return np.ones(counts.shape[1], dtype=np.bool_)
        totals = self._totals(counts)
        skew = self._of_nodes(totals) + (role in self.matched) - self._least(totals)
        allowed: Mask = (self.domains >= 0) & (skew <= self.max_skew)
        return allowed

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add a variable for the fewest pods in a domain, and one for each domain: whether holders use it."""
        domain = variables.in_domains(self.domains)
        counts = variables.in_domains(self.eligible.astype(np.int64)) > 0
        of_matched = np.flatnonzero(np.isin(variables.role, self.matched) & counts & np.isin(domain, self.known))
        number, least = len(self.known), first
        at = np.searchsorted(self.known, domain[of_matched])
        total = int(variables.most[of_matched].sum()) if len(of_matched) else 0
        # 1. The fewest pods are at most those of each eligible domain.
        rows.add(
            np.concatenate([np.arange(number), at]),
            np.concatenate([np.full(number, least), of_matched]),
            np.concatenate([np.ones(number), -np.ones(len(of_matched))]),
            np.full(number, -np.inf),
            self.bound.astype(np.float64),
        )
        upper = [float(self.bound.min() + total) if self.has_enough and number else 0.0]
        # 2. Where holders are, there are at most so many more.
        of_holders = np.flatnonzero(np.isin(variables.role, self.holders) & np.isin(domain, self.known))
        used = np.unique(domain[of_holders])
        choice = first + 1 + np.arange(len(used))
        place = np.searchsorted(used, domain[of_holders])
        most = variables.most[of_holders].astype(np.float64)
        each = np.arange(len(of_holders))
        rows.add(
            np.concatenate([each, each]),
            np.concatenate([of_holders, choice[place]]),
            np.concatenate([np.ones(len(each)), -most]),
            np.full(len(each), -np.inf),
            np.zeros(len(each)),
        )
        here = np.isin(domain[of_matched], used)
        bound = self.bound[np.searchsorted(self.known, used)].astype(np.float64)
        large = bound + total
        lines = np.arange(len(used))
        rows.add(
            np.concatenate([lines, lines, np.searchsorted(used, domain[of_matched[here]])]),
            np.concatenate([np.full(len(used), least), choice, of_matched[here]]),
            np.concatenate([-np.ones(len(used)), large, np.ones(int(here.sum()))]),
            np.full(len(used), -np.inf),
            self.max_skew - bound + large,
        )
        return np.concatenate([upper, np.ones(len(used))])
