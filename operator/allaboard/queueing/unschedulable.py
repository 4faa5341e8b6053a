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
    """The gangs that wait for a change that may help them. The changes that wake each gang are in its ``QueueState``."""

    def __init__(self, place: Callable[[GangKey], Order], slots: Slots) -> None:
        self._waitlist = CapacityWaitlist(place, slots)
        self._by_wake_up_key: dict[str | None, dict[GangKey, None]] = {}  # None for gangs that any change may help
        self._woken: dict[GangKey, None] = {}  # gangs for which something was freed
        self._admitted: Iterator[GangKey] = iter(())  # gangs that fitted at the last count
        self._has_admitted = False
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def countable(self, need: CapacityNeed | None) -> CapacityNeed | None:
        """Return ``need`` if the gang is to wait on the capacity waitlist, else None.

        It is if counting finds too little capacity now, and if the waitlist has not too many different needs.
        """
        return need if need and self._waitlist.has_place(need) and not self._waitlist.has_room(need) else None

    def add(self, key: GangKey, state: QueueState, wake_on: WakeUpOn) -> None:
        """Make a gang wait for what it lacks, or for the capacity that it needs."""
        state.wake_on = wake_on
        self._number += 1
        if state.need is not None:
            self._waitlist.add(key, state.need)
        for resource in wake_on.awaited if state.need is None else ():
            self._by_wake_up_key.setdefault(resource, {})[key] = None

    def discard(self, key: GangKey, state: QueueState) -> None:
        """Remove a gang, if it waits."""
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
        """Wake gangs that lack any of ``freed``, and gangs that any change may help.

        ``freed`` is None if anything may be free. ``is_only``: nothing else has changed, so gangs that any change may help stay.
        """
        for resource in self._by_wake_up_key if freed is None else freed if is_only else (None, *freed):
            self._woken.update(self._by_wake_up_key.get(resource, {}))
        self._waitlist.is_dirty = True

    def promote(self, namespace: str) -> None:
        """Take into account that gangs of a namespace may have moved to the front."""
        self._waitlist.promote(namespace)

    @property
    def are_woken(self) -> bool:
        """Whether gangs have been woken and not been yielded."""
        return bool(self._woken)

    def woken(self, most: int) -> Iterator[GangKey]:
        """Yield and remove ``most`` of the gangs that have been woken."""
        for key in list(itertools.islice(self._woken, most)):
            del self._woken[key]
            yield key

    def admitted(self, most: int) -> Iterator[GangKey]:
        """Yield ``most`` of the gangs that fit by count; counts again if capacity was freed since."""
        if self._waitlist.is_dirty:
            self._admitted = self._waitlist.admit()
        for key in itertools.islice(self._admitted, most):
            self._has_admitted = True
            yield key

    def recount(self) -> bool:
        """Return whether to count again: an admitted gang that wasn't placed leaves the capacity to the next."""
        self._waitlist.is_dirty |= self._has_admitted
        is_again, self._has_admitted = self._has_admitted, False
        return is_again
