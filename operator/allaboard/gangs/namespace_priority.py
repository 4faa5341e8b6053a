"""Genius's label ``genius/priority``: the order that a namespace wants among its own gangs.

The label counts among gangs of one namespace and one priority only, for anybody can write it: a less urgent gang stands behind the more
urgent ones, as if it had been made just after them. So urgent gangs never get ahead of another namespace's, and gangs that yield let
others by as well.

Example: of one namespace, gang A (made at 1, without the label) and gang B (made at 3, label 10) wait; of another namespace, gang C (made
at 2). They are placed in the order C, B, A.

A tenant may have thousands of such gangs, and each event changes one of them. Only changed gangs are looked at anew, and the place of a
gang is found without looking at each of the others.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import inf, ulp
from typing import NamedTuple

from allaboard.model.gang import Gang, GangKey, Outline
from allaboard.model.gpu_request import URGENCY_LABEL, urgency_of
from allaboard.model.pod import Pod

_BLOCK = 128  # gangs of a block before it is split
_MOST_STALE = 64  # entries of a heap that stand for nothing any more


class Urgency:
    """The gangs with waiting members that carry the label. ``outline`` gives a gang's priority and age."""

    def __init__(self, outline: Callable[[GangKey], Outline | None]) -> None:
        self._outline = outline
        self._stated: dict[GangKey, _Stated] = {}
        self._levels: dict[tuple[str, int], _Levels] = {}  # by namespace and priority
        self._entries: dict[GangKey, tuple[_Levels, _Entry]] = {}
        self._changed: dict[str, set[GangKey]] = {}

    def joins(self, key: GangKey, pod: Pod) -> None:
        """Take ``pod`` as a member of the gang ``key``."""
        if pod.is_candidate and (urgency := urgency_of(pod.label(URGENCY_LABEL))):
            self._stated.setdefault(key, _Stated()).add(pod.uid, urgency)

    def leaves(self, key: GangKey, pod: Pod) -> None:
        """Take ``pod`` as a member of the gang ``key`` no more."""
        if (stated := self._stated.get(key)) is not None:
            stated.discard(pod.uid)

    def settle(self, key: GangKey) -> None:
        """Give a gang its place once all of a change is known: that of its members, or of its PodGroup."""
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
        """Return the namespaces whose gangs may have another place since the last call, each with the gangs whose labels have changed."""
        found, self._changed = self._changed, {}
        return found

    def of(self, key: GangKey) -> int:
        """Return the urgency of a gang: that of its most urgent waiting member, 0 without the label."""
        entry = self._entries.get(key)
        return -entry[1].urgency if entry else 0

    def since(self, gang: Gang | Outline) -> float:
        """Return the time at which a gang counts as made."""
        levels = self._levels.get((gang.key.namespace, gang.priority))
        return levels.since(self.of(gang.key), gang.created) if levels else gang.created


@dataclass(slots=True)
class _Stated:
    """The urgency that each waiting member of one gang states, by UID."""

    of: dict[str, int] = field(default_factory=dict)
    _most: list[tuple[int, str]] = field(default_factory=list)
    """A heap of the negative urgencies; entries that ``of`` contradicts are dropped at its top."""

    def __bool__(self) -> bool:
        return bool(self.of)

    def add(self, uid: str, urgency: int) -> None:
        """Note what a member states."""
        self.of[uid] = urgency
        heapq.heappush(self._most, (-urgency, uid))
        if len(self._most) > 2 * len(self.of) + _MOST_STALE:
            self._most = [(-urgency, uid) for uid, urgency in self.of.items()]
            heapq.heapify(self._most)

    def discard(self, uid: str) -> None:
        """Forget a member, if it stated anything."""
        self.of.pop(uid, None)

    @property
    def most(self) -> int:
        """The highest urgency that a member states, 0 without one."""
        while self._most and self.of.get(self._most[0][1]) != -self._most[0][0]:
            heapq.heappop(self._most)
        return -self._most[0][0] if self._most else 0


class _Entry(NamedTuple):
    """A gang among those of its namespace and priority, the most urgent first."""

    urgency: int
    """Negative."""
    created: float
    key: GangKey


class _Levels:
    """Gangs of one namespace and priority by urgency, in blocks: a change looks at one block, a question at one figure of each block."""

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self._blocks: list[list[_Entry]] = []
        self._firsts: list[_Entry] = []  # of each block
        self._youngest: list[float] = []  # of each block, when the last of its gangs was made

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, entry: _Entry) -> None:
        """Put a gang in."""
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
        """Take a gang out."""
        at = self._block_of(entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if block:
            self._count(at)
        else:
            del self._blocks[at], self._firsts[at], self._youngest[at]

    def since(self, urgency: int, created: float) -> float:
        """Return when a gang of this urgency counts as made: after all that are more urgent, and the less urgent the later."""
        first = _Entry(-urgency, -inf, GangKey("", ""))
        at = bisect_right(self._firsts, first) - 1  # the last block with more urgent gangs
        if at < 0:
            return created
        block = self._blocks[at]
        more_urgent = block[: bisect_left(block, first)]
        youngest = max([*self._youngest[:at], *(entry.created for entry in more_urgent)])
        # Ranks keep apart those that yield to the same gang.
        rank = sum(map(len, self._blocks[:at])) + len(more_urgent)
        return max(created, youngest + rank * ulp(youngest))

    def _block_of(self, entry: _Entry) -> int:
        return max(0, bisect_right(self._firsts, entry) - 1)

    def _count(self, at: int) -> None:
        block = self._blocks[at]
        self._firsts[at] = block[0]
        self._youngest[at] = max([entry.created for entry in block])
