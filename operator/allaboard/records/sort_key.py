"""A gang's place in the queue."""

from typing import NamedTuple

from allaboard.model.gang import GangKey

HEALS, OVERTAKEN, PLAIN = range(3)
"""The values of ``Order.standing``; the first goes first."""


class Group(NamedTuple):
    """Gangs of one namespace that its debts and urgencies move together: among themselves they stand by ``Order.own`` only."""

    namespace: str
    depth: int
    is_not_first: bool
    heals: bool
    is_protected: bool


class Own(NamedTuple):
    """A gang's place in its group. What becomes of others doesn't change it."""

    namespace_priority: int
    """Negative."""
    created: float
    key: GangKey


class Order(NamedTuple):
    """A place in the queue: the lesser goes first. The fields up to ``key`` count in this order; several gangs may share the first few."""

    depth: int
    """The priority, negative."""
    is_not_first: bool
    """Whether it isn't one that we left half bound."""
    standing: int
    """Those that have lost a member go before those that must not be overtaken, and these before the others."""
    usage: int
    """How much search time its namespace has used, in levels (``SearchTime.level_key``)."""
    created: float
    """When it counts as made."""
    key: GangKey
    stated: tuple[Group, Own] | None = None
    """Its group and its place in that; ``None`` where the fields before say both."""

    @property
    def group(self) -> Group:
        """The gangs among which it has its own place."""
        if self.stated is not None:
            return self.stated[0]
        return Group(self.key.namespace, self.depth, self.is_not_first, self.standing == HEALS, self.standing == OVERTAKEN)

    @property
    def own(self) -> Own:
        """The place in the group."""
        return self.stated[1] if self.stated is not None else Own(0, self.created, self.key)

    @property
    def level_key(self) -> tuple[int, bool]:
        """Gangs of one level may overtake each other, for a while."""
        return self[:2]

    @property
    def claim_key(self) -> tuple[int, bool, int]:
        """What isn't given up for a pause."""
        return self[:3]

    @property
    def rank_key(self) -> tuple[int, bool, int, int]:
        """All but age."""
        return self[:4]

    @property
    def key_without_usage(self) -> tuple[int, bool, int, float, GangKey]:
        """The place that it would have if its namespace owed nothing."""
        return (*self[:3], *self[4:6])
