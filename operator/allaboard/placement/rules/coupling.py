"""Defines rules between members: by members, for the check before a bind; and by roles and nodes, for the searches.

A rule *couples* members if the nodes of some of them restrict the nodes of others. Each such rule is a file of this package: a class for
members (``CouplingRule``), and a class of arrays (``Coupling``). The two are written independently of each other, so that a mistake in the
arrays is found before a bind.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from allaboard.model.arrays import Floats, Integers, Mask
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.node import Node
from allaboard.model.reasons import Kind, Reason
from allaboard.placement.rules.program import AssignmentVariables, Rows

RolesOf = Callable[[Collection[str]], tuple[int, ...]]
"""Returns the roles of members, which are given by UID."""


class Places(Protocol):
    """The nodes of a problem, as rules between members see them."""

    def domains(self, label: str) -> Integers:
        """Return the domain of each node by a node label: int64[nodes], -1 for a node without the label."""

    def domain(self, label: str, value: str) -> int:
        """Return the domain of the nodes with a value of a label; -2 if no node has it."""

    def amounts(self, label: str, amounts: Mapping[str, int]) -> tuple[Integers, Integers]:
        """Return the domain of each node by a node label, -1 without it, and the amount for the label's value: int64[nodes] each."""

    def eligible(self, spec: SchedulingSpec, *, by_affinity: bool, by_taints: bool) -> Mask:
        """Return the nodes that the node affinity of ``spec``, and its tolerations, admit: bool[nodes]."""


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

    def broken(self, assigned: Mapping[str, Node], nodes: Sequence[Node]) -> Iterator[Reason]:
        """Yield a reason if ``assigned`` breaks the rule: the node of each member, by the member's UID. ``nodes``: all nodes."""

    def arrays(self, roles_of: RolesOf, places: Places) -> "Coupling | None":
        """Return the rule by roles and nodes; None if it concerns none of the roles."""


class Coupling(Protocol):
    """A rule that couples members, by roles and nodes. ``roles`` are the roles whose nodes the rule restricts.

    ``domains``: int64[nodes], the domain of each node, -1 for a node without a domain.
    """

    @property
    def label(self) -> str:
        """The node label whose values are the domains."""

    @property
    def roles(self) -> tuple[int, ...]:
        """The roles whose nodes the rule restricts."""

    @property
    def domains(self) -> Integers:
        """The domain of each node: int64[nodes], -1 for a node without a domain."""

    @property
    def reason(self) -> Reason:
        """The reason for a node that the rule doesn't allow to one more pod."""

    @property
    def classes(self) -> Integers:
        """A number for each node: int64[nodes]. Nodes with equal numbers are alike for the rule."""

    @property
    def excluded(self) -> Mapping[int, tuple[Mask, Reason]]:
        """By role, the nodes that its pods may not use wherever other members are, bool[nodes], and the reason."""

    def restricted_to(self, rows: Integers) -> Self:
        """Return the rule on some of the nodes, given by position."""

    def holds(self, counts: Integers) -> bool:
        """Return whether the placement ``counts`` keeps the rule: int64[roles, nodes]."""

    def allows(self, counts: Integers, role: int) -> Mask:
        """Return the nodes that one more pod of ``role`` may use beside the placement ``counts``: bool[nodes]."""

    def add_rows(self, rows: Rows, variables: AssignmentVariables, needed: Integers, first: int) -> Floats | None:
        """Add rows for the rule to a program, with whole-number variables that are numbered from ``first`` on.

        Return the largest value of each of these variables: float64[variables]. ``needed``: int64[roles], how many pods of each role must
        be placed. None if the rows show that these can't be placed.
        """


def values_of(nodes: Iterable[Node], label: str) -> str:
    """Return in words the values of ``label`` that ``nodes`` have; empty if all have the same one. A node without the label has none."""
    values = {node.labels.get(label) for node in nodes}
    return ", ".join(sorted(value or "none" for value in values)) if len(values) > 1 or None in values else ""


@dataclass(frozen=True, slots=True, eq=False)
class WithinDomains:
    """The part of a coupling that is the same for all rules that keep the pods of ``roles`` within domains of a topology level.

    ``domains``: int64[nodes], the domain of each node by the node label ``label``, -1 for a node without it.
    """

    label: str
    roles: tuple[int, ...]
    domains: Integers

    @property
    def classes(self) -> Integers:
        """The domains: int64[nodes]."""
        return self.domains

    @property
    def excluded(self) -> Mapping[int, tuple[Mask, Reason]]:
        """The nodes without a domain, for each role."""
        return dict.fromkeys(self.roles, (self.domains < 0, Reason(Kind.UNLABELLED, self.label)))

    def restricted_to(self, rows: Integers) -> Self:
        """Return the rule on some of the nodes, given by position."""
        return replace(self, domains=self.domains[rows])


@dataclass(frozen=True, slots=True, eq=False)
class BetweenPods:
    """The part of a coupling that is the same for all rules that a term of a pod states: anti-affinity, affinity and topology spread.

    The roles ``holders`` state the term, and it selects pods of the roles ``matched``. ``domains``: int64[nodes], the domain of each node
    by the node label ``label``, -1 for a node without it.
    """

    label: str
    holders: tuple[int, ...]
    matched: tuple[int, ...]
    domains: Integers

    @property
    def roles(self) -> tuple[int, ...]:
        """The roles whose nodes the rule restricts."""
        return tuple(sorted({*self.holders, *self.matched}))

    @property
    def classes(self) -> Integers:
        """The domains: int64[nodes]."""
        return self.domains

    def restricted_to(self, rows: Integers) -> Self:
        """Return the rule on some of the nodes, given by position."""
        return replace(self, domains=self.domains[rows])
