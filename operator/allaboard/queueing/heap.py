"""A line of gangs in queue order. A gang whose place changes is found at the new one when its turn comes.

A tenant may have thousands of gangs, and all of them move when their namespace owes more or less, or when a more urgent gang comes or goes.
Gangs of one group (``order.Group``) never move among themselves by that. So a line keeps the groups apart, and of each group only the place
of the first gang is looked at.
"""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from allaboard.model.gang import GangKey
from allaboard.records.sort_key import Group, Order, Own

_MOST_STALE = 64  # entries of a heap that stand for nothing any more


@dataclass(slots=True, eq=False)
class _Members:
    """The gangs of one group that are in a line."""

    heap: list[Own] = field(default_factory=list)
    """In their own order; entries of gangs that are out, or elsewhere, are dropped at the top."""
    number: int = 0
    """How many gangs there are."""
    front: Order | None = None
    """The place that stands for all of them: no gang of the group is further to the front."""


class LazyHeap:
    """Gangs in the order of ``place``, which tells a gang's place as it is now.

    A gang that is further behind than when it was put in goes there when it comes to the top. A gang that is further to the front must be
    put in again. Where that may be so of each gang of a namespace, ``promote`` does for all of them.
    """

    def __init__(self, place: Callable[[GangKey], Order]) -> None:
        self._place = place
        self._kept: dict[GangKey, tuple[Group, Own]] = {}  # where each gang is; in the order in which they came
        self._groups: dict[str, dict[Group, _Members]] = {}  # by namespace
        self._number = 0  # of groups
        self._fronts: list[Order] = []  # a heap; places that are no group's front any more are dropped at the top

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._kept

    @property
    def members(self) -> Collection[GangKey]:
        """The gangs that are in, in the order in which they came."""
        return self._kept.keys()

    def push(self, key: GangKey) -> None:
        """Put a gang in, or put one that is in further to the front."""
        self._put(self._place(key))

    def discard(self, key: GangKey) -> None:
        """Take a gang out, if it is in."""
        if (kept := self._kept.pop(key, None)) is not None:
            self._leave(kept[0])

    def first(self) -> Order:
        """Return the first place. Raises ``IndexError`` when nobody is in."""
        while True:
            kept = self._fronts[0]
            members = self._members(kept.group)
            place = self._first_of(kept.group, members) if members is not None and members.front is kept else None
            if place == kept and self._fronts[0] is kept:
                return kept
            if self._fronts[0] is kept:  # or a gang that has gone to another group is first there
                heapq.heappop(self._fronts)
            if members is not None and place is not None:
                self._set_front(members, place)

    def pop(self) -> GangKey:
        """Take the first gang out. Raises ``IndexError`` when nobody is in."""
        key = self.first().key
        self.discard(key)
        return key

    def promote(self, namespace: str) -> None:
        """Take into account that gangs of a namespace may be further to the front now."""
        for group, members in list(self._groups.get(namespace, {}).items()):
            place = self._first_of(group, members)
            if place is not None and (members.front is None or place < members.front):
                self._set_front(members, place)

    def fronts(self) -> Iterator[Order]:
        """Yield a place for each group: that of its first gang as it was when it was last looked at."""
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
        """Return the place of the first gang of a group as it is now; gangs that belong elsewhere are put there."""
        while members.heap:
            own = members.heap[0]
            place = self._place(own.key) if self._kept.get(own.key) == (group, own) else None
            if place is not None and (place.group, place.own) == (group, own):
                return place
            heapq.heappop(members.heap)  # before it is put elsewhere, which may be the top of this heap
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
        """Count a gang of a group less; the last leaves nothing of it behind."""
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
