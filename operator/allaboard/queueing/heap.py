"""A heap of gangs in queue order, which moves a gang whose queue position has changed only when the gang reaches the top.

A tenant may have thousands of gangs. All of them move when their namespace's search-time usage changes, or when a gang of higher namespace
priority comes or goes. The order within a group (``sort_key.Group``) stays. So the heap keeps each group in a heap of its own, and compares
only the queue positions of the groups' first gangs.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from allaboard.model.gang import GangKey
from allaboard.records.sort_key import Group, Order, Own

_MOST_STALE = 64  # outdated entries of a heap that are allowed, besides one for each current entry


@dataclass(slots=True, eq=False)
class _Members:
    """The gangs of one group."""

    heap: list[Own] = field(default_factory=list)
    """A heap in the order within the group. Entries of gangs that have left the group are dropped when they reach the top."""
    number: int = 0
    """The number of gangs in the group."""
    front: Order | None = None
    """The queue position that stands for the group: no gang of the group is before it. None before the first gang is added."""


class LazyHeap:
    """A heap of gangs. ``order`` returns a gang's current queue position.

    A gang whose position has moved back since it was pushed is moved when it reaches the top. A gang whose position has moved forward
    must be pushed again; ``promote`` does that for all gangs of a namespace.
    """

    def __init__(self, order: Callable[[GangKey], Order]) -> None:
        self._order = order
        self._kept: dict[GangKey, tuple[Group, Own]] = {}  # Each gang's group, and its sort key in the group, in the order of arrival.
        self._groups: dict[str, dict[Group, _Members]] = {}  # By namespace.
        self._number = 0  # The number of groups.
        self._fronts: list[Order] = []  # A heap of the groups' fronts. Outdated fronts are dropped when they reach the top.

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._kept

    @property
    def members(self) -> Collection[GangKey]:
        """The gangs in the heap, in the order of arrival."""
        return self._kept.keys()

    def push(self, key: GangKey) -> None:
        """Add a gang. If the gang is in the heap already, its queue position is computed again."""
        self._put(self._order(key))

    def discard(self, key: GangKey) -> None:
        """Remove a gang, if it is in the heap."""
        if (kept := self._kept.pop(key, None)) is not None:
            self._leave(kept[0])

    def first(self) -> Order:
        """Return the queue position of the first gang. Raises ``IndexError`` if the heap is empty."""
        while True:
            kept = self._fronts[0]
            members = self._members(kept.group)
            order = self._first_of(kept.group, members) if members is not None and members.front is kept else None
            if order == kept and self._fronts[0] is kept:
                return kept
            if self._fronts[0] is kept:  # otherwise the top has changed: a gang has moved to another group, and is the first there
                heapq.heappop(self._fronts)
            if members is not None and order is not None:
                self._set_front(members, order)

    def promote(self, namespace: str) -> None:
        """Sort again, since gangs of ``namespace`` may now rank before gangs that they ranked behind."""
        for group, members in list(self._groups.get(namespace, {}).items()):
            order = self._first_of(group, members)
            if order is not None and (members.front is None or order < members.front):
                self._set_front(members, order)

    def fronts(self) -> Iterator[Order]:
        """Yield the queue position of each group's first gang, which may be outdated if the whole group has moved since."""
        for groups in list(self._groups.values()):
            for group, members in list(groups.items()):
                front = members.front
                if front is None or self._kept.get(front.key) != (group, front.own):
                    front = self._first_of(group, members)
                    if front is not None:
                        self._set_front(members, front)
                if front is not None:
                    yield front

    def _members(self, group: Group) -> _Members | None:
        return self._groups.get(group.namespace, {}).get(group)

    def _first_of(self, group: Group, members: _Members) -> Order | None:
        """Return the current queue position of a group's first gang; None if the group has no gang.

        Gangs at the top that belong to another group are moved there.
        """
        while members.heap:
            own = members.heap[0]
            order = self._order(own.key) if self._kept.get(own.key) == (group, own) else None
            if order is not None and (order.group, order.own) == (group, own):
                return order
            heapq.heappop(members.heap)  # before the gang is pushed again, maybe to the top of this heap
            if order is not None:
                self._put(order)
        return None

    def _put(self, order: Order) -> None:
        group, own = order.group, order.own
        members = self._groups.setdefault(group.namespace, {}).get(group)
        if members is None:
            members = self._groups[group.namespace][group] = _Members()
            self._number += 1
        kept = self._kept.get(own.key)
        if kept != (group, own):
            self._kept[own.key] = group, own
            members.number += 1
            if kept is not None:
                self._leave(kept[0])
            if len(members.heap) > 2 * members.number + _MOST_STALE:
                members.heap = [each for each in set(members.heap) if self._kept.get(each.key) == (group, each)]
                heapq.heapify(members.heap)
            heapq.heappush(members.heap, own)
        if members.front is None or order < members.front:
            self._set_front(members, order)

    def _leave(self, group: Group) -> None:
        """Subtract one from a group's number of gangs, and delete the group if none is left."""
        groups = self._groups[group.namespace]
        groups[group].number -= 1
        if not groups[group].number:
            groups[group].front = None
            del groups[group]
            self._number -= 1
            if not groups:
                del self._groups[group.namespace]

    def _set_front(self, members: _Members, order: Order) -> None:
        members.front = order
        if len(self._fronts) > 2 * self._number + _MOST_STALE:
            self._fronts = [each.front for groups in self._groups.values() for each in groups.values() if each.front is not None]
            heapq.heapify(self._fronts)
        else:
            heapq.heappush(self._fronts, order)
