"""A gang's place in the queue."""

from typing import NamedTuple

from allaboard.model.gang import GangKey

HEALS, OVERTAKEN, PLAIN = range(3)
"""The values of ``Order.standing``; the first goes first."""


class Group(NamedTuple):
    """Gangs of one namespace that search-time usage and priority move together: among themselves only ``Order.own`` counts."""

    namespace: str
    depth: int
    is_not_first: bool
    heals: bool
    is_protected: bool


class Own(NamedTuple):
    """A gang's place in its group. It doesn't change with what happens to other gangs."""

    namespace_priority: int
    """The priority within the namespace, negated."""
    created: float
    key: GangKey


class Order(NamedTuple):
    """A place in the queue: the lesser goes first. The fields up to ``key`` count in this order; several gangs may share the first few."""

    depth: int
    """The priority, negated."""
    is_not_first: bool
    """False for a gang that we left partially bound, which goes first."""
    standing: int
    """Gangs that have lost a member go first, then gangs that must not be overtaken, then the others."""
    usage: int
    """How much search time the gang's namespace has used, in levels (``SearchTime.level_key``)."""
    created: float
    """The effective creation time."""
    key: GangKey
    stated: tuple[Group, Own] | None = None
    """The gang's group and its place in the group; None where the fields before say both."""

    @property
    def group(self) -> Group:
        """The gangs among which this gang has its own place."""
        if self.stated is not None:
            return self.stated[0]
        return Group(self.key.namespace, self.depth, self.is_not_first, self.standing == HEALS, self.standing == OVERTAKEN)

    @property
    def own(self) -> Own:
        """The gang's place in its group."""
        return self.stated[1] if self.stated is not None else Own(0, self.created, self.key)

    @property
    def level_key(self) -> tuple[int, bool]:
        """The level: gangs of one level may overtake each other, for a while."""
        return self[:2]

    @property
    def claim_key(self) -> tuple[int, bool, int]:
        """The claim: what a gang keeps during a backoff."""
        return self[:3]

    @property
    def rank_key(self) -> tuple[int, bool, int, int]:
        """The rank: all but age."""
        return self[:4]

    @property
    def key_without_usage(self) -> tuple[int, bool, int, float, GangKey]:
        """The place that the gang would have if its namespace had used no search time."""
        return (*self[:3], *self[4:6])
