"""The unschedulable gangs, which wait until capacity is freed that may be enough for them.

A gang whose need can be counted is on the capacity waitlist. The other gangs are indexed by the resources that they lacked, so that freed
capacity wakes only gangs that it may help.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from allaboard.model.gang import GangKey
from allaboard.queueing.capacity_waitlist import CapacityWaitlist, Slots
from allaboard.records.record import QueueState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import CapacityNeed, WakeUpOn


class Unschedulable:
    """The gangs that wait for a change of the cluster. The changes that wake a gang are ``wake_on`` and ``need`` of its ``QueueState``."""

    def __init__(self, order: Callable[[GangKey], Order], slots: Slots) -> None:
        self._waitlist = CapacityWaitlist(order, slots)
        self._by_wake_up_key: dict[str | None, dict[GangKey, None]] = {}  # The key None has gangs that any change may help.
        self._woken: dict[GangKey, None] = {}  # Woken gangs that weren't yielded yet.
        self._admitted: Iterator[GangKey] = iter(())  # Gangs that fitted at the last count.
        self._has_admitted = False  # True if a gang was admitted since ``recount`` was last called.
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def countable(self, need: CapacityNeed | None) -> CapacityNeed | None:
        """Return ``need`` if the gang is to wait on the capacity waitlist, else None.

        A gang is to wait on the waitlist if counting finds too little capacity now, and the waitlist can take another need.
        """
        return need if need and self._waitlist.can_add(need) and not self.fits(need) else None

    def fits(self, need: CapacityNeed) -> bool:
        """Return whether counting finds enough free capacity for ``need``."""
        return self._waitlist.may_fit(need)

    def add(self, key: GangKey, state: QueueState, wake_on: WakeUpOn) -> None:
        """Make a gang wait: for the capacity ``state.need`` if that is set, else for the changes ``wake_on``."""
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
        """Wake the gangs that lack any of the resources ``freed``, and the gangs that any change may help.

        ``freed`` is None if any resource may be free. ``is_only``: nothing else has changed, so gangs that any change may help aren't
        woken.
        """
        for resource in self._by_wake_up_key if freed is None else freed if is_only else (None, *freed):
            self._woken.update(self._by_wake_up_key.get(resource, {}))
        self._waitlist.is_dirty = True

    def promote(self, namespace: str) -> None:
        """Sort again, since gangs of ``namespace`` may now rank before other gangs: for example, their search time has faded."""
        self._waitlist.promote(namespace)

    @property
    def is_dirty(self) -> bool:
        """True if capacity was freed since the last count."""
        return self._waitlist.is_dirty

    @property
    def are_woken(self) -> bool:
        """True if woken gangs are still to be yielded."""
        return bool(self._woken)

    def woken(self, most: int) -> Iterator[GangKey]:
        """Yield woken gangs, at most ``most``, and no longer count them as woken."""
        for key in list(itertools.islice(self._woken, most)):
            del self._woken[key]
            yield key

    def admitted(self, most: int) -> Iterator[GangKey]:
        """Yield gangs of the waitlist that fit by count, at most ``most``.

        Capacity is counted again if some was freed since the last count.
        """
        if self._waitlist.is_dirty:
            self._admitted = self._waitlist.admit()
        for key in itertools.islice(self._admitted, most):
            self._has_admitted = True
            yield key

    def recount(self) -> bool:
        """Return whether capacity must be counted again: gangs were admitted since the last call, and may have left capacity free."""
        self._waitlist.is_dirty |= self._has_admitted
        must_recount, self._has_admitted = self._has_admitted, False
        return must_recount
