"""The sort key of the queue, from which all comparisons of gangs' queue positions are made."""

from typing import NamedTuple

from allaboard.model.gang import GangKey

HEALS, PLAIN = range(2)
"""The values of ``Order.standing``: gangs that have lost a member go before other gangs."""


class Group(NamedTuple):
    """A group of one namespace's gangs that move in the queue together, for instance when the namespace has used much search time.

    The order within a group depends on ``Order.own`` only. The fields ``depth`` and ``is_not_first`` are as in ``Order``.
    """

    namespace: str
    depth: int
    is_not_first: bool
    heals: bool
    """True for gangs that have lost a member."""
    tenant: str = ""
    """The tenant whose share counts, if that isn't the namespace (``queueing.fair_share``)."""


class Own(NamedTuple):
    """A gang's sort key within its group. It doesn't depend on other gangs."""

    namespace_priority: int
    """The gang's namespace priority (``genius/priority``), negated."""
    created: float
    key: GangKey


class Order(NamedTuple):
    """A gang's position in the queue, as a sort key: the gang with the least key goes first.

    The fields up to ``key`` are compared in this order.
    """

    depth: int
    """The priority, negated."""
    is_not_first: bool
    """False for a gang that this scheduler left partially bound; it goes first."""
    standing: int
    """``HEALS`` for a gang that has lost a member, else ``PLAIN``."""
    usage: int
    """The level of the search time that the gang's namespace has used (``SearchTime.level``)."""
    share: int
    """The level of the share of the cluster that the gang's tenant has used; 0 if the fair order is off (``queueing.fair_share``)."""
    created: float
    """The effective creation time (``gangs.namespace_priority``), in seconds since the epoch."""
    key: GangKey
    stated: tuple[Group, Own] | None = None
    """The gang's group and its sort key in the group; None if both follow from the other fields."""

    @property
    def group(self) -> Group:
        """The group that the gang belongs to."""
        if self.stated is not None:
            return self.stated[0]
        return Group(self.key.namespace, self.depth, self.is_not_first, self.standing == HEALS)

    @property
    def own(self) -> Own:
        """The gang's sort key within its group."""
        return self.stated[1] if self.stated is not None else Own(0, self.created, self.key)

    @property
    def level_key(self) -> tuple[int, bool]:
        """The level: priority, and whether this scheduler left the gang partially bound."""
        return self[:2]

    @property
    def standing_key(self) -> tuple[int, bool, int]:
        """The level and standing. By this key alone a gang in backoff is compared with active gangs."""
        return self[:3]

    @property
    def rank_key(self) -> tuple[int, bool, int, int, int]:
        """All that counts before age: level, standing, search-time usage and share."""
        return self[:5]
