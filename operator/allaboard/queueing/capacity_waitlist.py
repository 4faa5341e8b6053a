"""Refused gangs whose room can be counted: when something comes free, as many are let in as there is room for, and the others stay.

Counting is exact for a gang of one kind of pod, and an upper bound for one of several kinds that all have to be placed: each kind is
counted as if it were alone. An example: sixteen GPUs come free where nine gangs of eight wait: the first two of them are due, at once and
whatever pauses they have, and the other seven aren't looked at. Whoever is let in and takes no seats leaves them to the next.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.rules import rules_of
from allaboard.placement import NodeFilters
from allaboard.placement.rules.room import MOST_SEATS, seats_for
from allaboard.queueing.heap import LazyHeap
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed

Slots = Callable[[Sequence[SchedulingSpec]], Sequence[int]]
"""Tells how many pods of each kind there is room for, if it were alone."""

_MOST_NEEDS = 256  # each is counted when something comes free: some 50 µs for thousands of nodes


def need_of(gang: Gang) -> CapacityNeed | None:
    """What a gang needs, if counting tells when there may be room for it; ``None`` where it takes a search."""
    alike: dict[SchedulingSpec, int] = {}
    for pod in gang.candidates:
        alike[pod.spec] = alike.get(pod.spec, 0) + 1
    is_plain = not gang.role_minimums and rules_of(gang).is_plain and all(map(_is_plain, alike))
    if not alike or not is_plain or (len(alike) > 1 and gang.least < len(gang.candidates)):
        return None
    return tuple(alike.items()) if len(alike) > 1 else tuple((spec, gang.least) for spec in alike)


def _is_plain(spec: SchedulingSpec) -> bool:
    """Whether what a pod asks of a node doesn't depend on who else is there."""
    return not (spec.host_ports or spec.attaches or spec.volumes or spec.forbidden_domains or spec.required_domains or spec.gpu_share)


def no_seats_known(specs: Sequence[SchedulingSpec]) -> Sequence[int]:
    """For a queue that doesn't count: there may be room for anybody."""
    return [MOST_SEATS] * len(specs)


class Capacity:
    """Counts the seats that are free in a view."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._filters = NodeFilters()

    def __call__(self, specs: Sequence[SchedulingSpec]) -> Sequence[int]:
        """How many pods of each of ``specs`` there is room for, if it were alone."""
        snapshot = self._view.snapshot()
        free = np.ascontiguousarray(np.maximum(snapshot.free, 0).T)
        offered = set(snapshot.resources)
        counts = []
        for spec in specs:
            requests = dict(spec.requests)
            demand = np.array([requests.get(resource, 0) for resource in snapshot.resources], dtype=np.int64)
            seats = seats_for(demand, free, self._filters.usable(spec, snapshot.nodes, snapshot.gpus).admitted)
            counts.append(int(seats.sum()) if requests.keys() <= offered else 0)
        return counts


class CapacityWaitlist:
    """Gangs by what they need, each kind in queue order."""

    def __init__(self, place: Callable[[GangKey], Order], seats: Slots) -> None:
        self._place = place
        self._seats = seats
        self._heaps: dict[CapacityNeed, LazyHeap] = {}
        self.is_dirty = False
        """Whether something has come free since it was last counted."""

    def has_place(self, need: CapacityNeed) -> bool:
        """Whether who needs this may wait here: there are not too many kinds of needs."""
        return need in self._heaps or len(self._heaps) < _MOST_NEEDS

    def has_room(self, need: CapacityNeed) -> bool:
        """Whether there may be room for one who needs this."""
        return all(seats >= number for seats, (_, number) in zip(self._seats([spec for spec, _ in need]), need, strict=True))

    def add(self, key: GangKey, need: CapacityNeed) -> None:
        """Let a gang wait."""
        if need not in self._heaps:
            self._heaps[need] = LazyHeap(self._place)
        self._heaps[need].push(key)

    def discard(self, key: GangKey, need: CapacityNeed) -> None:
        """Let a gang go that waits for this, if it is here."""
        if (heap := self._heaps.get(need)) is not None:
            heap.discard(key)
            if not heap:
                del self._heaps[need]

    def promote(self, namespace: str) -> None:
        """Take into account that the gangs of a namespace may be further to the front now."""
        for heap in self._heaps.values():
            heap.promote(namespace)

    def admit(self) -> Iterator[GangKey]:
        """Those for whom there may be room, the first of each kind, as many as that holds alone: they wait here no longer."""
        self.is_dirty = False
        specs = list({spec: None for need in self._heaps for spec, _ in need})
        seats = dict(zip(specs, self._seats(specs), strict=True)) if specs else {}
        for need in list(self._heaps):
            for _ in range(min(seats[spec] // number for spec, number in need)):
                if (heap := self._heaps.get(need)) is None:
                    break  # gangs may have left since the last one was let in
                key = heap.first().key
                self.discard(key, need)
                yield key
