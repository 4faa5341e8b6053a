"""The place of a gang in the queue, and what a refused one waits for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey, OnMemberLost, Outline
from allaboard.model.pod import Pod
from allaboard.model.reasons import Kind
from allaboard.placement import Explanation

_HEALS, _OVERTAKEN, _PLAIN = range(3)
_FIRST = -(2**31)  # before any priority, which is an int32


CARDS = "cards"
"""What those lack, beside resources, who are kept off by what GPUs are or how much of their memory is free; no resource is called so."""


class Group(NamedTuple):
    """Gangs of one namespace that its debts and urgencies move together: among themselves they stand by ``Order.own`` only."""

    namespace: str
    depth: int
    is_not_first: bool
    heals: bool
    is_protected: bool


class Own(NamedTuple):
    """A gang's place in its group. What becomes of others doesn't change it."""

    urgency: int
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
    debt: int
    """How much search time its namespace has used, in levels (``Shares.level``)."""
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
        return Group(self.key.namespace, self.depth, self.is_not_first, self.standing == _HEALS, self.standing == _OVERTAKEN)

    @property
    def own(self) -> Own:
        """The place in the group."""
        return self.stated[1] if self.stated is not None else Own(0, self.created, self.key)

    @property
    def level(self) -> tuple[int, bool]:
        """Gangs of one level may overtake each other, for a while."""
        return self[:2]

    @property
    def claim(self) -> tuple[int, bool, int]:
        """What isn't given up for a pause."""
        return self[:3]

    @property
    def rank(self) -> tuple[int, bool, int, int]:
        """All but age."""
        return self[:4]

    @property
    def but_for_debt(self) -> tuple[int, bool, int, float, GangKey]:
        """The place that it would have if its namespace owed nothing."""
        return (*self[:3], *self[4:6])


def order_of(
    gang: Gang | Outline,
    *,
    is_first: bool = False,
    may_go_first: bool = True,
    is_protected: bool = False,
    has_grown: bool = False,
    debt: int = 0,
    since: float | None = None,
    urgency: int = 0,
) -> Order:
    """Queue order: priority, then those that we left half bound (``is_first``), then those that have lost a member, then those that must
    not be overtaken, then ``debt``, which tells how much search time the namespace has used, then age and name.

    Nothing is a ticket past a higher priority: a tenant could raise the minimum of a bound gang, or forge a stamp. Nor is healing one past
    those who owe less: a tenant could have many gangs that have lost members and are hard to place; nor for a gang that ``has_grown``.
    Nor is a stamp one for all the gangs that a tenant has forged it on: ``may_go_first`` ends when they have gone first for long enough.
    ``since`` is when it counts as made, if that isn't when it was, because others are of more ``urgency`` (``gangs.urgency``).
    """
    heals = gang.is_open and gang.owed > 0 and gang.on_member_lost is not OnMemberLost.IGNORE and not has_grown
    standing = _HEALS if heals and not debt else _OVERTAKEN if is_protected else _PLAIN
    group = Group(gang.key.namespace, -gang.priority, not is_first, heals, is_protected)
    made = gang.created if since is None else since
    return Order(
        -gang.priority, not (is_first and may_go_first), standing, debt, made, gang.key, (group, Own(-urgency, gang.created, gang.key))
    )


def order_of_gone(key: GangKey) -> Order:
    """The place of a gang that is no more: due at once, only to be forgotten."""
    return Order(_FIRST, False, _HEALS, 0, 0.0, key)


@dataclass(frozen=True, slots=True)
class Lacks:
    """What a refusal was for: resources that were short. ``anything`` when a change of any kind could help."""

    resources: frozenset[str] = frozenset()
    anything: bool = False

    @classmethod
    def of(cls, explanation: Explanation, candidates: Iterable[Pod]) -> "Lacks":
        """What the unplaced roles lacked.

        With several roles, room for one may let another move: then any resource that a candidate asks for may help.
        """
        resources: set[str] = set()
        kept = {reason for role in explanation.roles for reason, _ in role.reasons}
        anything = any(reason.kind.is_movable for reason in kept)
        if len(explanation.roles) > 1:
            specs = {pod.spec for pod in candidates}
            resources.update(resource for spec in specs for resource, _ in spec.requests if resource != "pods")
        if explanation.shortage:
            resources.add(explanation.shortage.resource)
        resources.update(reason.subject for reason in kept if reason.kind is Kind.INSUFFICIENT)
        if any(reason.kind.is_of_gpus for reason in kept):
            resources.add(CARDS)
        return cls(frozenset(resources), anything or not resources)

    def joined(self, other: "Lacks") -> "Lacks":
        """What either lacks."""
        return Lacks(self.resources | other.resources, self.anything or other.anything)

    @property
    def awaited(self) -> Iterable[str | None]:
        """What may help when it comes free: each of the resources; ``None`` where a change of any kind could, "" where none is known to."""
        return (None,) if self.anything else self.resources or ("",)


Need = tuple[tuple[SchedulingSpec, int], ...]
"""Kinds of pods, and how many of each must be seated."""

NOTHING = Lacks()
ANYTHING = Lacks(anything=True)
