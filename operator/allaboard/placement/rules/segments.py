"""Segments: every so many members, in the order of their ranks, are within one domain, such as four workers in each rack.

Members of one segment rule are interchangeable until each of them gets its node. So it is enough that at most one domain has a number of
members that isn't a multiple of the segment's size. Ranks are then given to the nodes domain by domain (``search.by_pod``).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason
from allaboard.placement.rules.coupling import Places, RolesOf, WithinDomains, values_of
from allaboard.placement.rules.program import AssignmentVariables, Rows


@dataclass(frozen=True, slots=True)
class SegmentRule:
    """The ``members``, in this order, are divided into segments of ``size``; each segment is within one domain of ``label``."""

    label: str
    size: int
    members: tuple[str, ...]

    @property
    def reason(self) -> Reason:
        """The rule as a reason."""
        return Reason(Kind.SEGMENTS, self.label)

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes."""
        return (frozenset(self.members),)

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason for the first segment of placed members that isn't within one domain."""
        placed = [uid for uid in self.members if uid in assigned]
        for first in range(0, len(placed), self.size):
            if values := values_of((assigned[uid] for uid in placed[first : first + self.size]), self.label):
                yield Reason(Kind.SEGMENTS, self.label, values)
                return

    def arrays(self, roles_of: RolesOf, places: Places) -> "Segments | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""
        roles = roles_of(frozenset(self.members))
        return Segments(self.label, roles, places.domains(self.label), self.size) if roles else None


@dataclass(frozen=True, slots=True, eq=False)
class Segments(WithinDomains):
    """At most one domain has a number of pods of ``roles`` that isn't a multiple of ``size``."""

    size: int

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""
        return Reason(Kind.SEGMENTS)

    def _left_over(self, counts: Integers) -> Mapping[int, int]:
        """Return the domains whose number of pods isn't a multiple of the size, each with what is left over."""
        of_roles = counts[list(self.roles)].sum(axis=0)
        totals: Counter[int] = Counter()
        for domain, number in zip(self.domains[of_roles > 0].tolist(), of_roles[of_roles > 0].tolist(), strict=True):
            totals[domain] += number
        return {domain: number % self.size for domain, number in totals.items() if number % self.size}

    def ordered(self, order: Integers, counts: Integers) -> Integers:
        """Return the nodes ``order`` domain by domain, with the domain that has a part of a segment last."""
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        first = np.full(int(self.domains.max(initial=-1)) + 2, len(order))
        np.minimum.at(first, self.domains, places)  # domains keep the order of their first nodes; -1 is the last entry
        is_part = np.isin(self.domains, list(self._left_over(counts)))
        found: Integers = np.lexsort((places, first[self.domains], is_part))
        return found

    def holds(self, counts: Integers) -> bool:
        """Return whether at most one domain has a part of a segment, and no pod is on a node without a domain."""
        used = self.domains[counts[list(self.roles)].any(axis=0)]
        return len(self._left_over(counts)) <= 1 and not (used < 0).any()

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes of the domain with a part of a segment; those of all domains if there is none."""
        if role not in self.roles:
            return np.ones(counts.shape[1], dtype=np.bool_)
        begun = list(self._left_over(counts))
        allowed: Mask = np.isin(self.domains, begun) if begun else self.domains >= 0
        return allowed

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add for each domain the number of whole segments, the pods of a part of one, and whether there is a part.

        The pods of a domain are the size times the number of segments, and the pods of the part. At most one domain has a part.
        """
        of_roles = np.flatnonzero(np.isin(variables.role, self.roles))
        known, domain = np.unique(variables.in_domains(self.domains)[of_roles], return_inverse=True)
        domain, number = domain.ravel(), len(known)
        if not number:
            return np.zeros(0)
        most = np.bincount(domain, weights=variables.most[of_roles], minlength=number)
        each = np.arange(number)
        segments, parts, has_part = first + each, first + number + each, first + 2 * number + each
        rows.add(
            np.concatenate([domain, each, each]),
            np.concatenate([of_roles, segments, parts]),
            np.concatenate([np.ones(len(of_roles)), np.full(number, -float(self.size)), -np.ones(number)]),
            np.zeros(number),
            np.zeros(number),
        )
        rows.add(
            np.concatenate([each, each]),
            np.concatenate([parts, has_part]),
            np.concatenate([np.ones(number), np.full(number, -float(self.size - 1))]),
            np.full(number, -np.inf),
            np.zeros(number),
        )
        rows.add(np.zeros(number, dtype=np.int64), has_part, np.ones(number), np.array([-np.inf]), np.ones(1))
        return np.concatenate([np.floor(most / self.size), np.full(number, float(self.size - 1)), np.ones(number)])
