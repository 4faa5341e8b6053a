"""Required pod affinity: some members must share a domain with a pod that their term selects, bound or of the gang.

As in kube-scheduler, the first pod of a group of pods that select each other may use any domain, as long as no selected pod exists.
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
class NearRule:
    """Each holder is in a domain of ``label`` with a bound pod that its terms select, or with another member that is ``matched``.

    ``values`` are the label's values in whose domains such bound pods are. Holders that are matched themselves don't justify each other: a
    domain needs a bound pod, or a matched member that is no holder. If no bound pod is selected, one domain with a matched holder needs
    neither. An affinity may name several labels, each of which has a rule: ``others_are_bound`` says that a selected bound pod is in a
    domain of another label.
    """

    label: str
    holders: Collection[str]
    matched: Collection[str]
    values: Collection[str]
    others_are_bound: bool = False

    @property
    def reason(self) -> Reason:
        """The rule as a reason."""
        return Reason(Kind.POD_AFFINITY, self.label)

    @property
    def members(self) -> Collection[str]:
        """The members whose nodes the rule restricts."""
        return self.holders

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes."""
        return self.holders, self.matched

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason for the first domain in which holders are without a pod that their terms select."""
        there: dict[str | None, list[str]] = {}
        for uid, node in assigned.items():
            there.setdefault(node.labels.get(self.label), []).append(uid)
        may_begin = not (self.values or self.others_are_bound)
        for value, uids in there.items():
            holders = [uid for uid in uids if uid in self.holders]
            if not holders:
                continue
            if value is None:
                yield Reason(Kind.POD_AFFINITY, self.label, "none")
                return
            if value in self.values or any(uid in self.matched and uid not in self.holders for uid in uids):
                continue
            if not (may_begin and any(uid in self.matched for uid in holders)):
                yield Reason(Kind.POD_AFFINITY, self.label, value)
                return
            may_begin = False

    def arrays(self, roles_of: RolesOf, places: Places) -> "Near | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""
        holders, matched = roles_of(self.holders), roles_of(self.matched)
        if not holders:
            return None
        served = np.array([places.domain(self.label, value) for value in sorted(self.values)], dtype=np.int64)
        return Near(self.label, holders, matched, places.domains(self.label), served, bool(self.values) or self.others_are_bound)


@dataclass(frozen=True, slots=True, eq=False)
class Near(BetweenPods):
    """Pods of ``holders`` are in domains with a selected pod.

    ``served``: int64[*], the domains with selected bound pods. ``are_bound``: whether there is a selected bound pod.
    """

    served: Integers
    are_bound: bool

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""
        return Reason(Kind.POD_AFFINITY)

    @property
    def excluded(self) -> Mapping[int, tuple[Mask, Reason]]:
        """The nodes that holders may never use: those without a domain; if no member is matched, those without a selected bound pod."""
        mask = self.domains < 0
        if not self.matched:
            mask = mask | ~np.isin(self.domains, self.served)
        return dict.fromkeys(self.holders, (mask, Reason(Kind.POD_AFFINITY)))

    def _uses(self, counts: Integers, roles: Collection[int]) -> Integers:
        """Return the domains that pods of ``roles`` use: int64[*]."""
        used = counts[sorted(roles)].any(axis=0) if roles else np.zeros(counts.shape[1], dtype=np.bool_)
        found: Integers = np.unique(self.domains[used])
        return found

    def holds(self, counts: Integers) -> bool:
        """Return whether each domain with holders has a selected pod, but for the first domain if no selected pod is bound."""
        used = self._uses(counts, self.holders)
        if -1 in used:
            return False
        others = self._uses(counts, set(self.matched) - set(self.holders))
        begun = np.setdiff1d(used, np.concatenate([self.served, others]))
        if self.are_bound or len(begun) > 1:
            return not len(begun)
        return not len(begun) or begun[0] in self._uses(counts, set(self.matched) & set(self.holders))

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes in whose domains a selected pod is; any labelled node for the first pod of the group."""
        if role not in self.holders:
            return np.ones(counts.shape[1], dtype=np.bool_)
        there = self._uses(counts, self.matched)
        if role in self.matched and not self.are_bound and not len(there):
            first: Mask = self.domains >= 0
            return first
        allowed: Mask = np.isin(self.domains, np.concatenate([self.served, there])) & (self.domains >= 0)
        return allowed

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add two variables for each domain that needs a selected member: whether one is there, and whether the group begins there."""
        domain = variables.in_domains(self.domains)
        of_holders = np.flatnonzero(np.isin(variables.role, self.holders) & (domain >= 0) & ~np.isin(domain, self.served))
        known = np.unique(domain[of_holders])
        if not len(known):
            return np.zeros(0)
        number = len(known)
        is_there, begins = first + np.arange(number), first + number + np.arange(number)
        # 1. Holders need one of the two.
        at = np.searchsorted(known, domain[of_holders])
        each, most = np.arange(len(of_holders)), variables.most[of_holders].astype(np.float64)
        rows.add(
            np.concatenate([each, each, each]),
            np.concatenate([of_holders, is_there[at], begins[at]]),
            np.concatenate([np.ones(len(each)), -most, -most]),
            np.full(len(each), -np.inf),
            np.zeros(len(each)),
        )
        # 2. Each of the two needs a pod of its roles in the domain.
        both = set(self.matched) & set(self.holders)
        for choice, roles in ((is_there, set(self.matched) - both), (begins, both)):
            of_roles = np.flatnonzero(np.isin(variables.role, sorted(roles)) & np.isin(domain, known))
            rows.add(
                np.concatenate([np.arange(number), np.searchsorted(known, domain[of_roles])]),
                np.concatenate([choice, of_roles]),
                np.concatenate([np.ones(number), -np.ones(len(of_roles))]),
                np.full(number, -np.inf),
                np.zeros(number),
            )
        # 3. The group begins in one domain at most, and nowhere if a selected pod is bound.
        rows.add(np.zeros(number, dtype=np.int64), begins, np.ones(number), np.array([-np.inf]), np.array([0.0 if self.are_bound else 1.0]))
        return np.ones(2 * number)
