"""Required anti-affinity between members: some members must not share a domain with others.

The anti-affinity that bound pods state, or that concerns bound pods, is a filter of nodes (``planning.resolve``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason
from allaboard.placement.rules.coupling import BetweenPods, Places, RolesOf
from allaboard.placement.rules.program import AssignmentVariables, Rows


@dataclass(frozen=True, slots=True)
class ApartRule:
    """No holder shares a domain with another member that is ``matched``. A node without the label ``label`` is in no domain.

    ``holders`` are the members that state the term of anti-affinity, and ``matched`` the members that the term selects.
    """

    label: str
    holders: Collection[str]
    matched: Collection[str]

    @property
    def reason(self) -> Reason:
        """The rule as a reason."""
        return Reason(Kind.ANTI_AFFINITY, self.label)

    @property
    def members(self) -> Collection[str]:
        """The members whose nodes the rule restricts."""
        return {*self.holders, *self.matched}

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes."""
        return self.holders, self.matched

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason for the first domain in which a holder is with another member that is matched."""
        there: dict[str, list[str]] = {}
        for uid, node in assigned.items():
            if (value := node.labels.get(self.label)) is not None:
                there.setdefault(value, []).append(uid)
        for value, uids in there.items():
            matched = {uid for uid in uids if uid in self.matched}
            if any(matched - {uid} for uid in uids if uid in self.holders):
                yield Reason(Kind.ANTI_AFFINITY, self.label, value)
                return

    def arrays(self, roles_of: RolesOf, places: Places) -> "Apart | None":
        """Return the rule by roles and nodes; None if it concerns no two pods."""
        holders, matched = roles_of(self.holders), roles_of(self.matched)
        return Apart(self.label, holders, matched, places.domains(self.label)) if holders and matched else None


@dataclass(frozen=True, slots=True, eq=False)
class Apart(BetweenPods):
    """No pod of ``holders`` shares a domain of ``label`` with another pod of ``matched``."""

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""
        return Reason(Kind.ANTI_AFFINITY)

    @property
    def excluded(self) -> Mapping[int, tuple[Mask, Reason]]:
        """No node is excluded wherever other members are."""
        return {}

    @property
    def is_one_per_node(self) -> bool:
        """Return whether the rule says that each labelled node takes one pod of the roles: then it is a capacity of the nodes."""
        labelled = self.domains[self.domains >= 0]
        return set(self.holders) == set(self.matched) and len(np.unique(labelled)) == len(labelled)

    def _in_domains(self, counts: Integers, roles: Collection[int]) -> Integers:
        """Return how many pods of ``roles`` are in the domain of each node: int64[nodes]; 0 for a node without a domain."""
        of_roles = counts[sorted(roles)].sum(axis=0)
        is_labelled = self.domains >= 0
        total = np.bincount(self.domains[is_labelled], weights=of_roles[is_labelled], minlength=1)
        found: Integers = np.where(is_labelled, total[np.maximum(self.domains, 0)], 0).astype(np.int64)
        return found

    def holds(self, counts: Integers) -> bool:
        """Return whether no holder shares a domain with another pod that is matched."""
        both = set(self.holders) & set(self.matched)
        matched, self_matched = self._in_domains(counts, self.matched), self._in_domains(counts, both)
        only_holders = self._in_domains(counts, set(self.holders) - both)
        return not ((only_holders > 0) & (matched > 0)).any() and not ((self_matched > 0) & (matched > 1)).any()

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes in whose domains no pod is that excludes one more pod of ``role``, and none that it excludes."""
        allowed = np.ones(counts.shape[1], dtype=np.bool_)
        if role in self.holders:
            allowed &= self._in_domains(counts, self.matched) == 0
        if role in self.matched:
            allowed &= self._in_domains(counts, self.holders) == 0
        return allowed

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add rows that keep the roles apart in each domain.

        Roles that hold the term and are matched have one pod at most. For two sets of roles that exclude each other, a variable for each
        domain says which of the two sets may use the domain.
        """
        both = set(self.holders) & set(self.matched)
        holders, matched = set(self.holders) - both, set(self.matched) - both
        domain = variables.in_domains(self.domains)
        known = np.unique(domain[domain >= 0])

        def of(roles: Collection[int]) -> tuple[Integers, Integers]:
            """Return the variables of ``roles`` that are in domains, and the positions of these domains in ``known``."""
            found = np.flatnonzero(np.isin(variables.role, sorted(roles)) & (domain >= 0))
            return found, np.searchsorted(known, domain[found])

        single, at = of(both)
        if len(single):
            rows.add(at, single, np.ones(len(single)), np.full(len(known), -np.inf), np.ones(len(known)))
        added = 0
        for some, others in ((holders, both | matched), (both, matched)):
            one, of_one = of(some)
            other, of_other = of(others)
            shared = np.intersect1d(of_one, of_other)
            if not len(shared):
                continue
            choice = np.full(len(known), -1)
            choice[shared] = first + added + np.arange(len(shared))
            added += len(shared)
            for chosen, places, sign in ((one, of_one, 1.0), (other, of_other, -1.0)):
                # x <= most * choice for one side, and x <= most * (1 - choice) for the other side.
                here = choice[places] >= 0
                column, most = chosen[here], variables.most[chosen[here]].astype(np.float64)
                number = np.arange(len(column))
                rows.add(
                    np.concatenate([number, number]),
                    np.concatenate([column, choice[places[here]]]),
                    np.concatenate([np.ones(len(column)), -sign * most]),
                    np.full(len(column), -np.inf),
                    np.zeros(len(column)) if sign > 0 else most,
                )
        return np.ones(added)
