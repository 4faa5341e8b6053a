"""A line of gangs in queue order. Whose place changes is found at its new one when its turn comes."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator

from allaboard.model.gang import GangKey
from allaboard.scheduling.order import Order

_MOST_LEFT = 64  # entries that are none any more


class Line:
    """A heap of places; ``place`` tells a gang's as it is now.

    Whoever is further behind than when it was put in goes there when it comes to the top. Who is further to the front must be put in again.
    """

    def __init__(self, place: Callable[[GangKey], Order]) -> None:
        self._place = place
        self._heap: list[Order] = []
        self._members: dict[GangKey, None] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, key: GangKey) -> bool:
        return key in self._members

    def __iter__(self) -> Iterator[Order]:
        """The places as they were when they were put in, in no order; perhaps several of one gang."""
        return (order for order in self._heap if order.key in self._members)

    def push(self, key: GangKey) -> None:
        """Put a gang in, or put one that is in further to the front."""
        self._members[key] = None
        if len(self._heap) > 2 * len(self._members) + _MOST_LEFT:
            self._heap = _first_of_each(self)
        heapq.heappush(self._heap, self._place(key))

    def discard(self, key: GangKey) -> None:
        """Take a gang out, if it is in."""
        self._members.pop(key, None)

    def first(self) -> Order:
        """The first place. Raises ``IndexError`` when nobody is in."""
        while True:
            kept = self._heap[0]
            if kept.key not in self._members:
                heapq.heappop(self._heap)
            elif (place := self._place(kept.key)) > kept:
                heapq.heapreplace(self._heap, place)
            else:
                return kept

    def pop(self) -> GangKey:
        """Take the first out. Raises ``IndexError`` when nobody is in."""
        key = self.first().key
        heapq.heappop(self._heap)
        del self._members[key]
        return key

    @property
    def members(self) -> Collection[GangKey]:
        """Who is in, in the order in which they came."""
        return self._members


def _first_of_each(places: Iterable[Order]) -> list[Order]:
    """The heap without entries that are none any more: they are dropped at the top, where they may never come."""
    first: dict[GangKey, Order] = {}
    for order in places:
        if order.key not in first or order < first[order.key]:
            first[order.key] = order
    kept = list(first.values())
    heapq.heapify(kept)
    return kept
