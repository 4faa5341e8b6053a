"""Required topology: some members must be within one domain, such as one rack."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason
from allaboard.placement.rules.coupling import Places, RolesOf, WithinDomains, values_of
from allaboard.placement.rules.program import AssignmentVariables, Rows


@dataclass(frozen=True, slots=True)
class TogetherRule:
    """The ``members`` must be on nodes that have the same value of the node label ``label``."""

    label: str
    members: Collection[str]

    @property
    def reason(self) -> Reason:
        """The rule as a reason."""
        return Reason(Kind.TOPOLOGY, self.label)

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes."""
        return (self.members,)

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason if members are on nodes with several values of the label, or without the label."""
        if values := values_of((node for uid, node in assigned.items() if uid in self.members), self.label):
            yield Reason(Kind.TOPOLOGY, self.label, values)

    def arrays(self, roles_of: RolesOf, places: Places) -> "Together | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""
        roles = roles_of(self.members)
        return Together(self.label, roles, places.domains(self.label)) if roles else None


@dataclass(frozen=True, slots=True, eq=False)
class Together(WithinDomains):
    """Roles that must all be placed within one topology domain, such as one rack."""

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""
        return Reason(Kind.TOPOLOGY)

    def holds(self, counts: Integers) -> bool:
        """Return whether all pods of ``roles`` are within one domain, and none is on a node without a domain."""
        used = np.unique(self.domains[counts[list(self.roles)].any(axis=0)])
        return len(used) <= 1 and -1 not in used

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes of the domain that is used; those of the domain numbered 0 if no pod is placed yet."""
        if role not in self.roles:
            return np.ones(counts.shape[1], dtype=np.bool_)
        used = self.domains[counts[list(self.roles)].any(axis=0)]
        allowed: Mask = (self.domains == (used[0] if len(used) else 0)) & (self.domains >= 0)
        return allowed

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add a variable for each domain that could take the roles: 1 if it is the chosen domain.

        None if the roles need a domain and no domain is large enough. The roles may be assigned to the chosen domain only, and the needed
        pods of each role must be placed in this domain. For whole numbers the second condition follows from the first. For fractions, with
        which the solver begins, it doesn't.
        """
        roles = np.array(self.roles)
        needed = needed[roles]
        of_group = np.flatnonzero(np.isin(variables.role, roles))
        domains, domain = np.unique(variables.in_domains(self.domains)[of_group], return_inverse=True)
        position = np.searchsorted(np.sort(roles), variables.role[of_group])
        capacity = np.zeros((len(roles), len(domains)), dtype=np.int64)
        np.add.at(capacity, (np.argsort(roles)[position], domain), variables.most[of_group])
        possible = np.flatnonzero((capacity >= needed[:, None]).all(axis=0))
        if not len(possible) and needed.any():
            return None
        choice_of = np.full(len(domains), -1)
        choice_of[possible] = np.arange(len(possible)) + first
        allowed = np.flatnonzero(choice_of[domain] >= 0)
        rows.add(
            np.concatenate([np.arange(len(of_group)), allowed]),
            np.concatenate([of_group, choice_of[domain[allowed]]]),
            np.concatenate([np.ones(len(of_group)), -variables.most[of_group[allowed]].astype(np.float64)]),
            np.full(len(of_group), -np.inf),
            np.zeros(len(of_group)),
        )
        for role, least in zip(roles.tolist(), needed.tolist(), strict=True):
            of_role = allowed[variables.role[of_group[allowed]] == role]
            if least > 0:
                rows.add(
                    np.concatenate([choice_of[domain[of_role]] - first, np.arange(len(possible))]),
                    np.concatenate([of_group[of_role], choice_of[possible]]),
                    np.concatenate([np.ones(len(of_role)), np.full(len(possible), -float(least))]),
                    np.zeros(len(possible)),
                    np.full(len(possible), np.inf),
                )
        if len(possible):
            is_needed = np.array([float((needed > 0).any())])
            rows.add(np.zeros_like(possible), choice_of[possible], np.ones(len(possible)), is_needed, np.ones(1))
        return np.ones(len(possible))
