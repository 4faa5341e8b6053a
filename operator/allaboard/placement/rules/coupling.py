"""Defines rules between members: by members, for the check before a bind; and by roles and nodes, for the searches.

A rule *couples* members if the nodes of some of them restrict the nodes of others. Each such rule is a file of this package: a class for
members (``CouplingRule``), and a class of arrays (``Coupling``). The two are written independently of each other, so that a mistake in the
arrays is found before a bind.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, Self

from allaboard.model.arrays import Integers, Mask
from allaboard.model.node import Node
from allaboard.model.reasons import Reason
from allaboard.placement.rules.program import AssignmentVariables, Rows

RolesOf = Callable[[Collection[str]], tuple[int, ...]]
"""Returns the roles of members, which are given by UID."""
DomainsOf = Callable[[str], Integers]
"""Returns the domain of each node by a node label: int64[nodes], -1 for a node without the label."""


class CouplingRule(Protocol):
    """A rule that couples members, which are given by UID. ``label`` is the node label whose values are the domains."""

    @property
    def label(self) -> str:
        """The node label whose values are the domains of the rule."""

    @property
    def reason(self) -> Reason:
        """The rule as a reason, for a gang that would fit without the rule."""

    @property
    def members(self) -> Collection[str]:
        """The members whose nodes the rule restricts."""

    @property
    def sets(self) -> Sequence[Collection[str]]:
        """The sets of members that the rule distinguishes. Members that are in the same sets are alike for the rule."""

    def broken(self, assigned: Mapping[str, Node]) -> Iterator[Reason]:
        """Yield a reason if ``assigned`` breaks the rule. ``assigned``: the node of each member, by the member's UID."""

    def arrays(self, roles_of: RolesOf, domains_of: DomainsOf) -> "Coupling | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""


class Coupling(Protocol):
    """A rule that couples members, by roles and nodes. ``roles`` are the roles whose nodes the rule restricts.

    ``domains``: int64[nodes], the domain of each node, -1 for a node without a domain.
    """

    @property
    def roles(self) -> tuple[int, ...]:
        """The roles whose nodes the rule restricts."""

    @property
    def domains(self) -> Integers:
        """The domain of each node: int64[nodes], -1 for a node without a domain."""

    @property
    def excluded(self) -> tuple[Mask, Reason]:
        """The nodes that no pod of ``roles`` may use, wherever other members are: bool[nodes], and the reason."""

    def restricted_to(self, rows: Integers) -> Self:
        """Return the rule on some of the nodes, given by position."""

    def holds(self, counts: Integers) -> bool:
        """Return whether the placement ``counts`` keeps the rule: int64[roles, nodes]."""

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes that one more pod of ``role`` may use beside the placement ``counts``: bool[nodes]."""

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> int | None:
        """Add rows for the rule to a program, with variables of 0 or 1 that are numbered from ``first`` on. Return their number.

        ``needed``: int64[roles], how many pods of each role must be placed. None if the rows show that these can't be placed.
        """
