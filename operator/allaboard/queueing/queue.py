"""The queue: it decides which gang is attempted next, and when a refused gang is attempted again.

A gang is *active* (due), in *backoff* after a failure, or *unschedulable* until some of what it lacks may have been freed. Unschedulable
gangs are also retried every five minutes, in case an event was missed. When no gang is due, the waiting gang with the oldest out-of-date
message is attempted.

- **Backoff.** Each failed attempt doubles the backoff, up to a bound. A woken gang in backoff still goes before gangs of a lower priority.
  If this scheduler left it partially bound, it also goes before other gangs of its priority. Neither holds while the backoff is *hard*: the
  gang has failed several times although there was capacity, or the API server has asked for the backoff.
- **Search time.** Gangs of a namespace that has used much search time go behind other gangs of their priority.
- **Reservations.** A gang for which capacity is reserved becomes due when that capacity is free (``ready``), in a soft backoff or not.
- **Assumed capacity.** When capacity that was assumed for other gangs is returned, gangs that were refused before end their backoff.
  Otherwise another gang whose binds always fail could take the capacity at each attempt.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping

from allaboard.model.gang import GangKey
from allaboard.queueing.capacity_waitlist import Slots, unlimited_slots
from allaboard.queueing.heap import LazyHeap
from allaboard.queueing.order import order_of_gone
from allaboard.queueing.refresh import MessageRefresh
from allaboard.queueing.requeue import CapacityChange, Freed, Reason, Requeue, Returned, Taken
from allaboard.queueing.timers import Timers
from allaboard.queueing.unschedulable import Unschedulable
from allaboard.records.backoff import BACKOFF, Backoff
from allaboard.records.record import GangRecords, QueueState
from allaboard.records.sort_key import Order
from allaboard.records.wake_up import ANYTHING, CapacityNeed, WakeUpOn

_FLUSH_SECONDS = 300.0  # kube-scheduler's podMaxInUnschedulablePodsDuration.
_BLIPS = 3  # Failures in a row that passing faults of the API server may cause; more make the backoff hard.
_SLICE = 500  # Gangs that are handled at once, before other tasks run: some milliseconds.

_NO_STATE = QueueState()  # the state of a gang without a record; never written


class GangQueue:
    """The gangs that are active, in backoff, or unschedulable.

    ``order`` returns a gang's queue position. ``slots`` counts free capacity. ``exists`` returns whether a gang exists. A gang that
    no longer exists is due once more, so that its state is deleted. Each gang's state is the ``queue`` of its record in ``records``.
    ``changes`` counts the changes that may have freed capacity.
    """

    def __init__(
        self,
        order: Callable[[GangKey], Order],
        exists: Callable[[GangKey], bool] = lambda key: True,
        records: GangRecords | None = None,
        *,
        backoff: Backoff = BACKOFF,
        slots: Slots = unlimited_slots,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._order = order
        self._exists = exists
        self._records = GangRecords() if records is None else records
        self._backoff = backoff
        self._clock = clock
        self._active = LazyHeap(self._order_of)
        self._in_backoff = LazyHeap(self._order_of)
        self._timers = Timers(self._read_state, clock)
        self._unschedulable = Unschedulable(self._order_of, slots)
        self._promoted: dict[GangKey, None] = {}  # Gangs that may have moved to the front because they changed.
        self._changed = asyncio.Event()
        self._returned_at = -math.inf  # when assumed capacity was last returned
        self.ready: Callable[[], Iterable[GangKey]] = tuple  # returns the gangs whose reserved capacity is free
        self._refresh = MessageRefresh(self._read_state, clock)
        self.changes = 0

    def _read_state(self, key: GangKey) -> QueueState:
        """Return a gang's state for reading. The caller must not change it."""
        record = self._records.find(key)
        return record.queue if record else _NO_STATE

    def _state(self, key: GangKey) -> QueueState:
        return self._records.of(key).queue

    def sizes(self) -> Mapping[str, int]:
        """Return the numbers of gangs that are active, in backoff and unschedulable, under kube-scheduler's names."""
        unschedulable = len(self._unschedulable)
        return {"active": len(self._active), "backoff": max(0, len(self._timers) - unschedulable), "unschedulable": unschedulable}

    def mark(self, key: GangKey) -> None:
        """Make a gang due after a change of the gang itself: at once, or when its backoff ends."""
        if key in self._active:
            self._promoted[key] = None  # for instance an older member has come; many such changes make one entry
            return
        now, state = self._clock(), self._read_state(key)
        not_before = self._backoff_end(state)
        if state.need is None or not_before <= now or not self._exists(key):
            self._stop_waiting(key)  # otherwise the gang stays on the waitlist, which may make it due before its backoff ends
        if not self._exists(key):
            # A later gang of this name begins with an empty state.
            self._forget(key)
            state, not_before = self._read_state(key), 0.0
        if not_before > now:
            self._set_timer(key, not_before)
            if key not in self._in_backoff and not state.is_hard:
                self._in_backoff.push(key)
        else:
            self._activate(key)

    def observe(self, change: CapacityChange) -> None:
        """Make the gangs due that may fit after a change of capacity: the first 500 at once, and all of them when ``drain`` returns."""
        match change:
            case Freed(resources=resources):
                self._unschedulable.wake(resources, is_only=change.is_only)
                self._after_wake()
            case Taken():
                self._make_stale()
            case Returned():
                self._return_capacity()

    def _after_wake(self) -> None:
        self.changes += 1
        self._make_stale()
        self._drain_some()

    def _make_stale(self) -> None:
        """Record that the messages of waiting gangs may be out of date."""
        self._refresh.changed()
        self._changed.set()

    async def drain(self) -> None:
        """Move all woken gangs to the active or backoff heap, then admit gangs from the capacity waitlist. Other tasks run in between."""
        moved = len(self._promoted)  # gangs that move while this call runs are handled by the next call
        while self._unschedulable.are_woken or moved > 0:
            self._drain_some()
            moved -= _SLICE
            await asyncio.sleep(0)
        while self._admit():  # noqa: ASYNC110  # there is no event to await: each call admits more gangs
            await asyncio.sleep(0)

    def wake(self, key: GangKey) -> None:
        """Make a gang due now that waits, for instance since capacity that is reserved for it is free. A hard backoff goes on."""
        if self._exists(key) and key not in self._active and not self._read_state(key).is_hard:
            self._stop_waiting(key)
            self._activate(key)

    def _admit(self) -> bool:
        """Make up to 500 waitlisted gangs due that fit by count. Return whether more may fit. Counts again only if capacity was freed."""
        if self._unschedulable.is_dirty:
            for key in self.ready():
                self.wake(key)
        admitted = list(self._unschedulable.admitted(_SLICE))
        for key in admitted:
            self._stop_waiting(key)
            if self._read_state(key).is_hard:
                self.mark(key)
            else:
                self._activate(key)
        return len(admitted) == _SLICE

    def _drain_some(self) -> None:
        for key in self._unschedulable.woken(_SLICE):
            self.mark(key)
        for key in _take_some(self._promoted):
            if key in self._in_backoff and self._backoff_end(self._read_state(key)) <= self._clock():
                self._activate(key)
            for heap in (self._active, self._in_backoff):
                if key in heap:
                    heap.push(key)
        if self._unschedulable.are_woken:
            self._changed.set()

    def requeue(self, key: GangKey, requeue: Requeue, *, seen: int | None = None) -> None:
        """Put a gang back into the queue. ``seen`` is the value of ``changes`` when its attempt began; None for the current value."""
        seen, wake_on, retry_by = self.changes if seen is None else seen, requeue.wake_on, requeue.retry_by
        match requeue.reason:
            case Reason.REFUSED:
                self._refuse(key, wake_on, seen=seen, retry_by=retry_by, need=requeue.need)
            case Reason.FAILED:
                self._fail(key, wake_on, seen=seen, retry_by=retry_by, at_least=requeue.seconds)
            case Reason.SEARCHING:
                self._back_off(key, wake_on, seen=seen, retry_by=retry_by)
            case Reason.WAITING:
                self._wait_for_change(key, wake_on, seen=seen, retry_by=retry_by)
            case Reason.AGAIN:
                self._retry(key, requeue.seconds, is_hard=requeue.is_hard)
            case Reason.RESUMED:
                self._resume(key, requeue.seconds)
            case Reason.NOW:
                self.mark(key)
            case Reason.SETTLED:
                self._settle(key)
            case Reason.GONE:
                self._forget(key)

    def _refuse(
        self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None, need: CapacityNeed | None = None
    ) -> None:
        """Record that there was no capacity for the gang. ``wake_on``, ``seen`` and ``retry_by`` are as for ``_fail``.

        A gang with a ``need`` goes to the capacity waitlist, unless counting finds enough capacity although the gang was refused.
        """
        self._count_failure(key)
        state = self._state(key)
        state.is_hard = False
        self._stop_waiting(key)
        if need is not None and len(need.pods) == 1 and self.changes != seen and self._unschedulable.fits(need):
            state.not_before = self._clock()  # for one kind of pods counting is exact: capacity was freed during the search
            self.mark(key)
            return
        state.need = self._unschedulable.countable(need)
        self._back_off(key, wake_on, seen=seen, retry_by=retry_by, until=self._refresh.refused(key, state))

    def _return_capacity(self) -> None:
        """Record that assumed capacity was returned. Gangs that were refused before are due again."""
        self._returned_at = self._clock()
        self._unschedulable.wake(None)
        self._promoted.update(dict.fromkeys(self._in_backoff.members))
        self._after_wake()

    def _backoff_end(self, state: QueueState) -> float:
        """Return the end of a gang's backoff. A refusal has no backoff once capacity that was assumed at that time is returned."""
        is_lifted = not state.is_hard and state.message_from is not None and state.message_from <= self._returned_at
        return min(state.not_before, self._returned_at) if is_lifted else state.not_before

    def _fail(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None, at_least: float = 0.0) -> None:
        """Count a failure, and begin the gang's backoff: at least ``at_least`` seconds, but at most the longest backoff.

        ``wake_on`` are the changes that wake the gang. ``seen`` is the value of ``changes`` when the attempt began. ``retry_by`` is the
        latest time of the next attempt, but not before the end of the backoff; None for the queue's own limit.
        """
        self._count_failure(key)
        self._state(key).message_from = None
        self._back_off(key, wake_on, seen=seen, retry_by=retry_by, at_least=at_least)
        state = self._state(key)  # read again, since the gang may have been deleted by the call before
        if at_least or state.attempts > _BLIPS:
            state.is_hard = True
            self._in_backoff.discard(key)
            self._move_if_active(key)

    def _count_failure(self, key: GangKey) -> None:
        self._state(key).attempts += 1

    def _move_if_active(self, key: GangKey) -> None:
        """If the gang is active, take it from the active gangs, and make it due again at the end of its new backoff."""
        if key in self._active:
            self._active.discard(key)
            self.mark(key)

    def _back_off(
        self,
        key: GangKey,
        wake_on: WakeUpOn,
        *,
        seen: int,
        retry_by: float | None = None,
        at_least: float = 0.0,
        until: float | None = None,
    ) -> None:
        """Begin a backoff without counting a failure: until ``until``, or if that is None as long as after the last failure."""
        state = self._state(key)
        if until is None:
            until = self._clock() + min(self._backoff.longest, max(at_least, self._backoff.after(max(1, state.attempts))))
        state.not_before = max(until, state.not_before) if state.is_hard else until
        self._wait_for_change(key, wake_on, seen=seen, retry_by=retry_by)

    def _wait_for_change(self, key: GangKey, wake_on: WakeUpOn, *, seen: int, retry_by: float | None = None) -> None:
        """Make the gang unschedulable until ``wake_on`` happens, without counting a failure. The other parameters are as in ``_fail``."""
        state = self._state(key)
        if not self._exists(key):
            self.mark(key)
            return
        # A gang that is in the backoff heap has changed during its attempt.
        # If capacity was freed during the attempt, it may be enough. The gang is due at the end of its backoff.
        if (state.need is None and self.changes != seen) or key in self._in_backoff:
            retry_by = self._clock()
        if state.wake_on is not None:
            self._stop_waiting(key)
        self._unschedulable.add(key, state, wake_on)
        flush = self._clock() + _FLUSH_SECONDS
        self._set_timer(key, max(self._backoff_end(state), flush if retry_by is None else min(flush, retry_by)))

    def _retry(self, key: GangKey, seconds: float, *, is_hard: bool = False) -> None:
        """Retry the gang after ``seconds`` at the latest, without counting a failure. If ``is_hard``, no event makes it due earlier."""
        state, when = self._state(key), self._clock() + seconds
        if is_hard:
            state.not_before, state.is_hard = when, True
            self._active.discard(key)
            self._in_backoff.discard(key)
        self._set_timer(key, when if is_hard or state.due_at is None else min(when, state.due_at))

    def _resume(self, key: GangKey, seconds: float) -> None:
        """Retry the gang after other work, in ``seconds`` at most. A hard backoff goes on, and freed capacity wakes the gang."""
        state = self._read_state(key)
        if not state.is_hard and key not in self._active and key not in self._in_backoff:
            self._wait_for_change(key, ANYTHING, seen=self.changes)
            self._set_timer(key, self._clock() + seconds)
        else:
            self._retry(key, max(seconds, state.not_before - self._clock()) if state.is_hard else seconds)

    def _settle(self, key: GangKey) -> None:
        """Reset the state of a gang whose attempt has succeeded. If the gang has changed since it was popped, it is due again."""
        state = self._read_state(key)
        is_marked = key in self._in_backoff or (state.due_at is not None and state.wake_on is None)
        self._stop_waiting(key)
        self._stop_timer(key)
        self._in_backoff.discard(key)
        if (record := self._records.find(key)) is not None:
            record.queue = QueueState()
        if is_marked:
            self.mark(key)

    def _forget(self, key: GangKey) -> None:
        """Delete the state of a gang that no longer exists."""
        self._settle(key)
        if (record := self._records.find(key)) is not None:
            record.last_binds.clear()

    def peek(self) -> GangKey | None:
        """Return the gang to attempt next: the first active gang, or a gang in backoff that goes before it; None if no gang is active."""
        found = self._next()
        return found[1].key if found else None

    def pop(self, *, beside: GangKey | None = None) -> GangKey | None:
        """Remove and return the gang to attempt next, as ``peek`` does.

        ``beside`` is a gang that was popped before. A gang in backoff that goes before ``beside`` is then also returned if no gang is
        active.
        """
        found = self._next(beside)
        if found is None:
            return None
        heap, key = found[0], found[1].key
        heap.discard(key)
        self._stop_waiting(key)
        self._stop_timer(key)
        if self._exists(key):
            self._refresh.begin_attempt(self._state(key))
        return key

    def outranks(self, key: GangKey) -> bool:
        """Return whether a gang that is due or in backoff goes before the popped gang ``key``, and not only because it is older.

        Before that, gangs of the capacity waitlist are admitted: the plan for ``key`` may use capacity that was freed since for a gang that
        goes before ``key``.
        """
        self._admit()
        found = self._next(key)
        return found is not None and found[1].rank_key < self._order(key).rank_key

    def promote(self, changed: Mapping[str, Iterable[GangKey]]) -> None:
        """Sort again, since gangs of the ``changed`` namespaces may now rank before others; the gangs listed there changed themselves."""
        for namespace, keys in changed.items():
            self._promoted.update(dict.fromkeys(keys))
            for heap in (self._active, self._in_backoff, self._unschedulable):
                heap.promote(namespace)

    def put_back(self, keys: Iterable[GangKey]) -> None:
        """Make gangs due again that were popped but not attempted."""
        for key in keys:
            if key not in self._active:
                self._activate(key)

    def _next(self, beside: GangKey | None = None) -> tuple[LazyHeap, Order] | None:
        """Return the heap of the gang to attempt next, and the gang's position; None if no gang is to be attempted.

        It is the backoff heap if the first gang there has a lesser ``standing_key`` than ``beside`` and than the first active gang.
        """
        self._expire_timers()
        active = self._active.first() if self._active else None
        if self._in_backoff:
            compared = [] if active is None else [active]
            compared += [self._order_of(beside)] if beside is not None else []
            waiting = self._in_backoff.first()
            if compared and waiting.standing_key < min(compared).standing_key:
                return self._in_backoff, waiting
        return (self._active, active) if active is not None else None

    async def wait(self) -> None:
        """Wait until a gang is due."""
        while True:
            await self.drain()
            self._expire_timers()
            if self._active:
                return
            if self._unschedulable.recount():
                continue
            if self._refresh_oldest():
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(self._seconds_to_sleep):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _refresh_oldest(self) -> bool:
        """Make the gang with the oldest out-of-date message due, without counting a failure. Return whether there was such a gang."""
        key = self._refresh.take()
        if key is None or self._read_state(key).is_hard or not self._exists(key):
            return False
        state = self._state(key)
        state.attempts = max(0, state.attempts - 1)
        self._stop_waiting(key)
        self._activate(key)
        return True

    @property
    def _seconds_to_sleep(self) -> float | None:
        """Seconds until the next timer or refresh; None without either."""
        return min((seconds for seconds in (self._timers.seconds, self._refresh.seconds) if seconds is not None), default=None)

    def _order_of(self, key: GangKey) -> Order:
        return self._order(key) if self._exists(key) else order_of_gone(key)

    def _stop_waiting(self, key: GangKey) -> None:
        self._unschedulable.discard(key, self._read_state(key))

    def _activate(self, key: GangKey) -> None:
        self._stop_timer(key)
        self._in_backoff.discard(key)
        self._active.push(key)
        self._changed.set()

    def _set_timer(self, key: GangKey, when: float) -> None:
        state = self._state(key)
        if key in self._active or state.due_at == when:
            return
        self._timers.set(key, state, when)
        self._changed.set()

    def _stop_timer(self, key: GangKey) -> None:
        self._timers.stop(self._read_state(key))

    def _expire_timers(self) -> None:
        for key in self._timers.expired():
            self._stop_waiting(key)
            self._activate(key)


def _take_some(keys: dict[GangKey, None]) -> Iterable[GangKey]:
    """Yield and remove the first of ``keys``, at most 500."""
    for key in list(itertools.islice(keys, _SLICE)):
        del keys[key]
        yield key
