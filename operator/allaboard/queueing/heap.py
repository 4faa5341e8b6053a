"""A heap of gangs in queue order; a gang whose place changes is moved when it reaches the top.

A tenant may have thousands of gangs, and all of them move when the namespace's usage changes, or when a gang of higher priority comes or
goes. Gangs of one group (``order.Group``) never change order among themselves by that. So the heap keeps the groups apart, and compares
only the place of each group's first gang.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from allaboard.model.gang import GangKey
from allaboard.records.sort_key import Group, Order, Own

_MOST_STALE = 64  # outdated entries of a heap


@dataclass(slots=True, eq=False)
class _Members:
    """The gangs of one group that are in the heap."""

    heap: list[Own] = field(default_factory=list)
    """In their own order; entries of gangs that were removed, or moved to another group, are dropped at the top."""
    number: int = 0
    """The number of gangs."""
    front: Order | None = None
    """The place that stands for the group: no gang of the group ranks before it."""


class LazyHeap:
    """Gangs in the order of ``place``, which returns a gang's current place.

    A gang that has moved back since it was pushed is moved when it reaches the top. A gang that has moved to the front must be pushed
    again. ``promote`` does that for all gangs of a namespace.
    """

    def __init__(self, place: Callable[[GangKey], Order]) -> None:
        self._place = place
        self._kept: dict[GangKey, tuple[Group, Own]] = {}  # each gang's group and place in it, in the order of arrival
        self._groups: dict[str, dict[Group, _Members]] = {}  # by namespace
        self._number = 0  # of groups
        self._fronts: list[Order] = []  # a heap; places that are no longer a group's front are dropped at the top

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._kept

    @property
    def members(self) -> Collection[GangKey]:
        """The gangs in the heap, in the order of arrival."""
        return self._kept.keys()

    def push(self, key: GangKey) -> None:
        """Add a gang, or move one that is in the heap to the front."""
        self._put(self._place(key))

    def discard(self, key: GangKey) -> None:
        """Remove a gang, if it is in the heap."""
        if (kept := self._kept.pop(key, None)) is not None:
            self._leave(kept[0])

    def first(self) -> Order:
        """Return the first place. Raises ``IndexError`` if the heap is empty."""
        while True:
            kept = self._fronts[0]
            members = self._members(kept.group)
            place = self._first_of(kept.group, members) if members is not None and members.front is kept else None
            if place == kept and self._fronts[0] is kept:
                return kept
            if self._fronts[0] is kept:  # else a gang that moved to another group is first there
                heapq.heappop(self._fronts)
            if members is not None and place is not None:
                self._set_front(members, place)

    def pop(self) -> GangKey:
        """Remove and return the first gang. Raises ``IndexError`` if the heap is empty."""
        key = self.first().key
        self.discard(key)
        return key

    def promote(self, namespace: str) -> None:
        """Take into account that gangs of a namespace may have moved to the front."""
        for group, members in list(self._groups.get(namespace, {}).items()):
            place = self._first_of(group, members)
            if place is not None and (members.front is None or place < members.front):
                self._set_front(members, place)

    def fronts(self) -> Iterator[Order]:
        """Yield a place for each group: that of its first gang when it was last compared."""
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
        """Return the current place of the first gang of a group. Gangs that belong to another group are moved there."""
        while members.heap:
            own = members.heap[0]
            place = self._place(own.key) if self._kept.get(own.key) == (group, own) else None
            if place is not None and (place.group, place.own) == (group, own):
                return place
            heapq.heappop(members.heap)  # before the gang is pushed again, maybe to the top of this heap
            if place is not None:
                self._put(place)
        return None

    def _put(self, place: Order) -> None:
        group, own = place.group, place.own
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
        if members.front is None or place < members.front:
            self._set_front(members, place)

    def _leave(self, group: Group) -> None:
        """Count one gang of a group less; delete the group after the last."""
        groups = self._groups[group.namespace]
        groups[group].number -= 1
        if not groups[group].number:
            groups[group].front = None
            del groups[group]
            self._number -= 1
            if not groups:
                del self._groups[group.namespace]

    def _set_front(self, members: _Members, place: Order) -> None:
        members.front = place
        if len(self._fronts) > 2 * self._number + _MOST_STALE:
            self._fronts = [each.front for groups in self._groups.values() for each in groups.values() if each.front is not None]
            heapq.heapify(self._fronts)
        else:
            heapq.heappush(self._fronts, place)
