"""Unschedulable gangs, indexed by the resource whose release makes a retry worthwhile.

Where the capacity that a gang needs can be counted, the gang is on the capacity waitlist instead.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from allaboard.model.gang import GangKey
from allaboard.queueing.capacity_waitlist import CapacityWaitlist, Slots
from allaboard.records.record import QueueState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn


class Unschedulable:
    """The gangs that wait for a change that may help them. What wakes each gang is in its ``QueueState``."""

    def __init__(self, place: Callable[[GangKey], Order], seats: Slots) -> None:
        self._waitlist = CapacityWaitlist(place, seats)
        self._by_wake_up_key: dict[str | None, dict[GangKey, None]] = {}  # by what they lack; by None where anything helps
        self._woken: dict[GangKey, None] = {}  # for whom something has come free
        self._admitted: Iterator[GangKey] = iter(())  # those for whom there was room when it was last counted
        self._has_admitted = False
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def countable(self, need: CapacityNeed | None) -> CapacityNeed | None:
        """``need``, if who has it is to wait until there is room by count: there is none now, and there are not too many kinds of needs."""
        return need if need and self._waitlist.has_place(need) and not self._waitlist.has_room(need) else None

    def add(self, key: GangKey, state: QueueState, wake_on: WakeUpOn) -> None:
        """Let a gang wait for what it lacks, or for room for what it needs."""
        state.wake_on = wake_on
        self._number += 1
        if state.need is not None:
            self._waitlist.add(key, state.need)
        for resource in wake_on.awaited if state.need is None else ():
            self._by_wake_up_key.setdefault(resource, {})[key] = None

    def discard(self, key: GangKey, state: QueueState) -> None:
        """Let a gang wait no more, if it does."""
        self._woken.pop(key, None)
        if state.wake_on is None:
            return
        if state.need is not None:
            self._waitlist.discard(key, state.need)
        for resource in state.wake_on.awaited if state.need is None else ():
            waiting = self._by_wake_up_key[resource]
            del waiting[key]
            if not waiting:
                del self._by_wake_up_key[resource]
        state.wake_on = state.need = None
        self._number -= 1

    def wake(self, freed: Iterable[str] | None, *, is_only: bool = False) -> None:
        """Wake gangs that lack any of ``freed``, which is None if anything may be free; and gangs that any change may help, unless
        ``is_only`` so much has changed.
        """
        for resource in self._by_wake_up_key if freed is None else freed if is_only else (None, *freed):
            self._woken.update(self._by_wake_up_key.get(resource, {}))
        self._waitlist.is_dirty = True

    def promote(self, namespace: str) -> None:
        """Take into account that the gangs of a namespace may be further to the front now."""
        self._waitlist.promote(namespace)

    @property
    def are_woken(self) -> bool:
        """Whether some have been woken and not been told."""
        return bool(self._woken)

    def woken(self, most: int) -> Iterator[GangKey]:
        """So many of those who have been woken."""
        for key in list(itertools.islice(self._woken, most)):
            del self._woken[key]
            yield key

    def admitted(self, most: int) -> Iterator[GangKey]:
        """So many of those for whom there is room by count; it is counted again when something has come free since."""
        if self._waitlist.is_dirty:
            self._admitted = self._waitlist.admit()
        for key in itertools.islice(self._admitted, most):
            self._has_admitted = True
            yield key

    def recount(self) -> bool:
        """Whether to count once more: whoever was let in and has not taken the seats leaves them to the next."""
        self._waitlist.is_dirty |= self._has_admitted
        is_again, self._has_admitted = self._has_admitted, False
        return is_again
