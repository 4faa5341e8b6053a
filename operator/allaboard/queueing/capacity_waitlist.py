"""Refused gangs whose capacity can be counted: freed capacity admits as many gangs as it is enough for, and the others stay.

Counting is exact for a gang with one kind of pod. It is an upper bound for several kinds that must all be placed: each kind is counted as
if it were alone. Example: sixteen GPUs are freed while nine gangs of eight wait. The first two gangs are due at once, whatever their
backoff, and the other seven aren't attempted. An admitted gang that isn't placed leaves the capacity to the next.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.rules import rules_of
from allaboard.placement import NodeFilters
from allaboard.placement.rules.capacity import MOST_SLOTS, slots_for
from allaboard.queueing.heap import LazyHeap
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed

Slots = Callable[[Sequence[SchedulingSpec]], Sequence[int]]
"""Returns how many pods of each kind fit, if that kind were alone."""

_MOST_NEEDS = 256  # each is counted when capacity is freed: some 50 µs for thousands of nodes


def need_of(gang: Gang) -> CapacityNeed | None:
    """Return what a gang needs, if counting shows when its capacity may be free; None if that takes a search."""
    alike: dict[SchedulingSpec, int] = {}
    for pod in gang.candidates:
        alike[pod.spec] = alike.get(pod.spec, 0) + 1
    is_plain = not gang.role_minimums and rules_of(gang).is_plain and all(map(_is_plain, alike))
    if not alike or not is_plain or (len(alike) > 1 and gang.least < len(gang.candidates)):
        return None
    return tuple(alike.items()) if len(alike) > 1 else tuple((spec, gang.least) for spec in alike)


def _is_plain(spec: SchedulingSpec) -> bool:
    """Return whether a pod's requirements of a node don't depend on which other pods are there."""
    return not (spec.host_ports or spec.attaches or spec.volumes or spec.forbidden_domains or spec.required_domains or spec.gpu_share)


def no_seats_known(specs: Sequence[SchedulingSpec]) -> Sequence[int]:
    """Return the answer of a queue that doesn't count: any number of pods may fit."""
    return [MOST_SLOTS] * len(specs)


class Capacity:
    """Counts how many pods fit in the free capacity of a view."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._filters = NodeFilters()

    def __call__(self, specs: Sequence[SchedulingSpec]) -> Sequence[int]:
        """Return how many pods of each of ``specs`` fit, if that kind were alone."""
        snapshot = self._view.snapshot()
        free = np.ascontiguousarray(np.maximum(snapshot.free, 0).T)
        offered = set(snapshot.resources)
        counts = []
        for spec in specs:
            requests = dict(spec.requests)
            demand = np.array([requests.get(resource, 0) for resource in snapshot.resources], dtype=np.int64)
            fitting = slots_for(demand, free, self._filters.usable(spec, snapshot.nodes, snapshot.gpus).admitted)
            counts.append(int(fitting.sum()) if requests.keys() <= offered else 0)
        return counts


class CapacityWaitlist:
    """Gangs by the capacity that they need, those with equal needs in queue order."""

    def __init__(self, place: Callable[[GangKey], Order], slots: Slots) -> None:
        self._place = place
        self._slots = slots
        self._heaps: dict[CapacityNeed, LazyHeap] = {}
        self.is_dirty = False
        """Whether capacity was freed since the last count."""

    def has_place(self, need: CapacityNeed) -> bool:
        """Return whether a gang with this need may wait here: the number of different needs is limited."""
        return need in self._heaps or len(self._heaps) < _MOST_NEEDS

    def has_room(self, need: CapacityNeed) -> bool:
        """Return whether the capacity that ``need`` names may be free."""
        return all(count >= number for count, (_, number) in zip(self._slots([spec for spec, _ in need]), need, strict=True))

    def add(self, key: GangKey, need: CapacityNeed) -> None:
        """Add a gang."""
        if need not in self._heaps:
            self._heaps[need] = LazyHeap(self._place)
        self._heaps[need].push(key)

    def discard(self, key: GangKey, need: CapacityNeed) -> None:
        """Remove a gang with this need, if it is here."""
        if (heap := self._heaps.get(need)) is not None:
            heap.discard(key)
            if not heap:
                del self._heaps[need]

    def promote(self, namespace: str) -> None:
        """Take into account that gangs of a namespace may have moved to the front."""
        for heap in self._heaps.values():
            heap.promote(namespace)

    def admit(self) -> Iterator[GangKey]:
        """Yield and remove the gangs that may fit: the first of each need, as many as fit if that need were alone."""
        self.is_dirty = False
        specs = list({spec: None for need in self._heaps for spec, _ in need})
        counts = dict(zip(specs, self._slots(specs), strict=True)) if specs else {}
        for need in list(self._heaps):
            for _ in range(min(counts[spec] // number for spec, number in need)):
                if (heap := self._heaps.get(need)) is None:
                    break  # gangs may have left since the last one was admitted
                key = heap.first().key
                self.discard(key, need)
                yield key
