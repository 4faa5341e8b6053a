"""Order the gangs of a namespace by their namespace priority: the pods' label ``genius/priority``.

Any tenant can write the label. So it orders only gangs of one namespace and one priority, and moves no gang ahead of other namespaces'
gangs. A gang's queue position is computed as if the gang had been created just after all gangs of higher namespace priority. With this
effective creation time, gangs of other namespaces may also go before the gang.

Example: gang A (created at 1, without the label) and gang B (created at 3, label 10) wait in one namespace, and gang C (created at 2) in
another. A counts as created just after B, so the order is C, B, A.

A tenant may have thousands of such gangs. An event costs little all the same: only changed gangs are computed again, and finding a gang's
effective creation time doesn't read each of the other gangs.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf, ulp
from typing import NamedTuple

from allaboard.model.gang import Gang, GangKey, Outline
from allaboard.model.gpu_request import NAMESPACE_PRIORITY_LABEL, namespace_priority_of
from allaboard.model.pod import Pod

_BLOCK = 128  # most gangs of a block; a larger block is split
_MOST_STALE = 64  # outdated entries of a heap that are allowed, besides one for each current entry


class NamespacePriority:
    """The namespace priorities of all gangs with waiting members that have the label.

    ``outline`` returns a gang's priority and creation time, None for an unknown gang.
    """

    def __init__(self, outline: Callable[[GangKey], Outline | None]) -> None:
        self._outline = outline
        self._stated: dict[GangKey, _StatedPriorities] = {}
        self._sorted: dict[tuple[str, int], _SortedGangs] = {}  # by namespace and priority
        self._entries: dict[GangKey, tuple[_SortedGangs, _Entry]] = {}
        self._changed: dict[str, set[GangKey]] = {}

    def add_member(self, key: GangKey, pod: Pod) -> None:
        """Record the label of ``pod``, a new member of the gang ``key``; call ``update`` afterwards."""
        if pod.is_candidate and (namespace_priority := namespace_priority_of(pod.label(NAMESPACE_PRIORITY_LABEL))):
            self._stated.setdefault(key, _StatedPriorities()).add(pod.uid, namespace_priority)

    def remove_member(self, key: GangKey, pod: Pod) -> None:
        """Remove the label of ``pod``, a former member of the gang ``key``; call ``update`` afterwards."""
        if (stated := self._stated.get(key)) is not None:
            stated.discard(pod.uid)

    def update(self, key: GangKey) -> None:
        """Compute a gang's namespace priority again, after all changes of its members and its PodGroup are recorded."""
        stated, old = self._stated.get(key), self._entries.get(key)
        if stated is None:
            return
        new: tuple[_SortedGangs, _Entry] | None = None
        if not stated:
            del self._stated[key]
        elif (known := self._outline(key)) is not None:
            gangs = self._sorted.setdefault((key.namespace, known.priority), _SortedGangs(known.priority))
            new = gangs, _Entry(-stated.highest, known.created, key)
        if new == old:
            return
        changed = self._changed.setdefault(key.namespace, set())
        changed.discard(key)
        if old is not None:
            del self._entries[key]
            old[0].remove(old[1])
        if new is not None:
            self._entries[key] = new
            new[0].add(new[1])
            changed.add(key)
        if old is not None and not old[0]:
            del self._sorted[key.namespace, old[0].priority]

    def changed(self) -> Mapping[str, Collection[GangKey]]:
        """Return the namespaces in which the order of gangs may have changed since the last call.

        Each namespace comes with the gangs whose namespace priority, priority or age has changed. Other gangs of the namespace may have
        moved because of those changes.
        """
        found, self._changed = self._changed, {}
        return found

    def of(self, key: GangKey) -> int:
        """Return a gang's namespace priority: the highest label of its waiting members, 0 if no waiting member has the label."""
        entry = self._entries.get(key)
        return -entry[1].namespace_priority if entry else 0

    def since(self, gang: Gang | Outline) -> float:
        """Return the creation time that counts for a gang's queue position, in seconds since the epoch."""
        gangs = self._sorted.get((gang.key.namespace, gang.priority))
        return gangs.since(self.of(gang.key), gang.created) if gangs else gang.created


@dataclass(slots=True)
class _StatedPriorities:
    """The labels of one gang's waiting members."""

    of: dict[str, int] = field(default_factory=dict)
    """The namespace priority that a member states, by the member's UID."""
    _highest: list[tuple[int, str]] = field(default_factory=list)
    """A heap of (negated namespace priority, UID). An entry that differs from ``of`` is outdated, and dropped when it reaches the top."""

    def __bool__(self) -> bool:
        return bool(self.of)

    def add(self, uid: str, namespace_priority: int) -> None:
        """Record the namespace priority that a member states."""
        self.of[uid] = namespace_priority
        heapq.heappush(self._highest, (-namespace_priority, uid))
        if len(self._highest) > 2 * len(self.of) + _MOST_STALE:
            self._highest = [(-namespace_priority, uid) for uid, namespace_priority in self.of.items()]
            heapq.heapify(self._highest)

    def discard(self, uid: str) -> None:
        """Remove the label of a member, if it is recorded."""
        self.of.pop(uid, None)

    @property
    def highest(self) -> int:
        """The highest namespace priority of a member, 0 if no member states one."""
        while self._highest and self.of.get(self._highest[0][1]) != -self._highest[0][0]:
            heapq.heappop(self._highest)
        return -self._highest[0][0] if self._highest else 0


class _Entry(NamedTuple):
    """A gang's sort key among the gangs of its namespace and priority: the highest namespace priority first, then the oldest gang."""

    namespace_priority: int
    """The gang's namespace priority (``genius/priority``), negated, so that the highest comes first."""
    created: float
    key: GangKey


class _SortedGangs:
    """The gangs of one namespace and one priority, sorted by namespace priority, in blocks of at most 128 gangs.

    Adding or removing a gang reads one block. ``since`` reads one block, and one number of each block before it.
    """

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self._blocks: list[list[_Entry]] = []
        self._firsts: list[_Entry] = []  # the first gang of each block
        self._youngest: list[float] = []  # the latest creation time of each block's gangs

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, entry: _Entry) -> None:
        """Add a gang at the place that its sort key ``entry`` gives it."""
        if not self._blocks:
            self._blocks, self._firsts, self._youngest = [[entry]], [entry], [entry.created]
            return
        position = self._block_of(entry)
        block = self._blocks[position]
        insort(block, entry)
        if len(block) > _BLOCK:
            self._blocks.insert(position + 1, block[_BLOCK // 2 :])
            del block[_BLOCK // 2 :]
            self._firsts.insert(position + 1, entry)
            self._youngest.insert(position + 1, entry.created)
            self._summarize(position + 1)
        self._summarize(position)

    def remove(self, entry: _Entry) -> None:
        """Remove the gang whose sort key is ``entry``. It must have been added with an equal sort key."""
        position = self._block_of(entry)
        block = self._blocks[position]
        del block[bisect_left(block, entry)]
        if block:
            self._summarize(position)
        else:
            del self._blocks[position], self._firsts[position], self._youngest[position]

    def since(self, namespace_priority: int, created: float) -> float:
        """Return the effective creation time of a gang: its own, or just after that of each gang of higher namespace priority."""
        first = _Entry(-namespace_priority, -inf, GangKey("", ""))
        position = bisect_right(self._firsts, first) - 1  # the last block with gangs of higher namespace priority
        if position < 0:
            return created
        block = self._blocks[position]
        higher = block[: bisect_left(block, first)]
        youngest = max([*self._youngest[:position], *(entry.created for entry in higher)])
        # The number of gangs before it is added, since gangs that come after the same youngest gang need different times.
        rank = sum(map(len, self._blocks[:position])) + len(higher)
        return max(created, youngest + rank * ulp(youngest))

    def _block_of(self, entry: _Entry) -> int:
        return max(0, bisect_right(self._firsts, entry) - 1)

    def _summarize(self, position: int) -> None:
        block = self._blocks[position]
        self._firsts[position] = block[0]
        self._youngest[position] = max([entry.created for entry in block])
