"""The capacity waitlist: refused gangs that wait until counting shows enough free capacity for them.

When capacity is freed, as many gangs become due as the free capacity is enough for, and all other gangs stay on the waitlist. Example:
sixteen GPUs are freed while nine gangs of eight GPUs wait. The first two gangs are due at once, even in backoff, and the other seven aren't
attempted. If an admitted gang isn't placed after all, the capacity is counted again for the next gang.

Counting is exact for a gang with one kind of pod. For a gang that needs several kinds of pods the count is an upper bound, since each kind
is counted as if only its pods were placed.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from allaboard.cluster.reservations import Applicant, Ledger
from allaboard.cluster.view import ClusterView
from allaboard.model.constraints import SchedulingSpec
from allaboard.model.gang import Gang, GangKey
from allaboard.model.snapshot import Snapshot
from allaboard.model.walltime import end_of
from allaboard.placement import NodeFilters
from allaboard.placement.rules.capacity import MOST_SLOTS, slots_for
from allaboard.placement.rules.members import rules_of
from allaboard.queueing.heap import LazyHeap
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed

Slots = Callable[[Sequence[SchedulingSpec], int, float], Sequence[int]]
"""A function that returns how many pods of each kind fit in the free capacity, if only pods of that kind were placed.

The second and third argument are the priority and the walltime of their gang, by which reservations bind the gang or not.
"""

_MOST_NEEDS = 256  # most different needs; each is counted when capacity is freed, which takes some 50 µs for thousands of nodes


def need_of(gang: Gang) -> CapacityNeed | None:
    """Return the capacity that a gang needs; None if only a search can show whether the gang fits.

    Counting can't show that for a gang with rules between members, or for a gang that needs only some of several kinds of pods.
    """
    alike: dict[SchedulingSpec, int] = {}
    for pod in gang.candidates:
        alike[pod.spec] = alike.get(pod.spec, 0) + 1
    is_plain = not gang.role_minimums and rules_of(gang).is_plain and all(map(_is_plain, alike))
    if not alike or not is_plain or (len(alike) > 1 and gang.least < len(gang.candidates)):
        return None
    pods = tuple(alike.items()) if len(alike) > 1 else tuple((spec, gang.least) for spec in alike)
    return CapacityNeed(pods, gang.priority, gang.walltime)


def _is_plain(spec: SchedulingSpec) -> bool:
    """Return whether counting is exact for pods of ``spec``: other pods of a node matter to them only by the capacity that they use."""
    return not (
        spec.host_ports
        or spec.attaches
        or spec.volumes
        or spec.forbidden_domains
        or spec.anti_affinity
        or spec.pod_affinity
        or spec.spread
        or spec.required_domains
        or spec.gpu_share
    )


def unlimited_slots(specs: Sequence[SchedulingSpec], priority: int, walltime: float) -> Sequence[int]:
    """Return, for each spec, that any number of pods fits.

    A queue with these ``Slots`` doesn't count capacity, and has no gang on the waitlist.
    """
    return [MOST_SLOTS] * len(specs)


def slots_in(snapshot: Snapshot, specs: Sequence[SchedulingSpec], filters: NodeFilters) -> Sequence[int]:
    """Return how many pods of each of ``specs`` fit in the free capacity of ``snapshot``, if only pods of that kind were placed."""
    free = np.ascontiguousarray(np.maximum(snapshot.free, 0).T)
    offered = set(snapshot.resources)
    counts = []
    for spec in specs:
        requests = dict(spec.requests)
        demand = np.array([requests.get(resource, 0) for resource in snapshot.resources], dtype=np.int64)
        fitting = slots_for(demand, free, filters.usable(spec, snapshot.nodes, snapshot.gpus).admitted)
        counts.append(int(fitting.sum()) if requests.keys() <= offered else 0)
    return counts


class Capacity:
    """A counter of the pods that fit in the free capacity of a view, without what ``ledger`` keeps from them; callable as ``Slots``."""

    def __init__(self, view: ClusterView, ledger: Ledger) -> None:
        self._view = view
        self._ledger = ledger
        self._filters = NodeFilters()

    def __call__(self, specs: Sequence[SchedulingSpec], priority: int, walltime: float) -> Sequence[int]:
        """Return how many pods of each of ``specs`` fit, if only pods of that kind were placed.

        The pods' gang counts as behind all reservations of its priority. A gang with a reservation becomes due by that reservation.
        """
        applicant = Applicant(None, None, priority, end_of(self._ledger.now(), walltime))
        return slots_in(self._ledger.left_to(applicant, self._view.snapshot()), specs, self._filters)


class CapacityWaitlist:
    """The waiting gangs, by the capacity that they need. Gangs with equal needs are in queue order."""

    def __init__(self, order: Callable[[GangKey], Order], slots: Slots) -> None:
        self._order = order
        self._slots = slots
        self._heaps: dict[CapacityNeed, LazyHeap] = {}
        self.is_dirty = False
        """True if capacity was freed since the last count."""

    def can_add(self, need: CapacityNeed) -> bool:
        """Return whether a gang with this need can be added; the number of different needs is limited."""
        return need in self._heaps or len(self._heaps) < _MOST_NEEDS

    def may_fit(self, need: CapacityNeed) -> bool:
        """Return whether counting finds enough free capacity for ``need``."""
        counts = self._slots([spec for spec, _ in need.pods], need.priority, need.walltime)
        return all(count >= number for count, (_, number) in zip(counts, need.pods, strict=True))

    def add(self, key: GangKey, need: CapacityNeed) -> None:
        """Add a gang with its need."""
        if need not in self._heaps:
            self._heaps[need] = LazyHeap(self._order)
        self._heaps[need].push(key)

    def discard(self, key: GangKey, need: CapacityNeed) -> None:
        """Remove a gang with this need, if it is on the waitlist."""
        if (heap := self._heaps.get(need)) is not None:
            heap.discard(key)
            if not heap:
                del self._heaps[need]

    def promote(self, namespace: str) -> None:
        """Sort again, since gangs of ``namespace`` may now rank before gangs that they ranked behind."""
        for heap in self._heaps.values():
            heap.promote(namespace)

    def admit(self) -> Iterator[GangKey]:
        """Yield and remove the gangs that may fit.

        Gangs with equal needs are counted by themselves: the first of them are yielded, as many as would fit if no other gangs were placed.
        """
        self.is_dirty = False
        specs: dict[tuple[int, float], dict[SchedulingSpec, None]] = {}
        for need in self._heaps:
            specs.setdefault(need[1:], {}).update((spec, None) for spec, _ in need.pods)
        counts = {
            (spec, *kind): count
            for kind, alike in specs.items()
            for spec, count in zip(alike, self._slots(list(alike), *kind), strict=True)
        }
        for need in list(self._heaps):
            for _ in range(min(counts[spec, *need[1:]] // number for spec, number in need.pods)):
                if (heap := self._heaps.get(need)) is None:
                    break  # gangs may have been removed while this generator was suspended
                key = heap.first().key
                self.discard(key, need)
                yield key
