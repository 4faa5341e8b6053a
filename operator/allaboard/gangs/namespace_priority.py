"""Order a namespace's own gangs by Genius's label ``genius/priority``, their namespace priority.

Any tenant can write the label, so it counts among gangs of one namespace and one priority only. A gang stands behind the gangs of higher
namespace priority as if it had been created just after them. So no gang gets ahead of another namespace's by the label, and gangs that
stand back let other namespaces' gangs pass, too.

Example: gang A (created at 1, without the label) and gang B (created at 3, label 10) wait in one namespace, and gang C (created at 2) in
another. They are placed in the order C, B, A.

A tenant may have thousands of such gangs, and each event changes one of them. Only changed gangs are computed anew, and the place of a
gang is found without a look at each of the others.
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

_BLOCK = 128  # gangs of a block before it is split
_MOST_STALE = 64  # outdated entries of a heap


class NamespacePriority:
    """The gangs with waiting members that have the label. ``outline`` returns a gang's priority and age."""

    def __init__(self, outline: Callable[[GangKey], Outline | None]) -> None:
        self._outline = outline
        self._stated: dict[GangKey, _Stated] = {}
        self._levels: dict[tuple[str, int], _Levels] = {}  # by namespace and priority
        self._entries: dict[GangKey, tuple[_Levels, _Entry]] = {}
        self._changed: dict[str, set[GangKey]] = {}

    def joins(self, key: GangKey, pod: Pod) -> None:
        """Add ``pod`` as a member of the gang ``key``."""
        if pod.is_candidate and (namespace_priority := namespace_priority_of(pod.label(NAMESPACE_PRIORITY_LABEL))):
            self._stated.setdefault(key, _Stated()).add(pod.uid, namespace_priority)

    def leaves(self, key: GangKey, pod: Pod) -> None:
        """Remove ``pod`` as a member of the gang ``key``."""
        if (stated := self._stated.get(key)) is not None:
            stated.discard(pod.uid)

    def settle(self, key: GangKey) -> None:
        """Update the place of a gang after a change of its members or its PodGroup is complete."""
        stated, old = self._stated.get(key), self._entries.get(key)
        if stated is None:
            return
        new: tuple[_Levels, _Entry] | None = None
        if not stated:
            del self._stated[key]
        elif (known := self._outline(key)) is not None:
            levels = self._levels.setdefault((key.namespace, known.priority), _Levels(known.priority))
            new = levels, _Entry(-stated.most, known.created, key)
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
            del self._levels[key.namespace, old[0].priority]

    def changed(self) -> Mapping[str, Collection[GangKey]]:
        """Return the namespaces whose gangs may have moved since the last call, each with the gangs whose labels have changed."""
        found, self._changed = self._changed, {}
        return found

    def of(self, key: GangKey) -> int:
        """Return the namespace priority of a gang: the highest of its waiting members, 0 without the label."""
        entry = self._entries.get(key)
        return -entry[1].namespace_priority if entry else 0

    def since(self, gang: Gang | Outline) -> float:
        """Return the effective creation time of a gang for queue order, in seconds since the epoch."""
        levels = self._levels.get((gang.key.namespace, gang.priority))
        return levels.since(self.of(gang.key), gang.created) if levels else gang.created


@dataclass(slots=True)
class _Stated:
    """The namespace priority that each waiting member of one gang states, by UID."""

    of: dict[str, int] = field(default_factory=dict)
    _most: list[tuple[int, str]] = field(default_factory=list)
    """A heap of (negative namespace priority, UID). Entries that differ from ``of`` are outdated, and dropped when they reach the top."""

    def __bool__(self) -> bool:
        return bool(self.of)

    def add(self, uid: str, namespace_priority: int) -> None:
        """Record the namespace priority that a member states."""
        self.of[uid] = namespace_priority
        heapq.heappush(self._most, (-namespace_priority, uid))
        if len(self._most) > 2 * len(self.of) + _MOST_STALE:
            self._most = [(-namespace_priority, uid) for uid, namespace_priority in self.of.items()]
            heapq.heapify(self._most)

    def discard(self, uid: str) -> None:
        """Remove a member, if it is recorded."""
        self.of.pop(uid, None)

    @property
    def most(self) -> int:
        """The highest namespace priority that a member states, 0 if no member states one."""
        while self._most and self.of.get(self._most[0][1]) != -self._most[0][0]:
            heapq.heappop(self._most)
        return -self._most[0][0] if self._most else 0


class _Entry(NamedTuple):
    """A gang as it is sorted among those of its namespace and priority: the highest namespace priority first."""

    namespace_priority: int
    """Negative."""
    created: float
    key: GangKey


class _Levels:
    """Gangs of one namespace and priority, sorted by namespace priority and stored in blocks.

    A change reads one block, ``since`` one figure of each block.
    """

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self._blocks: list[list[_Entry]] = []
        self._firsts: list[_Entry] = []  # of each block
        self._youngest: list[float] = []  # of each block, the latest creation time of its gangs

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, entry: _Entry) -> None:
        """Add a gang."""
        if not self._blocks:
            self._blocks, self._firsts, self._youngest = [[entry]], [entry], [entry.created]
            return
        at = self._block_of(entry)
        block = self._blocks[at]
        insort(block, entry)
        if len(block) > _BLOCK:
            self._blocks.insert(at + 1, block[_BLOCK // 2 :])
            del block[_BLOCK // 2 :]
            self._firsts.insert(at + 1, entry)
            self._youngest.insert(at + 1, entry.created)
            self._count(at + 1)
        self._count(at)

    def remove(self, entry: _Entry) -> None:
        """Remove a gang."""
        at = self._block_of(entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if block:
            self._count(at)
        else:
            del self._blocks[at], self._firsts[at], self._youngest[at]

    def since(self, namespace_priority: int, created: float) -> float:
        """Return the effective creation time of a gang: later than that of every gang of higher namespace priority."""
        first = _Entry(-namespace_priority, -inf, GangKey("", ""))
        at = bisect_right(self._firsts, first) - 1  # the last block with gangs of higher namespace priority
        if at < 0:
            return created
        block = self._blocks[at]
        higher = block[: bisect_left(block, first)]
        youngest = max([*self._youngest[:at], *(entry.created for entry in higher)])
        # Ranks keep gangs apart that stand behind the same gang.
        rank = sum(map(len, self._blocks[:at])) + len(higher)
        return max(created, youngest + rank * ulp(youngest))

    def _block_of(self, entry: _Entry) -> int:
        return max(0, bisect_right(self._firsts, entry) - 1)

    def _count(self, at: int) -> None:
        block = self._blocks[at]
        self._firsts[at] = block[0]
        self._youngest[at] = max([entry.created for entry in block])
